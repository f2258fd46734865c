#pragma once
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "reel/state_dict.h"
#include "reel/tensor.h"

#pragma GCC visibility push(default)
/// What optimizers share, and the base of an optimizer of your own.
namespace reel::optim {

/// One option of an optimizer: its name in state dicts, where it is, and its range, min ≤ value < end.
struct OptionField {
  using Value = std::variant<double*, int64_t*, bool*>;  ///< Where an option of each type is.
  /// Describes an option of the struct whose fields() makes it.
  OptionField(const char* name_, Value value_, double min_ = 0, double end_ = std::numeric_limits<double>::infinity())
      : name(name_), value(value_), min(min_), end(end_) {}
  double get() const;             ///< The value, as a number.
  void set(double number) const;  ///< Changes the option; not checked.
  void check() const;             ///< Throws for a value out of range or not finite.

  const char* name;  ///< In state dicts.
  Value value;       ///< The option itself.
  double min;        ///< The start of the range, which is in it.
  double end;        ///< The end of the range, which is not.
  /// Whether a state dict without it is an Error. One that may be missing keeps its value then.
  bool required = true;
};
/// All options of an optimizer, in the order in which they are saved.
using OptionFields = std::vector<OptionField>;

/// The base of all optimizers. Parameters come in groups, each with its own options. A parameter is a floating-point
/// leaf and belongs to one group only; anything else is an Error. Frozen parameters (requires_grad() is false) are
/// skipped. Optimizers derive from OptimizerWith, below.
class Optimizer {
 public:
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer() = default;

  /// Changes every parameter that has a gradient; the others, and their states, stay as they are. Gradients are only
  /// read. States follow a parameter whose dtype or device has changed since the last step (Module::to). The library's
  /// own optimizers allocate nothing from the second step on.
  virtual void step();
  /// Runs the closure, which computes the gradients anew and returns the loss, then step(). Returns the loss.
  virtual Tensor step(const std::function<Tensor()>& closure);
  /// Makes the gradients undefined (PyTorch's None) or, with set_to_none = false, fills them with zeros.
  void zero_grad(bool set_to_none = true);

  /// At least 1.
  int num_groups() const { return static_cast<int>(groups_.size()); }
  const std::vector<Tensor>& parameters(int group) const;  ///< Those of a group, in order.
  double lr(int group = 0) const;                          ///< The option "lr" of a group.
  void set_lr(double lr);                                  ///< Of all groups.
  void set_lr(int group, double lr);                       ///< Of one.
  /// The group's rate when the first schedule (lr_scheduler.h) was made for it.
  double initial_lr(int group);
  /// The option "momentum", or else "beta1"; an Error for optimizers with neither.
  double momentum(int group = 0) const;
  void set_momentum(int group, double momentum);  ///< The same option of one group.

  /// Options and states, all as tensors, ready for io::save: "param_groups.0.lr", "state.3.step", "state.3.exp_avg".
  /// Parameters are counted through all groups. The states share storage with the optimizer. As in PyTorch, a state is
  /// its parameter's by this number, not by a name: a model that declares its parameters in another order gets the
  /// states of others where shapes agree.
  virtual StateDict state_dict() const;
  /// Copies them back into an optimizer of the same kind, groups and shapes. The Error lists what does not fit, is
  /// missing from a parameter's state or out of range; the optimizer is unchanged then.
  virtual void load_state_dict(const StateDict& dict);

 protected:
  /// The state of a parameter.
  struct State {
    /// Those of state_names(), in order, of the parameter's shape, device and dtype, but float32 for half-precision
    /// parameters. At the first step they are zeros, except optional ones, which are undefined until start().
    Tensor& operator[](size_t i) { return tensors[i]; }
    /// Makes an optional one, of zeros, unless it is there.
    Tensor& start(size_t i, const Tensor& parameter);
    bool fits(const Tensor& parameter) const;  ///< Whether they are of the dtype and device that they should be.
    void follow(const Tensor& parameter);      ///< Converts those that are not.

    std::vector<Tensor> tensors;  ///< What operator[] gives.
    int64_t steps = 0;            ///< How many the parameter has made, with the one that is being made.
    double number = 1;            ///< The one of kind kNumber.
  };
  /// The name of a state in state dicts. Of kNumber there is at most one.
  struct StateName {
    /// A tensor that is made at the first step, one that start() makes, or State::number.
    enum Kind { kAlways, kOptional, kNumber };
    /// {"exp_avg", …} makes them.
    StateName(const char* name_, Kind kind_ = kAlways) : name(name_), kind(kind_) {}
    std::string name;  ///< Behind "state.3." in state dicts.
    Kind kind;         ///< kAlways unless it is given.
  };

  Optimizer() = default;
  /// The number of a group, or an Error.
  int checked(int group) const;
  /// Checks everything, then adds.
  void add_parameters(std::vector<Tensor> parameters);

