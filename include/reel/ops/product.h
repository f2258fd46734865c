#pragma once
#include "reel/ops/common.h"

/// Products of vectors, matrices and batches.
namespace reel {

/// NumPy's matmul: vectors, matrices and batches of matrices, whose leading dimensions broadcast.
Tensor matmul(const Tensor& a, const Tensor& b);
Tensor mm(const Tensor& a, const Tensor& b);   ///< [m, k] · [k, n]
Tensor bmm(const Tensor& a, const Tensor& b);  ///< [b, m, k] · [b, k, n]
Tensor dot(const Tensor& a, const Tensor& b);  ///< Of two vectors.
Tensor outer(const Tensor& a, const Tensor& b);
/// beta * input + alpha * a · b
Tensor addmm(const Tensor& input, const Tensor& a, const Tensor& b, Scalar beta = 1, Scalar alpha = 1);
/// x · weightᵀ + bias for x […, in], weight [out, in], bias [out] or undefined. In backward the products for one weight
/// that is used many times are merged into few large ones.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

}  // namespace reel
