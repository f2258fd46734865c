#include "lib/ops/rnn_layer.h"

#include <numeric>

#include "lib/autograd/subgraph.h"
#include "lib/device/kernels/gemm.h"
#include "lib/ops/internal.h"

namespace reel::recurrent {
namespace {

using Kind = Recurrence::Kind;

/// A ForwardCache holds the tensors that forward saves for backward, in one direction.
struct ForwardCache {
  Tensor gates, h_before, c_before, inner;
};

Tensor like(const Tensor& x, const Shape& shape) { return make_tensor(shape, view_of(x).dtype, x.device()); }
/// Returns a new state: a copy of the given one, or zeros.
Tensor start(const Tensor& like_this, const Shape& shape, const Tensor& given) {
  const Tensor state = like(like_this, shape);
  if (given.defined())
    kernels_of(state).copy(view_of(given), view_of(state));
  else
    kernels_of(state).fill(view_of(state), 0);
  return state;
}
void* data_of(const Tensor& x) { return x.defined() ? view_of(x).data : nullptr; }
/// Returns the address where a direction's part of a state, or of an output, begins.
void* part(const Tensor& x, int direction, int64_t elements) {
  return x.defined() ? view_of(x).as<char>() + direction * elements * size_of(view_of(x).dtype) : nullptr;
}

Recurrence describe(const RnnLayerConfig& layer, const LayerInputs& in, int d, const ForwardCache& cache) {
  const StepSizes& steps = layer.steps;
  return {.kind = layer.formula->kind,
          .dtype = view_of(in.x()).dtype,
          .reverse = d == 1,
          .steps = steps.count,
          .rows = steps.rows,
          .total = steps.total,
          .hidden = layer.hidden,
          .width = layer.width,
          .sizes = steps.sizes.defined() ? view_of(steps.sizes).as<const int64_t>() : nullptr,
          .w_hh = data_of(in.of(d, kWeightHh)),
          .b_hh = data_of(in.of(d, kBiasHh)),
          .w_hr = data_of(in.of(d, kWeightHr)),
          .mask = data_of(in.of(d, kStateMask)),
          .gates = data_of(cache.gates),
          .y_stride = layer.directions * layer.width,
          .h_before = data_of(cache.h_before),
          .c_before = data_of(cache.c_before),
          .inner = data_of(cache.inner)};
}

/// Returns the arguments of rnn_layer_workspace. Outputs and gradients are not set.
RnnLayer fused_layer_args(const RnnLayerConfig& layer, const LayerInputs& in, MatmulPrecision precision) {
  const StepSizes& steps = layer.steps;
  RnnLayer args{.kind = layer.formula->kind,
                .dtype = view_of(in.x()).dtype,
                .precision = precision,
                .directions = layer.directions,
                .steps = steps.count,
                .rows = steps.rows,
                .total = steps.total,
                .in = view_of(in.x()).shape[1],
                .hidden = layer.hidden,
                .sizes = steps.sizes.defined() ? view_of(steps.sizes).as<const int64_t>() : nullptr,
                .x = data_of(in.x()),
                .first_h = data_of(in.all[kH]),
                .first_c = data_of(in.all[kC])};
  for (int d = 0; d < layer.directions; ++d)
    for (int p = 0; p < RnnLayer::kParameters; ++p)
      args.parameters[d][p] = data_of(in.of(d, static_cast<Parameter>(p)));
  return args;
}

/// c = a · op(w) (+ bias) (+ c), for matrices whose rows are contiguous.
void multiply(const Tensor& a, const Tensor& w, bool transposed, const Tensor& c, const Tensor& bias = {},
              bool add = false) {
  const View &av = view_of(a), &wv = view_of(w), &cv = view_of(c);
  kernels_of(c).gemm({.dtype = cv.dtype,
                      .trans_b = transposed,
                      .m = av.shape[0],
                      .n = cv.shape[1],
                      .k = av.shape[1],
                      .a = av.data,
                      .lda = std::max<int64_t>(av.shape[1], 1),
                      .b = wv.data,
                      .ldb = std::max<int64_t>(wv.shape[1], 1),
                      .c = cv.data,
                      .ldc = std::max<int64_t>(cv.shape[1], 1),
                      .beta = add ? 1. : 0.,
                      .bias = data_of(bias)});
}

// ---- the layer as recorded ops, for second derivatives --------------------------------------------------------------

struct State {
  Tensor h, c;
};

State composed_step(const RnnLayerConfig& layer, const LayerInputs& in, int d, const Tensor& from_x,
                    const State& before) {
  const Tensor& mask = in.of(d, kStateMask);
  const Tensor h = mask.defined() ? before.h * mask.narrow(0, 0, before.h.size(0)) : before.h;
  const Tensor from_h = linear(h, in.of(d, kWeightHh), in.of(d, kBiasHh));
  switch (layer.formula->kind) {
    case Recurrence::kTanh: return {tanh(from_x + from_h), {}};
    case Recurrence::kRelu: return {relu(from_x + from_h), {}};
    case Recurrence::kGru: {
      const auto block = [&](const Tensor& gates, int64_t i) {
        return gates.narrow(1, i * layer.hidden, layer.hidden);
      };
      const Tensor reset = sigmoid(block(from_x, 0) + block(from_h, 0));
      const Tensor keep = sigmoid(block(from_x, 1) + block(from_h, 1));
      const Tensor update = tanh(block(from_x, 2) + reset * block(from_h, 2));
      return {update + keep * (before.h - update), {}};
    }
    case Recurrence::kLstm: break;
  }
  const CellState next = lstm_cell(from_x + from_h, before.c);
  const Tensor& w_hr = in.of(d, kWeightHr);
  return {w_hr.defined() ? linear(next.h, w_hr) : next.h, next.c};
}

/// Returns the node's outputs.
std::vector<Tensor> composed(const RnnLayerConfig& layer, const LayerInputs& in) {
  const StepSizes& steps = layer.steps;
  const bool lstm = layer.formula->kind == Recurrence::kLstm;
  const auto first = [&](const Tensor& given, int d, int64_t columns) {
    if (given.defined()) return layer.one_step ? given : given.select(0, d);
    return zeros({steps.rows, columns}, {.dtype = in.x().dtype(), .device = in.x().device()});
  };
  const auto replace_rows = [](const Tensor& all, const Tensor& rows) {
    const int64_t n = rows.size(0), rest = all.size(0) - n;
    return rest ? cat({rows, all.narrow(0, n, rest)}) : rows;
  };
  std::vector<Tensor> h, c, y;
  for (int d = 0; d < layer.directions; ++d) {
    const Tensor from_x = linear(in.x(), in.of(d, kWeightIh), in.of(d, kBiasIh));
    State state{first(in.all[kH], d, layer.width), lstm ? first(in.all[kC], d, layer.hidden) : Tensor()};
    std::vector<Tensor> rows(steps.count);
    for (int64_t i = 0, at = d ? steps.total : 0; i < steps.count; ++i) {
      const int64_t t = d ? steps.count - 1 - i : i, n = steps.at(t);
      if (d) at -= n;
      const State next = composed_step(layer, in, d, from_x.narrow(0, at, n),
                                       {state.h.narrow(0, 0, n), lstm ? state.c.narrow(0, 0, n) : Tensor()});
      rows[t] = next.h;
      state.h = replace_rows(state.h, next.h);
      if (lstm) state.c = replace_rows(state.c, next.c);
      if (!d) at += n;
    }
    h.push_back(state.h), c.push_back(state.c);
    y.push_back(rows.empty() ? from_x.narrow(1, 0, layer.width) : cat(rows));
  }
  if (layer.one_step) return lstm ? std::vector{h[0], c[0]} : std::vector{h[0]};
  std::vector<Tensor> outputs{stack(h)};
  if (lstm) outputs.push_back(stack(c));
  outputs.push_back(cat(y, 1));
  return outputs;
}

// ---- backward -------------------------------------------------------------------------------------------------------

/// An object of this type is the backward rule of a layer.
struct LayerRule {
  struct SavedCache {
    SavedTensor gates, h_before, c_before, inner;
  };
  RnnLayerConfig layer;
  std::array<SavedTensor, kMaxInputs> inputs{};
  std::array<SavedCache, 2> caches{};  // what recurrence_grad needs, or else, of a layer by rnn_layer, what follows
  SavedTensor reserve_space{}, y{};
  MatmulPrecision precision = MatmulPrecision::kHighest;
  bool consumed = false;  // reserve_space was overwritten by a backward pass that has failed since

