#include "reel/ops/rnn.h"

#include <algorithm>

#include "lib/ops/ragged.h"
#include "lib/ops/rnn_layer.h"

namespace reel {
namespace {

using namespace recurrent;

constexpr Formula kLstm{"lstm", "lstm_cell", "lstm(lengths)", Recurrence::kLstm},
    kGru{"gru", "gru_cell", "gru(lengths)", Recurrence::kGru},
    kRnnTanh{"rnn_tanh", "rnn_tanh_cell", "rnn_tanh(lengths)", Recurrence::kTanh},
    kRnnRelu{"rnn_relu", "rnn_relu_cell", "rnn_relu(lengths)", Recurrence::kRelu};

/// Validates the parameters of a layer against `in.x()`, stores them in `in`, and returns the layer's configuration.
RnnLayerConfig take_parameters(const char* op, const Formula& formula, StepSizes steps, bool one_step, int directions,
                               bool bias, std::span<const Tensor> parameters, LayerInputs& in) {
  const Tensor& x = in.x();
  const size_t each = parameters.size() / directions;
  const int64_t gates = gate_count(formula.kind);
  RnnLayerConfig layer{&formula, std::move(steps), directions, one_step, 0, 0};
  for (int d = 0; d < directions; ++d) {
    const std::span<const Tensor> own = parameters.subspan(d * each, each);
    for (const Tensor& p : own) {
      REEL_CHECK(view_of(p, op).dtype == view_of(x).dtype, op, ": an input of ", x.dtype(), " and a parameter of ",
                 p.dtype());
      REEL_CHECK(p.device() == x.device(), op, ": an input on ", x.device(), " and a parameter on ", p.device());
    }
    const Shape &ih = view_of(own[0]).shape, &hh = view_of(own[1]).shape;
    const bool projected = each == (bias ? 5 : 3);
    if (d == 0) {
      REEL_CHECK(ih.size() == 2 && ih[0] % gates == 0 && ih[1] == x.size(1), op, ": weight_ih of shape ", ih,
                 " is not [", gates, " hidden, ", x.size(1), "]");
      layer.hidden = ih[0] / gates;
      layer.width = projected && own.back().dim() == 2 ? own.back().size(0) : layer.hidden;
    }
    const auto check = [&](const char* name, const Shape& got, const Shape& expected) {
      REEL_CHECK(got == expected, op, ": ", name, " of shape ", got, ", not ", expected);
    };
    check("weight_ih", ih, {layer.gates(), x.size(1)});
    check("weight_hh", hh, {layer.gates(), layer.width});
    if (bias) check("bias_ih", own[2].shape(), {layer.gates()});
    if (bias) check("bias_hh", own[3].shape(), {layer.gates()});
    if (projected) check("weight_hr", own.back().shape(), {layer.width, layer.hidden});
    const auto put = [&](Parameter p, const Tensor& tensor) { in.all[LayerInputs::index(d, p)] = tensor.contiguous(); };
    put(kWeightIh, own[0]), put(kWeightHh, own[1]);
    if (bias) put(kBiasIh, own[2]), put(kBiasHh, own[3]);
    if (projected) put(kWeightHr, own.back());
  }
  return layer;
}

void check_state(const char* op, const char* name, const Tensor& state, const Shape& shape, const Tensor& x) {
  if (!state.defined()) return;
  check_device(op, x, {&state});
  REEL_CHECK(state.shape() == shape, op, ": ", name, " of shape ", state.shape(), ", not ", shape);
  REEL_CHECK(state.dtype() == x.dtype(), op, ": an input of ", x.dtype(), " and a state of ", state.dtype());
}

// ---- layers ---------------------------------------------------------------------------------------------------------

/// All layers over x [total, in]; states are [layers · directions, n, …], in the order of the rows.
LayerResult run_layers(const Formula& formula, Tensor x, const StepSizes& steps, const CellState& state,
                       std::span<const Tensor> parameters, const RecurrentOptions& options) {
  const char* op = formula.op;
  const bool lstm = formula.kind == Recurrence::kLstm;
  const int64_t layers = options.num_layers;
  const int directions = options.bidirectional ? 2 : 1;
  REEL_CHECK(is_floating_point(view_of(x).dtype), op, ": an input of ", x.dtype());
  REEL_CHECK(layers > 0, op, ": ", layers, " layers");
  check_dropout(op, options);
  const int64_t given = static_cast<int64_t>(parameters.size()), slots = layers * directions;
  const int64_t each = given / slots, least = options.bias ? 4 : 2;
  REEL_CHECK(given == each * slots && (each == least || (lstm && each == least + 1)), op, ": ", given,
             " parameters for ", layers, " layers in ", directions, " directions, with ", least, " each",
             lstm ? ", one more if there is a projection" : "");
  const bool has_state = state.h.defined() || state.c.defined();
  // One for all steps of a sequence (Gal & Ghahramani 2016), or none.
  const auto mask_of = [&](double p, int64_t columns) {
    if (!options.training || p == 0) return Tensor();
    return dropout(ones({steps.rows, columns}, {.dtype = x.dtype(), .device = x.device()}), p);
  };
  std::vector<Tensor> h, c;
  for (int64_t l = 0; l < layers; ++l) {
    LayerInputs in;
    in.all[kX] = masked_rows(steps, x, mask_of(options.input_dropout, x.size(1))).contiguous();
    const RnnLayerConfig layer = take_parameters(op, formula, steps, false, directions, options.bias,
                                                 parameters.subspan(l * directions * each, directions * each), in);
    const auto first = [&](const char* name, const Tensor& all, int64_t columns) {
      check_state(op, name, all, {slots, steps.rows, columns}, x);
      if (!all.defined() && lstm && has_state)  // the other one is given
        return zeros({directions, steps.rows, columns}, {.dtype = x.dtype(), .device = x.device()});
      if (!all.defined()) return all;
      return (layers == 1 ? all : all.narrow(0, l * directions, directions)).contiguous();
    };
    in.all[kH] = first("h", state.h, layer.width);
    in.all[kC] = first("c", state.c, layer.hidden);
    for (int d = 0; d < directions; ++d)
      in.all[LayerInputs::index(d, kStateMask)] = mask_of(options.recurrent_dropout, layer.width);
    const LayerResult result = run_layer(layer, in);
    h.push_back(result.h), c.push_back(result.c);
    x = l + 1 < layers ? dropout(result.y, options.dropout, options.training) : result.y;
  }
  if (layers == 1) return {x, h[0], c[0]};
  return {x, cat(h), lstm ? cat(c) : Tensor()};
}

// ---- the forms of input ---------------------------------------------------------------------------------------------

CellState map(const CellState& state, const auto& f) {
  return {state.h.defined() ? f(state.h) : Tensor(), state.c.defined() ? f(state.c) : Tensor()};
}

LSTMResult<Tensor> run_padded(const Formula& formula, const Tensor& x, const CellState& state,
                              std::span<const Tensor> parameters, const RecurrentOptions& options) {
  const Op op = formula.op;
  const Shape shape = view_of(x, op).shape;
  REEL_CHECK(shape.size() == 2 || shape.size() == 3, op, ": expected an input [len, in] or [len, n, in], got shape ",
             shape);
  const bool one = shape.size() == 2, swapped = !one && options.batch_first;
  const int64_t len = shape[swapped ? 1 : 0], n = one ? 1 : shape[swapped ? 0 : 1];
  REEL_CHECK(len > 0, op, ": a sequence of length 0, the input's shape is ", shape);
  if (one)
    for (const Tensor* s : {&state.h, &state.c})
      REEL_CHECK(!s->defined() || s->dim() == 2, op, ": an input of shape ", shape, " and a state of shape ",
                 s->shape());
  const CellState first = one ? map(state, [](const Tensor& s) { return s.unsqueeze(1); }) : state;
  const Tensor rows = one ? x : (swapped ? x.transpose(0, 1).contiguous() : x).flatten(0, 1);
  const LayerResult result = run_layers(formula, rows, {len, n, len * n, {}}, first, parameters, options);
  if (one) return {result.y, map({result.h, result.c}, [](const Tensor& s) { return s.squeeze(1); })};
  const Tensor y = result.y.view({len, n, result.y.size(1)});
  return {swapped ? y.transpose(0, 1) : y, {result.h, result.c}};
}

LSTMResult<Tensor> over(const Formula& formula, const Tensor& x, const CellState& state,
                        std::span<const Tensor> parameters, const RecurrentOptions& options) {
  const Op op = formula.op;
  view_of(x, op);
  const bool drops = options.training && options.dropout + options.input_dropout + options.recurrent_dropout > 0;
  return call(op, {x, state.h, state.c}, parameters,
              {{"layers", options.num_layers},
               {"bias", options.bias},
               {"batch_first", options.batch_first},
               {"bidirectional", options.bidirectional},
               {"dropout", drops}},
              [&](const Tensor& x, const Tensor& h, const Tensor& c, std::span<const Tensor> parameters) {
                return run_padded(formula, x, {h, c}, parameters, options);
              });
}

LSTMResult<Tensor> run_packed(const Formula& formula, const PackedSequence& x, const CellState& state,
                              std::span<const Tensor> parameters, const RecurrentOptions& options) {
  const Op op = formula.op;
  const Shape& shape = view_of(x.data, op).shape;
  REEL_CHECK(shape.size() == 2, op, ": packed data of shape ", shape, ", not [total, in]");
  const View& sizes = view_of(x.batch_sizes, op);
  REEL_CHECK(sizes.dtype == kInt64 && sizes.shape.size() == 1 && sizes.numel > 0 && x.batch_sizes.device() == kCPU, op,
             ": batch_sizes are ", sizes.dtype, " ", sizes.shape, " on ", x.batch_sizes.device(),
             ", not int64 [steps] on cpu");
  // A copy, since backward reads it, too: the caller may change or reuse the tensor by then.
  const Tensor list = make_tensor(sizes.shape, kInt64);
  kernels_of(list).copy(sizes, view_of(list));
  StepSizes steps{sizes.numel, list.data<int64_t>()[0], 0, list};
  for (int64_t t = 0; t < steps.count; ++t) {
    const int64_t n = steps.at(t);
    REEL_CHECK(n > 0 && (t == 0 || n <= steps.at(t - 1)), op, ": batch_sizes[", t, "] is ", n, " after ",
               t ? steps.at(t - 1) : 0);
    REEL_CHECK(!__builtin_add_overflow(steps.total, n, &steps.total), op, ": batch_sizes[", t, "] is ", n,
               "; no data has as many rows");
  }
  REEL_CHECK(steps.total == shape[0], op, ": data of shape ", shape, " with batch_sizes that add up to ", steps.total);
  const auto ordered = [](const Tensor& ids) {
    return [ids](const Tensor& s) { return ids.defined() ? index_select(s, 1, ids) : s; };
  };
  for (const Tensor* s : {&state.h, &state.c})
    REEL_CHECK(!s->defined() || (s->dim() == 3 && s->size(1) == steps.rows), op, ": a state of shape ", s->shape(),
               " for ", steps.rows, " sequences");
  const LayerResult result =
      run_layers(formula, x.data, steps, map(state, ordered(x.sorted_indices)), parameters, options);
  return {result.y, map({result.h, result.c}, ordered(x.unsorted_indices))};
}

LSTMResult<PackedSequence> over(const Formula& formula, const PackedSequence& x, const CellState& state,
                                std::span<const Tensor> parameters, const RecurrentOptions& options) {
  auto [y, last] = call(formula.with_lengths, {x.data, state.h, state.c}, parameters, {},
                        [&](const Tensor& data, const Tensor& h, const Tensor& c, std::span<const Tensor> parameters) {
                          const PackedSequence same_order{data, x.batch_sizes, x.sorted_indices, x.unsorted_indices};
                          return run_packed(formula, same_order, {h, c}, parameters, options);
                        });
  return {{std::move(y), x.batch_sizes, x.sorted_indices, x.unsorted_indices}, std::move(last)};
}

/// In the order of a PackedSequence, but for the empty sequences, which take no part.
LSTMResult<Tensor> run_ragged(const Formula& formula, const Ragged& x, const CellState& state,
                              std::span<const Tensor> parameters, const RecurrentOptions& options) {
  const Op op = formula.op;
  const Tensor& rows = detail::rows_of(op, x);
  REEL_CHECK(rows.dim() == 2, op, ": values of shape ", rows.shape(), ", not [total, in]");
  const Lengths& lengths = *x.lengths;
  const int64_t n = lengths.size(), taking_part = count_not_empty(lengths);
  for (const Tensor* s : {&state.h, &state.c})
    REEL_CHECK(!s->defined() || (s->dim() == 3 && s->size(1) == n), op, ": a state of shape ", s->shape(), " for ", n,
               " sequences");
  const LengthsOnDevice where = on_device(x);
  const bool one = taking_part <= 1;  // its rows need not change places
  const auto ordered = [&](const Tensor& s) { return n > 1 ? index_select(s, 1, where.sorted()) : s; };
  const CellState sorted = map(state, ordered);
  const CellState first = map(sorted, [&](const Tensor& s) { return s.narrow(1, 0, taking_part); });
  const Tensor packed = one ? rows : permute_rows(rows, where.packed_rows(), where.packed_places());
  const LayerResult result =
      run_layers(formula, packed, {lengths.longest(), taking_part, lengths.total(), where.step_sizes()}, first,
                 parameters, options);
  const auto in_order = [&](const Tensor& s, const Tensor& before) {
    if (!s.defined() || (n == 1 && taking_part == 1)) return s;
    Tensor all = s;
    if (taking_part < n) {
      const int64_t rest = n - taking_part;
      all = cat({s, before.defined() ? before.narrow(1, taking_part, rest)
                                     : zeros({s.size(0), rest, s.size(2)}, {.dtype = s.dtype(), .device = s.device()})},
                1);
    }
    return index_select(all, 1, where.unsorted());
  };
  const Tensor y = one ? result.y : permute_rows(result.y, where.packed_places(), where.packed_rows());
  return {y, {in_order(result.h, sorted.h), in_order(result.c, sorted.c)}};
}

LSTMResult<Ragged> over(const Formula& formula, const Ragged& x, const CellState& state,
                        std::span<const Tensor> parameters, const RecurrentOptions& options) {
  auto [y, last] =
      call(formula.with_lengths, {x.values, state.h, state.c}, parameters, {},
           [&](const Tensor& values, const Tensor& h, const Tensor& c, std::span<const Tensor> parameters) {
             return run_ragged(formula, {values, x.lengths}, {h, c}, parameters, options);
           });
  return {{std::move(y), x.lengths}, std::move(last)};
}

LSTMResult<std::vector<Tensor>> over(const Formula& formula, std::span<const Tensor> sequences, const CellState& state,
                                     std::span<const Tensor> parameters, const RecurrentOptions& options) {
  const auto is_empty = [&](const Tensor& x) {
    const Shape& shape = view_of(x, formula.op).shape;
    return shape.size() == 2 && shape[0] == 0;
  };
  if (std::any_of(sequences.begin(), sequences.end(), is_empty)) {  // which a PackedSequence cannot hold
    const LSTMResult<Ragged> result = over(formula, Ragged::of(sequences), state, parameters, options);
    return {split(result.output.values, result.output.lengths->to_vector()), result.state};
  }
  const LSTMResult<PackedSequence> result = over(formula, pack_sequence(sequences), state, parameters, options);
  return {unpack_sequence(result.output), result.state};
}

// ---- single steps ---------------------------------------------------------------------------------------------------

CellState run_step(const Formula& formula, const Tensor& x, const CellState& state, const Tensor& weight_ih,
                   const Tensor& weight_hh, const Tensor& bias_ih, const Tensor& bias_hh) {
  const char* op = formula.cell;
  const Shape& shape = view_of(x, op).shape;
  const DType dtype = view_of(x).dtype;
  REEL_CHECK(is_floating_point(dtype), op, ": an input of ", dtype);
  REEL_CHECK(shape.size() == 2, op, ": expected an input [n, in], got shape ", shape);
  REEL_CHECK(bias_ih.defined() == bias_hh.defined(), op, ": of the two biases one is undefined, one is not");
  LayerInputs in;
  in.all[kX] = x.contiguous();
  const std::array<Tensor, 4> parameters{weight_ih, weight_hh, bias_ih, bias_hh};
  const bool bias = bias_ih.defined();
  const RnnLayerConfig layer = take_parameters(op, formula, {1, shape[0], shape[0], {}}, true, 1, bias,
                                               std::span(parameters).first(bias ? 4 : 2), in);
  check_state(op, "h", state.h, {shape[0], layer.width}, x);
  check_state(op, "c", state.c, {shape[0], layer.hidden}, x);
  const auto first = [&](const Tensor& given, const Tensor& other, int64_t columns) {
    if (given.defined()) return given.contiguous();
    return other.defined() ? zeros({shape[0], columns}, {.dtype = dtype, .device = x.device()}) : Tensor();
  };
  in.all[kH] = first(state.h, state.c, layer.width);
  if (formula.kind == Recurrence::kLstm) in.all[kC] = first(state.c, state.h, layer.hidden);
  const LayerResult result = run_layer(layer, in);
  return {result.h, result.c};
}

CellState step(const Formula& formula, const Tensor& x, const CellState& state, const Tensor& weight_ih,
               const Tensor& weight_hh, const Tensor& bias_ih, const Tensor& bias_hh) {
  return call(formula.cell, {x, state.h, state.c, weight_ih, weight_hh, bias_ih, bias_hh}, {},
              [&](const Tensor& x, const Tensor& h, const Tensor& c, const Tensor& weight_ih, const Tensor& weight_hh,
                  const Tensor& bias_ih, const Tensor& bias_hh) {
                return run_step(formula, x, {h, c}, weight_ih, weight_hh, bias_ih, bias_hh);
              });
}

template <class Sequence>
auto without_c(const Formula& formula, const Sequence& x, const Tensor& h, std::span<const Tensor> parameters,
               const RecurrentOptions& options) {
  auto result = over(formula, x, {h, {}}, parameters, options);
  return RNNResult<decltype(result.output)>{std::move(result.output), std::move(result.state.h)};
}

}  // namespace

void check_dropout(const char* op, const RecurrentOptions& options) {
  const auto check = [&](const char* name, double p) {
    REEL_CHECK(p >= 0 && p <= 1, op, ": ", name, " must be between 0 and 1, got ", p);
  };
  check("dropout", options.dropout);
  check("input_dropout", options.input_dropout);
  check("recurrent_dropout", options.recurrent_dropout);
}

// ---- the ops --------------------------------------------------------------------------------------------------------

using Parameters = TensorList;
using Sequences = TensorList;
using Options = RecurrentOptions;

LSTMResult<Tensor> lstm(const Tensor& x, const CellState& state, Parameters parameters, const Options& options) {
  return over(kLstm, x, state, parameters, options);
}
LSTMResult<PackedSequence> lstm(const PackedSequence& x, const CellState& state, Parameters parameters,
                                const Options& options) {
  return over(kLstm, x, state, parameters, options);
}
LSTMResult<std::vector<Tensor>> lstm(Sequences sequences, const CellState& state, Parameters parameters,
                                     const Options& options) {
  return over(kLstm, sequences, state, parameters, options);
}
LSTMResult<Ragged> lstm(const Ragged& x, const CellState& state, Parameters parameters, const Options& options) {
  return over(kLstm, x, state, parameters, options);
}
CellState lstm_cell(const Tensor& x, const CellState& state, const Tensor& weight_ih, const Tensor& weight_hh,
                    const Tensor& bias_ih, const Tensor& bias_hh) {
  return step(kLstm, x, state, weight_ih, weight_hh, bias_ih, bias_hh);
}

#define REEL_RNN(name, formula)                                                                                      \
  RNNResult<Tensor> name(const Tensor& x, const Tensor& h, Parameters parameters, const Options& options) {          \
    return without_c(formula, x, h, parameters, options);                                                            \
  }                                                                                                                  \
  RNNResult<PackedSequence> name(const PackedSequence& x, const Tensor& h, Parameters parameters,                    \
                                 const Options& options) {                                                           \
    return without_c(formula, x, h, parameters, options);                                                            \
  }                                                                                                                  \
  RNNResult<std::vector<Tensor>> name(Sequences x, const Tensor& h, Parameters parameters, const Options& options) { \
    return without_c(formula, x, h, parameters, options);                                                            \
  }                                                                                                                  \
  RNNResult<Ragged> name(const Ragged& x, const Tensor& h, Parameters parameters, const Options& options) {          \
    return without_c(formula, x, h, parameters, options);                                                            \
  }                                                                                                                  \
  Tensor name##_cell(const Tensor& x, const Tensor& h, const Tensor& weight_ih, const Tensor& weight_hh,             \
                     const Tensor& bias_ih, const Tensor& bias_hh) {                                                 \
    return step(formula, x, {h, {}}, weight_ih, weight_hh, bias_ih, bias_hh).h;                                      \
  }
REEL_RNN(gru, kGru)
REEL_RNN(rnn_tanh, kRnnTanh)
REEL_RNN(rnn_relu, kRnnRelu)
#undef REEL_RNN

}  // namespace reel
