#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "reel/autograd.h"
#include "reel/ops.h"
#include "reel/testing.h"

using namespace reel;
using Catch::Matchers::Contains;
using Numbers = std::vector<double>;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();

Numbers numbers(const Tensor& x) { return x.to_vector<double>(); }
Numbers grad_of(const Tensor& y, const Tensor& x) { return numbers(grad({y}, {x})[0]); }
Tensor doubles(std::initializer_list<double> values) { return tensor(values, {.dtype = kFloat64}); }
Tensor leaf(std::initializer_list<double> values) { return doubles(values).requires_grad_(); }

}  // namespace

// ---- index lists ----------------------------------------------------------------------------------------------------

TEST_CASE("numbers, slices, kNone and kEllipsis give views") {
  const Tensor x = arange(24).reshape({2, 3, 4});
  CHECK(numbers(x.index({1, -1})) == Numbers{20, 21, 22, 23});
  CHECK(numbers(x.index({kEllipsis, 2})) == Numbers{2, 6, 10, 14, 18, 22});
  CHECK(numbers(x.index({0, Slice(1, {}), Slice({}, {}, 3)})) == Numbers{4, 7, 8, 11});
  CHECK(x.index({kNone, Slice(), kNone, 0}).shape() == Shape{1, 2, 1, 4});
  CHECK(x.index({Slice(5, 9)}).shape() == Shape{0, 3, 4});
  x.index({0, 0, 0}).fill_(7);
  CHECK(x.index({0, 0, 0}).item<int>() == 7);
  CHECK(x[1][2][3].item<int>() == 23);
}

TEST_CASE("index tensors are broadcast together") {
  const Tensor x = arange(12).reshape({3, 4});
  CHECK(numbers(x.index({tensor({2, 0, 2})})) == Numbers{8, 9, 10, 11, 0, 1, 2, 3, 8, 9, 10, 11});
  CHECK(numbers(x.index({tensor({0, -1}), tensor({1, -2})})) == Numbers{1, 10});
  const Tensor grid = x.index({tensor({{0}, {2}}), tensor({3, 1})});
  CHECK(grid.shape() == Shape{2, 2});
  CHECK(numbers(grid) == Numbers{3, 1, 11, 9});
  CHECK(x.index({full({}, 1)}).shape() == Shape{4});
  CHECK(x.index({zeros({0}, {.dtype = kInt64})}).shape() == Shape{0, 4});
}

TEST_CASE("index dimensions stay where neighbours stood, and come first otherwise, as in NumPy") {
  const Tensor x = zeros({2, 3, 4, 5}), ids = zeros({7, 1}, {.dtype = kInt64});
  CHECK(x.index({Slice(), ids, ids}).shape() == Shape{2, 7, 1, 5});
  CHECK(x.index({Slice(), ids, Slice(), ids}).shape() == Shape{7, 1, 2, 4});
  CHECK(x.index({Slice(), ids, 0}).shape() == Shape{2, 7, 1, 5});
  CHECK(x.index({0, Slice(), ids}).shape() == Shape{7, 1, 3, 5});
  CHECK(x.index({ids, kNone, ids}).shape() == Shape{7, 1, 1, 4, 5});
  CHECK(x.index({kEllipsis, ids}).shape() == Shape{2, 3, 4, 7, 1});
}

TEST_CASE("masks stand for the positions where they are true") {
  const Tensor x = arange(12).reshape({3, 4});
  CHECK(numbers(x.index({x > 8})) == Numbers{9, 10, 11});
  CHECK(numbers(x.index({tensor({true, false, true}), 1})) == Numbers{1, 9});
  CHECK(x.index({Slice(), tensor({false, false, true, true})}).shape() == Shape{3, 2});
  CHECK(x.index({full({}, true)}).shape() == Shape{1, 3, 4});
  CHECK(x.index({full({}, false)}).shape() == Shape{0, 3, 4});
  CHECK_THROWS_WITH(x.index({tensor({true, false})}), Contains("mask of shape [2]"));
}

TEST_CASE("wrong index lists are refused", "[cpu]") {
  const Tensor x = zeros({3, 5});
  CHECK_THROWS_WITH(x.index({0, 5}), Contains("index: index 5 is out of range for dimension 1 of size 5"));
  CHECK_THROWS_WITH(x.index({0, tensor({1, -6})}),
                    Contains("index: index -6 is out of range for dimension 1 of size 5"));
  CHECK_THROWS_WITH(x.index({0, 0, 0}), Contains("3 indices for a tensor of 2 dimensions"));
  CHECK_THROWS_WITH(x.index({kEllipsis, 0, kEllipsis}), Contains("more than one ellipsis"));
  CHECK_THROWS_WITH(x.index({tensor({1.5})}), Contains("a tensor of float32 is no index"));
  CHECK_THROWS_AS(x.index({tensor({0, 1}), tensor({0, 1, 2})}), Error);
}

