#include "cuda/primitives.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "test/simt/streams.h"

// cuda/primitives.h for the CPU.
namespace reel::cuda {
namespace {

/// The result is in either array, depending on the number of bits, as with CUB.
template <class Key>
void sort_on_host(int64_t n, int bits, Key* (&keys)[2], int64_t* (&values)[2]) {
  if (n < 2 || bits == 0) return;
  CUDA_CHECK(simt::refuse_while_capturing());  // CUB loads its kernels
  simt::enqueue(stream(), [n, bits, from = keys[0], to = keys[1], value = values[0], moved = values[1]] {
    const Key mask = bits == 8 * sizeof(Key) ? ~Key(0) : static_cast<Key>((Key(1) << bits) - 1);
    std::vector<int64_t> order(n);
    std::iota(order.begin(), order.end(), int64_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return (from[a] & mask) < (from[b] & mask); });
    for (int64_t i = 0; i < n; ++i) to[i] = from[order[i]], moved[i] = value[order[i]];
  });
  if ((bits + 7) / 8 % 2) {
    std::swap(keys[0], keys[1]), std::swap(values[0], values[1]);
  } else {
    simt::enqueue(stream(), [n, from = keys[1], to = keys[0], value = values[1], moved = values[0]] {
      std::copy_n(from, n, to), std::copy_n(value, n, moved);
    });
  }
}

}  // namespace

void sort_pairs(int64_t n, int bits, uint32_t* (&keys)[2], int64_t* (&values)[2]) {
  sort_on_host(n, bits, keys, values);
}
void sort_pairs(int64_t n, int bits, uint64_t* (&keys)[2], int64_t* (&values)[2]) {
  sort_on_host(n, bits, keys, values);
}

}  // namespace reel::cuda
