#pragma once
#include <span>
#include <vector>

#include "reel/ops/common.h"

/// Joining, splitting and rearranging.
namespace reel {

// ---- joining --------------------------------------------------------------------------------------------------------

Tensor cat(std::span<const Tensor> tensors, int64_t dim = 0);
Tensor stack(std::span<const Tensor> tensors, int64_t dim = 0);
inline Tensor cat(std::initializer_list<Tensor> list, int64_t dim = 0) {
  return cat(std::span(list.begin(), list.size()), dim);
}
inline Tensor stack(std::initializer_list<Tensor> list, int64_t dim = 0) {
  return stack(std::span(list.begin(), list.size()), dim);
}
Tensor hstack(TensorList tensors);        ///< cat along dimension 1; along 0 for vectors and numbers.
Tensor vstack(TensorList tensors);        ///< cat along dimension 0; vectors and numbers are rows.
Tensor dstack(TensorList tensors);        ///< cat along dimension 2, after atleast_3d.
Tensor column_stack(TensorList tensors);  ///< hstack; vectors and numbers are columns.
/// The matrices (vectors and numbers are rows) along the diagonal of one, zeros elsewhere.
Tensor block_diag(TensorList tensors);

// ---- splitting ------------------------------------------------------------------------------------------------------

/// Views of `size` along dim each, the last perhaps smaller.
std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim = 0);
std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim = 0);
std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim = 0);
/// Exactly `sections` views, the first ones larger by one where the size does not divide; or views that begin at 0 and
/// at each of `starts`, clipped as slices are.
std::vector<Tensor> tensor_split(const Tensor& x, int64_t sections, int64_t dim = 0);
std::vector<Tensor> tensor_split(const Tensor& x, const std::vector<int64_t>& starts, int64_t dim = 0);
std::vector<Tensor> unbind(const Tensor& x, int64_t dim = 0);  ///< x.select(dim, i) for every i.

// ---- other shapes: views, where possible ----------------------------------------------------------------------------

inline Tensor reshape(const Tensor& x, const Shape& shape) { return x.reshape(shape); }
inline Tensor flatten(const Tensor& x, int64_t start_dim = 0, int64_t end_dim = -1) {
  return x.flatten(start_dim, end_dim);
}
Tensor unflatten(const Tensor& x, int64_t dim, const Shape& sizes);  ///< Dimension dim split up; one size may be -1.
Tensor ravel(const Tensor& x);                                       ///< x.reshape({-1})
inline Tensor squeeze(const Tensor& x) { return x.squeeze(); }
inline Tensor squeeze(const Tensor& x, int64_t dim) { return x.squeeze(dim); }
inline Tensor unsqueeze(const Tensor& x, int64_t dim) { return x.unsqueeze(dim); }
inline Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1) { return x.transpose(dim0, dim1); }
inline Tensor swapaxes(const Tensor& x, int64_t dim0, int64_t dim1) { return x.transpose(dim0, dim1); }
inline Tensor swapdims(const Tensor& x, int64_t dim0, int64_t dim1) { return x.transpose(dim0, dim1); }
inline Tensor permute(const Tensor& x, const Shape& dims) { return x.permute(dims); }
/// Dimension source[i] goes to place destination[i], the others keep their order.
Tensor movedim(const Tensor& x, const Dims& source, const Dims& destination);
inline Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length) {
  return x.narrow(dim, start, length);
}
inline Tensor broadcast_to(const Tensor& x, const Shape& shape) { return x.expand(shape); }
std::vector<Tensor> broadcast_tensors(TensorList tensors);  ///< Each expanded to the shape of all, broadcast together.
Tensor atleast_1d(const Tensor& x);
Tensor atleast_2d(const Tensor& x);  ///< A vector becomes a row.
Tensor atleast_3d(const Tensor& x);  ///< [n] becomes [1, n, 1], [m, n] becomes [m, n, 1].
/// The diagonals of the matrices that dim0 and dim1 span, as the last dimension of a view.
Tensor diagonal(const Tensor& x, int64_t offset = 0, int64_t dim0 = 0, int64_t dim1 = 1);

// ---- rearranging: copies --------------------------------------------------------------------------------------------

Tensor flip(const Tensor& x, const Dims& dims);
Tensor fliplr(const Tensor& x);  ///< flip(x, 1)
Tensor flipud(const Tensor& x);  ///< flip(x, 0)
/// Turned k times by 90 degrees, from dims[0] towards dims[1].
Tensor rot90(const Tensor& x, int64_t k = 1, const Dims& dims = {0, 1});
Tensor roll(const Tensor& x, int64_t shift, int64_t dim);
Tensor repeat(const Tensor& x, const Shape& repeats);  ///< numpy.tile.
Tensor tile(const Tensor& x, const Shape& repeats);    ///< The same.
/// Each slice along dim (each element of the flat x, without dim) repeated as often as `repeats` says: one number, or a
/// 1-d int64 tensor with one for each.
Tensor repeat_interleave(const Tensor& x, int64_t repeats, std::optional<int64_t> dim = {});
Tensor repeat_interleave(const Tensor& x, const Tensor& repeats, std::optional<int64_t> dim = {});
Tensor tril(const Tensor& x, int64_t diagonal = 0);
Tensor triu(const Tensor& x, int64_t diagonal = 0);
Tensor diag(const Tensor& x, int64_t diagonal = 0);  ///< Of a matrix its diagonal, of a vector the matrix.

// ---- combining elements ---------------------------------------------------------------------------------------------

enum class GridIndexing { kIJ, kXY };
inline constexpr GridIndexing kIJ = GridIndexing::kIJ, kXY = GridIndexing::kXY;
/// Views of the vectors (or numbers), expanded to the grid that they span. With kXY the first two dimensions of the
/// grid change places.
std::vector<Tensor> meshgrid(TensorList tensors, GridIndexing indexing = kIJ);
/// [n, vectors]: all tuples of one element of each vector, the last changing fastest. Of one vector that vector.
Tensor cartesian_prod(TensorList tensors);
/// [count, r]: all tuples of r elements of a vector, each at most once (with_replacement: in ascending positions).
Tensor combinations(const Tensor& x, int64_t r = 2, bool with_replacement = false);

}  // namespace reel
