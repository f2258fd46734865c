#pragma once
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "reel/state_dict.h"
#include "reel/tensor.h"

/// Optimizers change parameters in place from the gradients that backward() has left in grad():
///
///   optim::SGD sgd(net.parameters(), {.lr = 0.1, .momentum = 0.9});
///   …
///   sgd.zero_grad();
///   loss.backward();
///   sgd.step();
namespace reel::optim {

/// What all optimizers share. Parameters come in groups, each with options of its own. A parameter is a floating-point
/// leaf that requires grad, and belongs to one group only; anything else is an Error.
class Optimizer {
 public:
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer() = default;

  /// Changes every parameter that has a gradient; the others, and their states, stay as they are. Gradients are only
  /// read. Allocates nothing from the second step on.
  void step();
  /// Drops the gradients, or fills them with zeros.
  void zero_grad(bool set_to_none = true);

  int num_groups() const { return static_cast<int>(groups_.size()); }
  const std::vector<Tensor>& parameters(int group) const;
  virtual double lr(int group = 0) const = 0;
  virtual void set_lr(double lr) = 0;             ///< Of all groups.
  virtual void set_lr(int group, double lr) = 0;  ///< Of one.

  /// Options and states, all as tensors, ready for io::save: "param_groups.0.lr", "state.3.step", "state.3.exp_avg".
  /// Parameters are counted through all groups. The states share storage with the optimizer.
  StateDict state_dict() const;
  /// Copies them back into an optimizer of the same kind, groups and shapes. The Error lists what does not fit and
  /// leaves the optimizer as it was.
  void load_state_dict(const StateDict& dict);

 protected:
  /// A parameter's moments, undefined until the first step, and how many steps it has made.
  struct State {
    Tensor first, second;
    int64_t steps = 0;
  };
  using Fields = std::vector<std::pair<std::string, double>>;

  Optimizer() = default;
  /// Checks everything, then adds.
  void add_parameters(std::vector<Tensor> parameters);

 private:
  /// One step of one parameter; state.steps already counts it. With `ids` (int64 [n]) grad holds these rows only.
  virtual void update(int group, const Tensor& parameter, const Tensor& grad, const Tensor* ids, State& state) = 0;
  /// Whether update() takes rows in that group; if not, row-sparse gradients arrive dense.
  virtual bool takes_rows(int group) const = 0;
  virtual std::vector<std::string> state_names() const = 0;  // of State::first and State::second
  virtual Fields fields(int group) const = 0;
  virtual void set_fields(int group, const Fields& fields) = 0;

  struct Group {
    std::vector<Tensor> parameters;
    std::vector<State> states;
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
  Options& options(int group = 0) { return options_.at(group); }
  double lr(int group = 0) const override { return options_.at(group).lr; }
  void set_lr(double lr) override {
    for (Options& options : options_) options.lr = lr;
  }
  void set_lr(int group, double lr) override { options_.at(group).lr = lr; }

 protected:
  static void check(const Options& options);  ///< Throws for values out of range.
  const Options& options_of(int group) const { return options_[group]; }

 private:
  Fields fields(int group) const override;
  void set_fields(int group, const Fields& fields) override;

  std::vector<Options> options_;
};

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
};
/// Stochastic gradient descent with (Nesterov) momentum, in PyTorch's form: b ← momentum b + (1 - dampening) g, where b
/// starts as the first g; p ← p - lr b. Without momentum, row-sparse gradients change their rows only, and weight decay
/// touches those only.
class SGD : public OptimizerWith<SGDOptions> {
 public:
  using OptimizerWith::OptimizerWith;

 private:
  void update(int group, const Tensor& parameter, const Tensor& grad, const Tensor* ids, State& state) override;
  bool takes_rows(int group) const override { return options_of(group).momentum == 0; }
  std::vector<std::string> state_names() const override { return {"momentum_buffer"}; }
};

struct AdagradOptions {
  double lr = 1e-2;
  double lr_decay = 0;
  double weight_decay = 0;
  double initial_accumulator_value = 0;
  double eps = 1e-10;
};
/// Duchi, Hazan & Singer 2011: s ← s + g², p ← p - lr / (1 + (t - 1) lr_decay) · g / (√s + eps). Row-sparse gradients
/// change their rows only, and weight decay touches those only.
class Adagrad : public OptimizerWith<AdagradOptions> {
 public:
  using OptimizerWith::OptimizerWith;

 private:
  void update(int group, const Tensor& parameter, const Tensor& grad, const Tensor* ids, State& state) override;
  bool takes_rows(int) const override { return true; }
  std::vector<std::string> state_names() const override { return {"sum"}; }
};

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
};
/// Kingma & Ba 2015, Algorithm 1; weight decay is added to the gradient. Row-sparse gradients change their rows of the
/// parameter and of both moments only, as PyTorch's SparseAdam does, and weight decay touches those only.
class Adam : public OptimizerWith<AdamOptions> {
 public:
  using OptimizerWith::OptimizerWith;

 private:
  void update(int group, const Tensor& parameter, const Tensor& grad, const Tensor* ids, State& state) override;
  bool takes_rows(int) const override { return true; }
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
};

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;
};
/// Adam with decoupled weight decay (Loshchilov & Hutter 2019): p ← (1 - lr weight_decay) p before each step.
/// Row-sparse gradients as for Adam.
class AdamW : public OptimizerWith<AdamWOptions> {
 public:
  using OptimizerWith::OptimizerWith;

 private:
  void update(int group, const Tensor& parameter, const Tensor& grad, const Tensor* ids, State& state) override;
  bool takes_rows(int) const override { return true; }
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
};

/// Scales the gradients of the parameters, in place, so that their norm, taken over all of them together, is at most
/// max_norm (Pascanu et al. 2013). Returns the norm as it was before. norm_type is positive or infinity. Row-sparse
/// gradients stay so.
double clip_grad_norm(std::span<const Tensor> parameters, double max_norm, double norm_type = 2);

}  // namespace reel::optim
