#include "reel/nn/rnn.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "reel/autograd.h"
#include "reel/io.h"
#include "reel/random.h"
#include "reel/testing.h"
#include "test/support/load.h"
#include "test/support/names.h"

using namespace reel;
using Catch::Matchers::Contains;

namespace {

using Tensors = std::vector<Tensor>;

// sin(start), sin(start + 1), …: numbers without symmetry that PyTorch is given as well.
Tensor ramp(const Shape& shape, double start) {
  std::vector<double> values(shape.numel());
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(start + static_cast<double>(i));
  return tensor(values, shape);
}

double distance(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  return a.numel() ? amax(abs(a - b)).item<double>() : 0;
}

Tensor joined(const Tensors& list) {
  Tensors flat;
  for (const Tensor& x : list) flat.push_back(x.detach().reshape({-1}));
  return cat(flat);
}

/// Parameters as in test/reference/rnn.py.
template <class Net>
void fill(Net& net) {
  net.to(kFloat64);
  NoGrad guard;
  for (size_t i = 0; i < net.weights.size(); ++i)
    Tensor(net.weights[i]).copy_(ramp(net.weights[i].shape(), 10. * static_cast<double>(i)));
}

const Tensor& state_h(const auto& result) {
  if constexpr (requires { result.state; })
    return result.state.h;
  else
    return result.h;
}

/// Everything that test/reference/rnn.py writes down for a net.
template <class Net>
Tensor compute(Net& net) {
  constexpr bool lstm = std::is_same_v<Net, nn::LSTM>;
  fill(net);
  Tensors xs;
  for (const int n : {2, 4, 1}) xs.push_back(ramp({n, 3}, 7. * n).requires_grad_());
  Tensor h = ramp({4, 3, 2}, 500).requires_grad_(), c = ramp({4, 3, net.hidden_size}, 600).requires_grad_();
  const PackedSequence packed = pack_sequence(xs);
  Tensors states;
  Tensor y;
  if constexpr (lstm) {
    const auto [output, state] = net(packed, {h, c});
    y = output.data, states = {state.h, state.c};
  } else {
    const auto [output, last] = net(packed, h);
    y = output.data, states = {last};
  }
  Tensor loss = sum(y * ramp(y.shape(), 1));
  for (const Tensor& s : states) loss = loss + sum(s * s);
  loss.backward();
  Tensors all{y};
  all.insert(all.end(), states.begin(), states.end());
  all.push_back(h.grad());
  if (lstm) all.push_back(c.grad());
  for (const Tensor& x : xs) all.push_back(x.grad());
  for (const Tensor& p : net.parameters()) all.push_back(p.grad());
  return joined(all);
}

}  // namespace

TEST_CASE("recurrent nets over packed sequences give PyTorch's numbers and gradients") {
  const StateDict expected = load_reference("rnn.safetensors");
  const auto check = [&](const char* name, auto&& net) {
    INFO(name);
    for (const auto& [key, values] : expected)
      if (key == name) {
        CHECK(distance(compute(net), values) < 1e-12);
        return;
      }
    FAIL("no such tensor");
  };
  check("lstm", nn::LSTM(3, 2, {.num_layers = 2, .bidirectional = true}));
  check("lstm_projected", nn::LSTM(3, 3, {.num_layers = 2, .bidirectional = true, .proj_size = 2}));
  check("gru", nn::GRU(3, 2, {.num_layers = 2, .bidirectional = true}));
  check("rnn_tanh", nn::RNN(3, 2, {.num_layers = 2, .bidirectional = true}));
  check("rnn_relu", nn::RNN(3, 2, {.num_layers = 2, .nonlinearity = nn::RNNOptions::kRelu, .bidirectional = true}));
}

