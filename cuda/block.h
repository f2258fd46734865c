#pragma once
#include <cstring>

#include "cuda/runtime.h"

// Cooperation of the threads of a warp or a thread block: shuffles and reductions, and the shapes of blocks.
//
// The order in which values are combined depends on the shape of the launch alone, so results are the same in each run.
namespace reel::cuda {

/// The smallest power of two that is at least n, or `limit` (a power of two) where that is less.
constexpr unsigned power_of_two_from(int64_t n, unsigned limit) {
  unsigned power = 1;
  while (power < limit && power < n) power *= 2;
  return power;
}

/// Applies shuffle(word) to each word of a value: shuffles exist for numbers only, this makes them work for structs of
/// 4-byte words, too.
template <class T, class F>
__device__ T by_words(T value, const F& shuffle) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(shuffle(value));
  } else {
    static_assert(sizeof(T) % sizeof(unsigned) == 0);
    unsigned words[sizeof(T) / sizeof(unsigned)];
    memcpy(words, &value, sizeof value);
    for (unsigned& word : words) word = shuffle(word);
    memcpy(&value, words, sizeof value);
    return value;
  }
}
/// The values of lanes lane ^ bits, lane - by (the calling lane's own where that is negative) and source. All lanes of
/// the warp must call them, as the mask is full.
template <class T>
__device__ T shuffle_xor(T value, int bits) {
  return by_words(value, [=](auto word) { return __shfl_xor_sync(~0u, word, bits); });
}
template <class T>
__device__ T shuffle_up(T value, unsigned by) {
  return by_words(value, [=](auto word) { return __shfl_up_sync(~0u, word, by); });
}
template <class T>
__device__ T shuffle_from(T value, int source) {
  return by_words(value, [=](auto word) { return __shfl_sync(~0u, word, source); });
}

/// Where one launch works on many tensors, a range of blocks each: the index of the one that the calling block has,
/// which is the last of the `count` whose range does not begin after it. A binary search.
__device__ inline int part_of_block(const int* first_block, int count) {
  const int block = static_cast<int>(blockIdx.x);
  int part = 0;
  for (int left = count; left > 1;) {
    const int half = left / 2;
    const bool after = first_block[part + half] <= block;
    part += after ? half : 0;
    left = after ? left - half : half;
  }
  return part;
}

/// The combination of all lanes' values, in every lane; all lanes of the warp call it. With `lanes` (a power of two)
/// each group of so many neighbours is reduced by itself. A butterfly (shuffle_xor) rather than a tree: every lane gets
/// the result without a broadcast, and the same bits, as long as op commutes exactly.
template <class T, class Op>
__device__ T warp_reduce(T value, Op op, int lanes = kWarp) {
  for (int step = lanes / 2; step > 0; step /= 2) value = op(value, shuffle_xor(value, step));
  return value;
}

/// The combination of all threads' values, in every thread. All threads of a block of whole warps call it, since it
/// contains barriers; T has at most 16 bytes. Calls may follow each other directly: the first barrier protects the
/// shared memory of the one before.
template <class T, class Op>
__device__ T block_reduce(T value, Op op) {
  __shared__ __align__(16) unsigned char memory[kWarp * 16];
  T* const partial = reinterpret_cast<T*>(memory);
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  value = warp_reduce(value, op);
  if (warps == 1) return value;
  __syncthreads();  // all threads have read the results of an earlier call
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  value = partial[0];
  for (unsigned w = 1; w < warps; ++w) value = op(value, partial[w]);
  return value;
}

/// The same for a team of neighbouring threads: 1 to 32 lanes of a warp, a power of two, or the whole block.
template <class T, class Op>
__device__ T team_reduce(T value, Op op, unsigned team) {
  return team <= kWarp ? warp_reduce(value, op, static_cast<int>(team)) : block_reduce(value, op);
}

struct Plus {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
/// NaN propagates: CUDA's fmax would drop it.
struct Maximum {
  template <class T>
  __device__ T operator()(T a, T b) const {
#ifdef __CUDA_ARCH__
    if constexpr (std::is_same_v<T, float>) {  // one instruction instead of three
      float most;
      asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
      return most;
    }
#endif
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
