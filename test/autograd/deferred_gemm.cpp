// These tests check that products of a weight's gradient are deferred and computed by one GEMM.
#include "lib/autograd/deferred_gemm.h"

#include "reel/reel.h"
#include "test/support/pch.h"

using namespace reel;
using Catch::Contains;

namespace {

/// Returns integers, whose sums and products are exact in any order.
Tensor integers(const Shape& shape) { return floor(randn(shape) * 3); }

Tensor parameter(const Shape& shape, double scale = 1) {
  return no_grad([&] { return randn(shape) * scale; }).requires_grad_();
}

/// Products is a DeferredGemm and the sum that it should give.
struct Products {
  const GradMetadata target = metadata_of(TensorImpl::of(zeros({4, 3})));
  DeferredGemm gemm;
  Tensor dense, expected = zeros({4, 3});

  void add(int64_t n) {
    const Tensor g = integers({n, 4}), x = integers({n, 3});
    gemm.add(dense, target, g, x);
    expected = expected + mm(g.t(), x);
  }
  void merge(Products& other) {
    other.gemm.pack(target);
    gemm.merge(dense, target, other.gemm);
    expected = expected + other.expected;
  }
  bool flush_is_exact() {
    gemm.flush_into(dense, target);
    return gemm.empty() && equal(dense, expected);
  }
};

}  // namespace

TEST_CASE("a DeferredGemm adds the products that it has collected to the sum, and keeps none", "[tape]") {
  manual_seed(1);
  const int uses = GENERATE(1, 2, 33, 100);
  Products products;
  CHECK(products.gemm.empty());
  for (int i = 0; i < uses; ++i) products.add(1 + i % 3);
  CHECK(!products.gemm.empty());
  CHECK(!products.dense.defined());
  CHECK(products.flush_is_exact());
  products.add(2);
  CHECK(products.flush_is_exact());
}

TEST_CASE("a DeferredGemm that is full multiplies what it has before it takes more", "[tape]") {
  manual_seed(2);
  Products products;
  for (int i = 0; i < 511; ++i) products.add(1);
  CHECK(!products.dense.defined());
  products.add(2);
  CHECK(products.dense.defined());
  CHECK(!products.gemm.empty());
  CHECK(products.flush_is_exact());
}

TEST_CASE("a DeferredGemm takes over the products of another one", "[tape]") {
  manual_seed(3);
  const int own = GENERATE(0, 3, 300), others = GENERATE(0, 2, 300);
  Products products, other;
  for (int i = 0; i < own; ++i) products.add(1);
  for (int i = 0; i < others; ++i) other.add(1);
  products.gemm.pack(products.target);
  products.merge(other);
  CHECK(products.dense.defined() == (own + others > 512));
  if (own + others) CHECK(products.flush_is_exact());
}

TEST_CASE("a DeferredGemm writes to no sum that another handle shares", "[tape]") {
  manual_seed(4);
  Products products;
  products.dense = ones({4, 3});
  products.expected = ones({4, 3});
  const Tensor shared = products.dense;
  products.add(2);
  CHECK(products.flush_is_exact());
  CHECK(equal(shared, ones({4, 3})));
}

TEST_CASE("factors of a DeferredGemm may be changed in place once they are packed", "[tape]") {
  manual_seed(5);
  Products products;
  Tensor g = integers({1, 4}), x = integers({1, 3});
  const Tensor product = mm(g.t(), x);
  products.gemm.add(products.dense, products.target, g, x);
  products.gemm.pack(products.target);
  x.add_(1);
  products.gemm.flush_into(products.dense, products.target);
  CHECK(equal(products.dense, product));
  products.gemm.add(products.dense, products.target, g, x);
  g.add_(1);
  if (g.device() != kCPU)  // where small factors are kept
    CHECK_THROWS_WITH(products.gemm.flush_into(products.dense, products.target),
                      Contains("was changed in place before the gradient of a weight"));
  products.gemm.clear();
  CHECK(products.gemm.empty());
}

TEST_CASE("weight gradients of many uses are merged without changing them", "[tape]") {
  manual_seed(3);
  const Tensor w = parameter({7, 5}), b = parameter({7}), v = parameter({5, 7}, 0.3);
  std::vector<Tensor> xs;
  for (int i = 0; i < 700; ++i) xs.push_back(randn({1 + i % 3, 5}));
  auto loss = [&] {
    Tensor total = 0;
    for (const Tensor& x : xs) total = total + sum(square(mm(tanh(linear(x, w, b)), v.t())));
    return total;
  };
  const std::vector<Tensor> exact = grad({loss()}, {w, b, v}, {}, {.create_graph = true});  // one product a use
  loss().backward();
  const Tensor ps[] = {w, b, v};
  for (int i = 0; i < 3; ++i) {
    const double scale = amax(abs(exact[i])).item<double>();
    CHECK(amax(abs(ps[i].grad() - exact[i])).item<double>() < 2e-5 * scale);
  }
}

TEST_CASE("a matrix that is computed, not a leaf, merges its products, too", "[tape]") {
  manual_seed(4);
  const Tensor raw = parameter({4, 4});
  auto loss = [&] {
    const Tensor w = tanh(raw);
    Tensor h = ones({1, 4});
    for (int i = 0; i < 10; ++i) h = linear(h, w);
    return sum(h);
  };
  const Tensor exact = grad({loss()}, {raw}, {}, {.create_graph = true})[0];
  loss().backward();
  CHECK(amax(abs(raw.grad() - exact)).item<double>() < 1e-4);
}