TEST_CASE("sequences of different lengths give what each gives alone") {
  manual_seed(3);
  const auto check = [](auto&& net) {
    net.to(kFloat64);
    Tensors xs;
    for (const int n : {3, 1, 6, 3}) xs.push_back(randn({n, 5}, {.dtype = kFloat64}));
    const auto together = net(xs);
    const auto padded = net(pad_sequence(xs));
    for (size_t i = 0; i < xs.size(); ++i) {
      const auto alone = net(xs[i]);
      CHECK(distance(together.output[i], alone.output) < 1e-12);
      CHECK(distance(state_h(together).select(1, static_cast<int64_t>(i)), state_h(alone)) < 1e-12);
    }
    const int64_t longest = 2;
    CHECK(distance(padded.output.select(1, longest), together.output[longest]) < 1e-12);
    // One sequence, and a list of one.
    const auto one = net({xs[0]});
    CHECK(distance(one.output[0], net(xs[0]).output) < 1e-12);
    CHECK(state_h(one).dim() == 3);
    // PackedSequence is the same in another form.
    const auto packed = net(pack_sequence(xs));
    CHECK(distance(cat(unpack_sequence(packed.output)), cat(together.output)) == 0);
  };
  check(nn::LSTM(5, 20, {.num_layers = 2, .bidirectional = true}));
  check(nn::GRU(5, 20, {.num_layers = 2, .bidirectional = true}));
  check(nn::RNN(5, 20, {.bias = false, .bidirectional = true}));
}

TEST_CASE("a sequence in pieces gives what it gives in one") {
  manual_seed(4);
  nn::LSTM lstm(4, 6, {.num_layers = 2});
  nn::LSTMCell cell(4, 6);
  const Tensor x = randn({7, 3, 4});
  const auto [whole, end] = lstm(x);
  const auto [first, between] = lstm(x.narrow(0, 0, 3));
  const auto [second, last] = lstm(x.narrow(0, 3, 4), between);
  CHECK(distance(cat({first, second}), whole) < 1e-6);
  CHECK(distance(last.c, end.c) < 1e-6);
  const auto [again, state] = lstm(x.narrow(0, 3, 4), {between.h, between.c});
  CHECK(equal(again, second));
  lstm.zero_grad();
  sum(whole).backward();
  CHECK(lstm.weights[0].grad().defined());
}

TEST_CASE("shapes and names of recurrent nets are PyTorch's") {
  nn::LSTM lstm(3, 4, {.num_layers = 2, .batch_first = true, .bidirectional = true, .proj_size = 2});
  CHECK(names(lstm.named_parameters()) ==
        Names{"weight_ih_l0",         "weight_hh_l0",         "bias_ih_l0",           "bias_hh_l0",
              "weight_hr_l0",         "weight_ih_l0_reverse", "weight_hh_l0_reverse", "bias_ih_l0_reverse",
              "bias_hh_l0_reverse",   "weight_hr_l0_reverse", "weight_ih_l1",         "weight_hh_l1",
              "bias_ih_l1",           "bias_hh_l1",           "weight_hr_l1",         "weight_ih_l1_reverse",
              "weight_hh_l1_reverse", "bias_ih_l1_reverse",   "bias_hh_l1_reverse",   "weight_hr_l1_reverse"});
  CHECK(lstm.weights[10].shape() == Shape{16, 4});
  CHECK(lstm.to_string() == "LSTM(3, 4, proj_size=2, num_layers=2, batch_first=true, bidirectional=true)");
  const auto [y, state] = lstm(ones({5, 7, 3}));
  CHECK(y.shape() == Shape{5, 7, 4});
  CHECK(state.h.shape() == Shape{4, 5, 2});
  CHECK(state.c.shape() == Shape{4, 5, 4});
  const auto [single, ends] = lstm(ones({7, 3}));
  CHECK(single.shape() == Shape{7, 4});
  CHECK(ends.h.shape() == Shape{4, 2});
  CHECK(distance(single, y[0]) < 1e-6);

  CHECK(nn::GRU(2, 3, {.bias = false, .dropout = 0.5}).to_string() == "GRU(2, 3, bias=false, dropout=0.5)");
  CHECK(nn::RNN(2, 3, {.nonlinearity = nn::RNNOptions::kRelu}).to_string() == "RNN(2, 3)");
  CHECK(nn::GRU(2, 3, {.input_dropout = 0.25, .recurrent_dropout = 0.5}).to_string() ==
        "GRU(2, 3, input_dropout=0.25, recurrent_dropout=0.5)");
  CHECK(nn::RNNCell(2, 3, {.nonlinearity = nn::RNNOptions::kRelu}).to_string() == "RNNCell(2, 3, nonlinearity=relu)");
  CHECK(nn::GRUCell(2, 3, {.bias = false}).to_string() == "GRUCell(2, 3, bias=false)");
  CHECK(amax(abs(nn::GRU(2, 100).weights[0])).item<double>() <= 0.1);

  struct Tagger : nn::Module {
    nn::LSTM lstm{*this, "lstm", 3, 4};
    nn::GRU gru{*this, "gru", 4, 2, {.bias = false}};
  } tagger;
  CHECK(names(tagger.named_parameters()).front() == "lstm.weight_ih_l0");
  CHECK(names(tagger.named_parameters()).back() == "gru.weight_hh_l0");
}

