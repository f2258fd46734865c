#pragma once
#include <cmath>

#include "cuda/block.h"

// Softmax's maximum and its sum of exponentials in one pass over memory: "Online normalizer calculation for softmax",
// Milakov & Gimelshein 2018, arXiv:1805.02867.
namespace reel::cuda {

/// The maximum of the numbers so far, and the sum of exp(number - max).
template <class W>
struct OnlineSoftmax {
  W max = -INFINITY, sum = 0;

  /// The sum; NaN where the maximum is infinite, as exp(infinity - infinity) is.
  __device__ W total() const { return functors::abs(max) < W(INFINITY) ? sum : W(NAN); }
};

/// exp(x - max), but 1 for two equal infinities: the empty state, whose max is -infinity, then keeps its sum of 0.
template <class W>
__device__ W exp_difference(W x, W max) {
  return x == max ? W(1) : functors::exp(x - max);
}

struct MergeOnlineSoftmax {
  template <class W>
  __device__ OnlineSoftmax<W> operator()(const OnlineSoftmax<W>& a, const OnlineSoftmax<W>& b) const {
    const W max = Maximum()(a.max, b.max);
    return {max, a.sum * exp_difference(a.max, max) + b.sum * exp_difference(b.max, max)};
  }
};

}  // namespace reel::cuda
