#include "reel/optim.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include "lib/ops/update.h"
#include "lib/scalar.h"
#include "reel/autograd.h"
#include "reel/ops.h"

namespace reel::optim {
namespace {

// The kernels know float32 and float64: half-precision parameters go by way of float32, and keep their states in it.
DType state_dtype(const Tensor& p) { return is_half(p.dtype()) ? kFloat32 : p.dtype(); }

}  // namespace

// ---- what all share -------------------------------------------------------------------------------------------------

void Optimizer::add_parameters(std::vector<Tensor> parameters) {
  REEL_CHECK(!parameters.empty(), "Optimizer: a group without parameters");
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& p = parameters[i];
    REEL_CHECK(p.defined(), "Optimizer: parameter ", i, " is undefined");
    REEL_CHECK(p.is_floating_point(), "Optimizer: parameter ", i, " is ", p.dtype());
    REEL_CHECK(p.is_leaf(), "Optimizer: parameter ", i, " of shape ", p.shape(), " was computed from others (no leaf)");
    REEL_CHECK(p.requires_grad(), "Optimizer: parameter ", i, " of shape ", p.shape(), " does not require grad");
    const auto same = [&](const Tensor& other) { return other.is_same(p); };
    REEL_CHECK(std::none_of(parameters.begin(), parameters.begin() + i, same), "Optimizer: parameter ", i, " of shape ",
               p.shape(), " is in the group twice");
    for (const Group& group : groups_)
      REEL_CHECK(std::none_of(group.parameters.begin(), group.parameters.end(), same), "Optimizer: parameter ", i,
                 " of shape ", p.shape(), " is in another group already");
  }
  std::vector<State> states(parameters.size());
  groups_.push_back({std::move(parameters), std::move(states)});
}

const std::vector<Tensor>& Optimizer::parameters(int group) const {
  REEL_CHECK(group >= 0 && group < num_groups(), "Optimizer: no group ", group, ", there are ", num_groups());
  return groups_[group].parameters;
}

void Optimizer::step() {
  NoGrad guard;
  for (int g = 0; g < num_groups(); ++g) {
    Group& group = groups_[g];
    for (size_t i = 0; i < group.parameters.size(); ++i) {
      const Tensor& parameter = group.parameters[i];
      const RowSparse* rows = takes_rows(g) ? parameter.grad_rows() : nullptr;
      const Tensor grad = rows ? rows->values : parameter.grad();
      if (!grad.defined()) continue;
      ++group.states[i].steps;
      update(g, parameter, grad, rows ? &rows->ids : nullptr, group.states[i]);
    }
  }
}

void Optimizer::zero_grad(bool set_to_none) {
  NoGrad guard;
  for (Group& group : groups_)
    for (Tensor& parameter : group.parameters) {
      if (set_to_none)
        parameter.set_grad({});
      else if (Tensor grad = parameter.grad(); grad.defined())
        grad.zero_();
    }
}

StateDict Optimizer::state_dict() const {
  const auto number = [](double value) { return full({}, value, {.dtype = kFloat64}); };
  StateDict dict;
  const std::vector<std::string> names = state_names();
  int64_t index = 0;
  for (int g = 0; g < num_groups(); ++g) {
    for (const auto& [name, value] : fields(g))
      dict.emplace_back("param_groups." + std::to_string(g) + "." + name, number(value));
    for (const State& state : groups_[g].states) {
      const std::string prefix = "state." + std::to_string(index++) + ".";
      if (state.steps == 0) continue;
      dict.emplace_back(prefix + "step", full({}, state.steps, {.dtype = kInt64}));
      if (state.first.defined()) dict.emplace_back(prefix + names[0], state.first);
      if (state.second.defined()) dict.emplace_back(prefix + names[1], state.second);
    }
  }
  return dict;
}