TEST_CASE("cells take the steps of their nets") {
  manual_seed(5);
  const Tensor x = randn({3, 2, 4}, {.dtype = kFloat64});
  const auto check = [&](auto&& net, auto&& cell) {
    net.to(kFloat64), cell.to(kFloat64);
    const Tensors own = cell.parameters();
    NoGrad guard;
    for (size_t i = 0; i < own.size(); ++i) Tensor(own[i]).copy_(net.weights[i]);
    auto h = cell(x[0]);
    h = cell(x[1], h);
    h = cell(x[2], h);
    const auto row = cell(x[0].select(0, 1));
    const auto whole = net(x);
    if constexpr (requires { h.c; }) {
      CHECK(distance(h.h, whole.output[2]) < 1e-12);
      CHECK(distance(h.c, whole.state.c[0]) < 1e-12);
      CHECK(distance(row.h, whole.output[0].select(0, 1)) < 1e-12);
    } else {
      CHECK(distance(h, whole.output[2]) < 1e-12);
      CHECK(distance(row, whole.output[0].select(0, 1)) < 1e-12);
    }
  };
  check(nn::LSTM(4, 5), nn::LSTMCell(4, 5));
  check(nn::GRU(4, 5), nn::GRUCell(4, 5));
  check(nn::GRU(4, 5, {.bias = false}), nn::GRUCell(4, 5, {.bias = false}));
  check(nn::RNN(4, 5), nn::RNNCell(4, 5));
  check(nn::RNN(4, 5, {.nonlinearity = nn::RNNOptions::kRelu}),
        nn::RNNCell(4, 5, {.nonlinearity = nn::RNNOptions::kRelu}));
}

TEST_CASE("of the state of an LSTM h or c alone may be given, in every form of input") {
  manual_seed(6);
  nn::LSTM net(4, 3, {.num_layers = 2, .bidirectional = true});
  nn::LSTMCell cell(4, 3);
  const Tensor x = randn({5, 2, 4}), none = zeros({4, 2, 3});
  const std::vector<int64_t> lengths{3, 5};
  const auto as_is = [](const Tensor& t) { return t; };
  for (const bool is_h : {false, true}) {
    INFO("h " << is_h);
    const auto leaf = [](const Tensor& t) { return t.detach().clone().requires_grad_(); };
    const Tensor given = leaf(randn({4, 2, 3}));
    const auto check = [&](const auto& f, const auto& rows_of, const Tensor& state, const Tensor& zero) {
      const CellState half{is_h ? state : Tensor(), is_h ? Tensor() : state};
      const CellState whole{is_h ? state : zero, is_h ? zero : state};
      const auto [y, last] = f(half);
      const auto [z, expected] = f(whole);
      CHECK(distance(rows_of(y), rows_of(z)) == 0);
      CHECK(distance(last.h, expected.h) == 0);
      CHECK(distance(last.c, expected.c) == 0);
      CHECK(distance(grad({last.c.sum()}, {state})[0], grad({expected.c.sum()}, {state})[0]) == 0);
    };
    check([&](const CellState& s) { return net(x, s); }, as_is, given, none);
    check([&](const CellState& s) { return net(pack_padded_sequence(x, lengths), s); },
          [](const PackedSequence& y) { return y.data; }, given, none);
    check([&](const CellState& s) { return net(Ragged::unpad(x, Lengths::of(lengths), false), s); },
          [](const Ragged& y) { return y.values; }, given, none);
    check([&](const CellState& s) { return net(x.select(1, 0), s); }, as_is, leaf(given.select(1, 0)),
          none.select(1, 0));
    const auto step = [&](const Tensor& row) {
      return [&](const CellState& s) {
        const CellState next = cell(row, s);
        return std::pair{next.h, next};
      };
    };
    check(step(x[0]), as_is, leaf(given[0]), none[0]);
    check(step(x[0][1]), as_is, leaf(given[0][1]), none[0][1]);
  }
}

