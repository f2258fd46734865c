#pragma once
#include "cuda/runtime.h"

// What the threads of a warp or a block do together.
namespace reel::cuda {

/// The combination of all lanes' values, in every lane; all lanes of the warp call it.
template <class T, class Op>
__device__ T warp_reduce(T value, Op op) {
  for (int step = kWarp / 2; step > 0; step /= 2) value = op(value, __shfl_xor_sync(~0u, value, step));
  return value;
}

/// The combination of all threads' values, in every thread. All threads of a block of whole warps call it; T has at
/// most 16 bytes and any two calls may follow each other at once.
template <class T, class Op>
__device__ T block_reduce(T value, Op op) {
  __shared__ __align__(16) unsigned char memory[kWarp * 16];
  T* const partial = reinterpret_cast<T*>(memory);
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  value = warp_reduce(value, op);
  if (warps == 1) return value;
  __syncthreads();  // of an earlier call everything has been read
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  value = partial[0];
  for (unsigned w = 1; w < warps; ++w) value = op(value, partial[w]);
  return value;
}

struct Plus {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
/// NaN wins.
struct Maximum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a != a || a > b ? a : b;
  }
};
struct Minimum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a != a || a < b ? a : b;
  }
};

}  // namespace reel::cuda
