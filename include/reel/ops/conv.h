#pragma once
#include <concepts>

#include "reel/ops/common.h"

/// Convolutions and sliding windows. As everywhere in deep learning, what is called a convolution is a
/// cross-correlation: kernels are not flipped.
///
/// All tensors have one floating-point dtype; half types compute in float32. Sizes: x [n, in, l], [n, in, h, w] or
/// [n, in, d, h, w], or the same without n; a batch may be empty. Everything is differentiable to any order.
namespace reel {

/// kSame pads so that the output is as large as the input, with the odd one at the end (stride 1 only); kValid not at
/// all.
enum class PaddingRule { kValid, kSame };
inline constexpr PaddingRule kValid = PaddingRule::kValid, kSame = PaddingRule::kSame;

/// How many zeros extend the input at either end: one number, one for each dimension, or a rule.
template <int N>
struct ConvPadding {
  PerDim<N> amount = 0;
  PaddingRule rule = kValid;

  template <std::integral... T>
  requires(sizeof...(T) == 1 || sizeof...(T) == N) constexpr ConvPadding(T... each) : amount(each...) {}
  constexpr ConvPadding(PerDim<N> amount_) : amount(amount_) {}
  constexpr ConvPadding(PaddingRule rule_) : rule(rule_) {}
};

template <int N>
struct ConvOptions {
  PerDim<N> stride = 1;
  ConvPadding<N> padding = 0;
  PerDim<N> dilation = 1;
  int64_t groups = 1;  ///< Channels are split into so many parts that know nothing of each other.
};

/// y[b, o, p] = bias[o] + Σ weight[o, c, k] x[b, c, p stride + k dilation - padding], for weight [out, in / groups, k…]
/// and bias [out] or undefined.
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const ConvOptions<1>& options = {});
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const ConvOptions<2>& options = {});
Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const ConvOptions<3>& options = {});

template <int N>
struct ConvTransposeOptions {
  PerDim<N> stride = 1;
  PerDim<N> padding = 0;
  PerDim<N> output_padding = 0;  ///< Added to the output's size at the end; less than stride or dilation.
  int64_t groups = 1;
  PerDim<N> dilation = 1;
};

/// The adjoint of a convolution (a "deconvolution"): x [n, in, …] and weight [in, out / groups, k…] give
/// [n, out, (size - 1) stride - 2 padding + dilation (k - 1) + output_padding + 1, …], plus bias [out] or undefined.
Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTransposeOptions<1>& options = {});
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTransposeOptions<2>& options = {});
Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTransposeOptions<3>& options = {});

struct UnfoldOptions {
  PerDim<2> dilation = 1;
  PerDim<2> padding = 0;
  PerDim<2> stride = 1;
};

/// The windows of x [n, c, h, w] as columns (im2col): [n, c · kernel_size[0] · kernel_size[1], windows], windows in
/// row-major order. Without n, too.
Tensor unfold(const Tensor& x, PerDim<2> kernel_size, const UnfoldOptions& options = {});
/// The adjoint of unfold (col2im): x [n, c · kernel_size[0] · kernel_size[1], windows] summed into [n, c, output_size].
/// Without n, too.
Tensor fold(const Tensor& x, PerDim<2> output_size, PerDim<2> kernel_size, const UnfoldOptions& options = {});

}  // namespace reel
