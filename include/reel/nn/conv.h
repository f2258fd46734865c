#pragma once
#include <optional>
#include <string>

#include "reel/nn/module.h"
#include "reel/ops/conv.h"
#include "reel/ops/pad.h"

#pragma GCC visibility push(default)
/// Convolutions and sliding windows as layers; see reel/ops/conv.h for what they compute. Inputs are batched
/// [n, channels, …] or not [channels, …]; with channels_last [n, …, channels] or […, channels]. Weights and biases
/// start uniform in ±1/√fan_in, where fan_in is what one element of the output of a (not transposed) convolution is
/// summed over.
namespace reel::nn {

namespace internal {
class Fusion;
}  // namespace internal

/// Options of Conv.
template <int N>
struct ConvLayerOptions {
  PerDim<N> stride = 1;           ///< In each dimension.
  ConvPadding<N> padding = 0;     ///< At both ends of each dimension.
  PerDim<N> dilation = 1;         ///< The distance of neighbouring taps.
  int64_t groups = 1;             ///< Groups of channels that are convolved apart.
  bool bias = true;               ///< Whether there is one.
  PadMode padding_mode = kZeros;  ///< The values of the padding.
  bool channels_last = false;     ///< x and the result are [n, …, channels], not [n, channels, …].
};

/// Conv1d, Conv2d and Conv3d. weight is [out_channels, in_channels / groups, kernel_size…] and bias [out_channels].
template <int N>
struct Conv : Layer<Conv<N>> {
  Conv(int64_t in_channels, int64_t out_channels, PerDim<N> kernel_size, ConvLayerOptions<N> options = {});
  Conv(Module& parent, std::string name, int64_t in_channels, int64_t out_channels, PerDim<N> kernel_size,
       ConvLayerOptions<N> options = {})
      : Conv(in_channels, out_channels, kernel_size, options) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const;
  void reset_parameters();
  std::string name() const override;
  std::string extra_repr() const override;

  const int64_t in_channels, out_channels;
  const PerDim<N> kernel_size;
  const ConvLayerOptions<N> options;
  Parameter weight, bias;

 private:
  friend class internal::Fusion;
  bool relu_follows_ = false;  // and may be computed by the layer
};
extern template struct Conv<1>;
extern template struct Conv<2>;
extern template struct Conv<3>;
using Conv1d = Conv<1>;  ///< For x [n, channels, w].
using Conv2d = Conv<2>;  ///< For x [n, channels, h, w].
using Conv3d = Conv<3>;  ///< For x [n, channels, d, h, w].

/// Options of ConvTranspose.
template <int N>
struct ConvTransposeLayerOptions {
  PerDim<N> stride = 1;          ///< In each dimension.
  PerDim<N> padding = 0;         ///< At both ends of each dimension.
  PerDim<N> output_padding = 0;  ///< Added to the size of the output.
  int64_t groups = 1;            ///< Groups of channels that are convolved apart.
  bool bias = true;              ///< Whether there is one.
  PerDim<N> dilation = 1;        ///< The distance of neighbouring taps.
  bool channels_last = false;    ///< x and the result are [n, …, channels], not [n, channels, …].
};

/// ConvTranspose1d, ConvTranspose2d and ConvTranspose3d. weight is [in_channels, out_channels / groups, kernel_size…]
/// and bias [out_channels].
template <int N>
struct ConvTranspose : Layer<ConvTranspose<N>> {
  ConvTranspose(int64_t in_channels, int64_t out_channels, PerDim<N> kernel_size,
                ConvTransposeLayerOptions<N> options = {});
  ConvTranspose(Module& parent, std::string name, int64_t in_channels, int64_t out_channels, PerDim<N> kernel_size,
                ConvTransposeLayerOptions<N> options = {})
      : ConvTranspose(in_channels, out_channels, kernel_size, options) {
    parent.register_module(std::move(name), *this);
  }
  /// With output_size the output is as large as that, which must be one of the `stride` sizes from which a convolution
  /// makes x's size; output_padding is not used then.
  Tensor forward(const Tensor& x, std::optional<PerDim<N>> output_size = {}) const;
  void reset_parameters();
  std::string name() const override;
  std::string extra_repr() const override;

  const int64_t in_channels, out_channels;
  const PerDim<N> kernel_size;
  const ConvTransposeLayerOptions<N> options;
  Parameter weight, bias;
};
extern template struct ConvTranspose<1>;
extern template struct ConvTranspose<2>;
extern template struct ConvTranspose<3>;
using ConvTranspose1d = ConvTranspose<1>;  ///< For x [n, channels, w].
using ConvTranspose2d = ConvTranspose<2>;  ///< For x [n, channels, h, w].
using ConvTranspose3d = ConvTranspose<3>;  ///< For x [n, channels, d, h, w].

/// reel::unfold as a layer.
struct Unfold : Layer<Unfold> {
  explicit Unfold(PerDim<2> size, UnfoldOptions given = {}) : kernel_size(size), options(given) {}
  Unfold(Module& parent, std::string name, PerDim<2> kernel_size, UnfoldOptions options = {})
      : Unfold(kernel_size, options) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const;
  std::string extra_repr() const override;

  const PerDim<2> kernel_size;
  const UnfoldOptions options;
};

/// reel::fold as a layer.
struct Fold : Layer<Fold> {
  Fold(PerDim<2> image, PerDim<2> kernel, UnfoldOptions given = {})
      : output_size(image), kernel_size(kernel), options(given) {}
  Fold(Module& parent, std::string name, PerDim<2> output_size, PerDim<2> kernel_size, UnfoldOptions options = {})
      : Fold(output_size, kernel_size, options) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const;
  std::string extra_repr() const override;

  const PerDim<2> output_size, kernel_size;
  const UnfoldOptions options;
};

}  // namespace reel::nn
#pragma GCC visibility pop
