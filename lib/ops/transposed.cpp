#include "lib/ops/transposed.h"

#include "lib/tensor/tensor_impl.h"

namespace reel::detail {

constinit thread_local TransposedWeights* TransposedWeights::in_use = nullptr;

const Tensor* TransposedWeights::copy_of(const Tensor& weight) {
  const TensorImpl* const impl = TensorImpl::of(weight);
  const View& view = impl->view;
  // Results of ops are not seen twice: only what is trained is worth remembering.
  if (!impl->requires_grad || impl->device() != kCPU || !view.contiguous || is_half(view.dtype) ||
      view.numel < kMinSize || view.numel > kMaxSize)
    return nullptr;
  const uint32_t version = impl->storage->version.load(std::memory_order_relaxed);
  for (Known& known : known_) {
    const TensorImpl* const held = TensorImpl::of(known.held);
    if (held->view.data != view.data || held->storage != impl->storage || held->view.shape != view.shape) continue;
    if (known.version != version) {
      known.version = version, known.copy.reset();
    } else if (!known.copy.defined()) {
      const Strides strides{view.strides[1], view.strides[0]};
      const Shape shape{view.shape[1], view.shape[0]};
      known.copy = make_tensor(shape, view.dtype);
      kernels_of(weight).copy(make_view(view.data, shape, strides, view.dtype), view_of(known.copy));
    }
    return known.copy.defined() ? &known.copy : nullptr;
  }
  const int64_t bytes = view.numel * size_of(view.dtype);
  if (bytes_ + bytes > kMaxBytes) return nullptr;
  known_.push_back({alias(weight, view.data, view.shape, view.strides), version, {}});
  bytes_ += bytes;
  return nullptr;
}

}  // namespace reel::detail