TEST_CASE("dropout lies between the layers of a recurrent net in training") {
  manual_seed(6);
  nn::GRU gru(2, 3, {.num_layers = 2, .dropout = 0.5}), single(2, 3, {.dropout = 0.5});
  const Tensor x = randn({4, 2});
  CHECK_FALSE(equal(gru(x).output, gru(x).output));
  CHECK(equal(single(x).output, single(x).output));
  gru.eval();
  CHECK(equal(gru(x).output, gru(x).output));
}

namespace {

/// What a net with variational dropout gives for x [len, n, in]: outputs and the last h, by the formulas of ops/rnn.h
/// with masks. One layer, one direction, float64.
template <class Net>
Tensors by_formula(const Net& net, const Tensor& x, const Tensor& input_mask, const Tensor& state_mask) {
  const auto& w = net.weights;
  const int64_t hidden = net.hidden_size;
  Tensor h = zeros_like(state_mask), c = zeros({x.size(1), hidden}, {.dtype = kFloat64});
  Tensors outputs;
  for (int64_t t = 0; t < x.size(0); ++t) {
    const Tensor from_x = linear(x[t] * input_mask, w[0], w[2]), from_h = linear(h * state_mask, w[1], w[3]);
    const auto block = [&](const Tensor& gates, int64_t i) { return gates.narrow(1, i * hidden, hidden); };
    if constexpr (std::is_same_v<Net, nn::LSTM>) {
      const Tensor gates = from_x + from_h;
      c = sigmoid(block(gates, 1)) * c + sigmoid(block(gates, 0)) * tanh(block(gates, 2));
      h = sigmoid(block(gates, 3)) * tanh(c);
      if (net.proj_size) h = linear(h, w[4]);
    } else if constexpr (std::is_same_v<Net, nn::GRU>) {
      const Tensor r = sigmoid(block(from_x, 0) + block(from_h, 0)), z = sigmoid(block(from_x, 1) + block(from_h, 1));
      h = (1 - z) * tanh(block(from_x, 2) + r * block(from_h, 2)) + z * h;
    } else {
      h = tanh(from_x + from_h);
    }
    outputs.push_back(h);
  }
  return {stack(outputs), h};
}

}  // namespace

TEST_CASE("variational dropout has one mask for all steps of a sequence, layer and direction") {
  constexpr int64_t n = 40, steps = 3;
  const auto ones_on = [](nn::RNN& net) {  // each unit adds its input and its own state
    NoGrad guard;
    for (const nn::Parameter& w : net.weights)
      if (w.dim() == 2)
        Tensor(w).copy_(eye(2));
      else
        Tensor(w).zero_();
  };
  manual_seed(11);
  nn::RNN inputs(2, 2, {.nonlinearity = nn::RNNOptions::kRelu, .input_dropout = 0.5});
  ones_on(inputs);
  // h is t + 1 times the masked input, 0 or 2.
  const Tensor of_inputs = inputs(ones({steps, n, 2})).output;
  for (int64_t t = 0; t < steps; ++t) CHECK(equal(of_inputs[t], of_inputs[0] * static_cast<double>(t + 1)));
  CHECK(all((of_inputs[0] == 0) | (of_inputs[0] == 2)).item<bool>());
  CHECK(std::abs(mean(of_inputs[0]).item<double>() - 1) < 0.5);
  CHECK(any(of_inputs[0] != of_inputs[0][0]).item<bool>());  // each sequence has its own

  nn::RNN state(2, 2, {.nonlinearity = nn::RNNOptions::kRelu, .bidirectional = true, .recurrent_dropout = 0.5});
  ones_on(state);
  // h is 1, 1, 1 where the state is dropped, and 1, 1 + 2, 1 + 2 (1 + 2) where it is kept.
  const Tensor forwards = state(ones({steps, n, 2})).output;
  const Tensor kept = forwards[1].narrow(1, 0, 2) == 3;
  CHECK(equal(forwards[0].narrow(1, 0, 2), ones({n, 2})));
  CHECK(equal(forwards[1].narrow(1, 0, 2), where(kept, 3., 1.)));
  CHECK(equal(forwards[2].narrow(1, 0, 2), where(kept, 7., 1.)));
  CHECK_FALSE(equal(forwards[2].narrow(1, 0, 2), forwards[0].narrow(1, 2, 2)));  // the other direction's mask

  // Sequences of different lengths, whose rows lie in another order.
  Tensors list;
  for (int64_t i = 0; i < n; ++i) list.push_back(ones({1 + i % 3, 2}));
  const auto check_list = [&](const Tensors& outputs) {
    for (int64_t i = 0; i < n; ++i) {
      const Tensor& y = outputs[static_cast<size_t>(i)];
      const Tensor first = y.select(0, 0).narrow(0, 0, 2);
      CHECK(equal(first, ones({2})));
      if (y.size(0) == 3) {
        const Tensor own = y[1].narrow(0, 0, 2) == 3;
        CHECK(equal(y[2].narrow(0, 0, 2), where(own, 7., 1.)));
      }
    }
  };
  check_list(state(list).output);
  const Ragged ragged = state(Ragged::of(list)).output;
  check_list(split(ragged.values, ragged.lengths->to_vector()));
  for (const Tensor& y : inputs(list).output)
    for (int64_t t = 0; t < y.size(0); ++t) CHECK(equal(y[t], y[0] * static_cast<double>(t + 1)));

  for (nn::RNN* net : {&inputs, &state}) {
    CHECK_FALSE(equal((*net)(ones({steps, n, 2})).output, (*net)(ones({steps, n, 2})).output));
    net->eval();
    CHECK(equal((*net)(ones({steps, 2})).output.narrow(1, 0, 2), tensor({{1.F, 1.F}, {2.F, 2.F}, {3.F, 3.F}})));
  }
}

