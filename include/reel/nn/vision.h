#pragma once
#include "reel/nn/module.h"
#include "reel/ops/resize.h"

#pragma GCC visibility push(default)
/// Layers of the ops in ops/resize.h.
namespace reel::nn {

/// interpolate(x, options).
struct Upsample : Layer<Upsample> {
  explicit Upsample(InterpolateOptions options_) : options(std::move(options_)) {}
  Upsample(Module& parent, std::string name, InterpolateOptions options) : Upsample(std::move(options)) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const;
  std::string extra_repr() const override;

  const InterpolateOptions options;
};

/// pixel_shuffle(x, upscale_factor).
struct PixelShuffle : Layer<PixelShuffle> {
  explicit PixelShuffle(int64_t factor) : upscale_factor(factor) {}
  PixelShuffle(Module& parent, std::string name, int64_t upscale_factor) : PixelShuffle(upscale_factor) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const;
  std::string extra_repr() const override;

  const int64_t upscale_factor;
};

/// pixel_unshuffle(x, downscale_factor).
struct PixelUnshuffle : Layer<PixelUnshuffle> {
  explicit PixelUnshuffle(int64_t factor) : downscale_factor(factor) {}
  PixelUnshuffle(Module& parent, std::string name, int64_t downscale_factor) : PixelUnshuffle(downscale_factor) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const;
  std::string extra_repr() const override;

  const int64_t downscale_factor;
};

/// channel_shuffle(x, groups).
struct ChannelShuffle : Layer<ChannelShuffle> {
  explicit ChannelShuffle(int64_t number) : groups(number) {}
  ChannelShuffle(Module& parent, std::string name, int64_t groups) : ChannelShuffle(groups) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const;
  std::string extra_repr() const override;

  const int64_t groups;
};

}  // namespace reel::nn
#pragma GCC visibility pop
