#pragma once
#include "reel/ops/common.h"

/// Chance.
namespace reel {

/// Zeroes each element with probability p and scales the others by 1 / (1 - p); x itself when not training.
Tensor dropout(const Tensor& x, double p = 0.5, bool training = true);

}  // namespace reel
