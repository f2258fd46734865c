#include "lib/optim/gradients.h"

#include <algorithm>

namespace reel::optim {

namespace {
/// Do several elements share memory, as those of an expanded tensor do?
bool repeats(const Tensor& x) {
  const View& view = view_of(x);
  for (int d = 0; d < view.shape.size(); ++d)
    if (view.shape[d] > 1 && view.strides[d] == 0) return true;
  return false;
}
}  // namespace

void Gradients::add(const Tensor& parameter) {
  const SparseGrad* rows = parameter.sparse_grad();
  Tensor grad = rows ? rows->values : parameter.grad();
  if (!grad.defined()) return;
  const Device device = grad.device();
  if (!grad.is_contiguous()) {
    Tensor dense = grad.contiguous();
    copies_.push_back({parameter, grad, dense});
    grad = std::move(dense);
  }
  const View& view = view_of(grad);
  const auto* const begin = view.as<const char>();
  for (const Tensor& other : given_) {
    const auto* const there = view_of(other).as<const char>();
    if (begin == there) return;  // of a parameter that is listed twice
    REEL_CHECK(begin >= there + view_of(other).numel * size_of(view_of(other).dtype) ||
                   there >= begin + view.numel * size_of(view.dtype),
               "the gradients of two parameters, of shapes ", view.shape, " and ", other.shape(), ", share memory");
  }
  const auto fits = [&](const Batch& batch) { return batch.device == device && batch.dtype == view.dtype; };
  auto batch = std::find_if(batches_.begin(), batches_.end(), fits);
  if (batch == batches_.end()) batch = batches_.insert(batch, {device, view.dtype, {}});
  batch->gradients.push_back({view.dtype, view.data, nullptr, {}, view.numel});
  given_.push_back(std::move(grad));
}

void Gradients::changed() {
  for (const Tensor& grad : given_) TensorImpl::of(grad)->storage->changed();
  for (auto& [parameter, grad, dense] : copies_)
    if (repeats(grad))
      parameter.set_grad(dense);
    else
      grad.copy_(dense);
}

}  // namespace reel::optim
