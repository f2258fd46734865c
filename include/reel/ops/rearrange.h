#pragma once
#include <optional>
#include <vector>

#include "reel/ops/common.h"

#pragma GCC visibility push(default)
/// The elements of a tensor under another shape or in another order. Any dtype.
namespace reel {

// ---- reshaping: views where possible --------------------------------------------------------------------------------

///@{
/// The member of Tensor of the same name; swapaxes and swapdims are transpose, broadcast_to is expand.
inline Tensor reshape(const Tensor& x, const Shape& shape) { return x.reshape(shape); }
inline Tensor flatten(const Tensor& x, int64_t start_dim = 0, int64_t end_dim = -1) {
  return x.flatten(start_dim, end_dim);
}
inline Tensor squeeze(const Tensor& x) { return x.squeeze(); }
inline Tensor squeeze(const Tensor& x, int64_t dim) { return x.squeeze(dim); }
inline Tensor unsqueeze(const Tensor& x, int64_t dim) { return x.unsqueeze(dim); }
inline Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1) { return x.transpose(dim0, dim1); }
inline Tensor swapaxes(const Tensor& x, int64_t dim0, int64_t dim1) { return x.transpose(dim0, dim1); }
inline Tensor swapdims(const Tensor& x, int64_t dim0, int64_t dim1) { return x.transpose(dim0, dim1); }
inline Tensor permute(const Tensor& x, const Shape& dims) { return x.permute(dims); }
inline Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length) {
  return x.narrow(dim, start, length);
}
inline Tensor broadcast_to(const Tensor& x, const Shape& shape) { return x.expand(shape); }
///@}
Tensor unflatten(const Tensor& x, int64_t dim, const Shape& sizes);  ///< Dimension dim split up; one size may be -1.
Tensor ravel(const Tensor& x);                                       ///< x.reshape({-1})
/// Dimension source[i] becomes dimension destination[i], the others keep their order.
Tensor movedim(const Tensor& x, const Dims& source, const Dims& destination);
std::vector<Tensor> broadcast_tensors(TensorList tensors);  ///< Each expanded to the shape of all, broadcast together.
Tensor atleast_1d(const Tensor& x);                         ///< A number becomes a vector [1].
Tensor atleast_2d(const Tensor& x);                         ///< A vector becomes a row.
Tensor atleast_3d(const Tensor& x);                         ///< [n] becomes [1, n, 1], [m, n] becomes [m, n, 1].
/// The diagonals of the matrices that dim0 and dim1 span, as the last dimension of a view.
Tensor diagonal(const Tensor& x, int64_t offset = 0, int64_t dim0 = 0, int64_t dim1 = 1);

// ---- other orders: copies -------------------------------------------------------------------------------------------

Tensor flip(const Tensor& x, const Dims& dims);  ///< The order of the elements along each of dims reversed.
Tensor fliplr(const Tensor& x);                  ///< flip(x, 1)
Tensor flipud(const Tensor& x);                  ///< flip(x, 0)
/// Turned k times by 90 degrees, from dims[0] towards dims[1].
Tensor rot90(const Tensor& x, int64_t k = 1, const Dims& dims = {0, 1});
/// Elements moved by `shift` along dim; those that leave at one end enter at the other.
Tensor roll(const Tensor& x, int64_t shift, int64_t dim);
///@{
/// x repeats[d] times along each dimension d. The shorter one of the shape and repeats is extended by leading ones, as
/// in numpy.tile and torch.tile; torch's repeat refuses fewer repeats than dimensions.
Tensor repeat(const Tensor& x, const Shape& repeats);
Tensor tile(const Tensor& x, const Shape& repeats);
///@}
///@{
/// Each slice along dim (each element of the flat x, without dim) repeated as often as `repeats` says: one number, or a
/// 1-d int64 tensor with one for each.
Tensor repeat_interleave(const Tensor& x, int64_t repeats, std::optional<int64_t> dim = {});
Tensor repeat_interleave(const Tensor& x, const Tensor& repeats, std::optional<int64_t> dim = {});
///@}

///@{
/// The lower (upper) triangle of the matrices in the last two dimensions, zeros elsewhere: where column - row is at
/// most (at least) `diagonal`.
Tensor tril(const Tensor& x, int64_t diagonal = 0);
Tensor triu(const Tensor& x, int64_t diagonal = 0);
///@}
Tensor diag(const Tensor& x, int64_t diagonal = 0);  ///< Of a matrix its diagonal, of a vector the matrix.

// ---- combining elements ---------------------------------------------------------------------------------------------

/// The order of the first two dimensions of a grid: that of the vectors, or, as of images, x (columns) before y (rows).
enum class GridIndexing { kIJ, kXY };
///@{
/// The GridIndexing of that name.
inline constexpr GridIndexing kIJ = GridIndexing::kIJ, kXY = GridIndexing::kXY;
///@}
/// Views of the vectors (or numbers), expanded to the grid that they span. With kXY the first two dimensions of the
/// grid change places.
std::vector<Tensor> meshgrid(TensorList tensors, GridIndexing indexing = kIJ);
/// [n, vectors]: all tuples of one element of each vector, the last changing fastest. Of one vector that vector.
Tensor cartesian_prod(TensorList tensors);
/// [count, r]: all combinations of r elements of a vector, in lexicographic order of their positions; with_replacement
/// an element may occur more than once in one.
Tensor combinations(const Tensor& x, int64_t r = 2, bool with_replacement = false);

}  // namespace reel
#pragma GCC visibility pop
