#include "reel/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "lib/autograd/autocast.h"
#include "lib/device.h"
#include "lib/ops/update.h"
#include "lib/optim/optimizer.h"
#include "reel/autograd.h"
#include "reel/optim/first_order.h"
#include "reel/optim/lbfgs.h"

namespace reel::optim {

// ---- what all share -------------------------------------------------------------------------------------------------

void Optimizer::add_parameters(std::vector<Tensor> parameters) {
  REEL_CHECK(!parameters.empty(), "Optimizer: a group without parameters");
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& p = parameters[i];
    REEL_CHECK(p.defined(), "Optimizer: parameter ", i, " is undefined");
    REEL_CHECK(p.is_floating_point(), "Optimizer: parameter ", i, " is ", p.dtype());
    REEL_CHECK(p.is_leaf(), "Optimizer: parameter ", i, " of shape ", p.shape(), " was computed from others (no leaf)");
    const auto same = [&](const Tensor& other) { return other.is_same(p); };
    REEL_CHECK(std::none_of(parameters.begin(), parameters.begin() + i, same), "Optimizer: parameter ", i, " of shape ",
               p.shape(), " is in the group twice");
    for (const Group& group : groups_)
      REEL_CHECK(std::none_of(group.parameters.begin(), group.parameters.end(), same), "Optimizer: parameter ", i,
                 " of shape ", p.shape(), " is in another group already");
  }
  std::vector<State> states(parameters.size());
  groups_.push_back({std::move(parameters), std::move(states), {}});
}

int Optimizer::checked(int group) const {
  REEL_CHECK(group >= 0 && group < num_groups(), "Optimizer: no group ", group, ", there are ", num_groups());
  return group;
}

const std::vector<Tensor>& Optimizer::parameters(int group) const { return groups_[checked(group)].parameters; }

void Optimizer::step() {
  NoGrad guard;
  const AutocastOff exact;
  if (cuda::capturing()) {  // replays step by the gradients of the capture, whatever becomes of grad() between them
    std::vector<std::pair<Tensor, Tensor>> given;
    for (const Group& group : groups_)
      for (const Tensor& p : group.parameters)
        if (const Tensor grad = p.grad(); grad.defined()) given.emplace_back(p, grad);
    cuda::before_replay([this, given] {
      for (const auto& [p, grad] : given)
        if (Tensor parameter = p; !parameter.grad().is_same(grad)) parameter.set_grad(grad);
      step();
    });
  }
  if (!takes_dense())
    for (const Group& group : groups_)
      for (const Tensor& p : group.parameters)
        REEL_CHECK(p.grad_rows() || !p.grad().defined(), "Optimizer: the parameter of shape ", p.shape(),
                   " has a dense gradient, and this optimizer takes row-sparse ones only");
  std::optional<UpdateBatch> batch;
  for (int g = 0; g < num_groups(); ++g) {
    Group& group = groups_[g];
    for (size_t i = 0; i < group.parameters.size(); ++i) {
      const Tensor& parameter = group.parameters[i];
      const RowSparse* rows = takes_rows(g) ? parameter.grad_rows() : nullptr;
      const Tensor grad = rows ? rows->values : parameter.grad();
      if (!grad.defined()) continue;
      ++group.states[i].steps;
      if (!batch && parameter.device() != kCPU) batch.emplace();
      if (batch) batch->next({g, group.states[i].steps});
      const bool had = group.states[i].moments[0].defined();
      update(g, parameter, grad, rows ? &rows->ids : nullptr, group.states[i]);
      REEL_CHECK(!cuda::capturing() || had || !group.states[i].moments[0].defined(),
                 "Optimizer::step: the step that makes the states cannot be captured, take one before");
    }
  }
  if (batch) batch->flush();
}

double Optimizer::initial_lr(int group) {
  std::optional<double>& initial = groups_[checked(group)].initial_lr;
  if (!initial) initial = lr(group);
  return *initial;
}

