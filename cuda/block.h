#pragma once
#include <cstring>

#include "cuda/runtime.h"

// What the threads of a warp or a block do together.
namespace reel::cuda {

/// What shuffle(word) makes of each word of a value, be it a number or a struct of 4-byte words.
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
/// The values of lanes lane ^ bits, lane - by (the own one where that is negative) and source.
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

/// Which of a launch's parts the block works on: the last one of the `count` that does not begin after it.
template <int most>
__device__ int part_of_block(const int (&first_block)[most], int count) {
  const int block = static_cast<int>(blockIdx.x);
  int part = 0;
  for (int step = most / 2; step > 0; step /= 2)
    if (part + step < count && first_block[part + step] <= block) part += step;
  return part;
}

/// The combination of all lanes' values, in every lane; all lanes of the warp call it. With `lanes` (a power of two)
/// each group of so many neighbours has its own.
template <class T, class Op>
__device__ T warp_reduce(T value, Op op, int lanes = kWarp) {
  for (int step = lanes / 2; step > 0; step /= 2) value = op(value, shuffle_xor(value, step));
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

/// … of a team of neighbouring threads: 1 to 32 lanes of a warp, a power of two, or the whole block.
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
