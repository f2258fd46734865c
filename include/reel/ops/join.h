#pragma once
#include <vector>

#include "reel/ops/common.h"

#pragma GCC visibility push(default)
/// Joining tensors and splitting them.
namespace reel {

// ---- joining: the dtype is that of type promotion -------------------------------------------------------------------

/// The tensors one after the other along dim; their other sizes are equal. Empty vectors [0] are left out. An Error for
/// no tensors.
Tensor cat(TensorList tensors, int64_t dim = 0);

/// Tensors of one shape along a new dimension dim. An Error for no tensors.
Tensor stack(TensorList tensors, int64_t dim = 0);
Tensor hstack(TensorList tensors);        ///< cat along dimension 1; along 0 for vectors and numbers.
Tensor vstack(TensorList tensors);        ///< cat along dimension 0; vectors and numbers are rows.
Tensor dstack(TensorList tensors);        ///< cat along dimension 2, after atleast_3d.
Tensor column_stack(TensorList tensors);  ///< hstack; vectors and numbers are columns.
/// The matrices (vectors and numbers are rows) along the diagonal of one, zeros elsewhere.
Tensor block_diag(TensorList tensors);

// ---- splitting: views -----------------------------------------------------------------------------------------------

/// Views of `size` elements along dim; the last may be smaller.
std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim = 0);
/// Views of these sizes along dim, which add up to its size.
std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim = 0);
/// At most `chunks` views of ⌈size / chunks⌉ along dim; the last may be smaller.
std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim = 0);
///@{
/// Exactly `sections` views, the first ones larger by one where the size does not divide; or views that begin at 0 and
/// at each of `starts`, clipped as slices are.
std::vector<Tensor> tensor_split(const Tensor& x, int64_t sections, int64_t dim = 0);
std::vector<Tensor> tensor_split(const Tensor& x, const std::vector<int64_t>& starts, int64_t dim = 0);
///@}
std::vector<Tensor> unbind(const Tensor& x, int64_t dim = 0);  ///< x.select(dim, i) for every i.

}  // namespace reel
#pragma GCC visibility pop
