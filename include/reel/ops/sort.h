#pragma once
#include <optional>

#include "reel/ops/common.h"

#pragma GCC visibility push(default)
/// Sorting, searching and counting.
namespace reel {

// ---- order. NaN counts as the largest, and sorting is stable --------------------------------------------------------

/// The elements along dim in ascending (descending) order, and where they were.
ValuesIndices sort(const Tensor& x, int64_t dim = -1, bool descending = false);
Tensor argsort(const Tensor& x, int64_t dim = -1, bool descending = false);  ///< sort(…).indices
/// The k largest (smallest) elements along dim, in descending (ascending) order, and where they were. An Error if there
/// are fewer. Of a 0-d tensor it is the element, for k = 0, too.
ValuesIndices topk(const Tensor& x, int64_t k, int64_t dim = -1, bool largest = true);
/// The k-th smallest along dim, counted from 1, and where it is.
ValuesIndices kthvalue(const Tensor& x, int64_t k, int64_t dim = -1, bool keepdim = false);
/// The middle element along dim, the lower one of two, and where it is; NaN if any element is NaN. Of equal elements it
/// is not specified which one is found and gets the gradient, here and in kthvalue and quantile.
ValuesIndices median(const Tensor& x, int64_t dim, bool keepdim = false);
Tensor median(const Tensor& x);  ///< That of all elements, 0-d. Equal ones share the gradient evenly.
/// The most frequent value along dim, the smallest of several, and its last position in x. Every NaN is a value of its
/// own, larger than the numbers.
ValuesIndices mode(const Tensor& x, int64_t dim = -1, bool keepdim = false);
///@{
/// Of the sorted elements along dim (of all, without dim) that at q (n - 1), interpolated linearly; 0 <= q <= 1. A
/// vector q gives a result with a leading dimension. NaN if any element is NaN.
Tensor quantile(const Tensor& x, double q, std::optional<int64_t> dim = {}, bool keepdim = false);
Tensor quantile(const Tensor& x, const Tensor& q, std::optional<int64_t> dim = {}, bool keepdim = false);
///@}

// ---- distinct values ------------------------------------------------------------------------------------------------

/// What unique and unique_consecutive compare and return.
struct UniqueOptions {
  std::optional<int64_t> dim = {};  ///< Distinct slices along it, in the order of their elements; else elements.
  bool inverse = false;             ///< Return Unique::inverse.
  bool counts = false;              ///< Return Unique::counts.
};
/// What unique and unique_consecutive return.
struct Unique {
  Tensor values;   ///< The distinct elements, a vector; with dim the distinct slices, joined along it.
  Tensor inverse;  ///< int64, of x's shape ([size of dim] with dim): where in `values` each is. Undefined without the
                   ///< option.
  Tensor counts;   ///< int64 [number of values]: how often each occurs. Undefined without the option.
};
/// The distinct elements, ascending. Every NaN is distinct. No gradient.
Unique unique(const Tensor& x, UniqueOptions options = {});
/// The same without sorting: only neighbours are compared.
Unique unique_consecutive(const Tensor& x, UniqueOptions options = {});

// ---- counting and placing -------------------------------------------------------------------------------------------

/// How often each of 0, 1, … occurs in a vector of non-negative integers: int64, at least min_length long. With weights
/// (one for each) their sums instead: of the weights' dtype, float64 if they are integers; differentiable.
Tensor bincount(const Tensor& x, const Tensor& weights = {}, int64_t min_length = 0);
/// The number of elements in each of `bins` equal parts of [min, max], in x's dtype; others and NaN do not count. With
/// min = max the range is that of the elements.
Tensor histc(const Tensor& x, int64_t bins = 100, double min = 0, double max = 0);
/// int64, of values' shape: how many elements of `sorted` (ascending along its last dimension) come before each value;
/// with right, or are equal to it. Sorted is a vector, or has values' sizes but for the last dimension.
Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right = false);
Tensor bucketize(const Tensor& x, const Tensor& boundaries, bool right = false);  ///< searchsorted(boundaries, x)

}  // namespace reel
#pragma GCC visibility pop
