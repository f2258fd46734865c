// This file declares what layers that were fused for inference compute with: weights that are kept in the layouts of
// kernels, and ops that ReLU follows.
#pragma once
#include "lib/tensor/op_trace.h"
#include "lib/tensor/tensor_impl.h"
#include "reel/ops/conv.h"

namespace reel {

/// Lets convolutions and `linear` keep copies of the weight in the layouts in which their kernels read it, for as long
/// as the tensor lives. Changes of its elements, in place or by set_data, drop the copies. No other thread may use the
/// tensor at that time.
void keep_packed(const Tensor& weight);

/// Returns the copies of a contiguous weight, nullptr if none are to be kept. Kernels of a GPU, which run later, when
/// the elements may be others, have none.
inline PackedCopies* packed_of(const Tensor& weight) {
  const TensorImpl& impl = *TensorImpl::of(weight);
  if (!impl.packed || !impl.view.host) [[likely]]
    return nullptr;
  impl.packed->keep(impl.storage->version.load(std::memory_order_relaxed));
  return impl.packed;
}

///@{
/// Returns conv(x, weight, bias, options) or linear(x, weight, bias) for a caller that calls relu with the result next:
/// that may have been computed already, in place, while the elements are in the cache, and `relu` knows it then.
/// (oneDNN's kernels would compute both in one pass, but make zeros of NaN.)
template <int N>
Tensor conv_before_relu(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions<N>& options);
Tensor linear_before_relu(const Tensor& x, const Tensor& weight, const Tensor& bias);
///@}

/// Computes ReLU in place of x, a result that nobody else has seen, and notes that relu need not do so again.
void rectify(const Tensor& x);
/// Returns whether x is what rectify made, unchanged since.
inline bool is_rectified(const Tensor& x) {
  if (!x.defined() || !TensorImpl::of(x)->rectified) [[likely]]
    return false;
  const TensorImpl& impl = *TensorImpl::of(x);
  return impl.storage->version.load(std::memory_order_relaxed) == 0 && !impl.requires_grad && !impl.node &&
         !is_tracing();
}

}  // namespace reel
