#pragma once
#include "lib/ops/internal.h"

// What the derivatives of prod and cumprod share.
namespace reel {

/// The product of the elements in front of each one along dim. Recorded.
Tensor exclusive_cumprod(const Tensor& x, int64_t dim);
/// Whether y, some products, divided by a factor is the product of the others: no factor is 0 or not finite, and
/// nothing has left the range of y's type. False where y cannot be read without synchronizing.
bool can_divide_product(const Tensor& y);

}  // namespace reel
