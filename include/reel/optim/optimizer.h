#pragma once
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reel/state_dict.h"
#include "reel/tensor.h"

namespace reel::optim {

/// What all optimizers share. Parameters come in groups, each with options of its own. A parameter is a floating-point
/// leaf and belongs to one group only; anything else is an Error. One that is frozen (does not require grad) waits.
class Optimizer {
 public:
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer() = default;

  /// Changes every parameter that has a gradient; the others, and their states, stay as they are. Gradients are only
  /// read. Allocates nothing from the second step on.
  virtual void step();
  /// Runs the closure, which computes the gradients anew and returns the loss, then step(). Returns the loss.
  virtual Tensor step(const std::function<Tensor()>& closure);
  /// Drops the gradients, or fills them with zeros.
  void zero_grad(bool set_to_none = true);

  int num_groups() const { return static_cast<int>(groups_.size()); }
  const std::vector<Tensor>& parameters(int group) const;
  virtual double lr(int group = 0) const = 0;
  virtual void set_lr(double lr) = 0;             ///< Of all groups.
  virtual void set_lr(int group, double lr) = 0;  ///< Of one.
  /// The group's rate when the first schedule (lr_scheduler.h) was made for it.
  double initial_lr(int group);
  /// The momentum, Adam's beta1, or what else weighs the past; an Error for optimizers without.
  virtual double momentum(int group = 0) const = 0;
  virtual void set_momentum(int group, double momentum) = 0;

  /// Options and states, all as tensors, ready for io::save: "param_groups.0.lr", "state.3.step", "state.3.exp_avg".
  /// Parameters are counted through all groups. The states share storage with the optimizer.
  virtual StateDict state_dict() const;
  /// Copies them back into an optimizer of the same kind, groups and shapes. The Error lists what does not fit, is
  /// missing from a parameter's state or out of range, and leaves the optimizer as it was.
  virtual void load_state_dict(const StateDict& dict);

 protected:
  /// What is remembered of a parameter: tensors, undefined until the first step that needs them, how many steps it has
  /// made, and a number for those that need one.
  struct State {
    std::array<Tensor, 3> moments;
    int64_t steps = 0;
    double number = 1;
  };
  using Fields = std::vector<std::pair<std::string, double>>;

  Optimizer() = default;
  /// The number of a group, or an Error.
  int checked(int group) const;
  /// Checks everything, then adds.
  void add_parameters(std::vector<Tensor> parameters);

 private:
  /// One step of one parameter; state.steps already counts it. With `ids` (int64 [n]) grad holds these rows only.
  virtual void update(int group, const Tensor& parameter, const Tensor& grad, const Tensor* ids, State& state) = 0;
  /// Whether update() takes rows in that group; if not, row-sparse gradients arrive dense.
  virtual bool takes_rows(int group) const = 0;
  virtual bool takes_dense() const { return true; }
  virtual std::vector<std::string> state_names() const = 0;           // of State::moments,
  virtual size_t num_states() const { return state_names().size(); }  // of which the first so many are always there
  virtual const char* number_name() const { return nullptr; }         // of State::number
  virtual Fields fields(int group) const = 0;
  virtual void check_fields(const Fields& fields) const = 0;  // throws for values out of range
  virtual void set_fields(int group, const Fields& fields) = 0;

  struct Group {
    std::vector<Tensor> parameters;
    std::vector<State> states;
    std::optional<double> initial_lr = {};
  };
  std::vector<Group> groups_;
};

/// The part that knows the options.
template <class Options>
class OptimizerWith : public Optimizer {
 public:
  explicit OptimizerWith(std::vector<Tensor> parameters, Options options = {}) {
    add_param_group(std::move(parameters), options);
  }
  void add_param_group(std::vector<Tensor> parameters, Options options) {
    check(options);
    options_.reserve(options_.size() + 1);
    add_parameters(std::move(parameters));
    options_.push_back(options);
  }
  /// A group's options, to read or to change between steps.
  Options& options(int group = 0) { return options_[checked(group)]; }
  double lr(int group = 0) const override { return options_[checked(group)].lr; }
  void set_lr(double lr) override {
    for (Options& options : options_) options.lr = lr;
  }
  void set_lr(int group, double lr) override { options_[checked(group)].lr = lr; }
  double momentum(int group = 0) const override;
  void set_momentum(int group, double momentum) override;

 protected:
  static void check(const Options& options);  ///< Throws for values out of range.
  const Options& options_of(int group) const { return options_[group]; }

 private:
  Fields fields(int group) const override;
  void check_fields(const Fields& fields) const override;
  void set_fields(int group, const Fields& fields) override;

  std::vector<Options> options_;
};

}  // namespace reel::optim
