#pragma once
#include "cuda/runtime.h"
#include "lib/functors/number.h"

// Means and variances, for cuda/norm.cu.
namespace reel::cuda {

struct Sums {
  double first, second;
};
struct PlusSums {
  __device__ Sums operator()(const Sums& a, const Sums& b) const { return {a.first + b.first, a.second + b.second}; }
};

/// x - mean, where mean is the sum of two numbers.
template <class W>
struct Centre {
  W high, low;
  Centre() = default;
  __device__ explicit Centre(double mean)
      : high(static_cast<W>(mean)), low(static_cast<W>(mean - static_cast<double>(high))) {}
  __device__ W operator()(W x) const { return (x - high) - low; }
};

struct Moments {
  double mean, variance;
};
/// From the sums of d and d², d = x - from, over n elements.
__device__ inline Moments moments_of(const Sums& sums, double n, double from) {
  const double off = sums.first / n, variance = sums.second / n - off * off;
  return {from + off, variance < 0 ? 0 : variance};
}
__device__ inline double rstd_of(double variance, double eps) { return 1 / functors::sqrt(variance + eps); }

__device__ inline void add_distance(Sums* sums, double x, double from) {
  const double d = x - from;
  sums->first += d;
  sums->second += d * d;
}

/// n / d; 32-bit division, which mostly suffices, is several times as fast.
__device__ inline int64_t quotient(int64_t n, int64_t d) {
  if ((n | d) >> 32 == 0) return static_cast<uint32_t>(n) / static_cast<uint32_t>(d);
  return n / d;
}

}  // namespace reel::cuda