TEST_CASE("variational dropout multiplies inputs and W_hh's operand, and nothing else") {
  const auto check = [](auto&& net) {
    net.to(kFloat64);
    manual_seed(12);
    const Tensor x = randn({4, 5, 3}, {.dtype = kFloat64});
    const int64_t width = net.proj_size ? net.proj_size : net.hidden_size;
    manual_seed(13);
    const auto result = net(x);
    manual_seed(13);  // masks are drawn in this order
    const Tensor input_mask = dropout(ones({5, 3}, {.dtype = kFloat64}), 0.4);
    const Tensor state_mask = dropout(ones({5, width}, {.dtype = kFloat64}), 0.5);
    const Tensors expected = by_formula(net, x, input_mask, state_mask);
    CHECK(distance(result.output, expected[0]) < 1e-12);
    CHECK(distance(state_h(result)[0], expected[1]) < 1e-12);
  };
  check(nn::LSTM(3, 7, {.input_dropout = 0.4, .recurrent_dropout = 0.5}));
  check(nn::LSTM(3, 7, {.proj_size = 4, .input_dropout = 0.4, .recurrent_dropout = 0.5}));
  check(nn::GRU(3, 7, {.input_dropout = 0.4, .recurrent_dropout = 0.5}));
  check(nn::RNN(3, 7, {.input_dropout = 0.4, .recurrent_dropout = 0.5}));
}

TEST_CASE("gradients with variational dropout are right, twice") {
  static const testing::GradcheckOptions how{.fast = default_device() != kCPU};
  const auto check = [](auto&& net) {
    net.to(kFloat64);
    manual_seed(14);
    const std::vector<int64_t> lengths{2, 3, 1};
    Tensors inputs{randn({6, 2}, {.dtype = kFloat64})};
    for (const Tensor& w : net.parameters()) inputs.push_back(w.detach().clone());
    const auto f = [&](const Tensors& x) {
      RecurrentOptions options = net.options;
      options.training = true;
      const auto weights = std::span(x).subspan(1);
      const auto result = [&](const auto& sequences) {
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(net)>, nn::LSTM>)
          return lstm(sequences, {}, weights, options);
        else if constexpr (std::is_same_v<std::remove_cvref_t<decltype(net)>, nn::GRU>)
          return gru(sequences, {}, weights, options);
        else
          return rnn_tanh(sequences, {}, weights, options);
      };
      return cat({cat(result(split(x[0], lengths)).output), result(x[0].view({3, 2, 2})).output.flatten(0, 1)});
    };
    testing::gradcheck(f, inputs, how);
    testing::gradgradcheck(f, inputs, how);
  };
  check(nn::LSTM(2, 3, {.num_layers = 2, .bidirectional = true, .input_dropout = 0.3, .recurrent_dropout = 0.4}));
  check(nn::LSTM(2, 3, {.proj_size = 2, .recurrent_dropout = 0.4}));
  check(nn::GRU(2, 3, {.num_layers = 2, .bidirectional = true, .input_dropout = 0.3, .recurrent_dropout = 0.4}));
  check(nn::RNN(2, 3, {.bidirectional = true, .recurrent_dropout = 0.4}));
}