void Optimizer::load_state_dict(const StateDict& dict) {
  NoGrad guard;
  std::string problems;
  std::unordered_map<std::string, Tensor> given;
  for (const auto& [name, tensor] : dict)
    if (!tensor.defined())
      problems += "\n  undefined: " + name;
    else if (!given.emplace(name, tensor).second)
      problems += "\n  given twice: " + name;
  // Takes the tensor of that name out of `given`; undefined when it is not there or has another shape.
  const auto take = [&](const std::string& name, const Shape& shape) {
    auto node = given.extract(name);
    if (node.empty()) return Tensor();
    if (node.mapped().shape() == shape) return node.mapped();
    problems +=
        "\n  shape of " + name + ": expected " + shape.to_string() + ", given is " + node.mapped().shape().to_string();
    return Tensor();
  };

  const std::vector<std::string> names = state_names();
  std::vector<Fields> new_fields;
  std::vector<std::vector<State>> new_states;
  int64_t index = 0;
  for (int g = 0; g < num_groups(); ++g) {
    new_fields.push_back(fields(g));
    for (auto& [name, value] : new_fields.back()) {
      const std::string path = "param_groups." + std::to_string(g) + "." + name;
      const Tensor number = take(path, {});
      if (number.defined())
        value = number.item<double>();
      else
        problems += "\n  missing: " + path;
    }
    auto& states = new_states.emplace_back();
    for (const Tensor& parameter : groups_[g].parameters) {
      const std::string prefix = "state." + std::to_string(index++) + ".";
      const auto moment = [&](size_t which) {
        const Tensor given_one = which < names.size() ? take(prefix + names[which], parameter.shape()) : Tensor();
        return given_one.defined() ? given_one.to(parameter.device()).to(state_dtype(parameter)).clone() : Tensor();
      };
      State& state = states.emplace_back();
      const Tensor step = take(prefix + "step", {});
      state = {moment(0), moment(1), step.defined() ? step.item<int64_t>() : 0};
    }
  }
  for (const auto& [name, tensor] : dict)
    if (given.contains(name)) problems += "\n  unexpected: " + name;
  REEL_CHECK(problems.empty(), "Optimizer::load_state_dict: the dict does not fit", problems);
  for (int g = 0; g < num_groups(); ++g) {
    set_fields(g, new_fields[g]);
    groups_[g].states = std::move(new_states[g]);
  }
}

// ---- options --------------------------------------------------------------------------------------------------------

namespace {

// visit(name, member) for every option, the one place that lists them.
template <class Visit>
void for_each_option(auto& o, const Visit& visit) {
  visit("lr", o.lr);
  visit("weight_decay", o.weight_decay);
  if constexpr (requires { o.momentum; }) {
    visit("momentum", o.momentum);
    visit("dampening", o.dampening);
    visit("nesterov", o.nesterov);
  }
  if constexpr (requires { o.lr_decay; }) {
    visit("lr_decay", o.lr_decay);
    visit("initial_accumulator_value", o.initial_accumulator_value);
  }
  if constexpr (requires { o.beta1; }) {
    visit("beta1", o.beta1);
    visit("beta2", o.beta2);
  }
  if constexpr (requires { o.eps; }) visit("eps", o.eps);
}

}  // namespace

template <class Options>
void OptimizerWith<Options>::check(const Options& options) {
  for_each_option(options, [](const std::string& name, double value) {
    const bool beta = name == "beta1" || name == "beta2";
    REEL_CHECK(value >= 0 && std::isfinite(value) && (!beta || value < 1), "Optimizer: ", name, " = ", value);
  });
  if constexpr (requires { options.nesterov; })
    REEL_CHECK(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
               "SGD: Nesterov momentum needs a momentum and no dampening");
}

template <class Options>
Optimizer::Fields OptimizerWith<Options>::fields(int group) const {
  Fields fields;
  for_each_option(options_[group], [&](const char* name, double value) { fields.emplace_back(name, value); });
  return fields;
}

template <class Options>
void OptimizerWith<Options>::set_fields(int group, const Fields& fields) {
  size_t i = 0;
  for_each_option(options_[group],
                  [&](const char*, auto& option) { option = std::decay_t<decltype(option)>(fields[i++].second); });
}

template class OptimizerWith<SGDOptions>;
template class OptimizerWith<AdagradOptions>;
template class OptimizerWith<AdamOptions>;
template class OptimizerWith<AdamWOptions>;

// ---- the fused kernels ----------------------------------------------------------------------------------------------

