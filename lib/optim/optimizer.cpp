#include "reel/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "lib/autograd/autocast.h"
#include "lib/device/device.h"
#include "lib/optim/optimizer.h"
#include "reel/autograd.h"

namespace reel::optim {

// ---- what all share -------------------------------------------------------------------------------------------------

namespace {
// The fused kernels are given kMaxStates, undefined where an optimizer has fewer.
template <class Names>
size_t num_tensors(const Names& names) {
  return std::max<size_t>(names.size(), functors::kMaxStates);
}
size_t num_defined(const std::vector<Tensor>& states) {
  return static_cast<size_t>(std::count_if(states.begin(), states.end(), [](const Tensor& x) { return x.defined(); }));
}
constexpr const char* kMakesStates =
    "Optimizer::step: the step that makes the states cannot be captured, take one before";
}  // namespace

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

Tensor& Optimizer::State::start(size_t i, const Tensor& parameter) {
  Tensor& tensor = tensors[i];
  if (!tensor.defined())
    tensor = zeros(parameter.shape(), {.dtype = state_dtype(parameter), .device = parameter.device()});
  return tensor;
}

bool Optimizer::State::fits(const Tensor& parameter) const {
  const DType dtype = state_dtype(parameter);
  for (const Tensor& tensor : tensors)
    if (tensor.defined() && !optim::fits(tensor, dtype, parameter)) return false;
  return true;
}
void Optimizer::State::follow(const Tensor& parameter) {
  for (Tensor& tensor : tensors)
    if (tensor.defined()) tensor = fitted(tensor, state_dtype(parameter), parameter);
}

void Optimizer::make_states(State& state, const Tensor& parameter) const {
  const std::vector<StateName> names = state_names();
  State made;
  made.tensors.resize(num_tensors(names));
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i].kind == StateName::kAlways) made.start(i, parameter);
  state.tensors = std::move(made.tensors);
}

// What a step allocates before it changes anything: states, and gradients that are still pending.
void Optimizer::prepare_step() {
  for (Group& group : groups_)
    for (size_t i = 0; i < group.parameters.size(); ++i) {
      const Tensor& parameter = group.parameters[i];
      if (!parameter.sparse_grad() && !parameter.grad().defined()) continue;
      State& state = group.states[i];
      if (state.tensors.empty()) {
        make_states(state, parameter);
        const bool captured = capturing() && state.tensors[0].defined();
        if (captured) state.tensors.clear();
        REEL_CHECK(!captured, kMakesStates);
      }
      if (state.fits(parameter)) [[likely]]
        continue;
      REEL_CHECK(!capturing(), "Optimizer::step: parameter ", i, " of shape ", parameter.shape(),
                 " has changed its dtype or device since the last step; the step that converts its states cannot be "
                 "captured, take one before");
      state.follow(parameter);
    }
}

void Optimizer::step() {
  NoGrad guard;
  const AutocastOff exact;
  if (capturing()) {  // replays step by the gradients of the capture, whatever becomes of grad() between them
    std::vector<std::pair<Tensor, Tensor>> given;
    std::vector<std::vector<State>> before;
    for (const Group& group : groups_) {
      for (const Tensor& p : group.parameters)
        if (const Tensor grad = p.grad(); grad.defined()) given.emplace_back(p, grad);
      before.push_back(group.states);
    }
    undo_if_capture_fails([this, before = std::move(before)] {
      for (size_t g = 0; g < before.size(); ++g) groups_[g].states = before[g];
    });
    current_capture->before_replay([this, given] {
      for (const auto& [p, grad] : given)
        if (Tensor parameter = p; !parameter.grad().is_same(grad)) parameter.set_grad(grad);
      struct Replay {
        bool& on;
        explicit Replay(bool& flag) : on(flag) { on = true; }
        ~Replay() { on = false; }
      };
      const Replay again(replays_);
      step();
    });
  }
  prepare_step();
  make_step();
}

