#pragma once
#include "reel/tensor.h"

#pragma GCC visibility push(default)
/// What op families share.
namespace reel {

/// Elements and where they were found: auto [values, indices] = topk(x, 5).
struct ValuesIndices {
  Tensor values;   ///< Of the input's dtype.
  Tensor indices;  ///< int64, of values' shape: positions along the dimension.
};

/// What a loss returns: the mean over all values that are not ignored, their sum, each value by itself, or (kBatchMean)
/// the sum divided by size(0) of the input.
enum class Reduction { kMean, kSum, kNone, kBatchMean };
///@{
/// The Reduction of that name. Reduction::kNone is kNoReduction here, since kNone is an index.
inline constexpr Reduction kMean = Reduction::kMean, kSum = Reduction::kSum, kNoReduction = Reduction::kNone,
                           kBatchMean = Reduction::kBatchMean;
///@}

/// How elements that are written to the same position are combined (scatter_reduce, segment_reduce, embedding_bag).
enum class Reduce { kSum, kProd, kMean, kMax, kMin };

}  // namespace reel
#pragma GCC visibility pop