namespace {

Tensor new_state(const Tensor& p, double value = 0) {
  return full(p.shape(), value, {.dtype = state_dtype(p), .device = p.device()});
}

template <class Functor>
void apply(const Functor& functor, const Tensor& p, const Tensor& grad, const Tensor* s, const Tensor* t,
           const Tensor* ids) {
  if (p.is_contiguous() && !is_half(p.dtype()) && grad.dtype() == p.dtype())
    return reel::update(functor, p, grad, s, t, ids);
  const Tensor dense = p.to(state_dtype(p)).contiguous();
  reel::update(functor, dense, grad.to(dense.dtype()), s, t, ids);
  if (!dense.is_same(p)) Tensor(p).copy_(dense);
}

}  // namespace

// ---- the rules (formulas: lib/scalar.h) -----------------------------------------------------------------------------

void SGD::update(int group, const Tensor& p, const Tensor& grad, const Tensor* ids, State& state) {
  const SGDOptions& o = options_of(group);
  const bool first = o.momentum != 0 && !state.first.defined();
  if (first) state.first = new_state(p);
  apply(scalar::SgdUpdate{o.lr, o.weight_decay, o.momentum, o.dampening, o.nesterov, first}, p, grad,
        o.momentum != 0 ? &state.first : nullptr, nullptr, ids);
}

void Adagrad::update(int group, const Tensor& p, const Tensor& grad, const Tensor* ids, State& state) {
  const AdagradOptions& o = options_of(group);
  if (!state.first.defined()) state.first = new_state(p, o.initial_accumulator_value);
  const double lr = o.lr / (1 + static_cast<double>(state.steps - 1) * o.lr_decay);
  apply(scalar::AdagradUpdate{lr, o.weight_decay, o.eps}, p, grad, &state.first, nullptr, ids);
}

namespace {

template <class Options>
void adam(const Options& o, bool decoupled, const Tensor& p, const Tensor& grad, const Tensor* ids, Tensor& first,
          Tensor& second, int64_t steps) {
  if (!first.defined()) first = new_state(p);
  if (!second.defined()) second = new_state(p);
  const double t = static_cast<double>(steps);
  const double correction1 = 1 - std::pow(o.beta1, t), correction2 = std::sqrt(1 - std::pow(o.beta2, t));
  apply(scalar::AdamUpdate{o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, correction1, correction2, decoupled}, p, grad,
        &first, &second, ids);
}

}  // namespace

void Adam::update(int group, const Tensor& p, const Tensor& grad, const Tensor* ids, State& state) {
  adam(options_of(group), false, p, grad, ids, state.first, state.second, state.steps);
}

void AdamW::update(int group, const Tensor& p, const Tensor& grad, const Tensor* ids, State& state) {
  adam(options_of(group), true, p, grad, ids, state.first, state.second, state.steps);
}

// ---- gradient clipping ----------------------------------------------------------------------------------------------

double clip_grad_norm(std::span<const Tensor> parameters, double max_norm, double norm_type) {
  REEL_CHECK(norm_type > 0, "clip_grad_norm: norm_type must be positive, got ", norm_type);
  REEL_CHECK(max_norm >= 0, "clip_grad_norm: max_norm must not be negative, got ", max_norm);
  NoGrad guard;
  // Of a row-sparse gradient the rows, which have the same norm; both share storage with the gradient.
  const auto gradient = [](const Tensor& parameter) {
    const RowSparse* rows = parameter.grad_rows();
    return rows ? rows->values : parameter.grad();
  };
  double total = 0;
  for (const Tensor& parameter : parameters) {
    const Tensor grad = gradient(parameter);
    if (!grad.defined() || grad.numel() == 0) continue;
    const double part = norm(grad, norm_type).item<double>();
    if (std::isinf(norm_type))
      total = part > total || std::isnan(part) ? part : total;
    else
      total += std::pow(part, norm_type);
  }
  if (std::isfinite(norm_type)) total = std::pow(total, 1 / norm_type);
  const double scale = max_norm / (total + 1e-6);
  if (scale >= 1) return total;
  for (const Tensor& parameter : parameters)
    if (Tensor grad = gradient(parameter); grad.defined()) grad.mul_(scale);
  return total;
}

}  // namespace reel::optim
