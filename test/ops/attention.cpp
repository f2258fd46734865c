#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "reel/autograd.h"
#include "reel/random.h"
#include "test/support/op_rows.h"
#include "test/support/wrong_calls.h"

namespace reel {

// [..., L, E], [..., S, E], [..., S, Ev] of one rank, mask(at, i, j) added to the score of query i and key j; the
// query's heads may be `share` times those of the others.
static Array attention(const Array& q, const Array& k, const Array& v, double scale,
                       const std::function<double(const Index&, int64_t, int64_t)>& mask, int64_t share = 1) {
  const int rank = q.shape.size();
  const int64_t length = k.shape[rank - 2], width = q.shape.back();
  Shape shape = q.shape;
  shape[rank - 1] = v.shape.back();
  return build(shape, [&](const Index& at) {
    Index there = at;
    if (rank > 2) there[rank - 3] /= share;
    Line scores(length);
    for (int64_t j = 0; j < length; ++j) {
      for (int64_t e = 0; e < width; ++e)
        scores[j] += q(with(at, rank - 1, e)) * k(with(with(there, rank - 2, j), rank - 1, e)) * scale;
      scores[j] += mask(at, at[rank - 2], j);
    }
    double y = 0;
    const Line weights = ref::softmax(scores);
    for (int64_t j = 0; j < length; ++j) y += weights[j] * v(with(there, rank - 2, j));
    return y;
  });
}
static double nothing(const Index&, int64_t, int64_t) { return 0; }

// clang-format off
const std::vector<Row>& attention_rows() {
  static const std::vector<Row> rows{

{"scaled_dot_product_attention", [](In x) { return scaled_dot_product_attention(x[0], x[1], x[2]); },
 [](Ref x) { return attention(x[0], x[1], x[2], 0.5, nothing); }, {{{2, 3, 4}}, {{2, 5, 4}}, {{2, 5, 3}}}, kProduct},
{"scaled_dot_product_attention(matrices)",
 [](In x) { return scaled_dot_product_attention(x[0], x[1], x[2], {.scale = 0.3}); },
 [](Ref x) { return attention(x[0], x[1], x[2], 0.3, nothing); }, {{{3, 4}}, {{5, 4}}, {{5, 3}}}, kProduct},
{"scaled_dot_product_attention(causal)",
 [](In x) { return scaled_dot_product_attention(x[0], x[1], x[2], {.is_causal = true}); },
 [](Ref x) {
   return attention(x[0], x[1], x[2], 0.5, [](const Index&, int64_t i, int64_t j) { return i < j ? -1e300 : 0; });
 },
 {{{2, 2, 3, 4}}, {{2, 2, 5, 4}}, {{2, 2, 5, 2}}}, kProduct},
{"scaled_dot_product_attention(mask)",
 [](In x) { return scaled_dot_product_attention(x[0], x[1], x[2], {.mask = x[3]}); },
 [](Ref x) {
   return attention(x[0], x[1], x[2], 0.5,
                    [&](const Index& at, int64_t i, int64_t j) { return x[3]({at[0], i, j}); });
 },
 {{{2, 3, 4}}, {{2, 5, 4}}, {{2, 5, 3}}, {{2, 3, 5}}}, kProduct},
{"scaled_dot_product_attention(bool mask)",
 [](In x) { return scaled_dot_product_attention(x[0], x[1], x[2], {.mask = logical_or(x[3], tensor({true, false}, {.device = test_device()}))}); },
 [](Ref x) {
   return attention(x[0], x[1], x[2], 0.5,
                    [&](const Index&, int64_t i, int64_t j) { return x[3]({i, j}) || j == 0 ? 0 : -1e300; });
 },
 {{{2, 3, 4}}, {{2, 2, 4}}, {{2, 2, 3}}, mask({3, 2})}, kProduct},
{"scaled_dot_product_attention(grouped)",
 [](In x) { return scaled_dot_product_attention(x[0], x[1], x[2], {.mask = x[3], .enable_gqa = true}); },
 [](Ref x) {
   return attention(x[0], x[1], x[2], 0.5, [&](const Index& at, int64_t i, int64_t j) { return x[3]({at[1], i, j}); },
                    2);
 },
 {{{2, 4, 3, 4}}, {{2, 2, 5, 4}}, {{2, 2, 5, 3}}, {{4, 3, 5}}}, kProduct},
{"scaled_dot_product_attention(grouped and causal)",
 [](In x) { return scaled_dot_product_attention(x[0], x[1], x[2], {.is_causal = true, .enable_gqa = true}); },
 [](Ref x) {
   return attention(x[0], x[1], x[2], 0.5, [](const Index&, int64_t i, int64_t j) { return i < j ? -1e300 : 0; }, 3);
 },
 {{{3, 3, 4}}, {{1, 3, 4}}, {{1, 3, 3}}}, kProduct},

};
  return rows;
}
// clang-format on

TEST_CASE("a query that sees no key gets zeros and gives no gradient") {
  manual_seed(1);
  const Tensor q = randn({1, 3, 4}, {.requires_grad = true}), k = randn({1, 2, 4}, {.requires_grad = true}),
               v = randn({1, 2, 4}, {.requires_grad = true});
  const Tensor open = tensor({{1, 1}, {0, 0}, {0, 1}}) > 0;
  const bool numbers = GENERATE(false, true);
  const double low = -std::numeric_limits<double>::infinity();
  const Tensor mask = numbers ? where(open, zeros({}), full({}, low)) : open;
  const Tensor y = scaled_dot_product_attention(q, k, v, {.mask = mask});
  CHECK(equal(y[0][1], zeros({4})));
  CHECK(amax(abs(y[0][2] - v[0][1])).item<double>() < 1e-6);
  sum(square(y)).backward();
  CHECK(equal(q.grad()[0][1], zeros({4})));
  CHECK_FALSE(any(q.grad() != q.grad()).item<bool>());
  CHECK_FALSE(any(k.grad() != k.grad()).item<bool>());
}

TEST_CASE("attention drops weights and broadcasts batches") {
  manual_seed(2);
  const Tensor q = zeros({1, 2, 4}), k = zeros({3, 1000, 4}), v = ones({1000, 1});
  const Tensor y = scaled_dot_product_attention(q, k, v, {.dropout = 0.5});
  CHECK(y.shape() == Shape{3, 2, 1});
  CHECK(mean(y).item<double>() == Approx(1).margin(0.1));
  CHECK(y[0][0].item<double>() != 1);
  CHECK(equal(scaled_dot_product_attention(q, k, v, {.dropout = 1}), zeros({3, 2, 1})));
  CHECK(scaled_dot_product_attention(zeros({2, 0, 4}), k[0], v).shape() == Shape{2, 0, 1});
  CHECK(equal(scaled_dot_product_attention(zeros({2, 4}), zeros({0, 4}), ones({0, 3})), zeros({2, 3})));
}

TEST_CASE("wrong calls of attention", "[errors]") {
  constexpr WrongCall calls[] = {
      {[](World& w) { scaled_dot_product_attention(w.matrix, w.matrix, w.doubles); },
       "scaled_dot_product_attention: expected query, key and value of one floating-point type, got float32, float32 "
       "and float64"},
      {[](World& w) { scaled_dot_product_attention(w.matrix, w.cube, w.vector); },
       "scaled_dot_product_attention: expected query [..., L, E], key [..., S, E] and value [..., S, Ev], got shapes "
       "[3, 4], [2, 3, 4] and [3]"},
      {[](World& w) {
         scaled_dot_product_attention(w.matrix, w.matrix, w.matrix, {.mask = w.mask, .is_causal = true});
       },
       "scaled_dot_product_attention: is_causal and a mask"},
      {[](World& w) { scaled_dot_product_attention(w.matrix, w.matrix, w.matrix, {.mask = w.whole}); },
       "scaled_dot_product_attention: a mask is bool or floating-point, got int64"},
      {[](World& w) { scaled_dot_product_attention(w.matrix, w.matrix, w.matrix, {.mask = w.cube}); },
       "scaled_dot_product_attention: …"},
      {[](World& w) { scaled_dot_product_attention(w.matrix, w.matrix, w.matrix, {.dropout = 2}); },
       "scaled_dot_product_attention: dropout must be between 0 and 1, got 2"},
      {[](World& w) { scaled_dot_product_attention(w.matrix, w.matrix, w.matrix, {.enable_gqa = true}); },
       "scaled_dot_product_attention: the query's heads are no multiple of the key's and value's, shapes [3, 4], …"},
  };
  check_wrong_calls(calls);
}

}  // namespace reel
