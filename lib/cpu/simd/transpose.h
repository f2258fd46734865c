#pragma once
#include <utility>

#include "lib/cpu/simd/batch.h"

// Transposes of blocks of vectors in registers, so that data whose inner dimension is short can be loaded by rows.
namespace reel::cpu::REEL_ISA {

/// The halves of a and b number `half`, element by element in turn: a0 b0 a1 b1 …. xsimd's zip works within 128 bits.
template <size_t half, class T, size_t... i>
Batch<T> interleave(const Batch<T>& a, const Batch<T>& b, std::index_sequence<i...>) {
  constexpr size_t n = Batch<T>::size;
  return Batch<T>(__builtin_shufflevector(a.data, b.data, (half * n / 2 + i / 2 + i % 2 * n)...));
}

/// Integers has 16 bytes of integers that are narrower than the numbers of batches.
template <class T>
struct Integers {
  typedef T Lanes [[gnu::vector_size(16)]];
  Lanes data;
};
template <size_t half, class T, size_t... i>
Integers<T> interleave(const Integers<T>& a, const Integers<T>& b, std::index_sequence<i...>) {
  constexpr size_t n = sizeof...(i);
  return {__builtin_shufflevector(a.data, b.data, (half * n / 2 + i / 2 + i % 2 * n)...)};
}

/// A Row is a row of a block that is transposed in registers.
template <class T>
using Row = std::conditional_t<std::is_floating_point_v<T>, Batch<T>, Integers<T>>;
template <class T>
inline constexpr int64_t kRowSize = sizeof(Row<T>) / sizeof(T);

/// Lane j of rows[i] becomes lane i of rows[j]: as many perfect shuffles of the rows as make each element's row number
/// its lane number (Stone 1971).
template <class Row, size_t n>
void transpose(Row (&rows)[n]) {
  constexpr auto lanes = std::make_index_sequence<n>();
  for (size_t round = 1; round < n; round *= 2) {
    Row next[n];
    for (size_t i = 0; i < n / 2; ++i) {
      next[2 * i] = interleave<0>(rows[i], rows[i + n / 2], lanes);
      next[2 * i + 1] = interleave<1>(rows[i], rows[i + n / 2], lanes);
    }
    for (size_t i = 0; i < n; ++i) rows[i] = next[i];
  }
}

/// n ≤ kWidth rows, `stride` apart, of `size` elements become `size` batches whose lanes are the rows.
template <class T>
void rows_to_lanes(const T* from, int64_t stride, int64_t size, int64_t n, T* to) {
  for (int64_t i = 0; i < size; i += kWidth<T>) {
    Batch<T> block[kWidth<T>];
    for (int64_t k = 0; k < kWidth<T>; ++k)
      block[k] = k < n ? load_up_to(from + k * stride + i, size - i) : Batch<T>(T(0));
    transpose(block);
    for (int64_t k = 0; k < kWidth<T> && i + k < size; ++k) store(to + (i + k) * kWidth<T>, block[k]);
  }
}
/// The inverse.
template <class T>
void lanes_to_rows(const T* from, int64_t size, int64_t n, T* to, int64_t stride) {
  for (int64_t i = 0; i < size; i += kWidth<T>) {
    Batch<T> block[kWidth<T>];
    for (int64_t k = 0; k < kWidth<T>; ++k) block[k] = i + k < size ? load(from + (i + k) * kWidth<T>) : Batch<T>(T(0));
    transpose(block);
    for (int64_t k = 0; k < n; ++k) store_up_to(to + k * stride + i, block[k], size - i);
  }
}

}  // namespace reel::cpu::REEL_ISA