TEST_CASE("index_put_ writes where index reads", "[cpu]") {
  Tensor x = zeros({3, 4});
  x.index_put_({1}, 5);
  x.index_put_({tensor({0, 2}), tensor({3, 0})}, tensor({1., 2.}));
  CHECK(numbers(x) == Numbers{0, 0, 0, 1, 5, 5, 5, 5, 2, 0, 0, 0});
  x.index_put_({x == 5}, -1);
  x.index_put_({tensor({true, false, true}), Slice(1, 3)}, tensor({{7}, {8}}));
  CHECK(numbers(x) == Numbers{0, 7, 7, 1, -1, -1, -1, -1, 2, 8, 8, 0});
  Tensor apart = zeros({2, 2, 2});
  apart.index_put_({tensor({0, 1}), Slice(), tensor({1, 0})}, tensor({{1, 2}, {3, 4}}));
  CHECK(numbers(apart) == Numbers{0, 1, 0, 2, 3, 0, 4, 0});
  CHECK_THROWS_WITH(x.index_put_({tensor({0, 1})}, zeros({3})), Contains("index_put_"));
  CHECK_THROWS_WITH(x.index_put_({tensor({3})}, 0), Contains("index 3 is out of range for dimension 0 of size 3"));
}

TEST_CASE("index_put_ from its own memory reads the old values") {
  Tensor x = arange(4);
  x.index_put_({tensor({0, 1, 2, 3})}, flip(x, 0));
  CHECK(numbers(x) == Numbers{3, 2, 1, 0});
  x.index_put_({tensor({1, 2, 3})}, x.slice(0, 0, 3));
  CHECK(numbers(x) == Numbers{3, 3, 2, 1});
}

TEST_CASE("gradients pass index and index_put_") {
  const Tensor x = leaf({1, 2, 3, 4}), value = leaf({5, 6});
  CHECK(grad_of(sum(x.index({tensor({2, 2, 0})}) * tensor({1, 10, 100})), x) == Numbers{100, 0, 11, 0});
  Tensor y = x * 1;
  y.index_put_({tensor({3, 1})}, value);
  const Tensor loss = sum(y * y);
  const auto grads = grad({loss}, {x, value});
  CHECK(numbers(grads[0]) == Numbers{2, 0, 6, 0});
  CHECK(numbers(grads[1]) == Numbers{10, 12});
  CHECK_THROWS_WITH(Tensor(x).index_put_({tensor({0})}, 1), Contains("leaf"));
  CHECK(grad_of(sum(x.index({zeros({0}, {.dtype = kInt64})})), x) == Numbers{0, 0, 0, 0});
}

// ---- looking up and spreading out -----------------------------------------------------------------------------------

TEST_CASE("gather and scatter", "[cpu]") {
  const Tensor x = arange(6).reshape({2, 3});
  CHECK(numbers(gather(x, 1, tensor({{2, 0}, {1, 1}}))) == Numbers{2, 0, 4, 4});
  CHECK(numbers(gather(x, 0, tensor({{1, 0}}))) == Numbers{3, 1});  // a smaller index: the rest is not looked at
  CHECK(numbers(scatter(x, 1, tensor({{2}, {0}}), tensor({{-1, -9}, {-2, -9}}))) == Numbers{0, 1, -1, -2, 4, 5});
  CHECK(numbers(scatter(x, 1, tensor({{2}, {0}}), 7)) == Numbers{0, 1, 7, 7, 4, 5});
  CHECK(numbers(scatter_add(x, 1, tensor({{0, 0}, {2, 2}}), tensor({{10, 10}, {20, 20}}))) ==
        Numbers{20, 1, 2, 3, 4, 45});
  CHECK_THROWS_WITH(gather(x, 1, tensor({{3}})), Contains("gather: index 3 is out of range for dimension 1 of size 3"));
  CHECK_THROWS_WITH(gather(x, 0, tensor({0})), Contains("an index of shape [1] for a tensor of shape [2, 3]"));
  CHECK_THROWS_WITH(scatter(x, 1, tensor({{0}}), tensor({{1.5}})), Contains("float32 source for a tensor of int64"));
}

TEST_CASE("index_select and embedding refuse what is out of range", "[cpu]") {
  const Tensor x = zeros({5, 2});
  CHECK_THROWS_WITH(index_select(x, 0, tensor({1, 7})),
                    "index_select: index 7 is out of range for dimension 0 of size 5");
  CHECK_THROWS_WITH(embedding(x, tensor({{-1}})), "embedding: index -1 is out of range for dimension 0 of size 5");
  CHECK_THROWS_WITH(embedding(x, tensor({1.})), Contains("indices must be int64 (or int32 or uint8), got float32"));
}

