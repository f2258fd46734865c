#pragma once
#include "reel/ops/common.h"

/// Sorting and searching.
namespace reel {

/// A stable sort; NaN counts as the largest.
ValuesIndices sort(const Tensor& x, int64_t dim = -1, bool descending = false);
ValuesIndices topk(const Tensor& x, int64_t k, int64_t dim = -1, bool largest = true);

}  // namespace reel
