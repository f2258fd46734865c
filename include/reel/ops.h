#pragma once
#include <optional>
#include <span>
#include <vector>

#include "reel/tensor.h"

/// Every op of reel. All are differentiable where mathematics allows, to any order, and broadcast as NumPy does where
/// they take several tensors. Types are promoted by PyTorch's rules; meanings are PyTorch's unless a line here says
/// otherwise. A dimension `dim` counts from 0, or from the end when negative.
///
/// In programs that say `using namespace reel`, call reel::std by its full name: a bare `std` is the standard library.
namespace reel {

/// The dimensions that a reduction runs over; empty means all of them.
struct Dims {
  Shape dims;
  Dims() = default;
  template <std::integral T>
  Dims(T dim) : dims{static_cast<int64_t>(dim)} {}
  Dims(std::initializer_list<int64_t> list) : dims(list) {}
};

struct ValuesIndices {
  Tensor values, indices;  // indices: int64
};
enum class Reduction { kMean, kSum, kNone };
inline constexpr Reduction kMean = Reduction::kMean, kSum = Reduction::kSum, kNoReduction = Reduction::kNone;

// ---- arithmetic -----------------------------------------------------------------------------------------------------

Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);  ///< True division: integers give float32.
inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
Tensor operator-(const Tensor& x);
Tensor pow(const Tensor& base, const Tensor& exponent);
Tensor maximum(const Tensor& a, const Tensor& b);  ///< NaN where either is NaN. At ties each gets half the gradient.
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor fmod(const Tensor& a, const Tensor& b);  ///< C's remainder: the sign of a.
Tensor clamp(const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max = {});
/// a where condition (bool) is true, b elsewhere.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);

// ---- pointwise functions --------------------------------------------------------------------------------------------

Tensor neg(const Tensor& x);
Tensor abs(const Tensor& x);
Tensor sign(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor expm1(const Tensor& x);
Tensor log(const Tensor& x);
Tensor log1p(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor square(const Tensor& x);
Tensor reciprocal(const Tensor& x);
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor erf(const Tensor& x);
Tensor floor(const Tensor& x);
Tensor ceil(const Tensor& x);
Tensor round(const Tensor& x);  ///< Halves to even.
Tensor relu(const Tensor& x);
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01);
Tensor elu(const Tensor& x, double alpha = 1.0);
Tensor gelu(const Tensor& x);  ///< The exact form, x Φ(x) (Hendrycks & Gimpel 2016).
Tensor silu(const Tensor& x);  ///< x sigmoid(x).
Tensor softplus(const Tensor& x, double beta = 1.0, double threshold = 20.0);

// ---- comparison and logic: bool results, no gradient ----------------------------------------------------------------

Tensor eq(const Tensor& a, const Tensor& b);
Tensor ne(const Tensor& a, const Tensor& b);
Tensor lt(const Tensor& a, const Tensor& b);
Tensor le(const Tensor& a, const Tensor& b);
Tensor gt(const Tensor& a, const Tensor& b);
Tensor ge(const Tensor& a, const Tensor& b);
inline Tensor operator==(const Tensor& a, const Tensor& b) { return eq(a, b); }
inline Tensor operator!=(const Tensor& a, const Tensor& b) { return ne(a, b); }
inline Tensor operator<(const Tensor& a, const Tensor& b) { return lt(a, b); }
inline Tensor operator<=(const Tensor& a, const Tensor& b) { return le(a, b); }
inline Tensor operator>(const Tensor& a, const Tensor& b) { return gt(a, b); }
inline Tensor operator>=(const Tensor& a, const Tensor& b) { return ge(a, b); }
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor logical_xor(const Tensor& a, const Tensor& b);
Tensor logical_not(const Tensor& x);
/// Of bool tensors: (x > 0) & !mask.
Tensor operator&(const Tensor& a, const Tensor& b);
Tensor operator|(const Tensor& a, const Tensor& b);
Tensor operator!(const Tensor& x);
bool equal(const Tensor& a, const Tensor& b);  ///< Same shape and all elements equal.

// ---- reductions -----------------------------------------------------------------------------------------------------

Tensor sum(const Tensor& x, const Dims& dims = {}, bool keepdim = false);  ///< Integers and bools sum to int64.
Tensor mean(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor prod(const Tensor& x);
Tensor prod(const Tensor& x, int64_t dim, bool keepdim = false);
Tensor max(const Tensor& x);  ///< Like amax over everything: ties share the gradient evenly.
Tensor min(const Tensor& x);
/// The maximum along dim and where it first occurs; the gradient goes there.
ValuesIndices max(const Tensor& x, int64_t dim, bool keepdim = false);
ValuesIndices min(const Tensor& x, int64_t dim, bool keepdim = false);
template <std::floating_point T>
ValuesIndices max(const Tensor& x, T other, bool = false) = delete;  // of two numbers or tensors: maximum, minimum
template <std::floating_point T>
ValuesIndices min(const Tensor& x, T other, bool = false) = delete;
Tensor amax(const Tensor& x, const Dims& dims = {}, bool keepdim = false);  ///< Ties share the gradient evenly.
Tensor amin(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor argmax(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false);  ///< The first, of equals.
Tensor argmin(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false);
/// The sum of squared deviations over n - correction (Bessel's correction by default).
Tensor var(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keepdim = false);
Tensor std(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keepdim = false);
/// The p-norm of the elements, p > 0 or infinity. Its gradient at 0 is 0.
Tensor norm(const Tensor& x, double p = 2, const Dims& dims = {}, bool keepdim = false);
Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim = false);
Tensor any(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor all(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor cumsum(const Tensor& x, int64_t dim);

// ---- softmax and losses ---------------------------------------------------------------------------------------------

Tensor softmax(const Tensor& x, int64_t dim);
Tensor log_softmax(const Tensor& x, int64_t dim);
/// The losses know no class weights, ignored targets or probability targets yet, and do not broadcast.
/// -log_probs[i, target[i]] for log_probs [n, classes] (or [classes]) and int64 target [n] (or a scalar).
Tensor nll_loss(const Tensor& log_probs, const Tensor& target, Reduction reduction = kMean);
/// nll_loss(log_softmax(logits), target), in one step: logits [n, classes] (or [classes]), target int64 [n] (or []).
Tensor cross_entropy(const Tensor& logits, const Tensor& target, Reduction reduction = kMean);
Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction = kMean);
/// Logarithms are clamped at -100, as in PyTorch.
Tensor binary_cross_entropy(const Tensor& probability, const Tensor& target, Reduction reduction = kMean);
Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target, Reduction reduction = kMean);

// ---- products -------------------------------------------------------------------------------------------------------

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

// ---- joining and rearranging ----------------------------------------------------------------------------------------

Tensor cat(std::span<const Tensor> tensors, int64_t dim = 0);
Tensor stack(std::span<const Tensor> tensors, int64_t dim = 0);
inline Tensor cat(std::initializer_list<Tensor> list, int64_t dim = 0) {
  return cat(std::span(list.begin(), list.size()), dim);
}
inline Tensor stack(std::initializer_list<Tensor> list, int64_t dim = 0) {
  return stack(std::span(list.begin(), list.size()), dim);
}
/// Views of `size` along dim each, the last perhaps smaller.
std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim = 0);
std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim = 0);
std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim = 0);
Tensor flip(const Tensor& x, const Dims& dims);
Tensor roll(const Tensor& x, int64_t shift, int64_t dim);
Tensor repeat(const Tensor& x, const Shape& repeats);  ///< numpy.tile.
Tensor tril(const Tensor& x, int64_t diagonal = 0);
Tensor triu(const Tensor& x, int64_t diagonal = 0);
Tensor diag(const Tensor& x, int64_t diagonal = 0);  ///< Of a matrix its diagonal, of a vector the matrix.