TEST_CASE("an embedding's gradient is dense or has rows") {
  const Tensor ids = tensor({{2, 0}, {2, 2}});
  Tensor w = zeros({3, 2}, {.dtype = kFloat64}).requires_grad_();
  sum(embedding(w, ids) * 2).backward();
  CHECK_FALSE(w.sparse_grad());
  CHECK(numbers(w.grad()) == Numbers{2, 2, 0, 0, 6, 6});
  Tensor rows = zeros({3, 2}, {.dtype = kFloat64}).requires_grad_();
  sum(embedding(rows, ids, true) * 2).backward();
  REQUIRE(rows.sparse_grad());
  CHECK(numbers(rows.sparse_grad()->ids) == Numbers{0, 2});
  CHECK(numbers(rows.sparse_grad()->values) == Numbers{2, 2, 6, 6});
  Tensor none = zeros({3, 2}).requires_grad_();
  sum(embedding(none, zeros({0}, {.dtype = kInt64}))).backward();
  CHECK(numbers(none.grad()) == Numbers(6, 0));
}

TEST_CASE("masks select, fill and are found", "[cpu]") {
  const Tensor x = leaf({1, 2, 3}), mask = tensor({true, false, true});
  CHECK(numbers(masked_select(x, mask)) == Numbers{1, 3});
  CHECK(masked_select(x, tensor({{1}, {0}}).to(kBool)).shape() == Shape{3});
  CHECK(numbers(masked_fill(x, mask, -kInfinity)) == Numbers{-kInfinity, 2, -kInfinity});
  CHECK(grad_of(sum(masked_fill(x, mask, 0) * x.detach()), x) == Numbers{0, 2, 0});
  const Tensor at = nonzero(tensor({{0, 3}, {4, 0}}));
  CHECK(at.shape() == Shape{2, 2});
  CHECK(numbers(at) == Numbers{0, 1, 1, 0});
  CHECK(nonzero(full({}, 3)).shape() == Shape{1, 0});
  CHECK(numbers(one_hot(tensor({1, 0}))) == Numbers{0, 1, 1, 0});
  CHECK(one_hot(tensor({{1}, {0}}), 5).shape() == Shape{2, 1, 5});
  CHECK_THROWS_WITH(one_hot(tensor({3}), 3), Contains("index 3 is out of range for 3 classes"));
}

// ---- order ----------------------------------------------------------------------------------------------------------

TEST_CASE("sort is stable and takes NaN for the largest") {
  const Tensor x = doubles({2, kNaN, 1, 2, -kInfinity});
  const auto [up, at] = sort(x);
  CHECK(numbers(at) == Numbers{4, 2, 0, 3, 1});
  CHECK(std::isnan(numbers(up).back()));
  CHECK(numbers(sort(x, 0, true).indices) == Numbers{1, 0, 3, 2, 4});
  CHECK(numbers(sort(tensor({{3, 1}, {2, 5}}), 0).values) == Numbers{2, 1, 3, 5});
  CHECK(sort(full({}, 3)).indices.item<int>() == 0);
  CHECK(sort(zeros({2, 0})).values.shape() == Shape{2, 0});
}

TEST_CASE("topk") {
  const Tensor x = tensor({{3, 1, 2}, {4, 6, 5}});
  CHECK(numbers(topk(x, 2).values) == Numbers{3, 2, 6, 5});
  CHECK(numbers(topk(x, 1, 0, false).indices) == Numbers{0, 0, 0});
  CHECK(topk(x, 0).values.shape() == Shape{2, 0});
  CHECK_THROWS_WITH(topk(x, 4), Contains("topk: k = 4 of dimension 1 of size 3"));
  const Tensor leaf = tensor({{3., 1., 2.}}).requires_grad_();
  CHECK(grad_of(sum(topk(leaf, 2).values * tensor({10, 20})), leaf) == Numbers{10, 0, 20});
}

TEST_CASE("extremes along a dimension say where they first occur") {
  const Tensor x = tensor({{1., 5., 5.}, {7., 7., 0.}});
  CHECK(numbers(max(x, 1).indices) == Numbers{1, 0});
  CHECK(numbers(min(x, 0, true).values) == Numbers{1, 5, 0});
  CHECK(argmax(x).item<int>() == 3);
  CHECK(argmin(x, {}, true).shape() == Shape{1, 1});
  CHECK(std::isnan(max(doubles({1, kNaN, 2})).item<double>()));
  CHECK_THROWS_WITH(max(zeros({0})), Contains("max: nothing to take it of, shape [0]"));
  CHECK_THROWS_WITH(argmax(zeros({2, 0}), 1), Contains("argmax: nothing to take it of"));
  CHECK(max(zeros({0, 3}), 1).values.shape() == Shape{0});
}

