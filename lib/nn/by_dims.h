#pragma once
#include "reel/ops/conv.h"

// Ops that have a function for each number of spatial dimensions, for templates that know the number.
namespace reel::nn::internal {

/// Of three functions the one for N dimensions.
template <int N, class One, class Two, class Three>
constexpr auto pick(One one, Two two, Three three) {
  if constexpr (N == 1)
    return one;
  else if constexpr (N == 2)
    return two;
  else
    return three;
}

///@{
/// The convolution for N dimensions, and its transpose.
template <int N>
Tensor convolve(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions<N>& options) {
  if constexpr (N == 1)
    return conv1d(x, weight, bias, options);
  else if constexpr (N == 2)
    return conv2d(x, weight, bias, options);
  else
    return conv3d(x, weight, bias, options);
}
template <int N>
Tensor convolve(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvTransposeOptions<N>& options) {
  if constexpr (N == 1)
    return conv_transpose1d(x, weight, bias, options);
  else if constexpr (N == 2)
    return conv_transpose2d(x, weight, bias, options);
  else
    return conv_transpose3d(x, weight, bias, options);
}
///@}

}  // namespace reel::nn::internal
