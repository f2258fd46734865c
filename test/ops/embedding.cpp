#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "reel/autograd.h"
#include "reel/memory.h"
#include "reel/random.h"
#include "test/support/op_rows.h"
#include "test/support/wrong_calls.h"

namespace reel {

// Bag b is made of ids[bounds[b]] … ids[bounds[b + 1] - 1] but for `padding`.
static Array bags(const Array& weight, const Line& ids, const std::vector<int64_t>& bounds, Reduce mode,
                  double padding = -1, const Line& factors = {}) {
  return build({static_cast<int64_t>(bounds.size()) - 1, weight.shape[1]}, [&](const Index& at) {
    Line column;
    for (int64_t i = bounds[at[0]]; i < bounds[at[0] + 1]; ++i)
      if (ids[i] != padding)
        column.push_back(weight({static_cast<int64_t>(ids[i]), at[1]}) * (factors.empty() ? 1 : factors[i]));
    if (column.empty()) return 0.;
    return mode == Reduce::kSum    ? ref::total(column)
           : mode == Reduce::kMean ? ref::average(column)
                                   : ref::largest(column);
  });
}

// clang-format off
const std::vector<Row>& embedding_rows() {
  static const std::vector<Row> rows{

{"embedding(padding)", [](In x) { return embedding(x[0], x[1], {.scale_grad_by_freq = false}); },
 [](Ref x) { return build({4, 3}, [&](const Index& at) { return x[0]({int64_t(x[1]({at[0]})), at[1]}); }); },
 {{{5, 3}}, ids({4}, 5)}},
{"embedding(int32)", [](In x) { return embedding(x[0], x[1].to(kInt32)); },
 [](Ref x) { return build({4, 3}, [&](const Index& at) { return x[0]({int64_t(x[1]({at[0]})), at[1]}); }); },
 {{{5, 3}}, ids({4}, 5)}},
{"embedding_renorm_", [](In x) { return embedding_renorm_(x[0].clone(), x[1], 1); },
 [](Ref x) {
   return build(x[0].shape, [&](const Index& at) {
     double norm = 0;
     for (int64_t j = 0; j < 3; ++j) norm += x[0]({at[0], j}) * x[0]({at[0], j});
     bool named = false;
     for (double id : x[1].data) named = named || int64_t(id) == at[0];
     return x[0](at) * (named && norm > 1 ? 1 / (std::sqrt(norm) + 1e-7) : 1);
   });
 },
 {{{5, 3}}, ids({2, 2}, 5)}, {.differentiable = false}},
{"embedding_bag", [](In x) { return embedding_bag(x[0], x[1]); },
 [](Ref x) { return bags(x[0], x[1].data, {0, 4, 8, 12}, Reduce::kMean); }, {{{5, 3}}, ids({3, 4}, 5)}},
{"embedding_bag(sum)", [](In x) { return embedding_bag(x[0], x[1], {.mode = Reduce::kSum}); },
 [](Ref x) { return bags(x[0], x[1].data, {0, 4, 8, 12}, Reduce::kSum); }, {{{5, 3}}, ids({3, 4}, 5)}},
{"embedding_bag(max)", [](In x) { return embedding_bag(x[0], x[1], {.mode = Reduce::kMax}); },
 [](Ref x) { return bags(x[0], x[1].data, {0, 4, 8, 12}, Reduce::kMax); }, {{{5, 3}}, ids({3, 4}, 5)}},
{"embedding_bag(offsets)",
 [](In x) { return embedding_bag(x[0], x[1], {.offsets = tensor({0, 2, 2, 5}, {.device = test_device()}), .padding_idx = 1}); },
 [](Ref x) { return bags(x[0], x[1].data, {0, 2, 2, 5, 7}, Reduce::kMean, 1); }, {{{3, 4}}, ids({7}, 3)}},
{"embedding_bag(last offset)",
 [](In x) {
   return embedding_bag(x[0], x[1], {.offsets = tensor({0, 3, 7}), .mode = Reduce::kMax, .include_last_offset = true,
                                     .padding_idx = -1});
 },
 [](Ref x) { return bags(x[0], x[1].data, {0, 3, 7}, Reduce::kMax, 2); }, {{{3, 4}}, ids({7}, 3)}},
{"embedding_bag(weights)",
 [](In x) {
   return embedding_bag(x[0], x[1], {.offsets = tensor({0, 2, 2, 5}, {.device = test_device()}), .mode = Reduce::kSum,
                                     .per_sample_weights = x[2], .padding_idx = 1});
 },
 [](Ref x) { return bags(x[0], x[1].data, {0, 2, 2, 5, 7}, Reduce::kSum, 1, x[2].data); },
 {{{3, 4}}, ids({7}, 3), {{7}}}},

};
  return rows;
}
// clang-format on

TEST_CASE("rows that pad get no gradient, dense or sparse") {
  const Tensor ids = tensor({1, 3, 1, 2, 3, 3});
  Tensor weight = ones({4, 2}, {.requires_grad = true});
  sum(embedding(weight, ids, {.padding_idx = 1, .scale_grad_by_freq = true})).backward();
  CHECK(equal(weight.grad(), tensor({{0., 0.}, {0., 0.}, {1., 1.}, {1., 1.}})));
  weight.set_grad({});
  sum(embedding(weight, ids, {.padding_idx = -3, .sparse = true})).backward();
  REQUIRE(weight.sparse_grad());
  CHECK(equal(weight.sparse_grad()->ids, tensor({2, 3})));
  CHECK(equal(weight.sparse_grad()->values, tensor({{1., 1.}, {3., 3.}})));
  weight.set_grad({});
  sum(embedding(weight, tensor({1, 1}), {.padding_idx = 1})).backward();
  CHECK(equal(weight.grad(), zeros({4, 2})));
}

TEST_CASE("bags give row-sparse gradients") {
  const Tensor weight = ones({9, 2}, {.requires_grad = true});
  const Tensor ids = tensor({7, 3, 7, 1}), offsets = tensor({0, 3, 3});
  const Tensor y = embedding_bag(weight, ids, {.offsets = offsets, .sparse = true});
  CHECK(equal(y, tensor({{1., 1.}, {0., 0.}, {1., 1.}})));
  sum(y * tensor({{3.}, {5.}, {7.}})).backward();
  REQUIRE(weight.sparse_grad());
  CHECK(equal(weight.sparse_grad()->ids, tensor({1, 3, 7})));
  CHECK(equal(weight.sparse_grad()->values, tensor({{7., 7.}, {1., 1.}, {2., 2.}})));
  CHECK(embedding_bag(weight, zeros({0}, {.dtype = kInt64}), {.offsets = tensor({0, 0})}).shape() == Shape{2, 2});
  CHECK(embedding_bag(weight, zeros({0, 3}, {.dtype = kInt64}), {.mode = Reduce::kMax}).shape() == Shape{0, 2});
}

TEST_CASE("bags of a half-precision weight touch only the rows in use") {
  manual_seed(5);
  const Tensor wide = randn({1000, 4}).to(kBFloat16).to(kFloat32), ids = tensor({{7, 3, 7}, {999, 3, 3}}),
               g = tensor({{1.}, {2.}});
  for (const Reduce mode : {Reduce::kSum, Reduce::kMean, Reduce::kMax})
    for (const std::optional<int64_t> padding : {std::optional<int64_t>(), {3}, {-1}, {5}}) {
      const Tensor whole = wide.clone().requires_grad_(), half = wide.to(kBFloat16).requires_grad_();
      const auto pool = [&](const Tensor& weight, bool sparse) {
        return embedding_bag(weight, ids, {.mode = mode, .padding_idx = padding, .sparse = sparse});
      };
      const Tensor y = pool(half, mode != Reduce::kMax), expected = pool(whole, false);
      CHECK(equal(y, expected.to(kBFloat16)));
      sum(y * g.to(kBFloat16)).backward();
      sum(expected * g).backward();
      REQUIRE((mode == Reduce::kMax || half.sparse_grad()));
      if (mode != Reduce::kMax) CHECK(half.sparse_grad()->ids.numel() <= 3);
      CHECK(max(abs(half.grad().to(kFloat32) - whole.grad())).item<float>() < 0.01);
    }
  const Tensor table = zeros({4096, 256}, {.dtype = kBFloat16});
  reset_peak_memory_stats();
  const int64_t before = memory_stats().in_use;
  embedding_bag(table, ids.narrow(0, 0, 1));
  CHECK(memory_stats().peak_in_use - before < 1 << 18);
}

TEST_CASE("bags of any width are sums, means and maxima of their rows") {
  manual_seed(6);
  const Tensor ids = tensor({7, 3, 7, 0, 11, 2, 5, 5, 11, 1}), offsets = tensor({0, 3, 3, 4});
  for (const DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16})
    for (const int64_t width : {0, 1, 5, 16, 63, 64, 65, 200}) {
      INFO(dtype << " " << width);
      const Tensor table = randint(9, {12, width}).to(dtype), strided = cat({table, table}, 1).narrow(1, 0, width);
      for (const Tensor& weight : {table, strided})
        for (const Reduce mode : {Reduce::kSum, Reduce::kMean, Reduce::kMax}) {
          const Tensor y = embedding_bag(weight, ids, {.offsets = offsets, .mode = mode});
          const int64_t bounds[] = {0, 3, 3, 4, 10};
          for (int b = 0; b < 4; ++b) {
            const int64_t n = bounds[b + 1] - bounds[b];
            const Tensor rows = index_select(table, 0, ids.narrow(0, bounds[b], n)).to(kFloat32);
            Tensor expected = sum(rows, 0);
            if (n && mode == Reduce::kMax) expected = amax(rows, 0);
            if (n && mode == Reduce::kMean) expected = expected / n;
            CHECK(allclose(y[b].to(kFloat32), expected, dtype == kBFloat16 ? 0.01 : 0.001));
          }
        }
    }
}

