#pragma once
#include <limits>

#include "cuda/block.h"
#include "cuda/runtime.h"

// The forward-backward algorithm in log space, as crf.cu and ctc.cu need it: a thread block has one sequence, since the
// steps of a sequence depend on each other and sequences do not. Its threads take the states of a step, and two rows of
// states (the step before and this one) are swapped from step to step.
//
// Log-sum-exps subtract the maximum first, as in lib/cpu/simd/crf.cpp, so that no exponential overflows.
namespace reel::cuda {

/// log 0: a state that no path reaches.
template <class T>
__device__ T log_zero() {
  return T(-INFINITY);
}
template <class T>
__device__ T finite_or_zero(T x) {
  return x == log_zero<T>() ? T(0) : x;
}

/// b where it is larger, else a: unlike Maximum (cuda/block.h) it skips a NaN b. The sum that follows has the
/// NaN all the same.
struct MaxIgnoreNan {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return b > a ? b : a;
  }
};

/// f(j) for the states j < n that the calling thread has.
template <class F>
__device__ void for_each_state(int n, const F& f) {
  for (int j = static_cast<int>(threadIdx.x); j < n; j += static_cast<int>(blockDim.x)) f(j);
}

/// Subtracts the largest value from all and adds it to the total, unless all are log 0. Without this a long sequence
/// would lose its digits to ever larger logarithms. `store` gets each new value. Ends with a barrier.
template <class T, class Store>
__device__ void normalize(T* values, int n, double& total, const Store& store) {
  T top = log_zero<T>();
  for_each_state(n, [&](int j) { top = MaxIgnoreNan()(top, values[j]); });
  top = block_reduce(top, MaxIgnoreNan());
  if (top != log_zero<T>()) total += double(top);
  for_each_state(n, [&](int j) { store(j, values[j] -= finite_or_zero(top)); });
  __syncthreads();
}

inline unsigned threads_for(int64_t states) {
  return static_cast<unsigned>(ceil_div(states < 1024 ? states : 1024, kWarp) * kWarp);
}

/// A workspace for each thread block of a launch: dynamic shared memory or, where that is too small, global memory. Up
/// to kStatic bytes are left for the kernels' static shared arrays.
template <class T>
class BlockWorkspace {
 public:
  BlockWorkspace(int64_t elements, int64_t blocks)
      : elements_(elements),
        fits_(static_cast<size_t>(elements) * sizeof(T) + kStatic <= max_shared_memory()),
        outside_(fits_ ? 0 : elements * blocks) {}
  size_t shared() const { return fits_ ? static_cast<size_t>(elements_) * sizeof(T) : 0; }

  struct Device {
    T* outside;
    int64_t elements;
    __device__ T* get() const {
      REEL_SHARED(T, inside);
      return outside ? outside + blockIdx.x * elements : inside;
    }
  };
  Device device() const { return {fits_ ? nullptr : outside_.data(), elements_}; }

 private:
  static constexpr size_t kStatic = 24 << 10;
  int64_t elements_;
  bool fits_;
  Scratch<T> outside_;
};

}  // namespace reel::cuda
