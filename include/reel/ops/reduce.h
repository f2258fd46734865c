#pragma once
#include <optional>

#include "reel/ops/common.h"

/// Reductions along dimensions.
namespace reel {

Tensor sum(const Tensor& x, const Dims& dims = {}, bool keepdim = false);  ///< Integers and bools sum to int64.
Tensor mean(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor nansum(const Tensor& x, const Dims& dims = {}, bool keepdim = false);   ///< NaN counts as 0.
Tensor nanmean(const Tensor& x, const Dims& dims = {}, bool keepdim = false);  ///< The mean of what is not NaN.
Tensor count_nonzero(const Tensor& x, const Dims& dims = {});                  ///< int64
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
struct MinMax {
  Tensor min, max;
};
MinMax aminmax(const Tensor& x, const Dims& dims = {}, bool keepdim = false);           ///< amin and amax.
Tensor argmax(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false);  ///< The first, of equals.
Tensor argmin(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false);
/// The sum of squared deviations over n - correction (Bessel's correction by default).
Tensor var(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keepdim = false);
Tensor std(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keepdim = false);
struct Moments {
  Tensor spread, mean;  // spread: the variance or standard deviation
};
Moments var_mean(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keepdim = false);
Moments std_mean(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keepdim = false);
// A bool is no correction: var(x, dims, true) of other libraries' keepdim or unbiased would be taken for 1.
template <std::same_as<bool> B>
Tensor var(const Tensor& x, const Dims& dims, B, bool = false) = delete;
template <std::same_as<bool> B>
Tensor std(const Tensor& x, const Dims& dims, B, bool = false) = delete;
template <std::same_as<bool> B>
Moments var_mean(const Tensor& x, const Dims& dims, B, bool = false) = delete;
template <std::same_as<bool> B>
Moments std_mean(const Tensor& x, const Dims& dims, B, bool = false) = delete;
/// Of variables (rows; a vector is one) over observations (columns): [rows, rows], 0-d for a vector.
Tensor cov(const Tensor& x, double correction = 1);
Tensor corrcoef(const Tensor& x);  ///< cov scaled to a diagonal of ones.
/// The p-norm of the elements, p > 0 or infinity. Its gradient at 0 is 0.
Tensor norm(const Tensor& x, double p = 2, const Dims& dims = {}, bool keepdim = false);
/// Every slice along dim whose p-norm exceeds max_norm scaled down to it.
Tensor renorm(const Tensor& x, double p, int64_t dim, double max_norm);
Tensor logsumexp(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor any(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor all(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor trace(const Tensor& x);  ///< The sum of a matrix's diagonal.
/// The vector product along dim, of size 3; a and b are broadcast.
Tensor cross(const Tensor& a, const Tensor& b, int64_t dim = -1);

}  // namespace reel
