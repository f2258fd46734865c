#pragma once
#include "reel/ops/common.h"

/// Looking up, selecting and writing elements by position.
namespace reel {

/// Index tensors are int64; an index out of range throws and names it.
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& ids);
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index);
/// Where a place is named twice one of its values is kept, and each of them gets the place's gradient.
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source);
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source);
Tensor masked_select(const Tensor& x, const Tensor& mask);
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value);
Tensor nonzero(const Tensor& x);                          ///< int64 [count, dim]: the positions, in row-major order.
Tensor one_hot(const Tensor& ids, int64_t classes = -1);  ///< int64; -1: one more than the largest id.

}  // namespace reel
