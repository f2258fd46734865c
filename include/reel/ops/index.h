#pragma once
#include "reel/ops/common.h"

#pragma GCC visibility push(default)
/// Looking up, selecting and writing elements by position.
namespace reel {

// Index tensors are int64; int32 and uint8 ones are converted. An index out of range throws and names it. Functions
// that write return a changed copy of x; Tensor has in-place twins of the most used ones. A number that is written to
// integers is rounded towards 0; one that they cannot hold is an Error.

// ---- whole slices along dim, at 1-d ids -----------------------------------------------------------------------------

/// The slices x[…, ids[i], …] in the order of ids: of size len(ids) along dim. A copy.
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& ids);
/// x with alpha · source[…, i, …] added to x[…, ids[i], …]; equal ids add up. Source has x's dtype and, but for dim,
/// its shape; alpha is an integer if they are integers.
Tensor index_add(const Tensor& x, int64_t dim, const Tensor& ids, const Tensor& source, Scalar alpha = 1);
/// The same with the slices replaced. If an id occurs more than once, one of its slices is kept; which one is not
/// specified.
Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& ids, const Tensor& source);
/// The slices filled with one number (or 0-d tensor).
Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& ids, const Tensor& value);
/// x.index_put_ of a copy: x[indices] = value, or += with accumulate. If an element is indexed more than once, one of
/// its values is kept (which one is not specified); with accumulate all are added. A floating-point tensor for ids or
/// masks of an integer x is an Error.
Tensor index_put(const Tensor& x, const std::vector<TensorIndex>& indices, const Tensor& value,
                 bool accumulate = false);

// ---- single elements along dim --------------------------------------------------------------------------------------

/// y[…, i, …] = x[…, index[…, i, …], …], of index's shape; index has as many dimensions as x and, but for dim, is not
/// larger.
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index);
/// x with x[…, index[…, i, …], …] = source[…, i, …], the opposite of gather. If several elements are written to one
/// position, one of them is kept (which one is not specified), and all of them get the gradient of the position. The
/// source may be a number.
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source);
/// The same with the sources added to x's elements.
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source);
/// Combines all sources that are written to one position, and x's element if include_self. Positions without a source
/// keep x. For kMax and kMin ties share the gradient evenly and NaN propagates; kMean of integers rounds down. Second
/// derivatives of kProd are right for positions with at most one factor 0.
Tensor scatter_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, Reduce reduce,
                      bool include_self = true);
///@{
/// gather and scatter with NumPy's broadcasting of all dimensions but dim.
Tensor take_along_dim(const Tensor& x, const Tensor& index, int64_t dim);
Tensor put_along_dim(const Tensor& x, const Tensor& index, const Tensor& values, int64_t dim);
///@}

// ---- single elements anywhere ---------------------------------------------------------------------------------------

/// Elements of the flattened x; the result has index's shape. Negative indices count from the end.
Tensor take(const Tensor& x, const Tensor& index);
/// A vector of the elements of x where mask (bool; the two broadcast) is true, in row-major order. Synchronizes with a
/// GPU, since the length depends on values.
Tensor masked_select(const Tensor& x, const Tensor& mask);
/// x with value, a number or 0-d tensor, where mask (bool, broadcast to x) is true.
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value);
/// x with its elements where mask (broadcast to x) is true replaced by source's first ones, in row-major order.
Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source);
/// int64 [count, dim]: the positions of the elements that are not 0, in row-major order. Synchronizes with a GPU.
Tensor nonzero(const Tensor& x);
Tensor argwhere(const Tensor& x);  ///< nonzero(x), NumPy's name.
/// int64 [ids' shape…, classes]: 1 at each id, 0 elsewhere. -1 is one more than the largest id, for which it
/// synchronizes with a GPU.
Tensor one_hot(const Tensor& ids, int64_t classes = -1);

// ---- parts replaced -------------------------------------------------------------------------------------------------

///@{
/// x with x.select(dim, index), x.slice(dim, start, stop, step), diagonal(x, offset, dim0, dim1) replaced by source.
Tensor select_scatter(const Tensor& x, const Tensor& source, int64_t dim, int64_t index);
Tensor slice_scatter(const Tensor& x, const Tensor& source, int64_t dim, std::optional<int64_t> start = {},
                     std::optional<int64_t> stop = {}, int64_t step = 1);
Tensor diagonal_scatter(const Tensor& x, const Tensor& source, int64_t offset = 0, int64_t dim0 = 0, int64_t dim1 = 1);
///@}

///@{
/// int64 [2, count]: rows and columns of the lower (upper) triangle of a rows × columns matrix, in row-major order.
Tensor tril_indices(int64_t rows, int64_t columns, int64_t offset = 0);
Tensor triu_indices(int64_t rows, int64_t columns, int64_t offset = 0);
///@}

}  // namespace reel
#pragma GCC visibility pop