TEST_CASE("dimension 0 of a 0-d tensor may be named") {
  const Tensor x = full({}, 3, {.dtype = kFloat64, .requires_grad = true});
  for (const Tensor& y : {sum(x, 0), max(x, 0).values, amax(x, 0), prod(x, 0), logsumexp(x, 0), norm(x, 2, 0),
                          cumsum(x, 0), sort(x, 0).values, flip(x, 0)}) {
    CHECK(y.shape() == Shape{});
    CHECK(numbers(grad({y}, {x}, {}, {.retain_graph = true})[0]) == Numbers{1});
    CHECK(numbers(grad({y}, {x}, {}, {.create_graph = true})[0]) == Numbers{1});
  }
}

TEST_CASE("ties share the gradient of amax, and the first one gets that of max along a dimension") {
  const Tensor x = leaf({3, 1, 3});
  CHECK(grad_of(max(x), x) == Numbers{0.5, 0, 0.5});
  CHECK(grad_of(max(x, 0).values, x) == Numbers{1, 0, 0});
}

// ---- reductions where they are delicate -----------------------------------------------------------------------------

TEST_CASE("the gradient of prod is right with one zero, and with two") {
  for (const auto& [values, expected] :
       {std::pair(Numbers{2, 3, 4}, Numbers{12, 8, 6}), std::pair(Numbers{2, 0, 4}, Numbers{0, 8, 0}),
        std::pair(Numbers{0, 3, 0}, Numbers{0, 0, 0})}) {
    const Tensor x = tensor(values).requires_grad_();
    CHECK(grad_of(prod(x), x) == expected);
    CHECK(numbers(grad({prod(x)}, {x}, {}, {.create_graph = true})[0]) == expected);
    testing::gradgradcheck([](const auto& in) { return prod(in[0], 0); }, {x});
  }
}

TEST_CASE("sums of integers are int64, means of them are refused") {
  CHECK(sum(full({300}, 200, {.dtype = kUInt8})).item<int>() == 60000);
  CHECK(sum(tensor({true, true})).dtype() == kInt64);
  CHECK(prod(tensor({true, true})).dtype() == kInt64);
  CHECK_THROWS_WITH(mean(arange(3)), "mean: int64 tensors have no mean; convert to a floating point type first");
  CHECK_THROWS_WITH(sum(zeros({2, 3}), {1, -1}), Contains("dimension -1 is named twice"));
  CHECK_THROWS_WITH(sum(zeros({2}), 1), Contains("sum: dimension 1 is out of range"));
}

TEST_CASE("half precision sums do not overflow on the way") {
  const Tensor x = full({1000}, 100, {.dtype = kFloat16});
  CHECK(mean(x).item<double>() == 100);
  CHECK(mean(x).dtype() == kFloat16);
}

TEST_CASE("logsumexp of nothing but -inf is -inf, without NaN in its gradient") {
  const Tensor x = leaf({-kInfinity, -kInfinity});
  const Tensor y = logsumexp(x, 0);
  CHECK(y.item<double>() == -kInfinity);
  CHECK(grad_of(y, x) == Numbers{0, 0});
  CHECK(logsumexp(doubles({1000, 1000}), 0).item<double>() == Approx(1000 + std::log(2)));
  CHECK(logsumexp(zeros({0, 2}), 0).to_vector<double>() == Numbers{-kInfinity, -kInfinity});
}

TEST_CASE("norm and std of equal elements have no NaN in their gradients") {
  const Tensor x = leaf({0, 0, 0});
  for (const double p : {1., 2., 3., kInfinity}) CHECK(grad_of(norm(x, p), x) == Numbers{0, 0, 0});
  CHECK(grad_of(reel::std(x), x) == Numbers{0, 0, 0});
}

// ---- joining --------------------------------------------------------------------------------------------------------