TEST_CASE("variational dropout of half types is that of float32, rounded", "[cpu]") {
  manual_seed(15);
  nn::GRU gru(4, 8, {.input_dropout = 0.3, .recurrent_dropout = 0.5});
  const Tensor x = randn({6, 5, 4});
  const auto run = [&](DType dtype) {
    gru.to(dtype);
    gru.zero_grad();
    manual_seed(16);
    const Tensor y = gru(x.to(dtype)).output;
    sum(y.to(kFloat32) * y.to(kFloat32)).backward();
    return Tensors{y.to(kFloat32), gru.weights[1].grad().to(kFloat32)};
  };
  const Tensors wide = run(kFloat32), half = run(kBFloat16);
  CHECK(distance(half[0], wide[0]) < 0.02);
  CHECK(distance(half[1], wide[1]) < 0.02 * amax(abs(wide[1])).item<double>());
}

TEST_CASE("hooks see the tensors of a recurrent net") {
  nn::LSTM lstm(2, 3);
  int inputs = 0, outputs = 0;
  lstm.register_forward_hook([&](nn::Module&, const Tensors& in, const Tensors& out) {
    inputs = static_cast<int>(in.size()), outputs = static_cast<int>(out.size());
    return Tensors{};
  });
  lstm(ones({4, 2}));
  CHECK(outputs == 3);
  lstm(pack_sequence({ones({2, 2}), ones({3, 2})}), {zeros({1, 2, 3}), zeros({1, 2, 3})});
  CHECK(inputs >= 3);
  const Tensors list{ones({2, 2}), ones({3, 2})};
  lstm(list);
  CHECK(outputs == 4);
}

TEST_CASE("what does not fit a recurrent net is named", "[cpu]") {
  nn::LSTM lstm(2, 3);
  nn::GRU gru(2, 3, {.num_layers = 2});
  CHECK_THROWS_WITH(lstm(ones({4, 5})), Contains("lstm: weight_ih of shape [12, 2] is not [4 hidden, 5]"));
  CHECK_THROWS_WITH(lstm(ones({0, 2})), Contains("lstm: a sequence of length 0"));
  CHECK_THROWS_WITH(lstm(ones({4})), Contains("lstm: expected an input [len, in] or [len, n, in], got shape [4]"));
  CHECK_THROWS_WITH(lstm(ones({4, 1, 2}), {ones({1, 2, 3}), ones({1, 1, 3})}),
                    Contains("lstm: h of shape [1, 2, 3], not [1, 1, 3]"));
  CHECK_THROWS_WITH(gru(ones({4, 2}), ones({1, 3})), Contains("gru: h of shape [1, 1, 3], not [2, 1, 3]"));
  CHECK_THROWS_WITH(gru(ones({4, 2}, {.dtype = kFloat64})), Contains("float64 and a parameter of float32"));
  CHECK_THROWS_WITH(nn::LSTM(2, 3, {.recurrent_dropout = 1.5}),
                    Contains("LSTM: recurrent_dropout must be between 0 and 1, got 1.5"));
  CHECK_THROWS_WITH(reel::gru(ones({4, 2}), {}, gru.parameters(), {.num_layers = 2, .input_dropout = -1}),
                    Contains("gru: input_dropout must be between 0 and 1, got -1"));
  CHECK_THROWS_WITH(gru(PackedSequence{ones({4, 2}), tensor({2, 3})}), Contains("batch_sizes[1] is 3 after 2"));
  CHECK_THROWS_WITH(gru(PackedSequence{ones({4, 2}), tensor({2, 1})}), Contains("batch_sizes that add up to 3"));
  CHECK_THROWS_WITH(nn::LSTM(2, 3, {.proj_size = 3}), Contains("LSTM: proj_size must be from 0 to less"));
  CHECK_THROWS_WITH(nn::GRU(2, 3, {.num_layers = 0}), Contains("GRU: num_layers must be positive"));
  CHECK_THROWS_WITH(nn::RNN(2, 3, {.dropout = 2}), Contains("RNN: dropout must be between 0 and 1"));
  CHECK_THROWS_WITH(nn::GRUCell(2, 3)(ones({2, 3})), Contains("GRUCell: expected x of shape [n, 2] or [2]"));
  CHECK_THROWS_WITH(nn::RNNCell(2, 3)(ones({2, 2}), ones({3, 3})),
                    Contains("RNNCell: expected a state of shape [2, 3], got [3, 3]"));
}
