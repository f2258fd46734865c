#pragma once
#include <cstdint>

#include "reel/types.h"

namespace reel {

/// Bags of rows of a matrix, without making the rows: ids[bounds[b]] … ids[bounds[b + 1] - 1] make up bag b.
struct EmbeddingBag {
  DType dtype;     // kFloat32 or kFloat64
  bool max, mean;  // neither: sums
  int64_t bags, width;
  const void* weight;  // `rows` of `width` adjacent elements, `stride` apart
  int64_t rows, stride;
  const int64_t* ids;
  const int64_t* bounds;
  const void* factors;  // for each id, or nullptr
  int64_t padding;      // an id that does not count, or -1
  void* out;            // [bags, width], zeros for empty bags; max: the int64 row of the largest element, 0 for those
  int64_t* bag;         // of each id, or nullptr
  int64_t* count;       // of the ids in each bag that count
};

}  // namespace reel