TEST_CASE("cat, stack and split") {
  const Tensor a = tensor({{1, 2}}), b = tensor({{3, 4}, {5, 6}});
  CHECK(numbers(cat({a, b})) == Numbers{1, 2, 3, 4, 5, 6});
  CHECK(numbers(cat({b, b}, 1)) == Numbers{3, 4, 3, 4, 5, 6, 5, 6});
  CHECK(cat({a, a.to(kFloat32)}).dtype() == kFloat32);
  CHECK(stack({a, a}, -1).shape() == Shape{1, 2, 2});
  CHECK_THROWS_WITH(cat({a, b}, 1), Contains("cat: shapes [1, 2] and [2, 2] differ in more than dimension 1"));
  CHECK_THROWS_WITH(cat(std::span<const Tensor>()), "cat: no tensors");
  CHECK_THROWS_WITH(stack({a, b}), Contains("stack: shapes [1, 2] and [2, 2] differ"));
  const auto parts = split(arange(5), 2);
  REQUIRE(parts.size() == 3);
  CHECK(numbers(parts[2]) == Numbers{4});
  CHECK(chunk(arange(5), 3).size() == 3);
  CHECK_THROWS_WITH(split(arange(5), std::vector<int64_t>{2, 2}), Contains("add up to 4"));
}

TEST_CASE("many inputs of cat and stack get their gradients") {
  std::vector<Tensor> leaves;
  for (int i = 0; i < 9; ++i) leaves.push_back(leaf({1. * i, 2}));
  for (const Tensor& y : {cat(leaves) * arange(18), stack(leaves, 1) * arange(18).reshape({9, 2}).t()}) {
    const auto grads = grad(std::vector{sum(y)}, leaves);
    for (int i = 0; i < 9; ++i) CHECK(numbers(grads[i]) == Numbers{2. * i, 2. * i + 1});
  }
}

TEST_CASE("other orders of the elements") {
  const Tensor x = arange(6).reshape({2, 3});
  CHECK(numbers(flip(x, {0, 1})) == Numbers{5, 4, 3, 2, 1, 0});
  CHECK(numbers(roll(x, -1, 1)) == Numbers{1, 2, 0, 4, 5, 3});
  CHECK(numbers(repeat(tensor({1, 2}), {2, 2})) == Numbers{1, 2, 1, 2, 1, 2, 1, 2});
  CHECK(repeat(x, {0, 1}).shape() == Shape{0, 3});
  for (const int64_t rows : {0, 1, 3, 5})
    for (const int64_t columns : {0, 1, 4})
      for (int64_t offset = -6; offset <= 6; ++offset) {
        CAPTURE(rows, columns, offset);
        const Tensor all = ones({rows, columns}, {.device = kCPU});
        CHECK(equal(tril_indices(rows, columns, offset), nonzero(tril(all, offset)).t()));
        CHECK(equal(triu_indices(rows, columns, offset), nonzero(triu(all, offset)).t()));
      }
  {  // more repeated dimensions than one copy can have
    const Tensor deep = arange(64).view({2, 2, 2, 2, 2, 2});
    const Shape times = {2, 3, 1, 2, 3, 2};
    Tensor expected = deep;
    for (int d = 0; d < times.size(); ++d) expected = cat(std::vector<Tensor>(size_t(times[d]), expected), d);
    CHECK(equal(repeat(deep, times), expected));
    CHECK(equal(repeat(deep.transpose(0, 5), {2, 1, 1, 3, 1, 1}),
                cat({cat({deep.transpose(0, 5), deep.transpose(0, 5), deep.transpose(0, 5)}, 3),
                     cat({deep.transpose(0, 5), deep.transpose(0, 5), deep.transpose(0, 5)}, 3)},
                    0)));
  }
  CHECK(numbers(tril(x)) == Numbers{0, 0, 0, 3, 4, 0});
  CHECK(numbers(triu(x, 1)) == Numbers{0, 1, 2, 0, 0, 5});
  CHECK(numbers(diag(x, 1)) == Numbers{1, 5});
  CHECK(numbers(diag(tensor({1, 2}), -1)) == Numbers{0, 0, 0, 1, 0, 0, 0, 2, 0});
  CHECK(triu(full({2, 2}, kInfinity), 1).to_vector<double>() == Numbers{0, kInfinity, 0, 0});
}

TEST_CASE("index_put_ with indices that share the storage reads them first", "[index]") {
  Tensor t = tensor({1, 0, 3, 2});
  t.index_put_({t}, 1000000);
  CHECK(t.to_vector<int64_t>() == std::vector<int64_t>(4, 1000000));
}

// ---- slices of a few bytes, long lines ------------------------------------------------------------------------------

namespace {

constexpr DType kEach[] = {kBool, kUInt8, kFloat16, kBFloat16, kInt32, kFloat32, kInt64, kFloat64};

/// Returns small integers, which all types but bool hold, in no regular order.
Tensor pattern(const Shape& shape, DType dtype) {
  const Tensor x = remainder(remainder(arange(shape.numel()) * 37, 101), dtype == kBool ? 2 : 7);
  return x.reshape(shape).to(dtype);
}

}  // namespace

