#pragma once
#include <cmath>

#include "cuda/block.h"
#include "lib/number.h"

// Softmax in one pass: the largest of some numbers beside the sum of exp(number - largest), both of which may still
// grow.
namespace reel::cuda {

template <class W>
struct LogSum {
  W most = -INFINITY, sum = 0;

  /// The sum; NaN where the largest number is infinite, as exp(infinity - infinity) is.
  __device__ W total() const { return scalar::abs(most) < W(INFINITY) ? sum : W(NAN); }
};

/// exp(x - most), but 1 for two equal infinities.
template <class W>
__device__ W exp_below(W x, W most) {
  return x == most ? W(1) : scalar::exp(x - most);
}

struct JoinLogSums {
  template <class W>
  __device__ LogSum<W> operator()(const LogSum<W>& a, const LogSum<W>& b) const {
    const W most = Maximum()(a.most, b.most);
    return {most, a.sum * exp_below(a.most, most) + b.sum * exp_below(b.most, most)};
  }
};

}  // namespace reel::cuda
