#pragma once
#include "reel/tensor.h"

namespace reel::detail {

/// alpha a · b for a […, m, k] and b […, k, n] of one floating-point dtype, whose batches broadcast: a product with a
/// factor costs what one without does.
Tensor scaled_matmul(const Tensor& a, const Tensor& b, double alpha);

}  // namespace reel::detail
