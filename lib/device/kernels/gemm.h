#pragma once
#include <cstdint>

#include "reel/types.h"

namespace reel {

/// C = alpha op(A) op(B) + beta C (+ bias, for each row), row-major, `batch` times at the given distances in elements.
struct Gemm {
  DType dtype;
  bool trans_a = false, trans_b = false;
  int64_t m, n, k;
  const void* a;
  int64_t lda;
  const void* b;
  int64_t ldb;
  void* c;
  int64_t ldc;
  double alpha = 1, beta = 0;
  const void* bias = nullptr;  // [n]; only with beta = 0
  int64_t batch = 1, stride_a = 0, stride_b = 0, stride_c = 0;
  bool relu = false;  // c = max(c, 0) in the end
  // CUDA only:
  void* a_sums = nullptr;  // [m]: the sums of op(a)'s rows; without batches, bias and relu
};

}  // namespace reel