TEST_CASE("flip mirrors elements of every size, in rows, columns and strided views") {
  for (const DType dtype : kEach) {
    INFO(dtype);
    const Tensor base = pattern({9, 134}, dtype);
    for (const Tensor& x : {base, base.slice(1, 0, 134, 2), base.t(), flip(base, 1).slice(0, 1, 8, 3)}) {
      const int64_t m = x.size(0), n = x.size(1);
      const Numbers from = numbers(x);
      Numbers right, down, both;
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          right.push_back(from[i * n + n - 1 - j]);
          down.push_back(from[(m - 1 - i) * n + j]);
          both.push_back(from[(m - 1 - i) * n + n - 1 - j]);
        }
      CHECK(numbers(flip(x, 1)) == right);
      CHECK(numbers(flip(x, 0)) == down);
      CHECK(numbers(flip(x, {0, 1})) == both);
    }
  }
  CHECK(flip(zeros({3, 0}), {0, 1}).shape() == Shape{3, 0});
}

TEST_CASE("views whose elements share memory are indexed like others") {
  const Tensor line = arange(6.), rows = line.expand({4, 6}), columns = line.unsqueeze(1).expand({6, 4});
  const Tensor ids = tensor({5, 0, 1, 2, 2});
  for (const Tensor& x : {rows, columns, rows.t(), columns.slice(0, 0, 6, 2).expand({3, 4})}) {
    const Tensor dense = x.contiguous();
    for (const int64_t dim : {0, 1}) {
      CHECK(equal(flip(x, dim), flip(dense, dim)));
      const Tensor at = remainder(ids, x.size(dim));
      CHECK(equal(index_select(x, dim, at), index_select(dense, dim, at)));
      const Tensor index = dim ? at.expand({x.size(0), 5}) : at.unsqueeze(1).expand({5, x.size(1)});
      CHECK(equal(gather(x, dim, index), gather(dense, dim, index)));
    }
  }
}

TEST_CASE("slices and elements are found and written in any layout") {
  const Shape shape{9, 5, 40};
  const Tensor ids = tensor({4, 0, 3, 4, 1, 2});
  for (const DType dtype : kEach)
    for (const char* const layout : {"contiguous", "transposed", "permuted", "strided", "repeated", "blocks"}) {
      INFO(dtype << " " << layout);
      const auto lay = [&](const Tensor& dense) {
        const std::string name = layout;
        if (name == "transposed") return dense.transpose(1, 2).contiguous().transpose(1, 2);
        if (name == "permuted") return dense.permute({2, 0, 1}).contiguous().permute({1, 2, 0});
        if (name == "strided") return stack({dense, dense}, -1).select(-1, 1);
        if (name == "repeated") return dense.slice(0, 0, 1).expand(shape);
        if (name == "blocks") return stack({dense, dense}, 1).select(1, 0);
        return dense;
      };
      const Tensor x = lay(pattern(shape, dtype)), dense = x.contiguous();
      for (const int64_t dim : {0, 1, 2}) {
        INFO("dimension " << dim);
        Shape part = shape;
        part[static_cast<int>(dim)] = 6;
        const Tensor from = pattern(part, dtype);
        const auto slice = [&](const Tensor& y, int64_t i) { return y.select(dim, i); };
        const Tensor chosen = index_select(x, dim, ids);
        Tensor put = dense.clone(), added = dense.clone();
        for (int64_t i = 0; i < 6; ++i) {
          const auto id = ids[i].item<int64_t>();
          CHECK(equal(slice(chosen, i), slice(dense, id)));
          slice(put, id).copy_(slice(from, i));
          slice(added, id).copy_((slice(added, id) + slice(from, i)).to(dtype));
        }
        CHECK(equal(index_copy(x, dim, ids, from), put));
        CHECK(equal(index_add(x, dim, ids, from), added));
        const Tensor sources = from.transpose(1, 2).contiguous().transpose(1, 2);
        CHECK(equal(index_copy(x, dim, ids, sources), put));
        CHECK(equal(index_add(x, dim, ids, sources), added));
        if (std::string(layout) == "repeated") continue;
        Tensor target = lay(dense.clone());
        CHECK(equal(target.index_copy_(dim, ids, from), put));
        target = lay(dense.clone());
        CHECK(equal(target.index_add_(dim, ids, sources), added));
        target = lay(dense.clone());
        const Tensor filled = index_copy(dense, dim, ids, full(part, 1, {.dtype = dtype}));
        CHECK(equal(target.index_fill_(dim, ids, 1), filled));
      }
      const Tensor i = tensor({8, -9, 3}), j = tensor({0, 4, -1}), k = tensor({39, 0, -40});
      CHECK(equal(x.index({i, j, k}), dense.index({i, j, k})));
      CHECK(equal(x.index({Slice(), j, k}), dense.index({Slice(), j, k})));
      CHECK(equal(x.index({i, Slice(), k}), dense.index({i, Slice(), k})));
      CHECK(equal(x.index({i.unsqueeze(1), j}), dense.index({i.unsqueeze(1), j})));
      const Tensor flat = tensor({0, -1, 1799, 77, -400});
      CHECK(equal(take(x, flat), dense.flatten().index({flat})));
      CHECK(equal(masked_select(x, dense > 1), dense.flatten().index({nonzero(dense.flatten() > 1).flatten()})));
    }
}

