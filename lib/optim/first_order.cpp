#include "reel/optim/first_order.h"

#include <cmath>

#include "lib/ops/update.h"
#include "lib/optim/optimizer.h"
#include "lib/scalar.h"
#include "lib/step.h"

// The formulas are in lib/scalar.h.
namespace reel::optim {
namespace {

const Tensor& started(Tensor& state, const Tensor& p, double value = 0) {
  if (!state.defined()) state = full(p.shape(), value, {.dtype = state_dtype(p), .device = p.device()});
  return state;
}

/// Runs the kernel over p and those of its states that the functor has. Half-precision parameters go by way of float32
/// on the CPU.
template <class Functor>
void apply(const Functor& functor, const Tensor& p, const Tensor& grad, std::span<const Tensor, 3> states,
           const Tensor* ids) {
  const bool on_cpu = p.device() == kCPU;
  if (p.is_contiguous() && !(on_cpu && is_half(p.dtype())) && grad.dtype() == p.dtype()) {
    if (UpdateBatch* batch = UpdateBatch::current(); batch && !ids && !on_cpu)
      return batch->add(functor, p, grad, states);
    return reel::update(functor, p, grad, states, ids);
  }
  const Tensor dense = p.to(state_dtype(p)).contiguous();
  reel::update(functor, dense, grad.to(dense.dtype()), states, ids);
  if (!dense.is_same(p)) Tensor(p).copy_(dense);
}

/// 1 - βᵗ
double correction(double beta, int64_t steps) { return 1 - std::pow(beta, static_cast<double>(steps)); }

}  // namespace

void SGD::update(int group, const Tensor& p, const Tensor& grad, const Tensor* ids, State& state) {
  const SGDOptions& o = options_of(group);
  const bool first = o.momentum != 0 && !state.moments[0].defined();
  if (first) started(state.moments[0], p);
  apply(scalar::SgdUpdate{o.lr, o.weight_decay, o.momentum, o.dampening, o.nesterov, first}, p, grad, state.moments,
        ids);
}

void Adagrad::update(int group, const Tensor& p, const Tensor& grad, const Tensor* ids, State& state) {
  const AdagradOptions& o = options_of(group);
  started(state.moments[0], p, o.initial_accumulator_value);
  const double lr = o.lr / (1 + static_cast<double>(state.steps - 1) * o.lr_decay);
  apply(scalar::AdagradUpdate{lr, o.weight_decay, o.eps}, p, grad, state.moments, ids);
}

namespace {
scalar::AdamUpdate adam_update(const auto& o, bool decoupled, int64_t steps) {
  return {{o.lr, o.weight_decay, decoupled},     o.lr,     o.beta1, o.beta2, o.eps, correction(o.beta1, steps),
          std::sqrt(correction(o.beta2, steps)), o.amsgrad};
}
}  // namespace

void Adam::update(int group, const Tensor& p, const Tensor& grad, const Tensor* ids, State& state) {
  for (int i = 0; i < 2 + options_of(group).amsgrad; ++i) started(state.moments[i], p);
  apply(adam_update(options_of(group), false, state.steps), p, grad, state.moments, ids);
}

void AdamW::update(int group, const Tensor& p, const Tensor& grad, const Tensor* ids, State& state) {
  for (int i = 0; i < 2 + options_of(group).amsgrad; ++i) started(state.moments[i], p);
  apply(adam_update(options_of(group), true, state.steps), p, grad, state.moments, ids);
}

void SparseAdam::update(int group, const Tensor& p, const Tensor& grad, const Tensor* ids, State& state) {
  const SparseAdamOptions& o = options_of(group);
  started(state.moments[0], p), started(state.moments[1], p);
  const double lr = o.lr * std::sqrt(correction(o.beta2, state.steps));
  apply(scalar::AdamUpdate{{}, lr, o.beta1, o.beta2, o.eps, correction(o.beta1, state.steps), 1, false}, p, grad,
        state.moments, ids);
}

void Adamax::update(int group, const Tensor& p, const Tensor& grad, const Tensor* ids, State& state) {
  const AdamaxOptions& o = options_of(group);
  started(state.moments[0], p), started(state.moments[1], p);
  apply(
      scalar::AdamaxUpdate{
          {o.lr, o.weight_decay, false}, o.lr, o.beta1, o.beta2, o.eps, correction(o.beta1, state.steps)},
      p, grad, state.moments, ids);
}

void NAdam::update(int group, const Tensor& p, const Tensor& grad, const Tensor* ids, State& state) {
  const NAdamOptions& o = options_of(group);
  started(state.moments[0], p), started(state.moments[1], p);
  const auto mu = [&](int64_t t) {
    return o.beta1 * (1 - 0.5 * std::pow(0.96, static_cast<double>(t) * o.momentum_decay));
  };
  const double now = mu(state.steps), next = mu(state.steps + 1);
  state.number *= now;
  apply(scalar::NAdamUpdate{{o.lr, o.weight_decay, o.decoupled_weight_decay},
                            o.beta1,
                            o.beta2,
                            o.eps,
                            o.lr * (1 - now) / (1 - state.number),
                            o.lr * next / (1 - state.number * next),
                            std::sqrt(correction(o.beta2, state.steps))},
        p, grad, state.moments, ids);
}

void RAdam::update(int group, const Tensor& p, const Tensor& grad, const Tensor* ids, State& state) {
  const RAdamOptions& o = options_of(group);
  started(state.moments[0], p), started(state.moments[1], p);
  const double t = static_cast<double>(state.steps), correction2 = correction(o.beta2, state.steps);
  // The length of the approximated simple moving average, and the rectification term (Algorithm 2).
  const double longest = 2 / (1 - o.beta2) - 1, length = longest - 2 * t * std::pow(o.beta2, t) / correction2;
  const bool rectified = length > 5;
  double scale = o.lr / correction(o.beta1, state.steps);
  if (rectified)
    scale *= std::sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length) * correction2);
  apply(
      scalar::RAdamUpdate{{o.lr, o.weight_decay, o.decoupled_weight_decay}, o.beta1, o.beta2, o.eps, scale, rectified},
      p, grad, state.moments, ids);
}

void RMSprop::update(int group, const Tensor& p, const Tensor& grad, const Tensor* ids, State& state) {
  const RMSpropOptions& o = options_of(group);
  started(state.moments[0], p);
  if (o.centered) started(state.moments[1], p);
  if (o.momentum != 0) started(state.moments[2], p);
  apply(scalar::RmspropUpdate{o.lr, o.alpha, o.eps, o.weight_decay, o.momentum, o.centered}, p, grad, state.moments,
        ids);
}

void Adadelta::update(int group, const Tensor& p, const Tensor& grad, const Tensor* ids, State& state) {
  const AdadeltaOptions& o = options_of(group);
  started(state.moments[0], p), started(state.moments[1], p);
  apply(scalar::AdadeltaUpdate{o.lr, o.rho, o.eps, o.weight_decay}, p, grad, state.moments, ids);
}

}  // namespace reel::optim