TEST_CASE("the largest of a bag is its first NaN, or -inf") {
  const double nan = std::numeric_limits<double>::quiet_NaN(), low = -std::numeric_limits<double>::infinity();
  const Tensor weight = tensor({{low, 1., nan}, {low, nan, 2.}, {low, nan, nan}}).requires_grad_();
  const Tensor y = embedding_bag(weight, tensor({{0, 1, 2}}), {.mode = Reduce::kMax});
  CHECK(y[0][0].item<double>() == low);
  CHECK(std::isnan(y[0][1].item<double>()));
  CHECK(std::isnan(y[0][2].item<double>()));
  CHECK(equal(grad({sum(y)}, {weight})[0], tensor({{1., 0., 1.}, {0., 1., 0.}, {0., 0., 0.}})));
}

TEST_CASE("wrong calls of embeddings", "[errors][cpu]") {
  constexpr WrongCall calls[] = {
      {[](World& w) { embedding(w.matrix, w.ids, {.padding_idx = 3}); },
       "embedding: padding_idx 3 is out of range for 3 rows"},
      {[](World& w) { embedding_renorm_(w.matrix, tensor({3}), 1); },
       "embedding_renorm_: index 3 is out of range for dimension 0 of size 3"},
      {[](World& w) { embedding_renorm_(w.matrix, w.ids, -1); }, "embedding_renorm_: max_norm is -1"},
      {[](World& w) { embedding_bag(w.matrix, w.ids); }, "embedding_bag: 1-d ids need 1-d int64 offsets"},
      {[](World& w) { embedding_bag(w.cube, w.ids, {.offsets = tensor({0})}); },
       "embedding_bag: expected a matrix of floats, got float32 [2, 3, 4]"},
      {[](World& w) { embedding_bag(w.matrix, tensor({5}), {.offsets = tensor({0})}); },
       "embedding_bag: index 5 is out of range for dimension 0 of size 3"},
      {[](World& w) {
         embedding_bag(w.matrix, w.ids, {.offsets = tensor({0, 4})});
       },
       "embedding_bag: the offsets must ascend from 0 to at most 3, the number of ids"},
      {[](World& w) { embedding_bag(w.matrix, w.ids, {.offsets = tensor({1})}); },
       "embedding_bag: the offsets must ascend from 0 to at most 3, the number of ids"},
      {[](World& w) {
         embedding_bag(w.matrix, w.ids, {.offsets = tensor({0, 2, 1})});
       },
       "embedding_bag: the offsets must ascend from 0 to at most 3, the number of ids"},
      {[](World& w) {
         embedding_bag(w.matrix, w.ids, {.offsets = tensor({0, 2}), .include_last_offset = true});
       },
       "embedding_bag: the offsets must ascend from 0 to at most 3, the number of ids, and end with it"},
      {[](World& w) {
         embedding_bag(w.matrix, w.ids.view({1, 3}), {.offsets = tensor({0})});
       },
       "embedding_bag: ids of shape [1, 3] are bags already, and offsets are given"},
      {[](World& w) { embedding_bag(w.matrix, w.ids, {.offsets = tensor({0}), .per_sample_weights = w.vector}); },
       "embedding_bag: per_sample_weights go with sums only"},
      {[](World& w) {
         embedding_bag(w.matrix, w.ids,
                       {.offsets = tensor({0}), .mode = Reduce::kSum, .per_sample_weights = w.doubles});
       },
       "embedding_bag: expected per_sample_weights of float32 [3], got float64 [4, 3]"},
      {[](World& w) {
         embedding_bag(w.matrix, w.ids.view({1, 3}), {.mode = Reduce::kMax, .sparse = true});
       },
       "embedding_bag: kMax has no gradients that are sparse or scaled by frequency"},
  };
  check_wrong_calls(calls);
}

}  // namespace reel
