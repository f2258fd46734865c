#include "cuda/primitives.h"

#include <cub/device/device_radix_sort.cuh>

// cuda/primitives.h by CUB's device-wide radix sort.
namespace reel::cuda {
namespace {

template <class Key>
void radix_sort(int64_t n, int bits, Key* (&keys)[2], int64_t* (&values)[2]) {
  if (n < 2 || bits == 0) return;
  cub::DoubleBuffer<Key> key(keys[0], keys[1]);
  cub::DoubleBuffer<int64_t> value(values[0], values[1]);
  const auto run = [&](void* memory, size_t& bytes) {
    check(cub::DeviceRadixSort::SortPairs(memory, bytes, key, value, n, 0, bits, stream()),
          "cub::DeviceRadixSort::SortPairs");
  };
  size_t bytes = 0;
  cudaGetLastError();  // CUB checks the last error, and would return one that an earlier call left
  run(nullptr, bytes);
  const Scratch<unsigned char> memory(static_cast<int64_t>(bytes));
  run(memory, bytes);
  keys[0] = key.Current(), keys[1] = key.Alternate();
  values[0] = value.Current(), values[1] = value.Alternate();
}

}  // namespace

void sort_pairs(int64_t n, int bits, uint32_t* (&keys)[2], int64_t* (&values)[2]) { radix_sort(n, bits, keys, values); }
void sort_pairs(int64_t n, int bits, uint64_t* (&keys)[2], int64_t* (&values)[2]) { radix_sort(n, bits, keys, values); }

}  // namespace reel::cuda
