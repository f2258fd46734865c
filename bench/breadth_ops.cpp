// The ops of the breadth benchmark that random programs (test/differential/ops.cpp) do not have: those that draw random
// numbers, recurrent ones, decompositions that are not unique, and forms without indices.
#include "bench/breadth.h"

namespace bench {

using namespace reel;

namespace {

const std::vector<Op> random_ops{OP(dropout),
                                 OP(dropout1d),
                                 OP(dropout2d),
                                 OP(dropout3d),
                                 OP(alpha_dropout),
                                 OP(feature_alpha_dropout),
                                 OP(gumbel_softmax),
                                 OP(bernoulli),
                                 OP(normal),
                                 OP(poisson),
                                 OP(multinomial),
                                 CALL("rrelu(training)", (In x), rrelu(x, 0.125, 0.25, true)),
                                 CALL("rand_like", (In x), rand_like(x)),
                                 CALL("randn_like", (In x), randn_like(x)),
                                 CALL("randint_like", (In x, int64_t low, int64_t high), randint_like(x, low, high)),
                                 CALL("randperm", (int64_t n), randperm(n)),
                                 CALL("fractional_max_pool2d", (In x, PerDim<2> size, double ratio),
                                      fractional_max_pool2d(x, size, {.output_ratio = {ratio}})),
                                 CALL("fractional_max_pool3d", (In x, PerDim<3> size, double ratio),
                                      fractional_max_pool3d(x, size, {.output_ratio = {ratio}}))};

template <class Result>
Tensors states(const Result& result) {
  return {result.output};
}
Tensors states(const CellState& state) { return {state.h, state.c}; }

#define CELL(name) CALL(#name, (In x, In h, In wi, In wh, In bi, In bh), name(x, h, wi, wh, bi, bh))
#define RECURRENT(name) CALL(#name, (In x, In h, const Tensors& parameters), states(name(x, h, parameters)))

const std::vector<Op> recurrent_ops{
    CELL(gru_cell),
    CELL(rnn_tanh_cell),
    CELL(rnn_relu_cell),
    RECURRENT(gru),
    RECURRENT(rnn_tanh),
    RECURRENT(rnn_relu),
    CALL("lstm_cell", (In x, In h, In c, In wi, In wh, In bi, In bh), states(lstm_cell(x, {h, c}, wi, wh, bi, bh))),
    CALL("lstm", (In x, In h, In c, const Tensors& parameters), states(lstm(x, {h, c}, parameters)))};

// These pool without indices, and undo it with them.
#define POOLS(n)                                                                                          \
  CALL("max_pool" #n "d(values)", (In x, PerDim<n> size, PerDim<n> stride, PerDim<n> padding),            \
       max_pool##n##d(x, size, {stride, padding})),                                                       \
      CALL("adaptive_max_pool" #n "d(values)", (In x, PerDim<n> size), adaptive_max_pool##n##d(x, size)), \
      CALL("max_unpool" #n "d", (In x, In indices, PerDim<n> size), max_unpool##n##d(x, indices, size))

const std::vector<Op> other_ops{
    POOLS(1),
    POOLS(2),
    POOLS(3),
    OP(broadcast_to),
    OP(swapaxes),
    OP(swapdims),
    OP(linear_relu),
    OP(pad_sequence),
    OP(embedding_renorm_),
    CALL("ctc_loss", (In x, In targets, In lengths, In target_lengths), ctc_loss(x, targets, lengths, target_lengths)),
    CALL("linalg.eigh", (In a), linalg::eigh(a).eigenvalues),
    CALL("linalg.svd", (In a), linalg::svd(a).s),
    CALL("attention(gqa)", (In query, In key, In value),
         scaled_dot_product_attention(query, key, value, {.is_causal = true, .enable_gqa = true}))};

}  // namespace

const std::vector<Op>& more_ops() {
  static const std::vector<Op> all = [] {
    std::vector<Op> joined;
    for (const auto* family : {&random_ops, &recurrent_ops, &other_ops})
      joined.insert(joined.end(), family->begin(), family->end());
    return joined;
  }();
  return all;
}

}  // namespace bench
