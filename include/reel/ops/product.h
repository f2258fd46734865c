#pragma once
#include <string_view>
#include <vector>

#include "reel/ops/common.h"

#pragma GCC visibility push(default)
/// Products of vectors, matrices and batches.
namespace reel {

/// NumPy's matmul: vectors, matrices and batches of matrices, whose leading dimensions broadcast.
Tensor matmul(const Tensor& a, const Tensor& b);
Tensor mm(const Tensor& a, const Tensor& b);     ///< [m, k] · [k, n]
Tensor bmm(const Tensor& a, const Tensor& b);    ///< [b, m, k] · [b, k, n]
Tensor dot(const Tensor& a, const Tensor& b);    ///< Of two vectors.
Tensor outer(const Tensor& a, const Tensor& b);  ///< [m] and [n] give [m, n]: all products of two elements.
/// beta * input + alpha * a · b. With beta or alpha 0 the input or the product may hold NaN, and has gradient 0.
Tensor addmm(const Tensor& input, const Tensor& a, const Tensor& b, Scalar beta = 1, Scalar alpha = 1);
/// x · weightᵀ + bias for x […, in], weight [out, in], bias [out] or undefined; a weight [in], with a bias [], gives
/// […]. The weight gradients of many uses are merged into few large matrix products (see Tensor::grad).
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
/// relu(linear(x, weight, bias)), which saves one intermediate result.
Tensor linear_relu(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
/// x1ᵀ W_k x2 + b_k for x1 […, in1], x2 […, in2], weight [out, in1, in2], bias [out] or undefined: […, out].
Tensor bilinear(const Tensor& x1, const Tensor& x2, const Tensor& weight, const Tensor& bias = {});

/// [m, k] · [k]
Tensor mv(const Tensor& a, const Tensor& x);
/// beta * input + alpha * a · b for batches [b, m, k] and [b, k, n], 0 as in addmm.
Tensor baddbmm(const Tensor& input, const Tensor& a, const Tensor& b, Scalar beta = 1, Scalar alpha = 1);
/// Sums of products of the last dimensions: a [A…, k] and b [B…, k] give [A…, B…], NumPy's inner.
Tensor inner(const Tensor& a, const Tensor& b);
/// The Kronecker product: each element of a times all of b, of as many dimensions as the larger one has.
Tensor kron(const Tensor& a, const Tensor& b);
/// Sums over dimensions dims_a of a and dims_b of b, pair by pair; the result has the others of a, then those of b.
Tensor tensordot(const Tensor& a, const Tensor& b, const std::vector<int64_t>& dims_a,
                 const std::vector<int64_t>& dims_b);
/// Over the last `dims` dimensions of a and the first of b.
Tensor tensordot(const Tensor& a, const Tensor& b, int64_t dims = 2);

/// Einstein's convention: einsum("bij,bjk->bik", {a, b}). A letter names a dimension; dimensions with the same letter
/// have equal sizes (or 1, which broadcasts), and letters that the result lacks are summed over. "..." stands for
/// dimensions that are broadcast. Without "->" the result has the letters that occur once, in alphabetical order. A
/// letter twice in one operand is its diagonal. Operands are contracted from left to right, as batched matrix products.
/// Integers are promoted where they meet; what is summed within one operand is int64, as of sum.
/// The result is row-major; of one operand whose elements are not summed it is a view.
Tensor einsum(std::string_view equation, TensorList operands);

}  // namespace reel
#pragma GCC visibility pop
