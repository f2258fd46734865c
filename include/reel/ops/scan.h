#pragma once
#include "reel/ops/common.h"

/// Running results along a dimension.
namespace reel {

Tensor cumsum(const Tensor& x, int64_t dim);

}  // namespace reel
