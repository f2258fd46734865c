#include "reel/nn/norm.h"

#include <catch2/catch.hpp>
#include <limits>

#include "reel/autograd.h"
#include "reel/nn/sequential.h"
#include "reel/ops.h"
#include "reel/random.h"
#include "reel/testing.h"

namespace reel {
namespace {

std::vector<std::string> keys(const nn::Module& module) {
  std::vector<std::string> all;
  for (const auto& [name, tensor] : module.state_dict()) all.push_back(name);
  return all;
}
using Keys = std::vector<std::string>;

}  // namespace

TEST_CASE("a batch that BatchNorm refuses is not counted") {
  nn::BatchNorm1d norm(2, {.momentum = {}});
  for (const Shape& shape : {Shape{4, 5}, Shape{1, 2}, Shape{2}}) CHECK_THROWS_AS(norm(zeros(shape)), Error);
  CHECK(norm.num_batches_tracked.item<int>() == 0);
  CHECK(equal(norm.running_mean, zeros({2})));
  norm(full({4, 2}, 6.));
  norm(full({4, 2}, 2.));
  CHECK(norm.num_batches_tracked.item<int>() == 2);
  CHECK(equal(norm.running_mean, full({2}, 4.)));
}

TEST_CASE("normalising layers have PyTorch's keys and initial values") {
  const nn::BatchNorm2d batch(3);
  CHECK(keys(batch) == Keys{"weight", "bias", "running_mean", "running_var", "num_batches_tracked"});
  CHECK(equal(batch.weight, ones({3})));
  CHECK(equal(batch.bias, zeros({3})));
  CHECK(equal(batch.running_mean, zeros({3})));
  CHECK(equal(batch.running_var, ones({3})));
  CHECK(batch.num_batches_tracked.dtype() == kInt64);
  CHECK(keys(nn::BatchNorm1d(3, {.affine = false})) == Keys{"running_mean", "running_var", "num_batches_tracked"});
  CHECK(keys(nn::BatchNorm3d(3, {.track_running_stats = false})) == Keys{"weight", "bias"});
  CHECK(keys(nn::InstanceNorm2d(3)).empty());
  CHECK(keys(nn::InstanceNorm1d(3, {.affine = true})) == Keys{"weight", "bias"});
  CHECK(keys(nn::LayerNorm(Shape{2, 3})) == Keys{"weight", "bias"});
  CHECK(nn::LayerNorm(Shape{2, 3}).weight.shape() == Shape{2, 3});
  CHECK(keys(nn::LayerNorm(4, {.bias = false})) == Keys{"weight"});
  CHECK(keys(nn::RMSNorm(4)) == Keys{"weight"});
  CHECK(keys(nn::GroupNorm(2, 4)) == Keys{"weight", "bias"});
  CHECK_THROWS_WITH(nn::GroupNorm(3, 4), "GroupNorm: 4 channels cannot be divided into 3 groups");
}

TEST_CASE("normalising layers are printed as PyTorch prints them") {
  CHECK(nn::BatchNorm2d(3).to_string() ==
        "BatchNorm2d(3, eps=1e-05, momentum=0.1, affine=true, track_running_stats=true)");
  CHECK(nn::BatchNorm1d(3, {.momentum = {}}).to_string() ==
        "BatchNorm1d(3, eps=1e-05, momentum=None, affine=true, track_running_stats=true)");
  CHECK(nn::InstanceNorm3d(3).to_string() ==
        "InstanceNorm3d(3, eps=1e-05, momentum=0.1, affine=false, track_running_stats=false)");
  CHECK(nn::LayerNorm(Shape{3, 4}).to_string() == "LayerNorm((3, 4), eps=1e-05, elementwise_affine=true, bias=true)");
  CHECK(nn::RMSNorm(4).to_string() == "RMSNorm((4,), eps=None, elementwise_affine=true)");
  CHECK(nn::GroupNorm(2, 4).to_string() == "GroupNorm(2, 4, eps=1e-05, affine=true)");
  CHECK(nn::LocalResponseNorm(2).to_string() == "LocalResponseNorm(2, alpha=0.0001, beta=0.75, k=1)");
  CHECK(nn::CrossMapLRN2d(5).to_string() == "CrossMapLRN2d(5, alpha=0.0001, beta=0.75, k=1)");
}

TEST_CASE("BatchNorm moves its running statistics in training and uses them in evaluation") {
  manual_seed(1);
  const Tensor x = randn({64, 3, 5, 5}) * 2 + 1;
  struct Net : nn::Module {
    nn::BatchNorm2d norm{*this, "norm", 3, {.momentum = 0.5}};
  } net;
  const Tensor y = net.norm(x);
  CHECK(net.norm.num_batches_tracked.item<int64_t>() == 1);
  testing::assert_close(net.norm.running_mean, mean(x, {0, 2, 3}) * 0.5);
  testing::assert_close(net.norm.running_var, var(x, {0, 2, 3}) * 0.5 + 0.5);
  testing::assert_close(mean(y, {0, 2, 3}), zeros({3}));
  net.eval();
  const Tensor still = net.norm.running_mean.clone();
  testing::assert_close(net.norm(x), (x - still.view({3, 1, 1})) / sqrt(net.norm.running_var + 1e-5).view({3, 1, 1}));
  CHECK(equal(net.norm.running_mean, still));
  CHECK(net.norm.num_batches_tracked.item<int64_t>() == 1);
  CHECK_THROWS_WITH(nn::BatchNorm2d(3)(ones({2, 3})),
                    Catch::Contains("BatchNorm2d: expected x with 4 to 4 dimensions, got [2, 3]"));
}

TEST_CASE("batch_norm with an infinite running mean is infinite, not NaN") {
  const float infinity = std::numeric_limits<float>::infinity();
  const Tensor mean = tensor({-infinity, 1.f}), variance = tensor({4.f, 4.f}), weight = tensor({-1.f, 1.f});
  for (const Shape& shape : {Shape{3, 2}, Shape{3, 2, 40}})
    for (const DType dtype : {kFloat32, kFloat64}) {
      const Tensor x = ones(shape, {.dtype = dtype});
      const Tensor y = batch_norm(x, mean.to(dtype), variance.to(dtype), weight.to(dtype));
      CHECK(all(y.select(1, 0) == -infinity).item<bool>());
      CHECK(all(y.select(1, 1) == 0).item<bool>());
    }
}

TEST_CASE("BatchNorm without momentum averages over all batches") {
  nn::BatchNorm1d norm(2, {.momentum = {}});
  Tensor total = zeros({2});
  for (int i = 0; i < 3; ++i) {
    const Tensor x = rand({8, 2}) + i;
    norm(x);
    total = total + mean(x, 0);
  }
  testing::assert_close(norm.running_mean, total / 3);
}

TEST_CASE("layers without running statistics normalise by the batch in evaluation too") {
  nn::BatchNorm1d batch(3, {.affine = false, .track_running_stats = false});
  nn::InstanceNorm2d instance(3, {.track_running_stats = true});
  batch.eval();
  const Tensor x = randn({9, 3});
  testing::assert_close(mean(batch(x), 0), zeros({3}));
  const Tensor image = randn({3, 4, 4}) + 5;
  testing::assert_close(mean(instance(image), {1, 2}), zeros({3}));
  CHECK(all(instance.running_mean > 0.3).item<bool>());
  instance.eval();
  CHECK(all(mean(instance(image), {1, 2}) > 1).item<bool>());
}

TEST_CASE("CrossMapLRN2d is LocalResponseNorm for odd sizes") {
  const Tensor x = randn({2, 7, 3, 3});
  const nn::LocalResponseNormOptions options{.alpha = 0.5, .k = 2};
  testing::assert_close(nn::CrossMapLRN2d(3, options)(x), nn::LocalResponseNorm(3, options)(x));
  // For size 4: three channels, and a quarter of their sum.
  testing::assert_close(nn::CrossMapLRN2d(4, options)(x), local_response_norm(x, 3, 0.375, 0.75, 2));
}

TEST_CASE("normalising layers train in a Sequential") {
  manual_seed(5);
  nn::Sequential net{std::make_unique<nn::LayerNorm>(6), std::make_unique<nn::BatchNorm1d>(6),
                     std::make_unique<nn::RMSNorm>(6), std::make_unique<nn::GroupNorm>(2, 6)};
  sum(square(net(randn({5, 6})) - 1)).backward();
  for (const Tensor& parameter : net.parameters()) CHECK(any(parameter.grad() != 0).item<bool>());
}

}  // namespace reel
