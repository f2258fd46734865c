// This file writes to dense gradients.
#include "lib/autograd/dense_grad.h"

#include "lib/autograd/gradient_ops.h"

namespace reel {

Tensor make_zeros(const GradMetadata& target) {
  Tensor dense = make_tensor(target.shape, target.dtype, target.device);
  kernels_of(dense).fill(view_of(dense), 0);
  return dense;
}

Tensor& make_writable(Tensor& dense, const GradMetadata& target) {
  if (!dense.defined())
    dense = make_zeros(target);
  else if (!is_writable(dense))
    dense = dense.clone();
  return dense;
}

void add_dense(Tensor& dense, const Tensor& g) {
  if (is_writable(dense))
    add_views(TensorImpl::of(dense)->device(), view_of(dense), view_of(g), view_of(dense));
  else
    dense = accumulate(dense, g);
}

View rows_of(const View& pack, int64_t rows, int64_t first) {
  View part = pack;
  const int64_t row = pack.shape[0] ? pack.numel / pack.shape[0] : 0;
  part.shape[0] = rows;
  part.numel = rows * row;
  part.data = static_cast<char*>(pack.data) + first * row * size_of(pack.dtype);
  return part;
}

}  // namespace reel
