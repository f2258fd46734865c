#pragma once
#include "cuda/runtime.h"

// Algorithms that CUB provides, behind functions of our own: CUB's headers take long to compile, and g++, which
// compiles the other CUDA sources for test/simt, cannot. test/simt/primitives.cpp has these functions for the CPU.
namespace reel::cuda {

/// Sorts n pairs by the lowest `bits` bits of their keys, stably. keys[0] and values[0] are the input and the output,
/// the second arrays are buffers: the pointers are swapped where the result ends up in those.
void sort_pairs(int64_t n, int bits, uint32_t* (&keys)[2], int64_t* (&values)[2]);
void sort_pairs(int64_t n, int bits, uint64_t* (&keys)[2], int64_t* (&values)[2]);

/// Keys with values, and the buffers that sorting them takes.
template <class Key>
class Pairs {
 public:
  explicit Pairs(int64_t n) : n_(n), key_memory_(2 * n), value_memory_(2 * n) {
    for (int i = 0; i < 2; ++i) keys_[i] = key_memory_ + i * n, values_[i] = value_memory_ + i * n;
  }
  Key* keys() const { return keys_[0]; }
  int64_t* values() const { return values_[0]; }
  void sort(int bits) {
    const RelaxedCaptureGuard guard(capturing());  // CUB asks for attributes of its kernels, which loads them
    sort_pairs(n_, bits, keys_, values_);
  }

 private:
  int64_t n_;
  Scratch<Key> key_memory_;
  Scratch<int64_t> value_memory_;
  Key* keys_[2];
  int64_t* values_[2];
};

/// The number of bits of n - 1: the bits that a radix sort of numbers below n has to sort by.
constexpr int bits_below(uint64_t n) {
  int bits = 0;
  while (n > 1 && bits < 64 && (n - 1) >> bits) ++bits;
  return bits;
}

}  // namespace reel::cuda