 private:
  virtual std::vector<StateName> state_names() const { return {}; }
  virtual OptionFields fields(int group) = 0;
  OptionFields fields(int group) const;
  virtual void check_options(int group) const = 0;
  virtual void update_dense(int group, Tensor& parameter, const Tensor& grad, State& state) = 0;
  virtual bool update_sparse(int group, Tensor& parameter, const SparseGrad& grad, State& state) = 0;
  OptionField field(int group, std::string_view name) const;
  OptionField momentum_field(int group) const;
  void set_options(int group, const std::vector<double>& values);
  std::string problem_with(int group, const std::vector<double>& values);
  void make_states(State& state, const Tensor& parameter) const;
  void prepare_step();
  void make_step();

  struct Group {
    std::vector<Tensor> parameters;
    std::vector<State> states;
    std::optional<double> initial_lr = {};
  };
  std::vector<Group> groups_;
  bool replays_ = false;  // a captured step is being made again
};

/// The base of an optimizer with its Options. The library's and user-defined ones are written alike: options that list
/// their fields, the names of the states, and the update. But in a captured step (cuda::Graph) numbers that an update
/// gives to ops, learning rates included, stay those of the capture, unlike those of the library's optimizers. For Lion
/// (Chen et al. 2023, Algorithm 2):
///
///   struct LionOptions {
///     double lr = 1e-4, beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
///     optim::OptionFields fields() {
///       return {{"lr", &lr}, {"beta1", &beta1, 0, 1}, {"beta2", &beta2, 0, 1}, {"weight_decay", &weight_decay}};
///     }
///   };
///   class Lion : public optim::OptimizerWith<LionOptions> {
///    public:
///     using OptimizerWith::OptimizerWith;
///
///    private:
///     std::vector<StateName> state_names() const override { return {"exp_avg"}; }
///     void update(const LionOptions& o, Tensor& p, const Tensor& grad, State& state) override {
///       Tensor& m = state[0];
///       p.mul_(1 - o.lr * o.weight_decay).sub_(sign(lerp(grad, m, o.beta1)), o.lr);
///       m.lerp_(grad, 1 - o.beta2);
///     }
///   };
///
/// Groups, state dicts, schedules (by the fields "lr" and "momentum" or "beta1"), GradScaler and sparse gradients work
/// with it. Options may have a `void check() const` besides, which throws where values do not go together.
template <class Options>
class OptimizerWith : public Optimizer {
 public:
  /// A group of parameters with options of its own.
  struct ParamGroup {
    std::vector<Tensor> parameters;  ///< Floating-point leaves.
    Options options = {};            ///< Theirs.
  };

  /// One group of parameters. What cannot be trained, and an option out of range, is an Error.
  explicit OptimizerWith(std::vector<Tensor> parameters, Options options = {}) {
    add_param_group(std::move(parameters), options);
  }
  /// The same with the defaults but for the learning rate: SGD(net.parameters(), 0.1).
  template <class Number>
  requires std::is_arithmetic_v<Number> OptimizerWith(std::vector<Tensor> parameters, Number lr)
      : OptimizerWith(std::move(parameters), with_lr(static_cast<double>(lr))) {}
  /// Several groups: Adam adam({{body.parameters(), {.lr = 1e-5}}, {head.parameters(), {.lr = 1e-3}}}).
  explicit OptimizerWith(std::vector<ParamGroup> groups) {
    for (ParamGroup& group : groups) add_param_group(std::move(group.parameters), group.options);
  }
  /// Adds parameters with options of their own; one that is not given has its default, not what another group has.
  void add_param_group(std::vector<Tensor> parameters, Options options) {
    check(options);
    options_.reserve(options_.size() + 1);
    add_parameters(std::move(parameters));
    options_.push_back(options);
  }
  /// A group's options, to read or to change between steps.
  Options& options(int group = 0) { return options_[checked(group)]; }

 protected:
  /// One step of one parameter, without recording: changes the elements of `parameter` in place, p.sub_(…). Assigning
  /// to the handle itself, p = …, is an Error. state.steps already counts this step.
  virtual void update(const Options& options, Tensor& parameter, const Tensor& grad, State& state) = 0;
  /// The same for a gradient of some rows. Returning false, having changed nothing, has update() called with the dense
  /// gradient.
  virtual bool update_rows(const Options& /*options*/, Tensor& /*parameter*/, const SparseGrad& /*grad*/,
                           State& /*state*/) {
    return false;
  }

 private:
  static Options with_lr(double lr) {
    Options options;
    options.lr = lr;
    return options;
  }
  static void check(Options options) {
    for (const OptionField& field : options.fields()) field.check();
    if constexpr (requires { options.check(); }) options.check();
  }
  OptionFields fields(int group) final { return options_[group].fields(); }
  void check_options(int group) const final { check(options_[group]); }
  void update_dense(int group, Tensor& parameter, const Tensor& grad, State& state) final {
    update(options_[group], parameter, grad, state);
  }
  bool update_sparse(int group, Tensor& parameter, const SparseGrad& grad, State& state) final {
    return update_rows(options_[group], parameter, grad, state);
  }

  std::vector<Options> options_;
};

}  // namespace reel::optim
#pragma GCC visibility pop