TEST_CASE("large indices that lie across rows are gathered, scattered and checked like others", "[cpu]") {
  const auto across = [](const Tensor& x) { return x.t().contiguous().t(); };
  const Shape shape{150, 130};
  const Tensor ids = remainder(arange(shape.numel()) * 7919, 130).view(shape);
  for (const DType dtype : {kUInt8, kBFloat16, kFloat32, kInt64}) {
    const Tensor x = pattern(shape, dtype), from = pattern({150, 130}, dtype).flip({0, 1});
    for (const int64_t dim : {0, 1}) {
      INFO(dtype << " dimension " << dim);
      const Tensor gathered = gather(x, dim, ids), put = scatter(x, dim, ids, from),
                   added = scatter_add(x, dim, ids, from);
      for (const Tensor& base : {x, across(x)}) {
        CHECK(equal(gather(base, dim, across(ids)), gathered));
        for (const Tensor& source : {from, across(from)}) {
          CHECK(equal(scatter(base, dim, across(ids), source), put));
          CHECK(equal(scatter_add(base, dim, across(ids), source), added));
        }
      }
    }
  }
  Tensor wrong = ids.clone();
  wrong.index({-1, -2}).fill_(130);
  CHECK_THROWS_WITH(gather(zeros(shape), 1, across(wrong)), Contains("index 130 is out of range"));
  CHECK_THROWS_WITH(scatter(zeros(shape), 1, across(wrong), zeros(shape)), Contains("index 130 is out of range"));
}

TEST_CASE("elements found by position get their gradients in any layout") {
  const Tensor i = tensor({2, 0, 2}), j = tensor({1, 3, 1}), flat = tensor({9, 3, 9});
  const Tensor expected = tensor({0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 0, 0}).view({3, 4});
  for (const DType dtype : {kFloat64, kFloat32, kBFloat16, kFloat16}) {
    const Tensor dense = arange(12.).reshape({3, 4}).to(dtype);
    for (const Tensor& start : {dense, dense.t().contiguous().t(), dense.slice(0, 0, 1).expand({3, 4})}) {
      const Tensor x = start.detach().requires_grad_();
      CHECK(equal(grad({sum(x.index({i, j}))}, {x})[0], expected.to(dtype)));
      CHECK(equal(grad({sum(take(x, flat))}, {x})[0], expected.to(dtype)));
      const Tensor mask = expected > 0;
      CHECK(equal(grad({sum(masked_select(x, mask) * 2)}, {x})[0], mask.to(dtype) * 2));
    }
  }
}

TEST_CASE("slices of every size are selected along any dimension, consecutive or not") {
  Numbers mirrored{3, 2, 1}, repeated, back{-2, -1, 0, 1, 2, -40, -39, -1};
  for (int i = 0; i < 40; ++i) mirrored.push_back(i), repeated.push_back(i / 3);
  for (const double id : {38, 37, 36}) mirrored.push_back(id);
  for (const DType dtype : kEach)
    for (const Shape& shape : {Shape{5, 40}, Shape{3, 40, 2}, Shape{2, 40, 3}, Shape{40}, Shape{40, 5}}) {
      INFO(dtype << " " << shape);
      const int d = shape[0] == 40 ? 0 : 1;
      const Tensor x = pattern(shape, dtype);
      for (const Numbers& ids : {mirrored, repeated, back, Numbers{}}) {
        Tensor at = zeros({0}, {.dtype = kInt64});
        if (!ids.empty()) at = tensor(ids).to(kInt64);
        const Tensor y = d ? x.index({Slice(), at}) : x.index({at});  // negative ids count back
        REQUIRE(y.size(d) == static_cast<int64_t>(ids.size()));
        for (size_t i = 0; i < ids.size(); ++i)
          CHECK(numbers(y.select(d, static_cast<int64_t>(i))) == numbers(x.select(d, static_cast<int64_t>(ids[i]))));
        if (!ids.empty() && ids[0] >= 0) CHECK(equal(index_select(x, d, at), y));
      }
    }
}

