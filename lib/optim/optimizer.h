#pragma once
#include <span>

#include "lib/ops/update.h"

namespace reel::optim {

/// The CPU kernels take float32 and float64: half-precision parameters are converted to float32, and their states are
/// float32.
inline DType state_dtype(const Tensor& p) { return is_half(p.dtype()) ? kFloat32 : p.dtype(); }

/// Is x, which belongs to a parameter, of this dtype and where the parameter is? Module::to() may have changed that.
inline bool fits(const Tensor& x, DType dtype, const Tensor& parameter) {
  return view_of(x).dtype == dtype && TensorImpl::of(x)->device() == TensorImpl::of(parameter)->device();
}
/// x so that it fits.
inline Tensor fitted(const Tensor& x, DType dtype, const Tensor& parameter) {
  return x.to(parameter.device()).to(dtype);
}

/// Runs the kernel of a functor (lib/functors/update.h) over p and those of its states that it has.
template <class Functor>
void take_step(const Functor& functor, const Tensor& p, const Tensor& grad, std::span<const Tensor> tensors,
               const Tensor* ids = nullptr) {
  const UpdateStates states(tensors.data(), functors::kMaxStates);
  if (p.is_contiguous() && grad.dtype() == p.dtype()) {
    if (UpdateBatch* batch = UpdateBatch::current(); batch && !ids) return batch->add(functor, p, grad, states);
    return reel::update(functor, p, grad, states, ids);
  }
  const Tensor dense = p.to(state_dtype(p)).contiguous();
  reel::update(functor, dense, grad.to(dense.dtype()), states, ids);
  if (!dense.is_same(p)) Tensor(p).copy_(dense);
}

}  // namespace reel::optim
