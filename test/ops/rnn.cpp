#include <catch2/catch.hpp>

#include "reel/autograd.h"
#include "reel/testing.h"
#include "test/support/op_rows.h"
#include "test/support/wrong_calls.h"

namespace reel {
namespace {

// ---- the reference --------------------------------------------------------------------------------------------------

enum Kind { kLSTM, kGRU, kTanh, kRelu };
struct Net {
  Kind kind;
  RecurrentOptions options = {};
  bool projected = false;
};
using Lines = std::vector<Line>;

Line row_of(const Array& x, int64_t row) {
  const int64_t columns = x.shape.back();
  return Line(x.data.begin() + row * columns, x.data.begin() + (row + 1) * columns);
}

/// One step of one sequence; h and c change. p: weight_ih, weight_hh, then biases and weight_hr where there are any.
void reference_step(const Net& net, const Line& x, Line& h, Line& c, const Array* p) {
  const Array none{}, &b_ih = net.options.bias ? p[2] : none, &b_hh = net.options.bias ? p[3] : none;
  const Line from_x = ref::linear(x, p[0], b_ih), from_h = ref::linear(h, p[1], b_hh);
  const size_t blocks = net.kind == kLSTM ? 4 : net.kind == kGRU ? 3 : 1, hidden = from_x.size() / blocks;
  const auto sum = [&](size_t block, size_t j) { return from_x[block * hidden + j] + from_h[block * hidden + j]; };
  Line next(hidden);
  for (size_t j = 0; j < hidden; ++j) switch (net.kind) {
      case kTanh: next[j] = std::tanh(sum(0, j)); break;
      case kRelu: next[j] = std::max(sum(0, j), 0.); break;
      case kGRU: {
        const double r = ref::sigmoid(sum(0, j)), z = ref::sigmoid(sum(1, j));
        next[j] = (1 - z) * std::tanh(from_x[2 * hidden + j] + r * from_h[2 * hidden + j]) + z * h[j];
        break;
      }
      case kLSTM:
        c[j] = ref::sigmoid(sum(1, j)) * c[j] + ref::sigmoid(sum(0, j)) * std::tanh(sum(2, j));
        next[j] = ref::sigmoid(sum(3, j)) * std::tanh(c[j]);
    }
  h = net.projected ? ref::linear(next, p[net.options.bias ? 4 : 2]) : next;
}

/// What flat() makes of the op's results, a sequence after the other. x: the sequences, h, c of an LSTM, parameters.
Array reference(const Net& net, std::vector<Lines> sequences, Ref x) {
  const bool lstm = net.kind == kLSTM;
  const size_t first = lstm ? 2 : 1, each = (net.options.bias ? 4 : 2) + net.projected;
  const int directions = net.options.bidirectional ? 2 : 1, n = static_cast<int>(sequences.size());
  const int64_t slots = net.options.num_layers * directions;
  std::vector<Line> h(slots * n), c(slots * n);
  for (int64_t s = 0; s < slots; ++s) {
    if (s % directions) continue;
    for (int i = 0; i < n; ++i) {
      Lines& lines = sequences[i];
      const int64_t len = lines.size();
      Lines y(len);
      for (int d = 0; d < directions; ++d) {
        const int64_t slot = (s + d) * n + i;
        h[slot] = row_of(x[0], slot);
        if (lstm) c[slot] = row_of(x[1], slot);
        Lines own(len);
        for (int64_t t = 0; t < len; ++t) {
          const int64_t at = d ? len - 1 - t : t;
          reference_step(net, lines[at], h[slot], c[slot], &x[first + (s + d) * each]);
          own[at] = h[slot];
        }
        for (int64_t t = 0; t < len; ++t) y[t].insert(y[t].end(), own[t].begin(), own[t].end());
      }
      lines = y;
    }
  }
  Array all{{0}, {}};
  const auto append = [&](const Lines& lines) {
    for (const Line& line : lines) all.data.insert(all.data.end(), line.begin(), line.end());
  };
  for (const Lines& y : sequences) append(y);
  append(h), append(c);
  all.shape[0] = all.data.size();
  return all;
}

Lines lines_of(const Array& x, int64_t first, int64_t count) {
  Lines lines;
  for (int64_t i = 0; i < count; ++i) lines.push_back(row_of(x, first + i));
  return lines;
}
Arrays rest(Ref x) { return Arrays(x.begin() + 1, x.end()); }
/// x[0] is one sequence, [n, len, in], or rows of sequences of these lengths.
Array one(const Net& net, Ref x) { return reference(net, {lines_of(x[0], 0, x[0].shape[0])}, rest(x)); }
Array batch(const Net& net, Ref x) {
  std::vector<Lines> all;
  for (int64_t i = 0; i < x[0].shape[0]; ++i) all.push_back(lines_of(x[0], i * x[0].shape[1], x[0].shape[1]));
  return reference(net, all, rest(x));
}
Array ragged(const Net& net, Ref x, const std::vector<int64_t>& lengths) {
  std::vector<Lines> all;
  int64_t first = 0;
  for (const int64_t length : lengths) all.push_back(lines_of(x[0], first, length)), first += length;
  return reference(net, all, rest(x));
}

// ---- the calls ------------------------------------------------------------------------------------------------------

Tensor flat(const Tensor& x) { return x.reshape({-1}); }
Tensor flat(const Tensors& list) {
  Tensors all;
  for (const Tensor& x : list) all.push_back(flat(x));
  return cat(all);
}
Tensor flat(const auto& result) {
  if constexpr (requires { result.state; })
    return cat({flat(result.output), flat(result.state.h), flat(result.state.c)});
  else
    return cat({flat(result.output), flat(result.h)});
}

/// x: the sequences (given again, in their form), h, c of an LSTM, parameters.
Tensor call(const Net& net, const auto& sequences, In x) {
  const auto parameters = std::span(x).subspan(net.kind == kLSTM ? 3 : 2);
  switch (net.kind) {
    case kLSTM: return flat(lstm(sequences, {x[1], x[2]}, parameters, net.options));
    case kGRU: return flat(gru(sequences, x[1], parameters, net.options));
    case kTanh: return flat(rnn_tanh(sequences, x[1], parameters, net.options));
    default: return flat(rnn_relu(sequences, x[1], parameters, net.options));
  }
}
Tensors cut(const Tensor& rows, const std::vector<int64_t>& lengths) { return split(rows, lengths); }

const Net kLstmNet{kLSTM}, kGruNet{kGRU}, kTanhNet{kTanh}, kReluNet{kRelu}, kProjectedNet{kLSTM, {}, true},
    kBareLstmNet{kLSTM, {.num_layers = 2, .bias = false, .batch_first = true, .bidirectional = true}},
    kBareGruNet{kGRU, {.bias = false, .batch_first = true}}, kBatchTanhNet{kTanh, {.batch_first = true}},
    kBothWaysLstm{kLSTM, {.bidirectional = true}}, kBothWaysGru{kGRU, {.bidirectional = true}},
    kBothWaysRelu{kRelu, {.num_layers = 2, .bidirectional = true}},
    kProjectedTwiceNet{kLSTM, {.num_layers = 2, .bias = false}, true};
const std::vector<int64_t> kLengths{2, 3, 1};

}  // namespace

// clang-format off
const std::vector<Row>& rnn_rows() {
  static const std::vector<Row> rows{

// ---- sequences

{"lstm", [](In x) { return call(kLstmNet, x[0], x); }, [](Ref x) { return one(kLstmNet, x); },
 {{{3, 2}}, {{1, 2}}, {{1, 2}}, {{8, 2}, -1, 1}, {{8, 2}, -1, 1}, {{8}}, {{8}}}},
{"lstm(long)", [](In x) { return call(kLstmNet, x[0], x); }, [](Ref x) { return one(kLstmNet, x); },
 {{{5, 1}}, {{1, 17}}, {{1, 17}}, {{68, 1}, -1, 1}, {{68, 17}, -.5, .5}, {{68}}, {{68}}}, {.tolerance = 4}},
{"lstm(layers)", [](In x) { return call(kBareLstmNet, x[0], x); }, [](Ref x) { return batch(kBareLstmNet, x); },
 {{{2, 3, 1}}, {{4, 2, 1}}, {{4, 2, 1}}, {{4, 1}, -1, 1}, {{4, 1}, -1, 1}, {{4, 1}, -1, 1}, {{4, 1}, -1, 1},
  {{4, 2}, -1, 1}, {{4, 1}, -1, 1}, {{4, 2}, -1, 1}, {{4, 1}, -1, 1}}, {.tolerance = 4}},
{"lstm(ragged)", [](In x) { return call(kBothWaysLstm, cut(x[0], kLengths), x); },
 [](Ref x) { return ragged(kBothWaysLstm, x, kLengths); },
 {{{6, 2}}, {{2, 3, 1}}, {{2, 3, 1}}, {{4, 2}, -1, 1}, {{4, 1}, -1, 1}, {{4}}, {{4}}, {{4, 2}, -1, 1}, {{4, 1}, -1, 1},
  {{4}}, {{4}}}, {.tolerance = 4}},
{"lstm(projected)", [](In x) { return call(kProjectedNet, x[0], x); }, [](Ref x) { return one(kProjectedNet, x); },
 {{{4, 2}}, {{1, 2}}, {{1, 3}}, {{12, 2}, -1, 1}, {{12, 2}, -1, 1}, {{12}}, {{12}}, {{2, 3}, -1, 1}},
 {.tolerance = 4}},
{"lstm(projected twice)", [](In x) { return call(kProjectedTwiceNet, cut(x[0], kLengths), x); },
 [](Ref x) { return ragged(kProjectedTwiceNet, x, kLengths); },
 {{{6, 2}}, {{2, 3, 1}}, {{2, 3, 2}}, {{8, 2}, -1, 1}, {{8, 1}, -1, 1}, {{1, 2}, -1, 1}, {{8, 1}, -1, 1},
  {{8, 1}, -1, 1}, {{1, 2}, -1, 1}}, {.tolerance = 4}},
{"gru", [](In x) { return call(kGruNet, x[0], x); }, [](Ref x) { return one(kGruNet, x); },
 {{{3, 2}}, {{1, 2}}, {{6, 2}, -1, 1}, {{6, 2}, -1, 1}, {{6}}, {{6}}}},
{"gru(batch)", [](In x) { return call(kBareGruNet, x[0], x); }, [](Ref x) { return batch(kBareGruNet, x); },
 {{{2, 5, 1}}, {{1, 2, 2}}, {{6, 1}, -1, 1}, {{6, 2}, -1, 1}}, {.tolerance = 4}},
{"gru(ragged)", [](In x) { return call(kBothWaysGru, cut(x[0], kLengths), x); },
 [](Ref x) { return ragged(kBothWaysGru, x, kLengths); },
 {{{6, 2}}, {{2, 3, 1}}, {{3, 2}, -1, 1}, {{3, 1}, -1, 1}, {{3}}, {{3}}, {{3, 2}, -1, 1}, {{3, 1}, -1, 1}, {{3}},
  {{3}}}, {.tolerance = 4}},
{"rnn_tanh", [](In x) { return call(kTanhNet, x[0], x); }, [](Ref x) { return one(kTanhNet, x); },
 {{{3, 2}}, {{1, 2}}, {{2, 2}, -1, 1}, {{2, 2}, -1, 1}, {{2}}, {{2}}}},
{"rnn_tanh(batch)", [](In x) { return call(kBatchTanhNet, x[0], x); }, [](Ref x) { return batch(kBatchTanhNet, x); },
 {{{2, 5, 2}}, {{1, 2, 2}}, {{2, 2}, -1, 1}, {{2, 2}, -1, 1}, {{2}}, {{2}}}, {.tolerance = 4}},
{"rnn_relu", [](In x) { return call(kReluNet, x[0], x); }, [](Ref x) { return one(kReluNet, x); },
 {{{3, 2}}, {{1, 2}}, {{2, 2}, -1, 1}, {{2, 2}, -1, 1}, {{2}}, {{2}}}},
{"rnn_relu(ragged)", [](In x) { return call(kBothWaysRelu, cut(x[0], kLengths), x); },
 [](Ref x) { return ragged(kBothWaysRelu, x, kLengths); },
 {{{6, 1}}, {{4, 3, 1}}, {{1, 1}, -1, 1}, {{1, 1}, -1, 1}, {{1}}, {{1}}, {{1, 1}, -1, 1}, {{1, 1}, -1, 1}, {{1}}, {{1}},
  {{1, 2}, -1, 1}, {{1, 1}, -1, 1}, {{1}}, {{1}}, {{1, 2}, -1, 1}, {{1, 1}, -1, 1}, {{1}}, {{1}}}, {.tolerance = 8}},

// ---- single steps. The reference takes them for sequences of one element, whose output is the state.

{"lstm_cell(whole)", [](In x) { const CellState s = lstm_cell(x[0], {x[1], x[2]}, x[3], x[4], x[5], x[6]);
                                return cat({flat(s.h), flat(s.h), flat(s.c)}); },
 [](Ref x) { return ragged(kLstmNet, x, {1, 1}); },
 {{{2, 2}}, {{2, 2}}, {{2, 2}}, {{8, 2}, -1, 1}, {{8, 2}, -1, 1}, {{8}}, {{8}}}},
{"gru_cell", [](In x) { const Tensor h = gru_cell(x[0], x[1], x[2], x[3], x[4], x[5]);
                        return cat({flat(h), flat(h)}); },
 [](Ref x) { return ragged(kGruNet, x, {1, 1}); },
 {{{2, 2}}, {{2, 2}}, {{6, 2}, -1, 1}, {{6, 2}, -1, 1}, {{6}}, {{6}}}},
{"rnn_tanh_cell", [](In x) { const Tensor h = rnn_tanh_cell(x[0], x[1], x[2], x[3], x[4], x[5]);
                             return cat({flat(h), flat(h)}); },
 [](Ref x) { return ragged(kTanhNet, x, {1, 1}); },
 {{{2, 2}}, {{2, 2}}, {{2, 2}, -1, 1}, {{2, 2}, -1, 1}, {{2}}, {{2}}},
 {.tolerance = 2}},  // a GPU keeps half types' states as such, and the gradient has 1 - h²
{"rnn_relu_cell", [](In x) { const Tensor h = rnn_relu_cell(x[0], x[1], x[2], x[3], x[4], x[5]);
                             return cat({flat(h), flat(h)}); },
 [](Ref x) { return ragged(kReluNet, x, {1, 1}); },
 {{{2, 2}}, {{2, 2}}, {{2, 2}, -1, 1}, {{2, 2}, -1, 1}, {{2}}, {{2}}}},

// ---- the pointwise parts

{"lstm_cell", [](In x) { const CellState s = lstm_cell(x[0], x[1]); return cat({s.h, s.c}, 1); },
 [](Ref x) { return ref::lstm_cell(x[0], x[1]); }, {{{2, 12}}, {{2, 3}}}},
{"lstm_cell(long)", [](In x) { const CellState s = lstm_cell(x[0], x[1]); return cat({s.h, s.c}, 1); },
 [](Ref x) { return ref::lstm_cell(x[0], x[1]); }, {{{1, 76}}, {{1, 19}}}},
{"lstm_cell(h)", [](In x) { return lstm_cell(x[0], x[1]).h; },
 [](Ref x) { return along(ref::lstm_cell(x[0], x[1]), 1, [](const Line& v) { return ref::first(v, 3); }); },
 {{{2, 12}}, {{2, 3}}}},
{"lstm_cell(c)", [](In x) { return lstm_cell(x[0], x[1]).c; },
 [](Ref x) { return along(ref::lstm_cell(x[0], x[1]), 1, [](const Line& v) { return Line(v.begin() + 3, v.end()); }); },
 {{{2, 12}}, {{2, 3}}}},
{"tree_lstm_cell", [](In x) { const CellState s = tree_lstm_cell(x[0], {x[1], x[2]}); return cat({s.h, s.c}, 1); },
 ref::tree_lstm_cell, {{{2, 15}}, {{2, 3}}, {{2, 3}}}},
{"tree_lstm_cell(leaf)", [](In x) { const CellState s = tree_lstm_cell(x[0], {}); return cat({s.h, s.c}, 1); },
 ref::tree_lstm_cell, {{{2, 9}}}},
{"tree_lstm_cell(one)", [](In x) { const CellState s = tree_lstm_cell(x[0], {x[1]}); return cat({s.h, s.c}, 1); },
 ref::tree_lstm_cell, {{{2, 12}}, {{2, 3}}}},
{"tree_lstm_cell(three)",
 [](In x) { const CellState s = tree_lstm_cell(x[0], {x[1], x[2], x[3]}); return cat({s.h, s.c}, 1); },
 ref::tree_lstm_cell, {{{1, 102}}, {{1, 17}}, {{1, 17}}, {{1, 17}}}},
{"tree_lstm_cell(c)", [](In x) { return tree_lstm_cell(x[0], {x[1]}).c; },
 [](Ref x) { return along(ref::tree_lstm_cell(x), 1, [](const Line& v) { return Line(v.begin() + 3, v.end()); }); },
 {{{2, 12}}, {{2, 3}}}},

// ---- packing: sequences of lengths 1, 3 and 2

{"pack_sequence", [](In x) { return pack_sequence(x).data; },
 [](Ref x) { return build({6, 2}, [&](const Index& at) { const int64_t of[] = {1, 2, 0, 1, 2, 1}, time[] = {0, 0, 0, 1, 1, 2};
                                                         return x[of[at[0]]]({time[at[0]], at[1]}); }); },
 {{{1, 2}}, {{3, 2}}, {{2, 2}}}, kMoves},
{"unpack_sequence",
 [](In x) { return cat(unpack_sequence({x[0], tensor({3, 2, 1}), tensor({1, 2, 0}), tensor({2, 0, 1})})); },
 [](Ref x) { return build({6, 2}, [&](const Index& at) { const int64_t row[] = {2, 0, 3, 5, 1, 4};
                                                         return x[0]({row[at[0]], at[1]}); }); }, {{{6, 2}}}, kMoves},
{"pack_padded_sequence", [](In x) { return pack_padded_sequence(x[0], {1, 3, 2}).data; },
 [](Ref x) { return build({6, 2}, [&](const Index& at) { const int64_t of[] = {1, 2, 0, 1, 2, 1}, time[] = {0, 0, 0, 1, 1, 2};
                                                         return x[0]({time[at[0]], of[at[0]], at[1]}); }); },
 {{{4, 3, 2}}}, kMoves},
{"pack_padded_sequence(batch_first)", [](In x) { return pack_padded_sequence(x[0], {3, 1}, true).data; },
 [](Ref x) { return build({4}, [&](const Index& at) { const int64_t of[] = {0, 1, 0, 0}, time[] = {0, 0, 1, 2};
                                                      return x[0]({of[at[0]], time[at[0]]}); }); }, {{{2, 3}}}, kMoves},
{"pad_packed_sequence",
 [](In x) { return pad_packed_sequence({x[0], tensor({3, 2, 1}), tensor({1, 2, 0}), tensor({2, 0, 1})}, false, 1, 4).data; },
 [](Ref x) { return build({4, 3, 2}, [&](const Index& at) { const int64_t row[] = {2, 0, 1, -1, 3, 4, -1, 5, -1, -1, -1, -1};
                                                            const int64_t i = row[at[0] * 3 + at[1]];
                                                            return i < 0 ? 1 : x[0]({i, at[2]}); }); }, {{{6, 2}}}, kMoves},
{"pad_sequence", [](In x) { return pad_sequence(x); },
 [](Ref x) { return build({3, 2, 2}, [&](const Index& at) { const Array& s = x[at[1]];
                                                            return at[0] < s.shape[0] ? s({at[0], at[2]}) : 0; }); },
 {{{1, 2}}, {{3, 2}}}, kMoves},
{"pad_sequence(batch_first)", [](In x) { return pad_sequence(x, true, 1); },
 [](Ref x) { return build({2, 3}, [&](const Index& at) { const Array& s = x[at[0]];
                                                         return at[1] < s.shape[0] ? s({at[1]}) : 1; }); },
 {{{1}}, {{3}}}, kMoves},
{"unpad_sequence", [](In x) { return cat(unpad_sequence(x[0], {1, 3})); },
 [](Ref x) { return build({4, 2}, [&](const Index& at) { const int64_t of[] = {0, 1, 1, 1}, time[] = {0, 0, 1, 2};
                                                         return x[0]({time[at[0]], of[at[0]], at[1]}); }); },
 {{{3, 2, 2}}}, kMoves},

};
  return rows;
}
// clang-format on

TEST_CASE("packing goes by length and back again", "[cpu]") {
  const Tensors sequences{ones({2, 3}), ones({4, 3}) * 2, ones({1, 3}) * 3};
  const PackedSequence packed = pack_sequence(sequences);
  CHECK(packed.batch_sizes.to_vector<int64_t>() == std::vector<int64_t>{3, 2, 1, 1});
  CHECK(packed.sorted_indices.to_vector<int64_t>() == std::vector<int64_t>{1, 0, 2});
  CHECK(packed.unsorted_indices.to_vector<int64_t>() == std::vector<int64_t>{1, 0, 2});
  const Tensors back = unpack_sequence(packed);
  for (size_t i = 0; i < back.size(); ++i) CHECK(equal(back[i], sequences[i]));
  const auto [padded, lengths] = pad_packed_sequence(packed, true, -1);
  CHECK(lengths == std::vector<int64_t>{2, 4, 1});
  CHECK(equal(padded, pad_sequence(sequences, true, -1)));
  CHECK(equal(pack_padded_sequence(padded, lengths, true).data, packed.data));
  CHECK(equal(unpad_sequence(padded, lengths, true)[1], sequences[1]));
  CHECK_FALSE(pack_sequence({ones({2}), ones({2}), ones({1})}, true).sorted_indices.defined());
  CHECK(packed.to(kFloat64).data.dtype() == kFloat64);
  CHECK(packed.to(kCPU).data.is_same(packed.data));
}

TEST_CASE("batch_sizes that are changed after the forward pass leave gradients alone", "[cpu]") {
  manual_seed(1);
  const auto run = [](auto op, int64_t gates, bool create_graph, std::optional<int64_t> reuse) {
    manual_seed(2);
    Tensors w;
    for (int layer = 0; layer < 2; ++layer)
      for (const Shape& shape :
           {Shape{gates * 4, layer ? 4 : 3}, Shape{gates * 4, 4}, Shape{gates * 4}, Shape{gates * 4}})
        w.push_back(randn(shape, {.dtype = kFloat64}).requires_grad_());
    const PackedSequence packed = pack_padded_sequence(randn({5, 3, 3}, {.dtype = kFloat64}), {5, 4, 2});
    Tensor sizes = packed.batch_sizes;
    const auto result = op(packed, w);
    const Tensor loss = sum(square(result.output.data));
    if (reuse) sizes.fill_(*reuse);
    return grad({&loss, 1}, w, {}, {.create_graph = create_graph});
  };
  const auto check = [&](auto op, int64_t gates) {
    for (const bool create_graph : {false, true}) {
      const Tensors expected = run(op, gates, create_graph, {});
      for (const int64_t reuse : {1, 3, 1 << 20}) {
        const Tensors found = run(op, gates, create_graph, reuse);
        for (size_t i = 0; i < found.size(); ++i) CHECK(equal(found[i], expected[i]));
      }
    }
  };
  check([](const PackedSequence& x, const Tensors& w) { return lstm(x, {}, w, {.num_layers = 2}); }, 4);
  check([](const PackedSequence& x, const Tensors& w) { return gru(x, {}, w, {.num_layers = 2}); }, 3);
  check([](const PackedSequence& x, const Tensors& w) { return rnn_tanh(x, {}, w, {.num_layers = 2}); }, 1);
}

TEST_CASE("a recurrent layer is one record, and frozen parameters cost nothing") {
  const Tensor x = ones({9, 2}, {.requires_grad = true});
  Tensors p{ones({8, 2}), ones({8, 2}), ones({8}), ones({8})};
  const int64_t before = live_nodes();
  const LSTMResult<Tensor> result = lstm(x, {}, p);
  CHECK(live_nodes() - before <= 4);  // and the states without their batch
  result.output.narrow(0, 0, 1).backward(ones({1, 2}));
  CHECK(x.grad().select(0, 8).to_vector<double>() == std::vector<double>{0, 0});
  for (const Tensor& parameter : p) CHECK_FALSE(parameter.grad().defined());
  CHECK_FALSE(no_grad([&] { return lstm(x, {}, p); }).output.requires_grad());
}

TEST_CASE("a recurrent layer takes a batch of no sequences") {
  Tensors p;
  for (const int64_t in : {3, 8})
    for (int direction = 0; direction < 2; ++direction)
      for (const Shape& shape : {Shape{16, in}, Shape{16, 4}, Shape{16}, Shape{16}})
        p.push_back(ones(shape, {.requires_grad = true}));
  for (const bool batch_first : {false, true}) {
    const Tensor x = zeros(batch_first ? Shape{0, 5, 3} : Shape{5, 0, 3}, {.requires_grad = true});
    const auto [y, state] = lstm(x, {}, p, {.num_layers = 2, .batch_first = batch_first, .bidirectional = true});
    CHECK(y.shape() == (batch_first ? Shape{0, 5, 8} : Shape{5, 0, 8}));
    CHECK(state.h.shape() == Shape{4, 0, 4});
    y.backward(ones_like(y));
    CHECK(x.grad().shape() == x.shape());
    for (const Tensor& parameter : p) CHECK(equal(parameter.grad(), zeros_like(parameter)));
  }
  CHECK(gru(zeros({5, 0, 3}), {}, Tensors{ones({6, 3}), ones({6, 2})}, {.bias = false}).output.shape() ==
        Shape{5, 0, 2});
}

TEST_CASE("wrong calls of recurrent ops say what is wrong", "[cpu]") {
  static const WrongCall calls[] = {
      {[](World& w) {
         lstm(w.matrix, {}, Tensors{w.leaf, w.leaf});
       },
       "lstm: 2 parameters for 1 layers in 1 directions, with 4 each, one more if there is a projection"},
      {[](World& w) {
         gru(w.matrix, {}, Tensors{w.leaf, w.leaf, w.leaf}, {.bias = false});
       },
       "gru: 3 parameters for 1 layers in 1 directions, with 2 each"},
      {[](World& w) {
         rnn_tanh(w.whole.view({1, 3}), {}, Tensors{w.leaf, w.leaf}, {.bias = false});
       },
       "rnn_tanh: an input of int64"},
      {[](World& w) {
         rnn_relu(w.matrix, {}, Tensors{w.matrix, w.matrix}, {.bias = false});
       },
       "rnn_relu: weight_hh of shape [3, 4], not [3, 3]"},
      {[](World& w) {
         rnn_tanh(w.undefined, {}, Tensors{w.matrix, w.matrix}, {.bias = false});
       },
       "rnn_tanh: undefined tensor"},
      {[](World& w) {
         rnn_tanh(w.matrix, {}, Tensors{w.matrix, w.undefined}, {.bias = false});
       },
       "rnn_tanh: undefined tensor"},
      {[](World& w) {
         rnn_tanh(w.matrix, {}, Tensors{w.matrix, w.matrix}, {.bias = false, .dropout = 2});
       },
       "rnn_tanh: dropout must be between 0 and 1, got 2"},
      {[](World& w) { gru_cell(w.vector, {}, w.matrix, w.matrix); },
       "gru_cell: expected an input [n, in], got shape [3]"},
      {[](World& w) { rnn_tanh_cell(w.matrix, {}, w.matrix, w.matrix, w.vector); },
       "rnn_tanh_cell: of the two biases one is undefined, one is not"},
      {[](World&) { pack_sequence(Tensors{}); }, "pack_sequence: no sequences"},
      {[](World& w) { pack_sequence({w.number}); }, "pack_sequence: sequence 0 is a 0-d tensor"},
      {[](World& w) { pack_sequence({w.none}); },
       "pack_sequence: sequence 0 has length 0; it needs at least one element"},
      {[](World& w) {
         pack_sequence({w.matrix.narrow(0, 0, 1), w.matrix}, true);
       },
       "pack_sequence: sequence 1 of length 3 follows a shorter one of length 1, and enforce_sorted is set"},
      {[](World& w) {
         pack_padded_sequence(w.matrix, {1, 2});
       },
       "pack_padded_sequence: 2 lengths for 4 sequences"},
      {[](World& w) {
         pack_padded_sequence(w.matrix, {1, 5, 2}, true);
       },
       "pack_padded_sequence: a sequence of length 5 in a tensor of shape [3, 4]"},
      {[](World& w) {
         unpack_sequence({w.matrix, tensor({2, 2})});
       },
       "unpack_sequence: data of shape [3, 4] with batch_sizes that add up to 4"},
      {[](World& w) {
         unpack_sequence({w.matrix, tensor({2, 1}), tensor({0, 0}), tensor({0, 0})});
       },
       "unpack_sequence: unsorted_indices[1] is 0; they should be the numbers from 0 to 1, each once"},
      {[](World& w) {
         pad_packed_sequence({w.matrix, tensor({2, 1})}, false, 0, 1);
       },
       "pad_packed_sequence: total_length 1 is less than the longest sequence's, 2"},
      {[](World& w) {
         pad_packed_sequence({w.matrix, tensor({2, 1})}, false, 0, int64_t{1} << 62);
       },
       "shape [2, 4611686018427387904]: too many elements for 63 bits"},
      {[](World& w) {
         unpack_sequence({w.matrix, tensor({int64_t{1} << 60})});
       },
       "unpack_sequence: data of shape [3, 4] with batch_sizes that add up to 1152921504606846976"},
      {[](World& w) {
         unpack_sequence({w.matrix, full({2}, int64_t{1} << 62)});
       },
       "unpack_sequence: batch_sizes[1] is 4611686018427387904; no data has as many rows"},
      {[](World& w) {
         rnn_tanh(PackedSequence{w.matrix, full({2}, int64_t{1} << 62)}, {}, Tensors{w.matrix, w.matrix});
       },
       "rnn_tanh: batch_sizes[1] is 4611686018427387904; no data has as many rows"},
      {[](World& w) {
         pad_sequence({w.matrix, w.cube});
       },
       "pad_sequence: shapes …"},
      {[](World& w) {
         unpad_sequence(w.matrix, {1, 2, 3, 4});
       },
       "unpad_sequence: a sequence of length 4 in a tensor of shape [3, 4]"},
  };
  check_wrong_calls(calls);
}

}  // namespace reel
