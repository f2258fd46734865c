#pragma once
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

struct ValuesIndices {
  Tensor values, indices;  // indices: int64
};
enum class Reduction { kMean, kSum, kNone, kBatchMean };
inline constexpr Reduction kMean = Reduction::kMean, kSum = Reduction::kSum, kNoReduction = Reduction::kNone,
                           kBatchMean = Reduction::kBatchMean;

}  // namespace reel