// ---- indexing -------------------------------------------------------------------------------------------------------

/// Index tensors are int64; an index out of range throws and names it.
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& ids);
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index);
/// Where a place is named twice one of its values is kept, and each of them gets the place's gradient.
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source);
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source);
Tensor masked_select(const Tensor& x, const Tensor& mask);
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value);
/// weight[ids]: rows of a matrix [n, …] for int64 ids of any shape. With `sparse` the gradient that reaches a leaf is
/// row-sparse (Tensor::grad_rows), and optimizers change only the rows that were used.
Tensor embedding(const Tensor& weight, const Tensor& ids, bool sparse = false);
Tensor nonzero(const Tensor& x);  ///< int64 [count, dim]: the positions, in row-major order.
/// A stable sort; NaN counts as the largest.
ValuesIndices sort(const Tensor& x, int64_t dim = -1, bool descending = false);
ValuesIndices topk(const Tensor& x, int64_t k, int64_t dim = -1, bool largest = true);
Tensor one_hot(const Tensor& ids, int64_t classes = -1);  ///< int64; -1: one more than the largest id.

// ---- recurrent cells (the pointwise parts; products are the caller's) -----------------------------------------------

struct CellState {
  Tensor h, c;
};
/// gates [n, 4H] = input, forget, cell, output pre-activations in PyTorch's order i f g o; c [n, H]:
/// c' = σ(f) c + σ(i) tanh(g), h' = σ(o) tanh(c').
CellState lstm_cell(const Tensor& gates, const Tensor& c);
/// N-ary Tree-LSTM (Tai et al. 2015, eq. 9–14) for N = children.size() ≥ 0 with memory cells [n, H] each.
/// gates [n, (3 + N) H] holds the pre-activations in the order i, f_1 … f_N, o, u:
/// c = σ(i) tanh(u) + Σ σ(f_k) c_k, h = σ(o) tanh(c).
/// A Child-Sum Tree-LSTM (eq. 2–8) is the same with its own way to the gates.
CellState tree_lstm_cell(const Tensor& gates, std::span<const Tensor> children);
inline CellState tree_lstm_cell(const Tensor& gates, std::initializer_list<Tensor> children) {
  return tree_lstm_cell(gates, std::span(children.begin(), children.size()));
}

// ---- chance ---------------------------------------------------------------------------------------------------------

/// Zeroes each element with probability p and scales the others by 1 / (1 - p); x itself when not training.
Tensor dropout(const Tensor& x, double p = 0.5, bool training = true);

}  // namespace reel
