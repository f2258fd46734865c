#pragma once
#include "reel/ops/common.h"

/// Rows of embedding matrices.
namespace reel {

/// weight[ids]: rows of a matrix [n, …] for int64 ids of any shape. With `sparse` the gradient that reaches a leaf is
/// row-sparse (Tensor::grad_rows), and optimizers change only the rows that were used.
Tensor embedding(const Tensor& weight, const Tensor& ids, bool sparse = false);

}  // namespace reel
