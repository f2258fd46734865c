#include "reel/nn/pooling.h"

#include <catch2/catch.hpp>

#include "reel/nn/sequential.h"
#include "reel/ops.h"
#include "reel/random.h"

namespace reel {

TEST_CASE("pooling layers are printed as PyTorch prints them") {
  CHECK(nn::MaxPool2d(3, {.stride = 2, .padding = {0, 1}}).to_string() ==
        "MaxPool2d(kernel_size=3, stride=2, padding=(0, 1), dilation=1, ceil_mode=false)");
  CHECK(nn::MaxPool1d(2).to_string() == "MaxPool1d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=false)");
  CHECK(nn::AvgPool3d({1, 2, 3}).to_string() == "AvgPool3d(kernel_size=(1, 2, 3), stride=(1, 2, 3), padding=0)");
  CHECK(nn::AdaptiveMaxPool2d({3, -1}).to_string() == "AdaptiveMaxPool2d(output_size=(3, None))");
  CHECK(nn::AdaptiveAvgPool1d(1).to_string() == "AdaptiveAvgPool1d(output_size=1)");
  CHECK(nn::LPPool2d(2, 3).to_string() == "LPPool2d(norm_type=2, kernel_size=3, stride=None, ceil_mode=false)");
  CHECK(nn::FractionalMaxPool2d(2, {.output_size = 3}).to_string() == "FractionalMaxPool2d()");
  CHECK(nn::MaxUnpool2d(2).to_string() == "MaxUnpool2d(kernel_size=2, stride=2, padding=0)");
}

TEST_CASE("pooling layers do what the ops do") {
  manual_seed(3);
  const Tensor line = randn({2, 3, 9}), image = randn({2, 3, 8, 9}), volume = randn({2, 2, 4, 5, 6});
  CHECK(equal(nn::MaxPool1d(2)(line), max_pool1d(line, 2)));
  CHECK(equal(nn::MaxPool3d(2)(volume), max_pool3d(volume, 2)));
  CHECK(equal(nn::AvgPool2d(3, {.stride = 2, .padding = 1})(image), avg_pool2d(image, 3, {.stride = 2, .padding = 1})));
  CHECK(equal(nn::LPPool1d(2, 3)(line), lp_pool1d(line, 2, 3)));
  CHECK(equal(nn::AdaptiveMaxPool3d(2)(volume), adaptive_max_pool3d(volume, 2)));
  CHECK(equal(nn::AdaptiveAvgPool2d({2, 3})(image), adaptive_avg_pool2d(image, {2, 3})));
  CHECK(nn::FractionalMaxPool3d(2, {.output_ratio = {0.5}})(volume).shape() == Shape{2, 2, 2, 2, 3});
  nn::Sequential net{std::make_unique<nn::MaxPool2d>(2), std::make_unique<nn::AdaptiveAvgPool2d>(1)};
  CHECK(net(image).shape() == Shape{2, 3, 1, 1});
}

TEST_CASE("MaxUnpool undoes MaxPool to any size it came from") {
  const Tensor x = rand({1, 2, 5, 7});
  const nn::MaxPool2d pool(2);
  const nn::MaxUnpool2d unpool(2);
  const auto [y, at] = pool.forward_with_indices(x);
  const Tensor back = unpool(y, at, PerDim<2>(5, 7));
  CHECK(back.shape() == x.shape());
  CHECK(equal(pool(back), y));
  const auto [z, places] = pool.forward_with_indices(rand({1, 2, 4, 6}));
  CHECK(unpool(z, places).shape() == Shape{1, 2, 4, 6});
}

}  // namespace reel