  void operator()(Backward& back) {
    LayerInputs in;
    for (size_t i = 0; i < kMaxInputs; ++i)
      if (inputs[i].defined()) in.all[i] = back.get(inputs[i]);
    if (back.create_graph())
      composed_grad(back, in);
    else if (!reserve_space.defined())
      recurrence_grad(back, in);
    else if (consumed || !try_fused_layer_grad(back, in))
      composed_grad(back, in);
  }

  void composed_grad(Backward& back, const LayerInputs& in) {
    EdgeList inputs_of_layer;
    for (const Tensor& input : in.all) inputs_of_layer.add(input);
    const uint64_t since = next_sequence();
    const std::vector<Tensor> outputs = [&] {
      const EnableGrad guard;
      return composed(layer, in);
    }();
    std::vector<Tensor> grads;
    for (uint32_t i = 0; i < back.num_outputs(); ++i) grads.push_back(back.grad(static_cast<int>(i)));
    std::vector<Tensor> found =
        subgraph_grad(outputs, std::move(grads), since, inputs_of_layer.edges, back.create_graph());
    for (size_t i = 0; i < found.size(); ++i) back.set(static_cast<int>(i), std::move(found[i]));
  }

  void recurrence_grad(Backward& back, const LayerInputs& in) {
    const Tensor& x = in.x();
    const bool lstm = layer.formula->kind == Recurrence::kLstm, gru = layer.formula->kind == Recurrence::kGru;
    const bool projected = in.of(0, kWeightHr).defined();
    const int64_t rows = layer.steps.rows, total = layer.steps.total;
    const auto contiguous = [](const Tensor& g) { return g.defined() ? g.contiguous() : g; };
    const Tensor grad_h = start(x, layer.state_shape(layer.width), back.grad(0));
    const Tensor grad_c = lstm ? start(x, layer.state_shape(layer.hidden), back.grad(layer.output_c())) : Tensor();
    const Tensor grad_y = layer.one_step ? Tensor() : contiguous(back.grad(layer.output_y()));
    const Tensor scratch = projected ? like(x, {rows, layer.hidden}) : Tensor();
    const Tensor masked = in.of(0, kStateMask).defined() ? like(x, {rows, layer.width}) : Tensor();
    const Tensor grad_x = back.needs(kX) ? like(x, view_of(x).shape) : Tensor();
    for (int d = 0; d < layer.directions; ++d) {
      const auto input = [&](Parameter p) { return static_cast<int>(LayerInputs::index(d, p)); };
      const SavedCache& saved = caches[d];
      const ForwardCache cache{back.get(saved.gates), back.get(saved.h_before),
                               lstm ? back.get(saved.c_before) : Tensor(),
                               saved.inner.defined() ? back.get(saved.inner) : Tensor()};
      const Tensor grad_gates = like(x, {total, layer.gates()});
      const Tensor grad_hidden = gru ? like(x, {total, layer.gates()}) : grad_gates;
      const Tensor grad_projected = projected ? like(x, {total, layer.width}) : Tensor();
      Recurrence r = describe(layer, in, d, cache);
      r.scratch = data_of(scratch);
      r.masked = data_of(masked);
      r.grad_y = part(grad_y, d, layer.width);
      r.grad_h = part(grad_h, d, rows * layer.width);
      r.grad_c = part(grad_c, d, rows * layer.hidden);
      r.first_wanted = back.needs(kH);
      r.grad_gates = data_of(grad_gates);
      r.grad_hidden = gru ? data_of(grad_hidden) : nullptr;
      r.grad_projected = data_of(grad_projected);
      kernels_of(x).recurrence_grad(r);

      if (grad_x.defined()) multiply(grad_gates, in.of(d, kWeightIh), false, grad_x, {}, d > 0);
      if (back.needs(input(kWeightIh))) back.set_product(input(kWeightIh), grad_gates, x);
      if (back.needs(input(kWeightHh)))
        back.set_product(input(kWeightHh), grad_hidden, masked_rows(layer.steps, cache.h_before, in.of(d, kStateMask)));
      if (projected) back.set_product(input(kWeightHr), grad_projected, cache.inner);
      set_biases(back, input(kBiasIh), grad_gates, input(kBiasHh), grad_hidden);
    }
    back.set(kX, grad_x);
    back.set(kH, grad_h);
    if (lstm) back.set(kC, grad_c);
  }

