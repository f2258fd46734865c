#include "reel/optim/clip.h"

#include <algorithm>
#include <vector>

#include "lib/optim/gradients.h"
#include "reel/autograd.h"
#include "reel/ops.h"

namespace reel::optim {

namespace {

/// The norm of all, on the first's device.
Tensor norm_of(const std::vector<Gradients::Batch>& batches, double norm_type) {
  const auto is_wide = [](const Gradients::Batch& batch) { return batch.dtype == kFloat64; };
  const DType dtype = std::any_of(batches.begin(), batches.end(), is_wide) ? kFloat64 : kFloat32;
  std::vector<Tensor> parts;
  for (const auto& [device, own_dtype, gradients] : batches) {
    const Tensor part = make_tensor({}, dtype, device);
    kernels_on(device).multi_tensor_norm(norm_type, gradients, view_of(part));
    parts.push_back(parts.empty() ? part : part.to(parts[0].device()));
  }
  return parts.size() == 1 ? parts[0] : norm(stack(parts), norm_type);
}

}  // namespace

Tensor clip_grad_norm(TensorList parameters, double max_norm, double norm_type) {
  REEL_CHECK(norm_type > 0, "clip_grad_norm: norm_type must be positive, got ", norm_type);
  REEL_CHECK(max_norm >= 0, "clip_grad_norm: max_norm must not be negative, got ", max_norm);
  NoGrad guard;
  Gradients gradients;
  for (const Tensor& parameter : parameters) gradients.add(parameter);
  if (gradients.batches().empty())
    return zeros({}, {.dtype = kFloat32, .device = parameters.empty() ? kCPU : parameters[0].device()});
  const Tensor total = norm_of(gradients.batches(), norm_type);
  for (const auto& [device, dtype, some] : gradients.batches()) {
    const Tensor here = total.to(device);
    kernels_on(device).multi_tensor_scale(max_norm, &view_of(here), some, nullptr);
  }
  gradients.changed();
  return total;
}

void clip_grad_value(TensorList parameters, double clip_value) {
  REEL_CHECK(clip_value >= 0, "clip_grad_value: clip_value must not be negative, got ", clip_value);
  NoGrad guard;
  for (const Tensor& parameter : parameters) {
    const SparseGrad* rows = parameter.sparse_grad();
    if (Tensor grad = rows ? rows->values : parameter.grad(); grad.defined()) grad.clamp_(-clip_value, clip_value);
  }
}

}  // namespace reel::optim
