#pragma once
#include <cstdint>

#include "reel/types.h"

namespace reel {

/// Logistic regressions of vectors against few rows of a matrix each, without making these rows: an entry is a vector,
/// a row, and whether they belong together.
struct SampledLogits {
  DType dtype = kFloat32;  // or kFloat64
  int64_t n = 0, width = 0, entries = 0;
  const void* hidden = nullptr;  // [n, width], contiguous
  const void* weight = nullptr;  // `rows` of `width` adjacent elements, `stride` apart
  int64_t rows = 0, stride = 0;
  const void* bias = nullptr;       // [rows], or nullptr
  const int64_t* ids = nullptr;     // [entries]: the row of each
  const int64_t* bounds = nullptr;  // [n + 1]: where a vector's entries begin; nullptr: each has entries / n
  const bool* truth = nullptr;      // [entries]; nullptr: the first of each vector is true, the others are not
  const void* shift = nullptr;      // [entries], subtracted from the scores, or nullptr
  void* loss = nullptr;             // [n]: the sum over the vector's entries
  void* slope = nullptr;            // [entries]: the loss's derivative by the score
  void* unit_grad = nullptr;        // [n, width]: the loss's derivative by the vector, or nullptr
};

/// Their gradients by the rows, where entries order[begins[r]] … order[begins[r + 1] - 1] have the row number r of
/// `count` different ones.
struct SampledLogitsGrad {
  DType dtype = kFloat32;  // or kFloat64
  int64_t width = 0, count = 0, entries = 0;
  const void* hidden = nullptr;     // as above
  const void* slope = nullptr;      // as above
  const void* grad = nullptr;       // [n]: of the losses
  const int64_t* owners = nullptr;  // [entries]: the vector of each; nullptr: each has `each` entries
  int64_t each = 0;
  const int64_t* order = nullptr;
  const int64_t* begins = nullptr;  // [count + 1]
  void* of_rows = nullptr;          // [count, width], or nullptr
  void* of_bias = nullptr;          // [count], or nullptr
};

}  // namespace reel
