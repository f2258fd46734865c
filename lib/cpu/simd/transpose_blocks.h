// This header has the transpose of a matrix in memory, whose blocks are transposed in registers.
#pragma once
#include <algorithm>
#include <cstring>

#include "lib/cpu/simd/transpose.h"

namespace reel::cpu::REEL_ISA {

/// Writes from[i + j * from_stride] to to[i * to_stride + j], for i < rows and j < columns.
template <class T>
void transpose_blocks(const T* from, int64_t from_stride, int64_t rows, int64_t columns, T* to, int64_t to_stride) {
  constexpr int64_t kBlock = kRowSize<T>;
  for (int64_t j = 0; j < columns; j += kBlock)
    for (int64_t i = 0; i < rows; i += kBlock) {
      if (i + kBlock > rows || j + kBlock > columns) {
        for (int64_t r = i; r < std::min(i + kBlock, rows); ++r)
          for (int64_t c = j; c < std::min(j + kBlock, columns); ++c) to[r * to_stride + c] = from[r + c * from_stride];
        continue;
      }
      Row<T> block[kBlock];
      for (int64_t c = 0; c < kBlock; ++c) std::memcpy(&block[c], from + i + (j + c) * from_stride, sizeof(Row<T>));
      transpose(block);
      for (int64_t r = 0; r < kBlock; ++r) std::memcpy(to + (i + r) * to_stride + j, &block[r], sizeof(Row<T>));
    }
}

}  // namespace reel::cpu::REEL_ISA
