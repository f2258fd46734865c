#pragma once
#include <limits>

#include "cuda/block.h"
#include "cuda/runtime.h"

// What crf.cu and ctc.cu share: a block walks along a chain, its threads take the states, and two rows of states take
// turns. Sums are as in lib/cpu/simd/crf.cpp: every exponential is of a number that is not positive.
namespace reel::cuda {

/// log 0
template <class T>
__device__ T never() {
  return T(-INFINITY);
}
template <class T>
__device__ T finite_or_zero(T x) {
  return x == never<T>() ? T(0) : x;
}

/// The larger one, unless it is NaN.
struct Larger {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return b > a ? b : a;
  }
};

/// for (int j : of this thread) f(j)
template <class F>
__device__ void for_each_state(int n, const F& f) {
  for (int j = static_cast<int>(threadIdx.x); j < n; j += static_cast<int>(blockDim.x)) f(j);
}

/// Subtracts the largest value from all and adds it to the total, unless there is none. The block waits.
template <class T, class Keep>
__device__ void normalize(T* values, int n, double& total, const Keep& keep) {
  T top = never<T>();
  for_each_state(n, [&](int j) { top = Larger()(top, values[j]); });
  top = block_reduce(top, Larger());
  if (top != never<T>()) total += double(top);
  for_each_state(n, [&](int j) { keep(j, values[j] -= finite_or_zero(top)); });
  __syncthreads();
}

inline unsigned threads_for(int64_t states) {
  return static_cast<unsigned>(ceil_div(states < 1024 ? states : 1024, kWarp) * kWarp);
}

/// Memory of each block of a launch: shared, or the GPU's where that is too small. Static arrays have room beside it.
template <class T>
class BlockMemory {
 public:
  BlockMemory(int64_t elements, int64_t blocks)
      : elements_(elements),
        fits_(static_cast<size_t>(elements) * sizeof(T) + kStatic <= most_shared()),
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
