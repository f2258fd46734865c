#include "reel/nn/rnn.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "lib/nn/hooks.h"
#include "lib/nn/joined.h"
#include "lib/nn/repr.h"
#include "lib/ops/rnn_layer.h"
#include "reel/nn/init.h"
#include "reel/tensor/detail/batching.h"

namespace reel::nn {
namespace {

void uniform_by_hidden(const Module& module, int64_t hidden) {
  const double bound = hidden > 0 ? 1 / std::sqrt(hidden) : 0;
  for (const Tensor& parameter : module.parameters()) init::uniform_(parameter, -bound, bound);
}

/// What a module is called in messages, though its base is not that yet, and how many blocks its weights have.
struct Form {
  const char* name;
  int64_t blocks;
};
Form form_of(const LSTM*) { return {"LSTM", 4}; }
Form form_of(const GRU*) { return {"GRU", 3}; }
Form form_of(const RNN*) { return {"RNN", 1}; }

RecurrentOptions recurrent_options(const auto& o) {
  return {.num_layers = o.num_layers,
          .bias = o.bias,
          .batch_first = o.batch_first,
          .dropout = o.dropout,
          .bidirectional = o.bidirectional,
          .input_dropout = o.input_dropout,
          .recurrent_dropout = o.recurrent_dropout};
}

/// visit(name, shape) for every parameter, in order.
template <class Visit>
void for_each_weight(const RecurrentOptions& options, int64_t blocks, int64_t input, int64_t hidden, int64_t proj,
                     const Visit& visit) {
  const int64_t rows = blocks * hidden, width = proj ? proj : hidden;
  const int directions = options.bidirectional ? 2 : 1;
  for (int64_t l = 0; l < options.num_layers; ++l)
    for (int d = 0; d < directions; ++d) {
      const std::string layer = "_l" + std::to_string(l) + (d ? "_reverse" : "");
      visit("weight_ih" + layer, Shape{rows, l ? directions * width : input});
      visit("weight_hh" + layer, Shape{rows, width});
      if (options.bias) visit("bias_ih" + layer, Shape{rows}), visit("bias_hh" + layer, Shape{rows});
      if (proj) visit("weight_hr" + layer, Shape{proj, hidden});
    }
}

/// The undefined ones stay undefined.
template <class F>
Tensor if_defined(const Tensor& state, const F& f) {
  return state.defined() ? f(state) : state;
}
Tensor as_row(const Tensor& x) {
  return if_defined(x, [](const Tensor& t) { return t.unsqueeze(0); });
}

void check_input(const char* cell, const Tensor& x, int64_t input) {
  REEL_CHECK(x.defined() && (x.dim() == 1 || x.dim() == 2) && x.size(-1) == input, cell, ": expected x of shape [n, ",
             input, "] or [", input, "], got ", x.defined() ? x.shape().to_string() : "an undefined tensor");
}
void check_state(const char* cell, const Tensor& state, const Tensor& x, int64_t hidden) {
  if (!state.defined()) return;
  const Shape expected = x.dim() == 1 ? Shape{hidden} : Shape{x.size(0), hidden};
  REEL_CHECK(state.shape() == expected, cell, ": expected a state of shape ", expected, ", got ", state.shape());
}

}  // namespace

// ---- sequences ------------------------------------------------------------------------------------------------------

template <class Derived>
Recurrent<Derived>::Recurrent(int64_t input, int64_t hidden, int64_t proj, const RecurrentOptions& given)
    : input_size(input), hidden_size(hidden), proj_size(proj), options(given), weights([&] {
        const auto [who, blocks] = form_of(static_cast<Derived*>(nullptr));
        REEL_CHECK(input >= 0 && hidden > 0, who, ": input_size ", input, ", hidden_size ", hidden);
        REEL_CHECK(options.num_layers > 0, who, ": num_layers must be positive, got ", options.num_layers);
        check_dropout(who, options);
        REEL_CHECK(proj >= 0 && proj < hidden, who, ": proj_size must be from 0 to less than hidden_size ", hidden,
                   ", got ", proj);
        std::vector<Parameter> all;
        for_each_weight(options, blocks, input, hidden, proj, [&](const std::string& name, const Shape& shape) {
          all.emplace_back(*this, name, empty(shape));
        });
        return all;
      }()) {
  reset_parameters();
}

template <class Derived>
void Recurrent<Derived>::reset_parameters() {
  uniform_by_hidden(*this, hidden_size);
}

template <class Derived>
std::vector<Tensor> Recurrent<Derived>::flat_weights() const {
  return {weights.begin(), weights.end()};
}

template <class Derived>
RecurrentOptions Recurrent<Derived>::now() const {
  RecurrentOptions result = options;
  result.training = this->is_training();
  return result;
}

template <class Derived>
std::string Recurrent<Derived>::extra_repr() const {
  return Repr(input_size, hidden_size)
      .add_unless(0, "proj_size", proj_size)
      .add_unless(1, "num_layers", options.num_layers)
      .add_unless(true, "bias", options.bias)
      .add_unless(false, "batch_first", options.batch_first)
      .add_unless(0, "dropout", options.dropout)
      .add_unless(false, "bidirectional", options.bidirectional)
      .add_unless(0, "input_dropout", options.input_dropout)
      .add_unless(0, "recurrent_dropout", options.recurrent_dropout)
      .text();
}

template struct Recurrent<LSTM>;
template struct Recurrent<GRU>;
template struct Recurrent<RNN>;

// ---- calls that are made together -----------------------------------------------------------------------------------

namespace {

CellState& state_of(auto& result) requires requires { result.state; }
{ return result.state; }
Tensor& state_of(auto& result) requires requires { result.h; }
{ return result.h; }
void visit_states(CellState& state, const auto& visit) { visit(state.h), visit(state.c); }
void visit_states(Tensor& h, const auto& visit) { visit(h); }
void visit_states(const CellState& state, const auto& visit) { visit(state.h), visit(state.c); }
void visit_states(const Tensor& h, const auto& visit) { visit(h); }

/// A JoinedSequences is the call compute(x, state) of a net, which may be one call with others. x is a sequence, a list
/// of them or a Ragged; the states of the call have a row for each sequence.
template <class Net, class States, class Compute>
class JoinedSequences final : public batching::internal::Call {
 public:
  /// `parts` are the sequences or, of a Ragged, all of its rows.
  JoinedSequences(const Net& net, std::span<const Tensor> parts, const Lengths* ragged, States given,
                  const Compute& compute)
      : Call(Kind::kSequences, &net, typeid(JoinedSequences)),
        states(std::move(given)),
        net_(net),
        training_(net.is_training()),
        parts_(parts),
        ragged_(ragged),
        compute_(compute) {
    add(&parts[0]);
    visit_states(std::as_const(states), [this](const Tensor& state) { add(&state); });
    rows = ragged ? ragged->size() : static_cast<int64_t>(parts.size());
  }
  bool same_arguments(const Call& other) const override {
    return training_ == static_cast<const JoinedSequences&>(other).training_;
  }
  std::string label() const override { return internal::ModuleParts::label(net_); }

