#pragma once
#include <span>
#include <vector>

#include "reel/tensor.h"

/// What op families share.
namespace reel {

/// The dimensions that a reduction runs over; empty means all of them.
struct Dims {
  Shape dims;
  Dims() = default;
  template <std::integral T>
  Dims(T dim) : dims{static_cast<int64_t>(dim)} {}
  Dims(std::initializer_list<int64_t> list) : dims(list) {}
};

/// Several tensors: {a, b}, a vector of them, or a span. For parameters only: it does not hold them.
struct TensorList : std::span<const Tensor> {
  TensorList(std::initializer_list<Tensor> list) : span(list.begin(), list.size()) {}
  TensorList(const std::vector<Tensor>& list) : span(list) {}
  TensorList(std::span<const Tensor> list) : span(list) {}
};

struct ValuesIndices {
  Tensor values, indices;  // indices: int64
};
enum class Reduction { kMean, kSum, kNone, kBatchMean };
inline constexpr Reduction kMean = Reduction::kMean, kSum = Reduction::kSum, kNoReduction = Reduction::kNone,
                           kBatchMean = Reduction::kBatchMean;
/// How elements that meet at one place are joined (scatter_reduce, segment_reduce).
enum class Reduce { kSum, kProd, kMean, kMax, kMin };

}  // namespace reel
