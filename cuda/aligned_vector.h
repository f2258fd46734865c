#pragma once
#include <cstring>

#include "cuda/runtime.h"

// Vectorized memory access: adjacent elements that a thread loads or stores with one instruction, 16 bytes at most,
// which is the widest access of a GPU.
//
// Alignment contract: an AlignedVector may be read only at an address that is a multiple of its size (up to 16), or the
// kernel fails with cudaErrorMisalignedAddress. Views can begin anywhere, so launches check is_aligned() on the host
// and pass the answer to the kernel, which goes element by element where it is false.
namespace reel::cuda {

template <class T, int n = 16 / static_cast<int>(sizeof(T))>
struct alignas(sizeof(T) * n < 16 ? sizeof(T) * n : 16) AlignedVector {
  static constexpr int kSize = n;
  T items[n];
};

template <size_t bytes = 16>
__host__ __device__ inline bool is_aligned(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % bytes == 0;
}

/// The vector that begins at an aligned address.
template <class T>
__device__ AlignedVector<T> load_vector(const T* from) {
  return *reinterpret_cast<const AlignedVector<T>*>(from);
}
/// By stores of 16 bytes, which an assignment is not where another branch stores the elements one by one: nvcc merges
/// the two into the narrow ones.
template <class T, int n>
__device__ void store_vector(T* to, const AlignedVector<T, n>& vector) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof vector % sizeof(uint4) == 0) {
    uint4 words[sizeof vector / sizeof(uint4)];
    memcpy(words, &vector, sizeof vector);
    for (size_t k = 0; k < sizeof vector / sizeof(uint4); ++k)
      asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                   :
                   : "l"(__cvta_generic_to_global(reinterpret_cast<uint4*>(to) + k)), "r"(words[k].x), "r"(words[k].y),
                     "r"(words[k].z), "r"(words[k].w)
                   : "memory");
    return;
  }
#endif
  *reinterpret_cast<AlignedVector<T, n>*>(to) = vector;
}

/// Elements i, i + 1, … of a row of n, as many as a vector of T has, converted to the type that is computed in;
/// `beyond` in place of those past the end of the row. `aligned`: the row begins at an aligned address and n is a
/// multiple of the vector's size, so no vector crosses the end.
template <class T, class Index>
__device__ void load_items(Wide<T> (&items)[AlignedVector<T>::kSize], const T* row, Index i, Index n, bool aligned,
                           Wide<T> beyond) {
  if (aligned && i < n) {
    const AlignedVector<T> vector = load_vector(row + i);
    for (int k = 0; k < AlignedVector<T>::kSize; ++k) items[k] = widen(vector.items[k]);
  } else {
    for (int k = 0; k < AlignedVector<T>::kSize; ++k) items[k] = i + k < n ? widen(row[i + k]) : beyond;
  }
}
template <class T, class Index>
__device__ void store_items(T* row, Index i, Index n, bool aligned, const Wide<T> (&items)[AlignedVector<T>::kSize]) {
  if (aligned) {
    if (i >= n) return;
    AlignedVector<T> vector;
    for (int k = 0; k < AlignedVector<T>::kSize; ++k) vector.items[k] = narrow<T>(items[k]);
    store_vector(row + i, vector);
  } else {
    for (int k = 0; k < AlignedVector<T>::kSize; ++k)
      if (i + k < n) row[i + k] = narrow<T>(items[k]);
  }
}

}  // namespace reel::cuda
