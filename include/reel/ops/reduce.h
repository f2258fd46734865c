#pragma once
#include <optional>

#include "reel/ops/common.h"

#pragma GCC visibility push(default)
/// Reductions over dimensions: over all of them where none is named. The reduced dimensions are absent from the result,
/// or have size 1 with keepdim. float16 and bfloat16 are summed in float32 and rounded once. Unless a function says
/// otherwise NaN gives NaN.
namespace reel {

Tensor sum(const Tensor& x, const Dims& dims = {}, bool keepdim = false);  ///< Integers and bools sum to int64.
/// The sum over the number of elements, of floating-point tensors; NaN where there are none.
Tensor mean(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor nansum(const Tensor& x, const Dims& dims = {}, bool keepdim = false);   ///< NaN counts as 0.
Tensor nanmean(const Tensor& x, const Dims& dims = {}, bool keepdim = false);  ///< The mean of the others than NaN.
Tensor count_nonzero(const Tensor& x, const Dims& dims = {});                  ///< int64; NaN counts.
///@{
/// The product of all elements, or of those along dim; 1 where there are none. Integers and bools give int64. The
/// gradient is right where elements are 0, too.
Tensor prod(const Tensor& x);
Tensor prod(const Tensor& x, int64_t dim, bool keepdim = false);
///@}

///@{
/// The largest (smallest) element, as a 0-d tensor; an Error if there are none. Ties share the gradient evenly.
Tensor max(const Tensor& x);
Tensor min(const Tensor& x);
///@}

///@{
/// The largest (smallest) element along dim and the index of its first occurrence, which gets the gradient. An Error if
/// there are no elements.
ValuesIndices max(const Tensor& x, int64_t dim, bool keepdim = false);
ValuesIndices min(const Tensor& x, int64_t dim, bool keepdim = false);
///@}

///@{
/// Not provided: for the larger (smaller) of two numbers or tensors use maximum and minimum.
template <std::floating_point T>
ValuesIndices max(const Tensor& x, T other, bool = false) = delete;
template <std::floating_point T>
ValuesIndices min(const Tensor& x, T other, bool = false) = delete;
template <std::same_as<Tensor> T>
ValuesIndices max(const Tensor& x, const T& other) = delete;
template <std::same_as<Tensor> T>
ValuesIndices min(const Tensor& x, const T& other) = delete;
///@}

///@{
/// The largest (smallest) element over dims; an Error if there are none. Ties share the gradient evenly.
Tensor amax(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor amin(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
///@}
/// What aminmax returns.
struct MinMax {
  Tensor min;  ///< amin(x, dims, keepdim)
  Tensor max;  ///< amax(x, dims, keepdim)
};
MinMax aminmax(const Tensor& x, const Dims& dims = {}, bool keepdim = false);  ///< amin and amax.
///@{
/// The position (int64) of the largest (smallest) element along dim, the first one of ties; without dim that in the
/// flattened x. NaN counts as the largest (smallest). An Error if there are no elements.
Tensor argmax(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false);
Tensor argmin(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false);
///@}

///@{
/// The variance, the sum of squared deviations from the mean over n - correction (Bessel's correction by default), and
/// its root, the standard deviation. For floating-point tensors; NaN or infinite where n ≤ correction. Where all
/// elements are equal, all derivatives of std are 0. After `using namespace reel` std(x) is ambiguous, as std is a
/// namespace, too: write reel::std(x) or x.std().
Tensor var(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keepdim = false);
Tensor std(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keepdim = false);
///@}
/// What var_mean and std_mean return.
struct Moments {
  Tensor spread;  ///< The variance for var_mean, the standard deviation for std_mean.
  Tensor mean;    ///< The mean.
};
///@{
/// var or std together with the mean.
Moments var_mean(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keepdim = false);
Moments std_mean(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keepdim = false);
///@}

///@{
/// Deleted for bool: true would be read as correction = 1, where other libraries have keepdim or unbiased.
template <std::same_as<bool> B>
Tensor var(const Tensor& x, const Dims& dims, B, bool = false) = delete;
template <std::same_as<bool> B>
Tensor std(const Tensor& x, const Dims& dims, B, bool = false) = delete;
template <std::same_as<bool> B>
Moments var_mean(const Tensor& x, const Dims& dims, B, bool = false) = delete;
template <std::same_as<bool> B>
Moments std_mean(const Tensor& x, const Dims& dims, B, bool = false) = delete;
///@}
/// Of variables (rows; a vector is one) over observations (columns): [rows, rows], 0-d for one variable.
Tensor cov(const Tensor& x, double correction = 1);
Tensor corrcoef(const Tensor& x);  ///< cov scaled to a diagonal of ones; 0-d for one variable.
/// The p-norm of the elements, (Σ |x|ᵖ)^(1/p); ±infinity is the largest or least |x|, p = 0 counts what is not 0.
/// Elements that are 0 get gradient 0. Of nothing there is no norm of negative or infinite order.
Tensor norm(const Tensor& x, double p = 2, const Dims& dims = {}, bool keepdim = false);
/// Every slice along dim whose p-norm exceeds max_norm scaled down to it.
Tensor renorm(const Tensor& x, double p, int64_t dim, double max_norm);
/// log Σ exp(x), without intermediate overflow; -∞ where there are no elements. Of integers: float32.
Tensor logsumexp(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
///@{
/// Whether any (all) elements are not 0: false (true) of none. Bool for every dtype, also for uint8, of which PyTorch's
/// are uint8.
Tensor any(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor all(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
///@}
Tensor trace(const Tensor& x);  ///< The sum of a matrix's diagonal.
/// The vector product along dim, of size 3; a and b are broadcast.
Tensor cross(const Tensor& a, const Tensor& b, int64_t dim = -1);

}  // namespace reel
#pragma GCC visibility pop
