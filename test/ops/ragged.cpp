#include <array>
#include <span>

#include "reel/ragged.h"
#include "test/support/op_rows.h"

// Of ragged tensors: each sequence by itself, with the ops of single sequences, in double precision.
namespace reel {
namespace {

using Ids = std::vector<int64_t>;
const Ids kLengths{3, 0, 1, 5}, kNoneEmpty{3, 1, 5}, kOthers{2, 4, 0, 3};

Ragged ragged(const Tensor& values, const Ids& lengths = kLengths) { return {values, Lengths::of(lengths)}; }

Tensor tensor_of(const Array& x) { return tensor(x.data, x.shape, {.device = kCPU}); }
Tensor ids_of(const Array& x) { return tensor_of(x).to(kInt64); }
Array array_of(const Tensor& x) { return {x.shape(), x.to_vector<double>()}; }
Tensors parts(const Tensor& x, const Ids& lengths = kLengths) { return split(x, lengths); }
Tensor no_rows(const Tensor& like) { return zeros({0, like.size(-1)}, {.dtype = kFloat64, .device = kCPU}); }

/// f(each sequence), joined.
template <class F>
Array joined(const Array& x, const F& f, const Ids& lengths = kLengths) {
  Tensors all;
  for (const Tensor& part : parts(tensor_of(x), lengths)) all.push_back(f(part));
  return array_of(cat(all, 0));
}
/// f(each sequence), one above the other.
template <class F>
Array stacked(const Array& x, const F& f, const Ids& lengths = kLengths) {
  return joined(
      x, [&](const Tensor& part) { return f(part).unsqueeze(0); }, lengths);
}
Tensor mean_or_zero(const Tensor& x) { return sum(x, 0) / std::max<double>(1, static_cast<double>(x.size(0))); }

Array attention(Ref x, const Ids& queries, const Ids& keys, const AttentionOptions& options = {}) {
  const Tensors q = parts(tensor_of(x[0]), queries), k = parts(tensor_of(x[1]), keys), v = parts(tensor_of(x[2]), keys);
  Tensors all;
  const auto by_heads = [](const Tensor& t) { return t.dim() == 3 ? t.transpose(0, 1) : t; };
  for (size_t i = 0; i < q.size(); ++i)
    all.push_back(by_heads(scaled_dot_product_attention(by_heads(q[i]), by_heads(k[i]), by_heads(v[i]), options)));
  return array_of(cat(all, 0));
}
Tensor attend(std::span<const Tensor> x, const Ids& queries, const Ids& keys, const AttentionOptions& options = {}) {
  return scaled_dot_product_attention(ragged(x[0], queries), ragged(x[1], keys), ragged(x[2], keys), options).values;
}

/// Each sequence between its zeros.
Array convolution(Ref x, int64_t before, int64_t after, const ConvOptions<1>& options) {
  const Tensor weight = tensor_of(x[1]), bias = tensor_of(x[2]);
  const int64_t reach = options.dilation[0] * (weight.size(2) - 1) + 1;
  Tensors all;
  for (const Tensor& part : parts(tensor_of(x[0]))) {
    const auto gap = [&](int64_t rows) { return zeros({rows, part.size(1)}, {.dtype = kFloat64, .device = kCPU}); };
    const Tensor line = cat({gap(before), part, gap(after)}, 0);
    if (line.size(0) < reach)
      all.push_back(no_rows(bias));
    else
      all.push_back(conv1d(line.t().unsqueeze(0), weight, bias,
                           {.stride = options.stride, .dilation = options.dilation, .groups = options.groups})[0]
                        .t());
  }
  return array_of(cat(all, 0));
}

/// The outputs, then the states, as one row. x: values, h (c of an LSTM), parameters.
using Recur = std::function<LSTMResult<Tensor>(const Tensor&, const CellState&, std::span<const Tensor>)>;
Array recurrence(Ref x, bool lstm, const Recur& f) {
  Tensors in;
  for (const Array& a : x) in.push_back(tensor_of(a));
  const std::span<const Tensor> parameters = std::span<const Tensor>(in).subspan(lstm ? 3 : 2);
  Tensors y, h, c;
  int64_t i = 0;
  for (const Tensor& part : parts(in[0])) {
    CellState state{in[1].select(1, i), lstm ? in[2].select(1, i) : Tensor()};
    if (part.size(0) > 0) {
      const LSTMResult<Tensor> result = f(part, state, parameters);
      y.push_back(result.output), state = result.state;
    }
    h.push_back(state.h), c.push_back(state.c), ++i;
  }
  Tensors all{cat(y, 0).flatten(), stack(h, 1).flatten()};
  if (lstm) all.push_back(stack(c, 1).flatten());
  return array_of(cat(all, 0));
}
Tensor flat(const Ragged& y, const Tensor& h, const Tensor& c = {}) {
  Tensors all{y.values.flatten(), h.flatten()};
  if (c.defined()) all.push_back(c.flatten());
  return cat(all, 0);
}

/// What cross_entropy makes of one sequence; 0 where nothing counts.
Array losses(Ref x, const CrossEntropyLossOptions& options) {
  const Tensors logits = parts(tensor_of(x[0]));
  const bool soft = x[1].shape.size() == 2;
  const Tensors targets = parts(soft ? tensor_of(x[1]) : ids_of(x[1]));
  CrossEntropyLossOptions each = options;
  if (x.size() > 2) each.weight = tensor_of(x[2]);
  Tensors all;
  for (size_t i = 0; i < logits.size(); ++i) {
    const bool counts = soft ? targets[i].size(0) > 0 : any(targets[i] != options.ignore_index).item<bool>();
    all.push_back(counts ? cross_entropy(logits[i], targets[i], each) : zeros({}, {.dtype = kFloat64, .device = kCPU}));
  }
  return array_of(stack(all));
}

Array likelihoods(Ref x) {
  const Tensors emissions = parts(tensor_of(x[0])), tags = parts(ids_of(x[1]));
  Tensors all;
  for (size_t i = 0; i < emissions.size(); ++i)
    all.push_back(emissions[i].size(0)
                      ? crf_log_likelihood(emissions[i], tags[i], tensor_of(x[2]), tensor_of(x[3]), tensor_of(x[4]))
                      : zeros({}, {.dtype = kFloat64, .device = kCPU}));
  return array_of(stack(all));
}

}  // namespace

// clang-format off
const std::vector<Row>& ragged_rows() {
  static const std::vector<Row> rows{

{"map(ragged)", [](In x) { return map(ragged(x[0]), ragged(x[1]), [](const Tensor& a, const Tensor& b) { return a * b; }).values; },
 [](Ref x) { return array_of(tensor_of(x[0]) * tensor_of(x[1])); }, {{{9, 3}}, {{9, 1}}}},
{"operator*(ragged)", [](In x) { return (2 * ragged(x[0]) * x[1] - ragged(x[2]) / 4 + -ragged(x[0])).values; },
 [](Ref x) { return array_of(2 * tensor_of(x[0]) * tensor_of(x[1]) - tensor_of(x[2]) / 4 - tensor_of(x[0])); },
 {{{9, 3}}, {{3}}, {{9, 1}}}},
{"pad(ragged)", [](In x) { return ragged(x[0]).pad(1); },
 [](Ref x) {
   return stacked(x[0], [](const Tensor& part) {
     return cat({part, full({5 - part.size(0), 2}, 1., {.dtype = kFloat64, .device = kCPU})}, 0); });
 }, {{{9, 2}}}, kMoves},
{"pad(ragged, steps first)", [](In x) { return ragged(x[0]).pad(0, false); },
 [](Ref x) {
   const Array y = stacked(x[0], [](const Tensor& part) {
     return cat({part, zeros({5 - part.size(0)}, {.dtype = kFloat64, .device = kCPU})}, 0); });
   return array_of(tensor_of(y).t());
 }, {{{9}}}, kMoves},
{"unpad(ragged)", [](In x) { return Ragged::unpad(x[0], Lengths::of(kLengths)).values; },
 [](Ref x) {
   Tensors all;
   for (int64_t i = 0; i < 4; ++i) all.push_back(tensor_of(x[0])[i].narrow(0, 0, kLengths[i]));
   return array_of(cat(all, 0));
 }, {{{4, 6, 2}}}, kMoves},

{"sum(ragged)", [](In x) { return sum(ragged(x[0])); },
 [](Ref x) { return stacked(x[0], [](const Tensor& part) { return sum(part, 0); }); }, {{{9, 3}}}},
{"mean(ragged)", [](In x) { return mean(ragged(x[0])); }, [](Ref x) { return stacked(x[0], mean_or_zero); },
 {{{9, 2, 3}}}},
{"max(ragged)", [](In x) { return max(ragged(x[0], kNoneEmpty)); },
 [](Ref x) { return stacked(x[0], [](const Tensor& part) { return amax(part, 0); }, kNoneEmpty); }, {{{9, 3}}}},
{"min(ragged)", [](In x) { return min(ragged(x[0], kNoneEmpty)); },
 [](Ref x) { return stacked(x[0], [](const Tensor& part) { return amin(part, 0); }, kNoneEmpty); }, {{{9}}}},
{"softmax(ragged)", [](In x) { return softmax(ragged(x[0])).values; },
 [](Ref x) { return joined(x[0], [](const Tensor& part) { return softmax(part, 0); }); }, {{{9, 3}}}},
{"expand(ragged)", [](In x) { return expand(x[0], ragged(zeros({9}, {.device = test_device()}))).values; },
 [](Ref x) { return array_of(repeat_interleave(tensor_of(x[0]), tensor(kLengths, {.device = kCPU}), 0)); }, {{{4, 3}}},
 kMoves},

{"scaled_dot_product_attention(ragged)", [](In x) { return attend(x, kLengths, kLengths); },
 [](Ref x) { return attention(x, kLengths, kLengths); }, {{{9, 2, 4}}, {{9, 2, 4}}, {{9, 2, 3}}}, kProduct},
{"scaled_dot_product_attention(ragged, one head)", [](In x) { return attend(x, kLengths, kOthers, {.scale = 0.7}); },
 [](Ref x) { return attention(x, kLengths, kOthers, {.scale = 0.7}); }, {{{9, 3}}, {{9, 3}}, {{9, 17}}}, kProduct},
{"scaled_dot_product_attention(ragged, causal)", [](In x) { return attend(x, kLengths, kOthers, {.is_causal = true}); },
 [](Ref x) { return attention(x, kLengths, kOthers, {.is_causal = true}); }, {{{9, 2, 4}}, {{9, 2, 4}}, {{9, 2, 2}}},
 kProduct},
{"scaled_dot_product_attention(ragged, grouped)",
 [](In x) { return attend(x, kLengths, kOthers, {.is_causal = true, .enable_gqa = true}); },
 [](Ref x) { return attention(x, kLengths, kOthers, {.is_causal = true, .enable_gqa = true}); },
 {{{9, 4, 2}}, {{9, 2, 2}}, {{9, 2, 3}}}, kProduct},
{"scaled_dot_product_attention(ragged, of itself)",
 [](In x) { return attend(std::array{x[0], x[0], x[0]}, kLengths, kLengths); },
 [](Ref x) { return attention({x[0], x[0], x[0]}, kLengths, kLengths); }, {{{9, 2, 3}}}, kProduct},

{"conv1d(ragged)", [](In x) { return conv1d(ragged(x[0]), x[1], x[2]).values; },
 [](Ref x) { return convolution(x, 0, 0, {}); }, {{{9, 2}}, {{3, 2, 2}}, {{3}}}, kProduct},
{"conv1d(ragged, same)", [](In x) { return conv1d(ragged(x[0]), x[1], x[2], {.padding = kSame, .dilation = 2}).values; },
 [](Ref x) { return convolution(x, 3, 3, {.dilation = 2}); }, {{{9, 2}}, {{2, 2, 4}}, {{2}}}, kProduct},
{"conv1d(ragged, same and even)", [](In x) { return conv1d(ragged(x[0]), x[1], x[2], {.padding = kSame}).values; },
 [](Ref x) { return convolution(x, 1, 2, {}); }, {{{9, 1}}, {{2, 1, 4}}, {{2}}}, kProduct},
{"conv1d(ragged, strided groups)",
 [](In x) { return conv1d(ragged(x[0]), x[1], x[2], {.stride = 3, .padding = 1, .groups = 2}).values; },
 [](Ref x) { return convolution(x, 1, 1, {.stride = 3, .groups = 2}); }, {{{9, 4}}, {{2, 2, 2}}, {{2}}}, kProduct},

{"lstm(ragged)",
 [](In x) {
   const LSTMResult<Ragged> y = lstm(ragged(x[0]), {x[1], x[2]}, std::span(x).subspan(3), {.bidirectional = true});
   return flat(y.output, y.state.h, y.state.c);
 },
 [](Ref x) {
   return recurrence(x, true, [](const Tensor& t, const CellState& s, std::span<const Tensor> p) {
     return lstm(t, s, p, {.bidirectional = true}); });
 },
 {{{9, 2}}, {{2, 4, 3}}, {{2, 4, 3}}, {{12, 2}}, {{12, 3}}, {{12}}, {{12}}, {{12, 2}}, {{12, 3}}, {{12}}, {{12}}},
 {.tolerance = 8}},
{"gru(ragged)",
 [](In x) {
   const RNNResult<Ragged> y = gru(ragged(x[0]), x[1], std::span(x).subspan(2), {.num_layers = 2, .bias = false});
   return flat(y.output, y.h);
 },
 [](Ref x) {
   return recurrence(x, false, [](const Tensor& t, const CellState& s, std::span<const Tensor> p) {
     const RNNResult<Tensor> y = gru(t, s.h, p, {.num_layers = 2, .bias = false});
     return LSTMResult<Tensor>{y.output, {y.h, {}}}; });
 },
 {{{9, 2}}, {{2, 4, 2}}, {{6, 2}}, {{6, 2}}, {{6, 2}}, {{6, 2}}}, {.tolerance = 8}},
{"rnn_tanh(ragged)",
 [](In x) {
   const RNNResult<Ragged> y = rnn_tanh(ragged(x[0]), x[1], std::span(x).subspan(2));
   return flat(y.output, y.h);
 },
 [](Ref x) {
   return recurrence(x, false, [](const Tensor& t, const CellState& s, std::span<const Tensor> p) {
     const RNNResult<Tensor> y = rnn_tanh(t, s.h, p);
     return LSTMResult<Tensor>{y.output, {y.h, {}}}; });
 },
 {{{9, 2}}, {{1, 4, 3}}, {{3, 2}}, {{3, 3}}, {{3}}, {{3}}}, {.tolerance = 8}},
{"rnn_relu(ragged)",
 [](In x) {
   const RNNResult<Ragged> y = rnn_relu(ragged(x[0]), x[1], std::span(x).subspan(2));
   return flat(y.output, y.h);
 },
 [](Ref x) {
   return recurrence(x, false, [](const Tensor& t, const CellState& s, std::span<const Tensor> p) {
     const RNNResult<Tensor> y = rnn_relu(t, s.h, p);
     return LSTMResult<Tensor>{y.output, {y.h, {}}}; });
 },
 {{{9, 2}}, {{1, 4, 3}}, {{3, 2}}, {{3, 3}}, {{3}}, {{3}}}, {.tolerance = 8}},

{"cross_entropy(ragged)", [](In x) { return cross_entropy(ragged(x[0]), ragged(x[1]), kSum); },
 [](Ref x) { return losses(x, {.reduction = kSum}); }, {{{9, 4}}, ids({9}, 4)}},
{"cross_entropy(ragged, mean)",
 [](In x) { return cross_entropy(ragged(x[0]), ragged(x[1]), {.weight = x[2], .ignore_index = 3}); },
 [](Ref x) { return losses(x, {.ignore_index = 3}); }, {{{9, 5}}, ids({9}, 5), {{5}, 0.5, 2}}},
{"cross_entropy(ragged, probabilities)", [](In x) { return cross_entropy(ragged(x[0]), ragged(x[1])); },
 [](Ref x) { return losses(x, {}); }, {{{9, 3}}, {{9, 3}, 0, 1}}},
{"crf_log_likelihood(ragged)",
 [](In x) { return crf_log_likelihood(ragged(x[0]), ragged(x[1]), x[2], x[3], x[4]); }, likelihoods,
 {{{9, 3}}, ids({9}, 3), {{3, 3}}, {{3}}, {{3}}}, {.tolerance = 4}},
{"crf_marginals(ragged)", [](In x) { return crf_marginals(ragged(x[0]), x[1], x[2], x[3]).values; },
 [](Ref x) {
   return joined(x[0], [&](const Tensor& part) {
     return part.size(0) ? crf_marginals(part, tensor_of(x[1]), tensor_of(x[2]), tensor_of(x[3])) : part; });
 },
 {{{9, 3}}, {{3, 3}}, {{3}}, {{3}}}, {.tolerance = 4}},
{"crf_decode(ragged)", [](In x) { return crf_decode(ragged(x[0]), x[1], x[2], x[3]).scores; },
 [](Ref x) {
   return stacked(x[0], [&](const Tensor& part) {
     return part.size(0) ? crf_decode(part, tensor_of(x[1]), tensor_of(x[2]), tensor_of(x[3])).scores
                         : zeros({}, {.dtype = kFloat64, .device = kCPU}); });
 },
 {{{9, 3}}, {{3, 3}}, {{3}}, {{3}}}, {.differentiable = false}},

};
  return rows;
}
// clang-format on

}  // namespace reel
