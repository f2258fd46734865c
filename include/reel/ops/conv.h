#pragma once
#include <concepts>

#include "reel/ops/common.h"

#pragma GCC visibility push(default)
/// Convolutions and sliding windows. As everywhere in deep learning, what is called a convolution is a
/// cross-correlation: kernels are not flipped.
///
/// All tensors have one floating-point dtype; half types compute in float32. Sizes: x [n, in, l], [n, in, h, w] or
/// [n, in, d, h, w], or the same without n; a batch may be empty. Everything is differentiable to any order.
///
/// With channels_last x is [n, l, in], [n, h, w, in] or [n, d, h, w, in], or the same without n, and the result has its
/// channels last, too: what a GPU's tensor cores read, for which other layouts are converted in each call. Weights keep
/// their shape. unfold and fold take channels first only.
namespace reel {

/// kSame pads so that the output is as large as the input, with an odd zero at the end, and needs stride 1; kValid does
/// not pad.
enum class PaddingRule { kValid, kSame };
///@{
/// The PaddingRule of that name.
inline constexpr PaddingRule kValid = PaddingRule::kValid, kSame = PaddingRule::kSame;
///@}

/// How many zeros extend the input at either end: one number, one for each dimension, or a rule.
template <int N>
struct ConvPadding {
  PerDim<N> amount = 0;       ///< Zeros at either end; 0 where a rule is given.
  PaddingRule rule = kValid;  ///< kSame, or kValid, which means `amount`.

  ///@{
  /// Of an amount for all dimensions, one for each, or a rule.
  template <std::integral... T>
  requires(sizeof...(T) == 1 || sizeof...(T) == N) constexpr ConvPadding(T... each) : amount(each...) {}
  constexpr ConvPadding(PerDim<N> amount_) : amount(amount_) {}
  constexpr ConvPadding(PaddingRule rule_) : rule(rule_) {}
  ///@}
};

/// Of conv1d, conv2d and conv3d.
template <int N>
struct ConvOptions {
  PerDim<N> stride = 1;        ///< Elements from one window to the next.
  ConvPadding<N> padding = 0;  ///< Zeros at either end of the input.
  PerDim<N> dilation = 1;      ///< Elements from one tap of the kernel to the next.
  int64_t groups = 1;          ///< Input and output channels form this many independent groups.
  bool channels_last = false;  ///< x and the result are [n, …, channels], not [n, channels, …].
};

///@{
/// y[b, o, p] = bias[o] + Σ weight[o, c, k] x[b, c, p stride + k dilation - padding], for weight [out, in / groups, k…]
/// and bias [out] or undefined.
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const ConvOptions<1>& options = {});
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const ConvOptions<2>& options = {});
Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const ConvOptions<3>& options = {});
///@}

/// Of conv_transpose1d, conv_transpose2d and conv_transpose3d: those of the convolution whose adjoint it is.
template <int N>
struct ConvTransposeOptions {
  PerDim<N> stride = 1;          ///< Elements of the output from one element of the input to the next.
  PerDim<N> padding = 0;         ///< Elements cut off at either end of the output.
  PerDim<N> output_padding = 0;  ///< Added to the output's size at the end; less than stride or dilation.
  int64_t groups = 1;            ///< Input and output channels form this many independent groups.
  PerDim<N> dilation = 1;        ///< Elements from one tap of the kernel to the next.
  bool channels_last = false;    ///< x and the result are [n, …, channels], not [n, channels, …].
};

///@{
/// The adjoint of a convolution (a "deconvolution"): x [n, in, …] and weight [in, out / groups, k…] give
/// [n, out, (size - 1) stride - 2 padding + dilation (k - 1) + output_padding + 1, …], plus bias [out] or undefined.
Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTransposeOptions<1>& options = {});
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTransposeOptions<2>& options = {});
Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTransposeOptions<3>& options = {});
///@}

/// Where the windows of unfold and fold are.
struct UnfoldOptions {
  PerDim<2> dilation = 1;  ///< Elements from one element of a window to the next.
  PerDim<2> padding = 0;   ///< Zeros at either end of the image.
  PerDim<2> stride = 1;    ///< Elements from one window to the next.
};

/// The windows of x [n, c, h, w] as columns (im2col): [n, c · kernel_size[0] · kernel_size[1], windows], windows in
/// row-major order. Without n, too.
Tensor unfold(const Tensor& x, PerDim<2> kernel_size, const UnfoldOptions& options = {});
/// The adjoint of unfold (col2im): x [n, c · kernel_size[0] · kernel_size[1], windows] summed into [n, c, output_size].
/// Without n, too.
Tensor fold(const Tensor& x, PerDim<2> output_size, PerDim<2> kernel_size, const UnfoldOptions& options = {});

}  // namespace reel
#pragma GCC visibility pop
