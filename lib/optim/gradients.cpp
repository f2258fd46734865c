#include "lib/optim/gradients.h"

#include <algorithm>

namespace reel::optim {

void Gradients::add(const Tensor& parameter) {
  const RowSparse* rows = parameter.grad_rows();
  Tensor grad = rows ? rows->values : parameter.grad();
  if (!grad.defined()) return;
  const Device device = grad.device();
  const bool half = device == kCPU && is_half(grad.dtype());
  if (half || !grad.is_contiguous()) {
    Tensor dense = (half ? grad.to(kFloat32) : grad).contiguous();
    copies_.push_back({parameter, rows ? grad : Tensor(), dense});
    grad = std::move(dense);
  }
  const View& view = view_of(grad);
  const auto fits = [&](const Batch& batch) { return batch.device == device && batch.dtype == view.dtype; };
  auto batch = std::find_if(batches_.begin(), batches_.end(), fits);
  if (batch == batches_.end()) batch = batches_.insert(batch, {device, view.dtype, {}});
  batch->gradients.push_back({view.dtype, view.data, nullptr, {}, view.numel});
  given_.push_back(std::move(grad));
}

void Gradients::changed() {
  for (const Tensor& grad : given_) TensorImpl::of(grad)->storage->changed();
  for (auto& [parameter, rows, dense] : copies_)
    if (rows.defined())
      rows.copy_(dense);
    else
      parameter.set_grad(dense.to(parameter.dtype()));
}

}  // namespace reel::optim
