#include "reel/nn/vision.h"

#include <catch2/catch.hpp>

#include "reel/ops.h"
#include "reel/random.h"

namespace reel {

TEST_CASE("resizing layers are printed as PyTorch prints them") {
  CHECK(nn::Upsample({.scale_factor = {2}, .mode = kBilinear}).to_string() ==
        "Upsample(scale_factor=2, mode='bilinear')");
  CHECK(nn::Upsample({.size = {3, 4}}).to_string() == "Upsample(size=(3, 4), mode='nearest')");
  CHECK(nn::PixelShuffle(2).to_string() == "PixelShuffle(upscale_factor=2)");
  CHECK(nn::PixelUnshuffle(2).to_string() == "PixelUnshuffle(downscale_factor=2)");
  CHECK(nn::ChannelShuffle(2).to_string() == "ChannelShuffle(groups=2)");
}

TEST_CASE("resizing layers do what the ops do") {
  const Tensor x = rand({1, 8, 4, 6});
  CHECK(equal(nn::Upsample({.scale_factor = {2}, .mode = kBicubic})(x),
              interpolate(x, {.scale_factor = {2}, .mode = kBicubic})));
  CHECK(equal(nn::PixelUnshuffle(2)(nn::PixelShuffle(2)(x)), x));
  CHECK(equal(nn::ChannelShuffle(4)(nn::ChannelShuffle(2)(x)), x));
}

}  // namespace reel