  void run_all(RowGroup* group) override {
    JoinedParts joined;
    for_each_call([&](JoinedSequences& own) { joined.add(own.parts_, own.ragged_); });
    // States are [slots, n, hidden] for the net, and [n, slots, hidden] here.
    States first;
    visit_parts(first, [&](Tensor& state, size_t k) {
      std::vector<Tensor> all;
      for_each_call([&](JoinedSequences& own) {
        visit_parts(own.states, [&](Tensor& own_state, size_t i) {
          if (i == k && own_state.defined()) all.push_back(own_state);
        });
      });
      if (!all.empty()) state = detail::gather_rows(all, group).transpose(0, 1);
    });
    auto whole = compute_(joined.all(group), first);
    auto next = detail::scatter_rows(whole.output.values, joined.rows, group);
    size_t at = 0;
    for_each_call([&](JoinedSequences& own) {
      std::vector<int64_t> rows;
      for (const Tensor& part : own.parts_) rows.push_back(part.size(0));
      own.outputs = detail::scatter_rows(next[at++], rows);
    });
    visit_parts(state_of(whole), [&](Tensor& state, size_t k) {
      std::vector<Tensor> rows = detail::scatter_rows(state.transpose(0, 1), joined.sequences, group);
      at = 0;
      for_each_call([&](JoinedSequences& own) {
        visit_parts(own.results, [&](Tensor& own_state, size_t i) {
          if (i == k) own_state = std::move(rows[at++]);
        });
      });
    });
  }

  States states;                // the initial states, which stay for a group that is made again
  States results;               // the final states
  std::vector<Tensor> outputs;  // one for each of the parts

 private:
  void for_each_call(const auto& f) {
    for (Call* call = this; call; call = call->next) f(*static_cast<JoinedSequences*>(call));
  }
  static void visit_parts(States& state, const auto& f) {
    size_t i = 0;
    visit_states(state, [&](Tensor& part) { f(part, i++); });
  }

