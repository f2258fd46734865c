#include "reel/nn/vision.h"

#include "lib/nn/text.h"

namespace reel::nn {

Tensor Upsample::forward(const Tensor& x) const { return interpolate(x, options); }

std::string Upsample::extra_repr() const {
  const char* const modes[] = {"nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic", "area"};
  const auto list = [](const auto& numbers) {
    std::string all = text(*numbers.begin());
    for (auto number = numbers.begin() + 1; number != numbers.end(); ++number) all += text(", ", *number);
    return numbers.size() == 1 ? all : "(" + all + ")";
  };
  std::string repr;
  if (!options.scale_factor.empty()) repr = "scale_factor=" + list(options.scale_factor);
  if (!options.size.empty()) repr = "size=" + list(options.size);
  return text(repr, ", mode='", modes[static_cast<int>(options.mode)], "'", layout(options.channels_last));
}

Tensor PixelShuffle::forward(const Tensor& x) const { return pixel_shuffle(x, upscale_factor); }
std::string PixelShuffle::extra_repr() const { return text("upscale_factor=", upscale_factor); }

Tensor PixelUnshuffle::forward(const Tensor& x) const { return pixel_unshuffle(x, downscale_factor); }
std::string PixelUnshuffle::extra_repr() const { return text("downscale_factor=", downscale_factor); }

Tensor ChannelShuffle::forward(const Tensor& x) const { return channel_shuffle(x, groups); }
std::string ChannelShuffle::extra_repr() const { return text("groups=", groups); }

}  // namespace reel::nn
