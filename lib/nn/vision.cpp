#include "reel/nn/vision.h"

#include "lib/nn/repr.h"

namespace reel::nn {

Tensor Upsample::forward(const Tensor& x) const { return interpolate(x, options); }

std::string Upsample::extra_repr() const {
  const char* const modes[] = {"nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic", "area"};
  const auto list = [](const auto& numbers) {
    std::string all = detail::concat(*numbers.begin());
    for (auto number = numbers.begin() + 1; number != numbers.end(); ++number) all += detail::concat(", ", *number);
    return numbers.size() == 1 ? all : "(" + all + ")";
  };
  Repr repr;
  if (!options.size.empty())
    repr.add("size", list(options.size));
  else if (!options.scale_factor.empty())
    repr.add("scale_factor", list(options.scale_factor));
  return repr.add("mode", detail::concat("'", modes[static_cast<int>(options.mode)], "'"))
      .add_unless(false, "channels_last", options.channels_last)
      .text();
}

Tensor PixelShuffle::forward(const Tensor& x) const { return pixel_shuffle(x, upscale_factor); }
std::string PixelShuffle::extra_repr() const { return Repr().add("upscale_factor", upscale_factor).text(); }

Tensor PixelUnshuffle::forward(const Tensor& x) const { return pixel_unshuffle(x, downscale_factor); }
std::string PixelUnshuffle::extra_repr() const { return Repr().add("downscale_factor", downscale_factor).text(); }

Tensor ChannelShuffle::forward(const Tensor& x) const { return channel_shuffle(x, groups); }
std::string ChannelShuffle::extra_repr() const { return Repr().add("groups", groups).text(); }

}  // namespace reel::nn
