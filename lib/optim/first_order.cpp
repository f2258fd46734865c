#include "reel/optim/first_order.h"

#include <algorithm>
#include <cmath>

#include "lib/functors/update.h"
#include "lib/optim/optimizer.h"

// The formulas are in lib/functors/update.h.
namespace reel::optim {
namespace {

/// 1 - βᵗ
double correction(double beta, int64_t steps) { return 1 - std::pow(beta, static_cast<double>(steps)); }

/// What the options say of the gradient; weight decay is decoupled where `decoupled` is set.
functors::Objective objective(const auto& o, bool decoupled = false) {
  return {o.lr, o.weight_decay, decoupled, o.maximize};
}

/// State dicts from before there was this option load, too.
OptionField maximize_field(bool& maximize) {
  OptionField field("maximize", &maximize);
  field.required = false;
  return field;
}

}  // namespace

// ---- options --------------------------------------------------------------------------------------------------------

OptionFields SGDOptions::fields() {
  return {{"lr", &lr},
          {"weight_decay", &weight_decay},
          {"momentum", &momentum},
          {"dampening", &dampening},
          {"nesterov", &nesterov},
          maximize_field(maximize)};
}
void SGDOptions::check() const {
  REEL_CHECK(!nesterov || (momentum > 0 && dampening == 0), "SGD: Nesterov momentum needs a momentum and no dampening");
}
OptionFields AdagradOptions::fields() {
  return {{"lr", &lr},
          {"weight_decay", &weight_decay},
          {"lr_decay", &lr_decay},
          {"initial_accumulator_value", &initial_accumulator_value},
          {"eps", &eps},
          maximize_field(maximize)};
}

namespace {

// Those that everything of Adam's kind has, then `more`.
OptionFields adam_fields(auto& o, OptionFields more) {
  OptionFields fields{{"lr", &o.lr}};
  if constexpr (requires { o.weight_decay; }) fields.push_back({"weight_decay", &o.weight_decay});
  fields.insert(fields.end(), {{"beta1", &o.beta1, 0, 1}, {"beta2", &o.beta2, 0, 1}, {"eps", &o.eps}});
  fields.insert(fields.end(), more.begin(), more.end());
  fields.push_back(maximize_field(o.maximize));
  return fields;
}

}  // namespace

OptionFields AdamOptions::fields() { return adam_fields(*this, {{"amsgrad", &amsgrad}}); }
OptionFields AdamWOptions::fields() { return adam_fields(*this, {{"amsgrad", &amsgrad}}); }
OptionFields SparseAdamOptions::fields() { return adam_fields(*this, {}); }
OptionFields AdamaxOptions::fields() { return adam_fields(*this, {}); }
OptionFields NAdamOptions::fields() {
  return adam_fields(*this, {{"momentum_decay", &momentum_decay}, {"decoupled_weight_decay", &decoupled_weight_decay}});
}
OptionFields RAdamOptions::fields() {
  return adam_fields(*this, {{"decoupled_weight_decay", &decoupled_weight_decay}});
}
OptionFields RMSpropOptions::fields() {
  return {{"lr", &lr},
          {"weight_decay", &weight_decay},
          {"momentum", &momentum},
          {"eps", &eps},
          {"alpha", &alpha, 0, 1},
          {"centered", &centered},
          maximize_field(maximize)};
}
OptionFields AdadeltaOptions::fields() {
  return {{"lr", &lr}, {"weight_decay", &weight_decay}, {"eps", &eps}, {"rho", &rho, 0, 1}, maximize_field(maximize)};
}

// ---- SGD and Adagrad ------------------------------------------------------------------------------------------------

void SGD::update(const SGDOptions& o, Tensor& p, const Tensor& grad, State& state) {
  const bool first = o.momentum != 0 && !state[0].defined();
  if (first) state.start(0, p);
  take_step(functors::SgdUpdate{objective(o), o.lr, o.momentum, o.dampening, o.nesterov, first}, p, grad,
            state.tensors);
}
bool SGD::update_rows(const SGDOptions& o, Tensor& p, const SparseGrad& grad, State& state) {
  if (o.momentum != 0) return false;
  take_step(functors::SgdUpdate{objective(o), o.lr, 0, o.dampening, false, false}, p, grad.values, state.tensors,
            &grad.ids);
  return true;
}

namespace {
void adagrad(const AdagradOptions& o, const Tensor& p, const Tensor& grad, const Tensor* ids, auto& state) {
  if (state.steps == 1) state[0].fill_(o.initial_accumulator_value);
  const double lr = o.lr / (1 + static_cast<double>(state.steps - 1) * o.lr_decay);
  take_step(functors::AdagradUpdate{objective(o), lr, o.eps}, p, grad, state.tensors, ids);
}
}  // namespace

void Adagrad::update(const AdagradOptions& o, Tensor& p, const Tensor& grad, State& state) {
  adagrad(o, p, grad, nullptr, state);
}
bool Adagrad::update_rows(const AdagradOptions& o, Tensor& p, const SparseGrad& grad, State& state) {
  return adagrad(o, p, grad.values, &grad.ids, state), true;
}

// ---- Adam and its relatives -----------------------------------------------------------------------------------------

namespace {
void adam(const auto& o, bool decoupled, const Tensor& p, const Tensor& grad, const Tensor* ids, auto& state) {
  if (o.amsgrad) state.start(2, p);
  const functors::AdamUpdate step{objective(o, decoupled),
                                  o.lr,
                                  o.beta1,
                                  o.beta2,
                                  o.eps,
                                  correction(o.beta1, state.steps),
                                  std::sqrt(correction(o.beta2, state.steps)),
                                  o.amsgrad};
  take_step(step, p, grad, state.tensors, ids);
}
}  // namespace

void Adam::update(const AdamOptions& o, Tensor& p, const Tensor& grad, State& state) {
  adam(o, false, p, grad, nullptr, state);
}
bool Adam::update_rows(const AdamOptions& o, Tensor& p, const SparseGrad& grad, State& state) {
  return adam(o, false, p, grad.values, &grad.ids, state), true;
}
void AdamW::update(const AdamWOptions& o, Tensor& p, const Tensor& grad, State& state) {
  adam(o, true, p, grad, nullptr, state);
}
bool AdamW::update_rows(const AdamWOptions& o, Tensor& p, const SparseGrad& grad, State& state) {
  return adam(o, true, p, grad.values, &grad.ids, state), true;
}

// Refuses a dense gradient before anything is changed.
void SparseAdam::step() {
  for (int g = 0; g < num_groups(); ++g)
    for (const Tensor& p : parameters(g))
      REEL_CHECK(p.sparse_grad() || !p.grad().defined(), "SparseAdam: the parameter of shape ", p.shape(),
                 " has a dense gradient, and this optimizer takes row-sparse ones only");
  OptimizerWith::step();
}
void SparseAdam::update(const SparseAdamOptions&, Tensor&, const Tensor&, State&) {
  detail::fail("SparseAdam: a dense gradient");
}
bool SparseAdam::update_rows(const SparseAdamOptions& o, Tensor& p, const SparseGrad& grad, State& state) {
  const double lr = o.lr * std::sqrt(correction(o.beta2, state.steps));
  take_step(
      functors::AdamUpdate{
          {0, 0, false, o.maximize}, lr, o.beta1, o.beta2, o.eps, correction(o.beta1, state.steps), 1, false},
      p, grad.values, state.tensors, &grad.ids);
  return true;
}

void Adamax::update(const AdamaxOptions& o, Tensor& p, const Tensor& grad, State& state) {
  take_step(functors::AdamaxUpdate{objective(o), o.lr, o.beta1, o.beta2, o.eps, correction(o.beta1, state.steps)}, p,
            grad, state.tensors);
}

void NAdam::update(const NAdamOptions& o, Tensor& p, const Tensor& grad, State& state) {
  const auto mu = [&](int64_t t) {
    return o.beta1 * (1 - 0.5 * std::pow(0.96, static_cast<double>(t) * o.momentum_decay));
  };
  const double now = mu(state.steps), next = mu(state.steps + 1);
  state.number *= now;
  take_step(functors::NAdamUpdate{objective(o, o.decoupled_weight_decay), o.beta1, o.beta2, o.eps,
                                  o.lr * (1 - now) / (1 - state.number), o.lr * next / (1 - state.number * next),
                                  std::sqrt(correction(o.beta2, state.steps))},
            p, grad, state.tensors);
}

void RAdam::update(const RAdamOptions& o, Tensor& p, const Tensor& grad, State& state) {
  const double t = static_cast<double>(state.steps), correction2 = correction(o.beta2, state.steps);
  // The length of the approximated simple moving average, and the rectification term (Algorithm 2).
  const double longest = 2 / (1 - o.beta2) - 1, length = longest - 2 * t * std::pow(o.beta2, t) / correction2;
  const bool rectified = length > 5;
  double scale = o.lr / correction(o.beta1, state.steps);
  if (rectified)
    scale *= std::sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length) * correction2);
  take_step(functors::RAdamUpdate{objective(o, o.decoupled_weight_decay), o.beta1, o.beta2, o.eps, scale, rectified}, p,
            grad, state.tensors);
}

void RMSprop::update(const RMSpropOptions& o, Tensor& p, const Tensor& grad, State& state) {
  if (o.centered) state.start(1, p);
  if (o.momentum != 0) state.start(2, p);
  take_step(functors::RmspropUpdate{objective(o), o.lr, o.alpha, o.eps, o.momentum, o.centered}, p, grad,
            state.tensors);
}

void Adadelta::update(const AdadeltaOptions& o, Tensor& p, const Tensor& grad, State& state) {
  take_step(functors::AdadeltaUpdate{objective(o), o.lr, o.rho, o.eps}, p, grad, state.tensors);
}

}  // namespace reel::optim