void Optimizer::make_step() {
  const bool captured = capturing() || replays_;
  UpdateBatch batch;
  for (int g = 0; g < num_groups(); ++g) {
    Group& group = groups_[g];
    for (size_t i = 0; i < group.parameters.size(); ++i) {
      const Tensor& parameter = group.parameters[i];
      const SparseGrad* rows = parameter.sparse_grad();
      Tensor grad = rows ? Tensor() : parameter.grad();
      if (!rows && !grad.defined()) continue;
      State& state = group.states[i];
      if (state.tensors.empty()) make_states(state, parameter);  // update() of another one may have given it a gradient
      const State before = captured ? state : State();
      ++state.steps;
      batch.next({g, state.steps});
      Tensor handle = parameter;
      if (!rows || !update_sparse(g, handle, *rows, state)) {
        if (rows) grad = parameter.grad();
        update_dense(g, handle, grad, state);
      }
      REEL_CHECK(handle.is_same(parameter), "Optimizer: update() has assigned to the handle of the parameter of shape ",
                 parameter.shape(), "; it changes the elements in place, p.copy_(…)");
      if (captured && num_defined(state.tensors) != num_defined(before.tensors)) {
        state = before;  // what it has now will never be written
        detail::fail(kMakesStates);
      }
    }
  }
  batch.flush();
}

// A const optimizer only reads by these pointers.
OptionFields Optimizer::fields(int group) const { return const_cast<Optimizer*>(this)->fields(group); }

OptionField Optimizer::field(int group, std::string_view name) const {
  for (const OptionField& field : fields(checked(group)))
    if (field.name == name) return field;
  detail::fail("Optimizer: no option ", name);
}

OptionField Optimizer::momentum_field(int group) const {
  for (const std::string_view name : {"momentum", "beta1"})
    for (const OptionField& field : fields(checked(group)))
      if (field.name == name) return field;
  detail::fail("Optimizer: no momentum");
}