TEST_CASE("the gradient of selected elements adds up, once for each time") {
  const Tensor ids = tensor({0, 1, 2, 3, 4, 5, 6, 6, 0, 6}), x = arange(21.).reshape({3, 7}).requires_grad_();
  const Tensor y = index_select(x, 1, ids);
  CHECK(equal(grad({sum(y)}, {x})[0].select(0, 1), tensor({2., 1., 1., 1., 1., 1., 3.})));
  CHECK(
      equal(grad({sum(gather(x, 1, ids.expand({3, 10})))}, {x})[0].select(0, 2), tensor({2., 1., 1., 1., 1., 1., 3.})));
}

TEST_CASE("ids out of range throw in the name of the op, wherever they stand", "[cpu]") {
  const Tensor x = zeros({4, 50});
  for (const int64_t bad : {-1, 50})
    for (const int64_t place : {0, 33, 99}) {
      Tensor ids = remainder(arange(100), 50);
      ids[place].fill_(bad);
      const std::string message = ": index " + std::to_string(bad) + " is out of range for dimension 1 of size 50";
      CHECK_THROWS_WITH(index_select(x, 1, ids), Contains("index_select" + message));
      CHECK_THROWS_WITH(gather(x, 1, ids.expand({4, 100})), Contains("gather" + message));
      CHECK_THROWS_WITH(scatter_add(x, 1, ids.expand({4, 100}), zeros({4, 100})), Contains("scatter_add" + message));
      CHECK_THROWS_WITH(index_add(x, 1, ids, zeros({4, 100})), Contains("index_add" + message));
      CHECK_THROWS_WITH(take(x, where(ids == bad, bad < 0 ? -201 : 200, ids)), Contains("take: index"));
    }
  CHECK_THROWS_WITH(bincount(tensor({3, 1, -7, -2})), Contains("bincount: cannot count -7"));
}

TEST_CASE("nonzero finds elements of every type in long lines of any stride") {
  for (const DType dtype : kEach) {
    INFO(dtype);
    const Tensor base = pattern({3, 1300}, dtype);
    for (const Tensor& x : {base, base.t(), base.slice(1, 5, 1300, 2), base.select(0, 1), base[0].expand({2, 1300}),
                            base.reshape({3, 2, 650}), zeros_like(base), ones_like(base)}) {
      const Numbers values = numbers(x);
      Numbers expected;
      for (size_t i = 0; i < values.size(); ++i)
        if (values[i] != 0) {
          Numbers position;
          for (int64_t d = x.dim() - 1, rest = static_cast<int64_t>(i); d >= 0; rest /= x.size(d), --d)
            position.insert(position.begin(), static_cast<double>(rest % x.size(d)));
          expected.insert(expected.end(), position.begin(), position.end());
        }
      CHECK(numbers(nonzero(x)) == expected);
    }
  }
  CHECK(nonzero(zeros({0, 3})).shape() == Shape{0, 2});
  CHECK(nonzero(ones({})).shape() == Shape{1, 0});
}

TEST_CASE("vectors of any stride are added up and counted") {
  const Tensor ids = tensor({3, 1, 3, 0, 3}), wide = arange(10.);
  CHECK(numbers(index_add(zeros({4}), 0, ids, wide.slice(0, 0, 10, 2))) == Numbers{6, 2, 0, 12});
  CHECK(numbers(index_add(zeros({4}), 0, ids, full({}, 2.).expand({5}))) == Numbers{2, 2, 0, 6});
  Tensor y = zeros({4, 2});
  y.select(1, 1).index_add_(0, ids, wide.narrow(0, 5, 5));
  CHECK(numbers(y) == Numbers{0, 8, 0, 6, 0, 0, 0, 21});
  CHECK(numbers(bincount(ids.slice(0, 0, 5, 2))) == Numbers{0, 0, 0, 3});
  CHECK(numbers(bincount(ids, {}, 6)) == Numbers{1, 1, 0, 3, 0, 0});
}

TEST_CASE("repeat_interleave repeats each line its own number of times") {
  const Tensor x = arange(10.).reshape({5, 2}).requires_grad_();
  const Tensor y = repeat_interleave(x, tensor({0, 2, 0, 3, 0}), 0);
  CHECK(numbers(y) == Numbers{2, 3, 2, 3, 6, 7, 6, 7, 6, 7});
  CHECK(grad_of(sum(y), x) == Numbers{0, 0, 2, 2, 0, 0, 3, 3, 0, 0});
  CHECK(repeat_interleave(x, zeros({5}, {.dtype = kInt64}), 0).shape() == Shape{0, 2});
  CHECK(repeat_interleave(zeros({0, 2}), zeros({0}, {.dtype = kInt64}), 0).shape() == Shape{0, 2});
}
