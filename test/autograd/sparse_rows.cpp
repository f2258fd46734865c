// These tests check how rows of a gradient are collected and added to each other.
#include "lib/autograd/sparse_rows.h"

#include "lib/autograd/grad_accumulator.h"
#include "reel/reel.h"
#include "test/support/pch.h"

using namespace reel;
using Floats = std::vector<float>;
using Ids = std::vector<int64_t>;

namespace {

const GradMetadata& target() {
  static const GradMetadata metadata = metadata_of(TensorImpl::of(zeros({6, 2})));
  return metadata;
}
/// Returns a row [v, 10 v] for each v.
Tensor rows(const Floats& values) {
  const Tensor column = tensor(values).view({-1, 1});
  return cat({column, column * 10}, 1);
}
bool is(const SparseGrad& grad, const Ids& ids, const Floats& values) {
  return grad.ids.to_vector<int64_t>() == ids && equal(grad.values, rows(values));
}

}  // namespace

TEST_CASE("SparseRows with equal ids are added, and the ids sorted", "[tape]") {
  SparseRows sum;
  CHECK(sum.empty());
  CHECK(!sum.is_sparse());
  sum.add(target(), tensor({4, 1, 4}), rows({1, 2, 3}), true);
  CHECK(sum.is_sparse());
  sum.add(target(), tensor({1, 0}), rows({5, 6}), true);
  CHECK(is(sum.take(target().device), {0, 1, 4}, {6, 7, 4}));
  CHECK(sum.empty());
  CHECK(sum.bytes() == 0);
}

TEST_CASE("SparseRows keep values that no other handle shares, and copy others", "[tape][cpu]") {
  Tensor values = rows({1, 2});
  const void* data = view_of(values).data;
  SparseRows sum;
  const bool shared = GENERATE(false, true);
  Tensor other = shared ? values : Tensor();
  sum.add(target(), tensor({0, 3}), std::move(values), true);
  if (shared) other.mul_(2);
  const SparseGrad grad = sum.take(target().device);
  CHECK(is(grad, {0, 3}, {1, 2}));
  CHECK((view_of(grad.values).data == data) == !shared);
}

TEST_CASE("SparseRows take ids of the host and of a GPU in the order in which they come", "[tape]") {
  SparseRows sum;
  sum.add(target(), tensor({5}), rows({1}), true);
  sum.add(target(), tensor({3}).to(kCPU), rows({2}), true);
  sum.add(target(), tensor({5}), rows({4}), true);
  sum.add(target(), tensor({0}), rows({8}), true);
  CHECK(is(sum.take(target().device), {0, 3, 5}, {8, 2, 5}));
}

TEST_CASE("SparseRows are added to a dense gradient, which is zeros until there is one", "[tape]") {
  SparseRows sum;
  Tensor dense;
  sum.flush_into(dense, target());
  CHECK(!dense.defined());
  sum.add(target(), tensor({1, 4}), rows({1, 2}), true);
  sum.add(target(), tensor({4}), rows({3}), false);
  CHECK(!sum.is_sparse());
  sum.flush_into(dense, target());
  CHECK(equal(dense, rows({0, 1, 0, 0, 5, 0})));
  CHECK(sum.empty());
  const Tensor shared = dense;
  sum.add(target(), tensor({0}), rows({7}), true);
  CHECK(sum.is_sparse());
  sum.flush_into(dense, target());
  CHECK(equal(dense, rows({7, 1, 0, 0, 5, 0})));
  CHECK(equal(shared, rows({0, 1, 0, 0, 5, 0})));
}

TEST_CASE("SparseRows add the rows of others to their own", "[tape]") {
  SparseRows sum, other;
  sum.merge(target(), other);
  CHECK(sum.empty());
  other.add(target(), tensor({2, 0}), rows({1, 2}), true);
  sum.merge(target(), other);
  CHECK(sum.is_sparse());
  other.add(target(), tensor({2}), rows({4}), false);
  sum.merge(target(), other);
  CHECK(!sum.is_sparse());  // one of the additions was not
  CHECK(sum.bytes() >= 5 * 2 * 4);
  Tensor dense;
  sum.flush_into(dense, target());
  CHECK(equal(dense, rows({4, 0, 6, 0, 0, 0})));
}

TEST_CASE("a sparse gradient is added to none, to a sparse one and to a dense one", "[tape]") {
  Tensor dense;
  SparseGrad sparse;
  add_sparse(dense, sparse, {tensor({1, 4}), rows({1, 2})}, target().shape);
  CHECK(is(sparse, {1, 4}, {1, 2}));
  add_sparse(dense, sparse, {tensor({4, 5}), rows({3, 4})}, target().shape);
  CHECK(is(sparse, {1, 4, 5}, {1, 5, 4}));
  CHECK(!dense.defined());
  dense = ones({6, 2});
  const Tensor shared = dense;
  add_sparse(dense, sparse, {tensor({0}), ones({1, 2})}, target().shape);
  CHECK(dense.to_vector<float>() == Floats{2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  CHECK(equal(shared, ones({6, 2})));
}

TEST_CASE("embedding gradients are row-sparse where asked for, and add up", "[tape]") {
  Tensor e = ones({6, 2}).requires_grad_();
  sum(embedding(e, tensor({4, 1, 4}), true) * 2).backward();
  REQUIRE(e.sparse_grad());
  CHECK(e.sparse_grad()->ids.to_vector<int64_t>() == std::vector<int64_t>{1, 4});
  CHECK(e.sparse_grad()->values.to_vector<float>() == std::vector<float>{2, 2, 4, 4});
  sum(embedding(e, tensor({1, 0}), true)).backward();
  REQUIRE(e.sparse_grad());
  CHECK(e.sparse_grad()->ids.to_vector<int64_t>() == std::vector<int64_t>{0, 1, 4});
  CHECK(e.sparse_grad()->values.to_vector<float>() == std::vector<float>{1, 1, 3, 3, 4, 4});
  // Another, dense use of the matrix makes all of it dense.
  (sum(e) + sum(embedding(e, tensor({5}), true))).backward();
  CHECK(!e.sparse_grad());
  CHECK(e.grad().to_vector<float>() == std::vector<float>{2, 2, 4, 4, 1, 1, 1, 1, 5, 5, 2, 2});
  e.set_grad({});
  sum(embedding(e, tensor({2}))).backward();
  CHECK(!e.sparse_grad());
  CHECK(e.grad().to_vector<float>() == std::vector<float>{0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0});
}
