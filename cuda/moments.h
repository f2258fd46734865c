#pragma once
#include <cfloat>

#include "cuda/rows.h"
#include "cuda/runtime.h"
#include "lib/device/kernels/norm.h"
#include "lib/functors/number.h"

// Means, variances, the parameters of rows and where their gradients go, for cuda/norm.cu.
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

/// Weights or biases of rows: one for each `inner` adjacent elements.
template <class T>
struct Parameters {
  static constexpr int kVectorSize = AlignedVector<T>::kSize;
  const void* data;  // or nullptr: `otherwise` for all
  bool wide;         // elements are of type Wide<T> instead of T
  bool as_row;       // one for each element, and read in vectors, too
  int64_t groups, channels, inner;

  __device__ void load(Wide<T> (&items)[kVectorSize], int64_t row, int64_t i, const RowTeams& rows,
                       Wide<T> otherwise) const {
    if (!data || i >= rows.n) {
      for (Wide<T>& item : items) item = otherwise;
      return;
    }
    if constexpr (!std::is_same_v<T, Wide<T>>)
      if (wide) return load_as<Wide<T>>(items, row, i, otherwise);
    load_as<T>(items, row, i, otherwise);
  }
  template <class P>
  __device__ void load_as(Wide<T> (&items)[kVectorSize], int64_t row, int64_t i, Wide<T> otherwise) const {
    const P* const mine = static_cast<const P*>(data) + (groups == 1 ? 0 : row % groups * channels);
    if (as_row) {
      constexpr int kPart = AlignedVector<P>::kSize;
      for (int first = 0; first < kVectorSize; first += kPart) {
        const AlignedVector<P> part = load_vector(mine + i + first);
        for (int k = 0; k < kPart; ++k) items[first + k] = widen(part.items[k]);
      }
      return;
    }
    int64_t channel = inner == 1 ? i : quotient(i, inner), rest = i - channel * inner;
    for (Wide<T>& item : items) {
      item = channel < channels ? widen(mine[channel]) : otherwise;
      if (++rest == inner) rest = 0, ++channel;
    }
  }
};
template <class T>
Parameters<T> parameters_of(const Norm& norm, const void* data, const RowTeams& rows) {
  const bool as_row = norm.inner == 1 && rows.aligned;
  return {data, norm.wide_parameters, as_row, norm.groups, norm.channels, norm.inner};
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
