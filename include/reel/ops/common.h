#pragma once
#include <span>
#include <vector>

#include "reel/tensor.h"

#pragma GCC visibility push(default)
/// What op families share.
namespace reel {

/// Several tensors: {a, b}, a vector of them, or a span. Use it only as a function parameter: it does not own the
/// tensors.
struct TensorList : std::span<const Tensor> {
  ///@{
  /// A view of the list, which must outlive it.
  TensorList(std::initializer_list<Tensor> list) : span(list.begin(), list.size()) {}
  TensorList(const std::vector<Tensor>& list) : span(list) {}
  TensorList(std::span<const Tensor> list) : span(list) {}
  ///@}
};

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