double Optimizer::lr(int group) const { return field(group, "lr").get(); }
void Optimizer::set_lr(int group, double lr) { field(group, "lr").set(lr); }
void Optimizer::set_lr(double lr) {
  for (int g = 0; g < num_groups(); ++g) set_lr(g, lr);
}
double Optimizer::momentum(int group) const { return momentum_field(group).get(); }
void Optimizer::set_momentum(int group, double momentum) { momentum_field(group).set(momentum); }

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
  const std::vector<StateName> names = state_names();
  int64_t index = 0;
  for (int g = 0; g < num_groups(); ++g) {
    for (const OptionField& field : fields(g))
      dict.emplace_back("param_groups." + std::to_string(g) + "." + field.name, number(field.get()));
    dict.emplace_back("param_groups." + std::to_string(g) + ".params",
                      full({}, static_cast<int64_t>(groups_[g].states.size()), {.dtype = kInt64, .device = kCPU}));
    for (const State& state : groups_[g].states) {
      const std::string prefix = "state." + std::to_string(index++) + ".";
      if (state.steps == 0) continue;
      dict.emplace_back(prefix + "step", full({}, state.steps, {.dtype = kInt64, .device = kCPU}));
      for (size_t i = 0; i < names.size(); ++i)
        if (names[i].kind == StateName::kNumber)
          dict.emplace_back(prefix + names[i].name, number(state.number));
        else if (state.tensors[i].defined())
          dict.emplace_back(prefix + names[i].name, state.tensors[i]);
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

  // Can the tensor that is loaded be copied into the state that there is?
  const auto is_room_for = [&](const Tensor& now, int g, size_t i, size_t t) {
    const auto& states = groups_[g].states;
    if (i >= states.size() || t >= states[i].tensors.size() || !now.defined()) return false;
    const Tensor& old = states[i].tensors[t];
    return old.defined() && fits(old, now.dtype(), now) && old.shape() == now.shape();
  };
  std::unordered_set<const Storage*> own;  // which the dict may hold under other names
  for (const Group& group : groups_)
    for (const State& state : group.states)
      for (const Tensor& tensor : state.tensors)
        if (tensor.defined()) own.insert(TensorImpl::of(tensor)->storage);
  const std::vector<StateName> names = state_names();
  std::vector<std::vector<double>> new_options;
  std::vector<std::vector<State>> new_states;
  int64_t index = 0;
  for (int g = 0; g < num_groups(); ++g) {
    const std::string group = "param_groups." + std::to_string(g);
    auto& values = new_options.emplace_back();
    for (const OptionField& field : fields(g)) {
      const Tensor number = take(group + "." + field.name, {}, field.required);
      values.push_back(number.defined() ? number.item<double>() : field.get());
    }
    const auto has = static_cast<int64_t>(groups_[g].parameters.size());
    // Files that were written before the number was saved have none.
    if (const Tensor params = take(group + ".params", {}, false); params.defined() && params.item<int64_t>() != has)
      problems += "\n  " + group + ": it has " + std::to_string(has) + " parameters, given is the state of " +
                  std::to_string(params.item<int64_t>());
    if (const std::string problem = problem_with(g, values); !problem.empty())
      problems += "\n  " + group + ": " + problem;
    auto& states = new_states.emplace_back();
    for (const Tensor& parameter : groups_[g].parameters) {
      const std::string prefix = "state." + std::to_string(index++) + ".";
      State& state = states.emplace_back();
      if (!given.contains(prefix + "step")) continue;  // not stepped yet: a state without is left over, unexpected
      if (const Tensor step = take(prefix + "step", {}); step.defined()) {
        state.steps = step.item<int64_t>();
        if (state.steps <= 0) problems += "\n  " + prefix + "step = " + std::to_string(state.steps);
      }
      state.tensors.resize(num_tensors(names));
      for (size_t i = 0; i < names.size(); ++i)
        if (names[i].kind == StateName::kNumber) {
          if (const Tensor number = take(prefix + names[i].name, {}); number.defined())
            state.number = number.item<double>();
        } else if (const Tensor tensor =
                       take(prefix + names[i].name, parameter.shape(), names[i].kind == StateName::kAlways);
                   tensor.defined()) {
          const Tensor now = fitted(tensor, state_dtype(parameter), parameter);
          const bool copied_later =
              is_room_for(now, g, states.size() - 1, i) && !own.contains(TensorImpl::of(now)->storage);
          state.tensors[i] = copied_later ? now : now.clone();
        }
    }
  }
  for (const auto& [name, tensor] : dict)
    if (given.contains(name)) problems += "\n  unexpected: " + name;
  REEL_CHECK(problems.empty(), "Optimizer::load_state_dict: the dict does not fit", problems);
  for (int g = 0; g < num_groups(); ++g) {
    set_options(g, new_options[g]);
    auto &states = groups_[g].states, &loaded = new_states[g];
    for (size_t i = 0; i < states.size(); ++i)
      for (size_t t = 0; t < std::min(states[i].tensors.size(), loaded[i].tensors.size()); ++t) {
        if (!is_room_for(loaded[i].tensors[t], g, i, t)) continue;
        Tensor& old = states[i].tensors[t];  // in place: a captured graph may write it
        old.copy_(loaded[i].tensors[t]);
        loaded[i].tensors[t] = old;
      }
    states = std::move(loaded);
  }
}

// ---- options --------------------------------------------------------------------------------------------------------

double OptionField::get() const {
  return std::visit([](auto* option) { return static_cast<double>(*option); }, value);
}
void OptionField::set(double number) const {
  std::visit([&](auto* option) { *option = static_cast<std::decay_t<decltype(*option)>>(number); }, value);
}
void OptionField::check() const {
  const double number = get();
  REEL_CHECK(number >= min && number < end, "Optimizer: ", name, " = ", number);
}

void Optimizer::set_options(int group, const std::vector<double>& values) {
  size_t i = 0;
  for (const OptionField& field : fields(group)) field.set(values[i++]);
}

// What check_options would throw for these values.
std::string Optimizer::problem_with(int group, const std::vector<double>& values) {
  std::vector<double> before;
  try {
    for (const OptionField& field : fields(group)) {
      const double value = values[before.size()];
      REEL_CHECK(std::abs(value) <= 0x1p53, "Optimizer: ", field.name, " = ", value);  // or it may fit no integer
      before.push_back(field.get());
    }
    set_options(group, values);
    check_options(group);
  } catch (...) {
    if (before.size() == values.size()) set_options(group, before);
    try {
      throw;
    } catch (const Error& error) {
      return error.what();
    }
  }
  set_options(group, before);
  return {};
}

}  // namespace reel::optim
