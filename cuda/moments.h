#pragma once
#include <cfloat>

#include "cuda/runtime.h"
#include "lib/functors/number.h"
#include "lib/kernels/norm.h"

// Means, variances and where gradients of parameters go, for cuda/norm.cu.
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
      : high(static_cast<W>(mean)),
        low(high - high == W(0) ? static_cast<W>(mean - static_cast<double>(high)) : W(0)) {}
  __device__ W operator()(W x) const { return (x - high) - low; }
};

/// x ↦ (x - mean) rstd.
template <class W>
struct Standard {
  Centre<W> centre;
  W rstd;
  __device__ W operator()(W x) const { return centre(x) * rstd; }
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
/// The same in the elements' type, whose own root and division take a fraction of the time of those in double
/// precision, where they are normal numbers.
template <class W>
__device__ W rstd_as(double variance, double eps) {
  const W sum = static_cast<W>(variance + eps);
  if constexpr (sizeof(W) == sizeof(float))
    if (sum >= FLT_MIN && sum <= FLT_MAX) return W(1) / functors::sqrt(sum);
  return static_cast<W>(rstd_of(variance, eps));
}

__device__ inline void add_distance(Sums* sums, double x, double from) {
  const double d = x - from;
  sums->first += d;
  sums->second += d * d;
}

/// The means of a gradient's terms over a row of n: once a thread, not once a vector, as they take divisions in double
/// precision.
template <class W>
struct Means {
  W shift, slope;
  __device__ Means(const Sums& sums, int64_t n, bool center)
      : shift(center ? static_cast<W>(sums.first / static_cast<double>(n)) : W(0)),
        slope(static_cast<W>(sums.second / static_cast<double>(n))) {}
};

/// n / d; 32-bit division, which mostly suffices, is several times as fast.
__device__ inline int64_t quotient(int64_t n, int64_t d) {
  if ((n | d) >> 32 == 0) return static_cast<uint32_t>(n) / static_cast<uint32_t>(d);
  return n / d;
}

/// f(Type<T>()) on the GPU.
template <class F>
__device__ void with_stored(DType dtype, const F& f) {
  switch (dtype) {
    case kFloat16: return f(Type<__half>());
    case kBFloat16: return f(Type<__nv_bfloat16>());
    case kFloat32: return f(Type<float>());
    default: return f(Type<double>());
  }
}

/// The gradients of weight and bias, of any floating dtype.
struct ParameterGrads {
  void *bias, *weight;  // nullptr: not wanted
  DType dtype;
  explicit ParameterGrads(const Norm& norm) : bias(norm.grad_bias), weight(norm.grad_weight), dtype(norm.grads_dtype) {}

  __device__ void store(int64_t i, double of_bias, double of_weight) const {
    if (bias) store(bias, i, of_bias);
    if (weight) store(weight, i, of_weight);
  }

 private:
  __device__ void store(void* to, int64_t i, double value) const {
    with_stored(dtype, [&](auto type) {
      using T = typename decltype(type)::type;
      static_cast<T*>(to)[i] = narrow<T>(value);
    });
  }
};

}  // namespace reel::cuda
