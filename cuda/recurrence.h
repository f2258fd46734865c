#pragma once
#include <algorithm>
#include <cstdint>

#include "lib/kernels/recurrence.h"

// What the ways to compute a recurrent layer share.
namespace reel::cuda {

/// Up to so many rows a state is computed by a warp for each unit; beyond, a GEMM is faster.
inline constexpr int kMaxWarpPerUnitBatch = 8;

/// The number of steps of each row, in descending order, to lengths[0], …, lengths[rows - 1]. For a Recurrence or a
/// RnnLayer.
template <class R, class Length>
void write_lengths(const R& r, Length* lengths) {
  if (!r.sizes) std::fill_n(lengths, r.rows, static_cast<Length>(r.steps));
  for (int64_t t = r.sizes ? r.steps - 1 : -1, row = 0; t >= 0; --t)
    for (; row < r.sizes[t]; ++row) lengths[row] = static_cast<Length>(t + 1);
}

/// Recurrence::layer, or its gradient.
void run_layer(const RnnLayer& layer, bool backward);

}  // namespace reel::cuda