  const Net& net_;
  const bool training_;
  const std::span<const Tensor> parts_;
  const Lengths* const ragged_;
  const Compute& compute_;
};

std::span<const Tensor> parts_of(const Tensor& x) { return {&x, 1}; }
std::span<const Tensor> parts_of(std::span<const Tensor> list) { return list; }
std::span<const Tensor> parts_of(const Ragged& x) { return {&x.values, 1}; }
const Lengths* lengths_of(const auto&) { return nullptr; }
const Lengths* lengths_of(const Ragged& x) { return x.lengths.get(); }

/// Returns the states with a row for each sequence, none if x and the states are no sequences of such a call; what is
/// wrong with them is found by the net itself.
template <class Sequences, class State>
std::optional<State> states_by_sequence(const Sequences& x, const State& given) {
  constexpr bool is_one = std::is_same_v<Sequences, Tensor>, is_ragged = std::is_same_v<Sequences, Ragged>;
  const std::span<const Tensor> parts = parts_of(x);
  const Lengths* const ragged = lengths_of(x);
  const auto is_sequence = [](const Tensor& part) {
    return part.defined() && part.dim() == 2 && (!is_one || part.size(0) > 0);
  };
  if (parts.empty() || !std::all_of(parts.begin(), parts.end(), is_sequence)) return {};
  if (is_ragged && (!ragged || ragged->total() != parts[0].size(0))) return {};
  const int64_t n = ragged ? ragged->size() : static_cast<int64_t>(parts.size());
  State states = given;
  int defined = 0, count = 0;
  bool fits = true;
  visit_states(states, [&](Tensor& state) {
    ++count;
    if (!state.defined()) return;
    ++defined;
    fits = fits && state.dim() == (is_one ? 2 : 3) && (is_one || state.size(1) == n);
    if (fits) state = is_one ? state.unsqueeze(0) : state.transpose(0, 1);
  });
  if (!fits || (defined != 0 && defined != count)) return {};
  return states;
}

/// Returns compute(x, given) of a net, in a batching::map as a part of one call for the sequences of several examples.
template <class Net, class Sequences, class State, class Compute>
auto run_joined(const Net& net, const Sequences& x, const State& given, const Compute& compute) {
  batching::internal::BatchScheduler* const scheduler = batching::internal::scheduler();
  if (!scheduler) return compute(x, given);
  if (std::optional<State> states = states_by_sequence(x, given)) {
    JoinedSequences<Net, State, Compute> call(net, parts_of(x), lengths_of(x), *std::move(states), compute);
    if (scheduler->wait(call)) {
      constexpr bool is_one = std::is_same_v<Sequences, Tensor>;
      decltype(compute(x, given)) result;
      if constexpr (std::is_same_v<Sequences, Ragged>)
        result.output = {std::move(call.outputs[0]), x.lengths};
      else if constexpr (is_one)
        result.output = std::move(call.outputs[0]);
      else
        result.output = std::move(call.outputs);
      visit_states(call.results, [&](Tensor& state) { state = is_one ? state.squeeze(0) : state.transpose(0, 1); });
      state_of(result) = std::move(call.results);
      return result;
    }
  } else if (scheduler->reports()) {
    scheduler->note(internal::ModuleParts::label(net), "its arguments are no sequences with states that fit");
  }
  const reel::detail::NoSuspendGuard no_suspend;
  return compute(x, given);
}

/// Returns what the op of a net returns.
auto call_op(const LSTM&, const auto&... args) { return lstm(args...); }
auto call_op(const GRU&, const auto&... args) { return gru(args...); }
auto call_op(const RNN& net, const auto&... args) {
  return net.nonlinearity == RNNOptions::kRelu ? rnn_relu(args...) : rnn_tanh(args...);
}

}  // namespace

template <class Derived>
auto Recurrent<Derived>::op() const {
  return [this](const auto& x, const auto& state) {
    return call_op(static_cast<const Derived&>(*this), x, state, flat_weights(), now());
  };
}

template <class Derived>
template <class Sequences, class State>
auto Recurrent<Derived>::run(const Sequences& x, const State& state) const {
  const auto& net = static_cast<const Derived&>(*this);
  const auto compute = op();
  if constexpr (std::is_same_v<Sequences, PackedSequence>)
    return compute(x, state);
  else
    return run_joined(net, x, state, compute);
}

LSTM::LSTM(int64_t input, int64_t hidden, LSTMOptions o)
    : Recurrent(input, hidden, o.proj_size, recurrent_options(o)) {}
LSTMResult<Tensor> LSTM::forward(const Tensor& x, const CellState& state) const { return run(x, state); }
LSTMResult<PackedSequence> LSTM::forward(const PackedSequence& x, const CellState& state) const {
  return run(x, state);
}
LSTMResult<std::vector<Tensor>> LSTM::forward(TensorList sequences, const CellState& state) const {
  return run(sequences, state);
}
LSTMResult<Ragged> LSTM::forward(const Ragged& x, const CellState& state) const { return run(x, state); }

GRU::GRU(int64_t input, int64_t hidden, GRUOptions o) : OneStateRecurrent(input, hidden, 0, recurrent_options(o)) {}
RNNResult<Tensor> GRU::forward(const Tensor& x, const Tensor& h) const { return run(x, h); }
RNNResult<PackedSequence> GRU::forward(const PackedSequence& x, const Tensor& h) const { return run(x, h); }
RNNResult<std::vector<Tensor>> GRU::forward(TensorList sequences, const Tensor& h) const { return run(sequences, h); }
RNNResult<Ragged> GRU::forward(const Ragged& x, const Tensor& h) const { return run(x, h); }

RNN::RNN(int64_t input, int64_t hidden, RNNOptions o)
    : OneStateRecurrent(input, hidden, 0, recurrent_options(o)), nonlinearity(o.nonlinearity) {}
RNNResult<Tensor> RNN::forward(const Tensor& x, const Tensor& h) const { return run(x, h); }
RNNResult<PackedSequence> RNN::forward(const PackedSequence& x, const Tensor& h) const { return run(x, h); }
RNNResult<std::vector<Tensor>> RNN::forward(TensorList sequences, const Tensor& h) const { return run(sequences, h); }
RNNResult<Ragged> RNN::forward(const Ragged& x, const Tensor& h) const { return run(x, h); }

// ---- single steps ---------------------------------------------------------------------------------------------------

template <class Derived>
RecurrentCell<Derived>::RecurrentCell(int64_t input, int64_t hidden, int64_t blocks, bool bias)
    : input_size(input),
      hidden_size(hidden),
      weight_ih(*this, "weight_ih", empty({blocks * hidden, input})),
      weight_hh(*this, "weight_hh", empty({blocks * hidden, hidden})),
      bias_ih(*this, "bias_ih", bias ? empty({blocks * hidden}) : Tensor()),
      bias_hh(*this, "bias_hh", bias ? empty({blocks * hidden}) : Tensor()) {
  reset_parameters();
}

template <class Derived>
void RecurrentCell<Derived>::reset_parameters() {
  uniform_by_hidden(*this, hidden_size);
}

template <class Derived>
std::string RecurrentCell<Derived>::extra_repr() const {
  return Repr(input_size, hidden_size).add_unless(true, "bias", bias_ih.defined()).text();
}

template struct RecurrentCell<LSTMCell>;
template struct RecurrentCell<GRUCell>;
template struct RecurrentCell<RNNCell>;

LSTMCell::LSTMCell(int64_t input, int64_t hidden, LSTMCellOptions options)
    : RecurrentCell(input, hidden, 4, options.bias) {}

CellState LSTMCell::forward(const Tensor& x, const CellState& state) const {
  check_input("LSTMCell", x, input_size);
  check_state("LSTMCell", state.h, x, hidden_size);
  check_state("LSTMCell", state.c, x, hidden_size);
  if (x.dim() == 2) return lstm_cell(x, state, weight_ih, weight_hh, bias_ih, bias_hh);
  const CellState next =
      lstm_cell(x.unsqueeze(0), {as_row(state.h), as_row(state.c)}, weight_ih, weight_hh, bias_ih, bias_hh);
  return {next.h.squeeze(0), next.c.squeeze(0)};
}

namespace {

/// A step of a cell with one state.
template <class Cell, class Op>
Tensor one_state_step(const char* name, const Cell& cell, const Tensor& x, const Tensor& h, const Op& op) {
  check_input(name, x, cell.input_size);
  check_state(name, h, x, cell.hidden_size);
  if (x.dim() == 2) return op(x, h, cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh);
  return op(x.unsqueeze(0), as_row(h), cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh).squeeze(0);
}

}  // namespace

GRUCell::GRUCell(int64_t input, int64_t hidden, GRUCellOptions options)
    : RecurrentCell(input, hidden, 3, options.bias) {}
Tensor GRUCell::forward(const Tensor& x, const Tensor& h) const {
  return one_state_step("GRUCell", *this, x, h, gru_cell);
}

RNNCell::RNNCell(int64_t input, int64_t hidden, RNNCellOptions options)
    : RecurrentCell(input, hidden, 1, options.bias), nonlinearity(options.nonlinearity) {}
Tensor RNNCell::forward(const Tensor& x, const Tensor& h) const {
  return one_state_step("RNNCell", *this, x, h, nonlinearity == RNNOptions::kRelu ? rnn_relu_cell : rnn_tanh_cell);
}
std::string RNNCell::extra_repr() const {
  return RecurrentCell::extra_repr() + (nonlinearity == RNNOptions::kRelu ? ", nonlinearity=relu" : "");
}

}  // namespace reel::nn
