#include "reel/optim/clip.h"

#include <cmath>
#include <vector>

#include "reel/autograd.h"
#include "reel/ops.h"

namespace reel::optim {

namespace {
/// Of a row-sparse gradient the rows, all else is zero; both share storage with the gradient.
Tensor gradient(const Tensor& parameter) {
  const RowSparse* rows = parameter.grad_rows();
  return rows ? rows->values : parameter.grad();
}
}  // namespace

double clip_grad_norm(std::span<const Tensor> parameters, double max_norm, double norm_type) {
  REEL_CHECK(norm_type > 0, "clip_grad_norm: norm_type must be positive, got ", norm_type);
  REEL_CHECK(max_norm >= 0, "clip_grad_norm: max_norm must not be negative, got ", max_norm);
  NoGrad guard;
  double total = 0;
  const auto add = [&](double part) {
    if (std::isinf(norm_type))
      total = part > total || std::isnan(part) ? part : total;
    else
      total += std::pow(part, norm_type);
  };
  std::vector<Tensor> parts;  // on a GPU, which is waited for once
  for (const Tensor& parameter : parameters) {
    const Tensor grad = gradient(parameter);
    if (!grad.defined() || grad.numel() == 0) continue;
    const Tensor part = norm(grad, norm_type);
    if (part.device() == kCPU)
      add(part.item<double>());
    else
      parts.push_back(part.to(kFloat64));
  }
  if (!parts.empty())
    for (const double part : stack(parts).to_vector<double>()) add(part);
  if (std::isfinite(norm_type)) total = std::pow(total, 1 / norm_type);
  const double scale = max_norm / (total + 1e-6);
  if (scale >= 1) return total;
  for (const Tensor& parameter : parameters)
    if (Tensor grad = gradient(parameter); grad.defined()) grad.mul_(scale);
  return total;
}

void clip_grad_value(std::span<const Tensor> parameters, double clip_value) {
  REEL_CHECK(clip_value >= 0, "clip_grad_value: clip_value must not be negative, got ", clip_value);
  NoGrad guard;
  for (const Tensor& parameter : parameters)
    if (Tensor grad = gradient(parameter); grad.defined()) grad.clamp_(-clip_value, clip_value);
}

}  // namespace reel::optim