Tensor Optimizer::step(const std::function<Tensor()>& closure) {
  const Tensor loss = enable_grad(closure);
  step();
  return loss;
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
  const auto number = [](double value) { return full({}, value, {.dtype = kFloat64, .device = kCPU}); };
  StateDict dict;
  const std::vector<std::string> names = state_names();
  int64_t index = 0;
  for (int g = 0; g < num_groups(); ++g) {
    for (const auto& [name, value] : fields(g))
      dict.emplace_back("param_groups." + std::to_string(g) + "." + name, number(value));
    for (const State& state : groups_[g].states) {
      const std::string prefix = "state." + std::to_string(index++) + ".";
      if (state.steps == 0) continue;
      dict.emplace_back(prefix + "step", full({}, state.steps, {.dtype = kInt64, .device = kCPU}));
      for (size_t i = 0; i < names.size(); ++i)
        if (state.moments[i].defined()) dict.emplace_back(prefix + names[i], state.moments[i]);
      if (number_name()) dict.emplace_back(prefix + number_name(), number(state.number));
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
  const auto take = [&](const std::string& name, const Shape& shape, bool needed = true) {
    auto node = given.extract(name);
    if (node.empty() && needed) problems += "\n  missing: " + name;
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
      const Tensor number = take("param_groups." + std::to_string(g) + "." + name, {});
      if (number.defined()) value = number.item<double>();
    }
    try {
      check_fields(new_fields.back());
    } catch (const Error& error) {
      problems += "\n  param_groups." + std::to_string(g) + ": " + error.what();
    }
    auto& states = new_states.emplace_back();
    for (const Tensor& parameter : groups_[g].parameters) {
      const std::string prefix = "state." + std::to_string(index++) + ".";
      State& state = states.emplace_back();
      if (!given.contains(prefix + "step")) continue;  // not stepped yet: a state without is left over, unexpected
      if (const Tensor step = take(prefix + "step", {}); step.defined()) {
        state.steps = step.item<int64_t>();
        if (state.steps <= 0) problems += "\n  " + prefix + "step = " + std::to_string(state.steps);
      }
      for (size_t i = 0; i < names.size(); ++i)
        if (const Tensor moment = take(prefix + names[i], parameter.shape(), i < num_states()); moment.defined())
          state.moments[i] = moment.to(parameter.device()).to(state_dtype(parameter)).clone();
      if (!number_name()) continue;
      if (const Tensor number = take(prefix + number_name(), {}); number.defined())
        state.number = number.item<double>();
    }
  }
  for (const auto& [name, tensor] : dict)
    if (given.contains(name)) problems += "\n  unexpected: " + name;
  REEL_CHECK(problems.empty(), "Optimizer::load_state_dict: the dict does not fit", problems);
  for (int g = 0; g < num_groups(); ++g) {
    set_fields(g, new_fields[g]);
    auto &states = groups_[g].states, &loaded = new_states[g];
    for (size_t i = 0; i < std::min(states.size(), loaded.size()); ++i)
      for (size_t m = 0; m < std::size(states[i].moments); ++m) {  // in place: a captured graph may write them
        Tensor &old = states[i].moments[m], &now = loaded[i].moments[m];
        if (!old.defined() || !now.defined() || old.dtype() != now.dtype() || old.shape() != now.shape()) continue;
        no_grad([&] { old.copy_(now); });
        now = old;
      }
    states = std::move(loaded);
  }
}

// ---- options --------------------------------------------------------------------------------------------------------

namespace {

// visit(name, member) for every option, the one place that lists them.
template <class Visit>
void for_each_option(auto& o, const Visit& visit) {
  visit("lr", o.lr);
  if constexpr (requires { o.weight_decay; }) visit("weight_decay", o.weight_decay);
  if constexpr (requires { o.momentum; }) visit("momentum", o.momentum);
  if constexpr (requires { o.nesterov; }) {
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
  if constexpr (requires { o.amsgrad; }) visit("amsgrad", o.amsgrad);
  if constexpr (requires { o.momentum_decay; }) visit("momentum_decay", o.momentum_decay);
  if constexpr (requires { o.decoupled_weight_decay; }) visit("decoupled_weight_decay", o.decoupled_weight_decay);
  if constexpr (requires { o.alpha; }) {
    visit("alpha", o.alpha);
    visit("centered", o.centered);
  }
  if constexpr (requires { o.rho; }) visit("rho", o.rho);
  if constexpr (requires { o.history_size; }) {
    visit("max_iter", o.max_iter);
    visit("max_eval", o.max_eval);
    visit("tolerance_grad", o.tolerance_grad);
    visit("tolerance_change", o.tolerance_change);
    visit("history_size", o.history_size);
    visit("strong_wolfe", o.strong_wolfe);
  }
}

}  // namespace

template <class Options>
void OptimizerWith<Options>::check(const Options& options) {
  for_each_option(options, [](const std::string& name, double value) {
    const bool beta = name == "beta1" || name == "beta2" || name == "alpha" || name == "rho";
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
void OptimizerWith<Options>::check_fields(const Fields& fields) const {
  Options options;
  size_t i = 0;
  for_each_option(options, [&](const char* name, auto& option) {
    const double value = fields[i++].second;
    REEL_CHECK(std::abs(value) <= 0x1p53, "Optimizer: ", name, " = ", value);  // or it may fit no integer
    option = std::decay_t<decltype(option)>(value);
  });
  check(options);
}

template <class Options>
void OptimizerWith<Options>::set_fields(int group, const Fields& fields) {
  size_t i = 0;
  for_each_option(options_[group],
                  [&](const char*, auto& option) { option = std::decay_t<decltype(option)>(fields[i++].second); });
}

namespace {
// The option that OneCycleLR calls momentum, nullptr if there is none.
double* momentum_of(auto& o) {
  if constexpr (requires { o.momentum; })
    return &o.momentum;
  else if constexpr (requires { o.beta1; })
    return &o.beta1;
  else
    return nullptr;
}
}  // namespace

template <class Options>
double OptimizerWith<Options>::momentum(int group) const {
  Options options = options_[checked(group)];
  const double* momentum = momentum_of(options);
  REEL_CHECK(momentum, "Optimizer: no momentum");
  return *momentum;
}

template <class Options>
void OptimizerWith<Options>::set_momentum(int group, double momentum) {
  double* option = momentum_of(options_[checked(group)]);
  REEL_CHECK(option, "Optimizer: no momentum");
  *option = momentum;
}

template class OptimizerWith<SGDOptions>;
template class OptimizerWith<AdagradOptions>;
template class OptimizerWith<AdamOptions>;
template class OptimizerWith<AdamWOptions>;
template class OptimizerWith<SparseAdamOptions>;
template class OptimizerWith<AdamaxOptions>;
template class OptimizerWith<NAdamOptions>;
template class OptimizerWith<RAdamOptions>;
template class OptimizerWith<RMSpropOptions>;
template class OptimizerWith<AdadeltaOptions>;
template class OptimizerWith<LBFGSOptions>;

}  // namespace reel::optim