  /// Computes the gradients by rnn_layer_grad, or returns false.
  bool try_fused_layer_grad(Backward& back, const LayerInputs& in) {
    const Tensor& x = in.x();
    RnnLayer args = fused_layer_args(layer, in, precision);
    const Tensor output = back.get(y), saved = back.get(reserve_space);
    const auto contiguous = [](const Tensor& g) { return g.defined() ? g.contiguous() : g; };
    const bool lstm = layer.formula->kind == Recurrence::kLstm;
    const Tensor grad_y = back.grad_or_zeros(layer.output_y()).contiguous(), grad_h = contiguous(back.grad(0)),
                 grad_c = lstm ? contiguous(back.grad(layer.output_c())) : Tensor();
    std::array<Tensor, kMaxInputs> grads;
    const auto wanted = [&](size_t input) {
      if (in.all[input].defined() && back.needs(static_cast<int>(input)))
        grads[input] = like(x, view_of(in.all[input]).shape);
      return data_of(grads[input]);
    };
    grads[kX] = like(x, view_of(x).shape);
    for (int d = 0; d < layer.directions; ++d)
      for (int p = 0; p < RnnLayer::kParameters; ++p)
        args.grad_parameters[d][p] = wanted(LayerInputs::index(d, static_cast<Parameter>(p)));
    args.y = data_of(output), args.reserve_space = data_of(saved), args.reserve_bytes = view_of(saved).numel;
    args.retain = back.retains_graph();
    consumed = !args.retain;
    args.grad_y = data_of(grad_y), args.grad_h = data_of(grad_h), args.grad_c = data_of(grad_c);
    args.grad_x = data_of(grads[kX]), args.grad_first_h = wanted(kH), args.grad_first_c = wanted(kC);
    if (!kernels_of(x).rnn_layer_grad(args)) return false;
    for (size_t i = 0; i < kMaxInputs; ++i) back.set(static_cast<int>(i), std::move(grads[i]));
    return true;
  }

