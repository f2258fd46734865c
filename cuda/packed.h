#pragma once
#include "cuda/runtime.h"

// 16 bytes of elements: what a thread moves at once.
namespace reel::cuda {

template <class T>
struct alignas(16) Packed {
  static constexpr int kSize = 16 / sizeof(T);
  T items[kSize];
};

inline bool is_aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

/// The smallest power of two that is at least n, or `most` (a power of two) where that is less.
constexpr unsigned power_of_two_from(int64_t n, unsigned most) {
  unsigned power = 1;
  while (power < most && power < n) power *= 2;
  return power;
}

/// The pack that begins at an aligned address.
template <class T>
__device__ Packed<T> load_pack(const T* from) {
  return *reinterpret_cast<const Packed<T>*>(from);
}
template <class T>
__device__ void store_pack(T* to, const Packed<T>& pack) {
  *reinterpret_cast<Packed<T>*>(to) = pack;
}

/// A pack's worth of a row of n elements from number i on, in the type that is computed in; `beyond` where the row has
/// ended. `aligned`: the row begins at an aligned address and is whole packs long.
template <class T>
__device__ void load_items(Wide<T> (&items)[Packed<T>::kSize], const T* row, int64_t i, int64_t n, bool aligned,
                           Wide<T> beyond) {
  if (aligned && i < n) {
    const Packed<T> pack = load_pack(row + i);
    for (int k = 0; k < Packed<T>::kSize; ++k) items[k] = widen(pack.items[k]);
  } else {
    for (int k = 0; k < Packed<T>::kSize; ++k) items[k] = i + k < n ? widen(row[i + k]) : beyond;
  }
}
template <class T>
__device__ void store_items(T* row, int64_t i, int64_t n, bool aligned, const Wide<T> (&items)[Packed<T>::kSize]) {
  if (aligned) {
    if (i >= n) return;
    Packed<T> pack;
    for (int k = 0; k < Packed<T>::kSize; ++k) pack.items[k] = narrow<T>(items[k]);
    store_pack(row + i, pack);
  } else {
    for (int k = 0; k < Packed<T>::kSize; ++k)
      if (i + k < n) row[i + k] = narrow<T>(items[k]);
  }
}

}  // namespace reel::cuda
