// This file has what the implementations of recurrent layers share.
#pragma once
#include <algorithm>
#include <cstdint>

#include "lib/device/kernels/recurrence.h"

namespace reel::cuda {

/// The largest batch for the warp-per-unit kernels: above it a GEMM is faster.
inline constexpr int kMaxWarpPerUnitBatch = 8;

/// Writes the number of steps of each row, in descending order, to lengths[0], …, lengths[rows - 1]. R is Recurrence or
/// RnnLayer.
template <class R, class Length>
void write_lengths(const R& r, Length* lengths) {
  if (!r.sizes) std::fill_n(lengths, r.rows, static_cast<Length>(r.steps));
  for (int64_t t = r.sizes ? r.steps - 1 : -1, row = 0; t >= 0; --t)
    for (; row < r.sizes[t]; ++row) lengths[row] = static_cast<Length>(t + 1);
}

}  // namespace reel::cuda