  static void set_biases(Backward& back, int ih, const Tensor& grad_ih, int hh, const Tensor& grad_hh) {
    const Tensor of_ih = back.needs(ih) || (back.needs(hh) && grad_hh.is_same(grad_ih)) ? sum(grad_ih, 0) : Tensor();
    back.set(ih, of_ih);
    if (back.needs(hh)) back.set(hh, grad_hh.is_same(grad_ih) ? of_ih : sum(grad_hh, 0));
  }
};

// ---- forward --------------------------------------------------------------------------------------------------------

/// Returns true if a transposed copy of w_hh pays: on a CPU, products with it are up to twice as fast, except for one
/// row and a w_hh that exceeds the first-level cache; the copy costs what about 16 steps gain.
bool should_transpose_w_hh(const RnnLayerConfig& layer, Device device, DType dtype) {
  constexpr int64_t kMinRows = 24, kCacheBytes = 48 << 10;
  return device == kCPU && layer.steps.total >= kMinRows &&
         (layer.steps.rows > 1 || layer.gates() * layer.width * size_of(dtype) <= kCacheBytes);
}

/// Records the node with `rule`, which has everything but the inputs.
void record_layer(const RnnLayerConfig& layer, const LayerInputs& in, const LayerResult& result, LayerRule rule) {
  std::array<const Tensor*, kMaxInputs> ins;
  for (size_t i = 0; i < kMaxInputs; ++i) {
    ins[i] = &in.all[i];
    if (in.all[i].defined()) rule.inputs[i] = SavedTensor(in.all[i]);
  }
  std::array<const Tensor*, 3> outs{&result.h};
  size_t count = 1;
  if (layer.formula->kind == Recurrence::kLstm) outs[count++] = &result.c;
  if (!layer.one_step) outs[count++] = &result.y;
  record_always(layer.one_step ? layer.formula->cell : layer.formula->op, std::span(outs).first(count), ins,
                std::move(rule));
}

/// Computes the layer by rnn_layer where the device supports it; otherwise the result is empty.
LayerResult try_fused_layer(const RnnLayerConfig& layer, const LayerInputs& in) {
  if (layer.one_step || in.of(0, kWeightHr).defined() || in.of(0, kStateMask).defined()) return {};
  const Tensor& x = in.x();
  RnnLayer args = fused_layer_args(layer, in, matmul_precision());
  args.reserve_bytes = kernels_of(x).rnn_layer_workspace(args);
  if (args.reserve_bytes < 0) return {};
  const auto state = [&] { return like(x, layer.state_shape(layer.hidden)); };
  LayerResult result{like(x, {layer.steps.total, layer.directions * layer.hidden}), state(),
                     layer.formula->kind == Recurrence::kLstm ? state() : Tensor()};
  Tensor reserve_space;
  if (recording(std::span<const Tensor>(in.all))) reserve_space = make_tensor({args.reserve_bytes}, kUInt8, x.device());
  args.y = data_of(result.y), args.h = data_of(result.h), args.c = data_of(result.c);
  args.reserve_space = data_of(reserve_space);
  if (!kernels_of(x).rnn_layer(args)) return {};
  if (reserve_space.defined()) {
    LayerRule rule{layer};
    rule.reserve_space = SavedTensor(reserve_space), rule.y = SavedTensor::output(result.y, layer.output_y());
    rule.precision = args.precision;
    record_layer(layer, in, result, std::move(rule));
  }
  return result;
}

}  // namespace

LayerResult run_layer(const RnnLayerConfig& layer, const LayerInputs& in) {
  if (LayerResult fused = try_fused_layer(layer, in); fused.h.defined()) return fused;
  const Tensor& x = in.x();
  const Kind kind = layer.formula->kind;
  const bool lstm = kind == Recurrence::kLstm, projected = in.of(0, kWeightHr).defined();
  const bool recorded = recording(std::span<const Tensor>(in.all));
  const int64_t rows = layer.steps.rows, total = layer.steps.total;
  const LayerResult result{layer.one_step ? Tensor() : like(x, {total, layer.directions * layer.width}),
                           start(x, layer.state_shape(layer.width), in.all[kH]),
                           lstm ? start(x, layer.state_shape(layer.hidden), in.all[kC]) : Tensor()};
  const Tensor scratch = kind == Recurrence::kGru ? like(x, {rows, layer.gates()}) : Tensor();
  const Tensor masked = in.of(0, kStateMask).defined() ? like(x, {rows, layer.width}) : Tensor();
  std::array<ForwardCache, 2> caches;
  for (int d = 0; d < layer.directions; ++d) {
    ForwardCache& cache = caches[d];
    cache.gates = like(x, {total, layer.gates()});
    multiply(x, in.of(d, kWeightIh), true, cache.gates, in.of(d, kBiasIh));
    if (recorded) cache.h_before = like(x, {total, layer.width});
    if (recorded && lstm) cache.c_before = like(x, {total, layer.hidden});
    if (projected || (recorded && kind == Recurrence::kGru)) cache.inner = like(x, {total, layer.hidden});
    Recurrence r = describe(layer, in, d, cache);
    Tensor transposed;
    if (should_transpose_w_hh(layer, x.device(), r.dtype)) {
      const Tensor& w = in.of(d, kWeightHh);
      transposed = like(x, {layer.width, layer.gates()});
      kernels_of(x).copy(make_view(data_of(w), {layer.width, layer.gates()}, {1, layer.width}, r.dtype),
                         view_of(transposed));
      r.w_hh = data_of(transposed);
      r.w_hh_transposed = true;
    }
    r.h = part(result.h, d, rows * layer.width);
    r.c = part(result.c, d, rows * layer.hidden);
    r.zero_h = !in.all[kH].defined();
    r.y = part(result.y, d, layer.width);
    r.scratch = data_of(scratch);
    r.masked = data_of(masked);
    kernels_of(x).recurrence(r);
  }
  if (!recorded) return result;

  LayerRule rule{layer};
  for (int d = 0; d < layer.directions; ++d) {
    const auto saved = [](const Tensor& tensor) { return saved_if(tensor.defined(), tensor); };
    rule.caches[d] = {saved(caches[d].gates), saved(caches[d].h_before), saved(caches[d].c_before),
                      saved(caches[d].inner)};
  }
  record_layer(layer, in, result, std::move(rule));
  return result;
}

Tensor masked_rows(const StepSizes& steps, const Tensor& x, const Tensor& mask) {
  if (!mask.defined()) return x;
  const int64_t columns = mask.size(1);
  if (!steps.sizes.defined())
    return (x.reshape({steps.count, steps.rows, columns}) * mask).view({steps.total, columns});
  const Tensor sequences = make_tensor({steps.total}, kInt64);
  int64_t* to = sequences.data<int64_t>();
  for (int64_t t = 0; t < steps.count; ++t) std::iota(to, to + steps.at(t), 0), to += steps.at(t);
  return x * index_select(mask, 0, sequences.to(mask.device()));
}

}  // namespace reel::recurrent
