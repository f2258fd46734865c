// These tests check that small gradients are added together, to the right sum.
#include "lib/autograd/small_sums.h"

#include "reel/reel.h"
#include "test/support/pch.h"

using namespace reel;

namespace {

/// Returns integers, whose sums and products are exact in any order.
Tensor integers(const Shape& shape) { return floor(randn(shape) * 3); }

const GradMetadata& target() {
  static const GradMetadata metadata = metadata_of(TensorImpl::of(zeros({5, 2})));
  return metadata;
}

/// Checks the sum of `count` gradients, of which add(i, sums, dense, expected) adds one to both sides.
template <class Add>
void check_sum(int64_t count, const Add& add) {
  const bool has_dense = GENERATE(true, false);
  SmallSums sums;
  Tensor dense, expected = zeros({5, 2});
  if (has_dense) dense = ones({5, 2}), expected = ones({5, 2});
  const Tensor shared = dense;
  CHECK(sums.empty());
  for (int64_t i = 0; i < count; ++i) add(i, sums, dense, expected);
  CHECK(!sums.empty());
  sums.flush_into(dense, target());
  CHECK(sums.empty());
  CHECK(equal(dense, expected));
  if (has_dense) CHECK(equal(shared, ones({5, 2})));
}

}  // namespace

TEST_CASE("SmallSums add any number of gradients", "[tape]") {
  manual_seed(1);
  check_sum(GENERATE(1, 2, 3, 32, 33, 70), [](int64_t, SmallSums& sums, Tensor& dense, Tensor& expected) {
    const Tensor g = integers({5, 2});
    sums.add(dense, g);
    expected = expected + g;
  });
}

TEST_CASE("SmallSums add any number of rows, also to a gradient of zeros", "[tape]") {
  manual_seed(2);
  check_sum(GENERATE(1, 3, 4, 32, 33, 70), [](int64_t i, SmallSums& sums, Tensor& dense, Tensor& expected) {
    const Tensor ids = tensor({i % 5, (2 * i + 1) % 5}), values = integers({2, 2});
    sums.add_rows(dense, target(), ids, values);
    expected.index_add_(0, ids, values);
  });
}

TEST_CASE("SmallSums add rows and whole gradients, and forget them when cleared", "[tape]") {
  SmallSums sums;
  Tensor dense = ones({5, 2});
  sums.add(dense, full({5, 2}, 2.0));
  sums.add_rows(dense, target(), tensor({1}), full({1, 2}, 4.0));
  sums.flush_into(dense, target());
  CHECK(dense.to_vector<float>() == std::vector<float>{3, 3, 7, 7, 3, 3, 3, 3, 3, 3});
  sums.add(dense, ones({5, 2}));
  sums.add_rows(dense, target(), tensor({1}), ones({1, 2}));
  sums.clear();
  CHECK(sums.empty());
}
