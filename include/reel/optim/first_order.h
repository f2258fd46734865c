#pragma once
#include <string>
#include <vector>

#include "reel/optim/optimizer.h"

#pragma GCC visibility push(default)
/// First-order optimizers: a parameter at a time, each step in one fused kernel.
namespace reel::optim {

/// Options of SGD.
struct SGDOptions {
  double lr = 1e-3;         ///< The learning rate.
  double momentum = 0;      ///< 0: none.
  double dampening = 0;     ///< The part of the gradient that momentum leaves out.
  double weight_decay = 0;  ///< The factor of the L2 penalty.
  bool nesterov = false;    ///< Step from the point that momentum leads to.
  bool maximize = false;    ///< Go up the gradient instead of down.
  OptionFields fields();    ///< As OptimizerWith reads them.
  void check() const;       ///< Nesterov momentum needs a momentum and no dampening.
};
/// Stochastic gradient descent with (Nesterov) momentum, in PyTorch's form: b ← momentum b + (1 - dampening) g, where b
/// starts as the first g; p ← p - lr b. Without momentum, sparse gradients update only their rows; weight decay applies
/// to those rows only.
class SGD : public OptimizerWith<SGDOptions> {
 public:
  using OptimizerWith::OptimizerWith;

 private:
  std::vector<StateName> state_names() const override { return {{"momentum_buffer", StateName::kOptional}}; }
  void update(const SGDOptions& options, Tensor& parameter, const Tensor& grad, State& state) override;
  bool update_rows(const SGDOptions& options, Tensor& parameter, const SparseGrad& grad, State& state) override;
};

/// Options of Adagrad.
struct AdagradOptions {
  double lr = 1e-2;                      ///< The learning rate.
  double lr_decay = 0;                   ///< See the formula.
  double weight_decay = 0;               ///< The factor of the L2 penalty.
  double initial_accumulator_value = 0;  ///< What the sums start with.
  double eps = 1e-10;                    ///< Added to the denominator.
  bool maximize = false;                 ///< Go up the gradient instead of down.
  OptionFields fields();                 ///< As OptimizerWith reads them.
};
/// Duchi, Hazan & Singer 2011: s ← s + g², p ← p - lr / (1 + (t - 1) lr_decay) · g / (√s + eps). Sparse gradients
/// update only their rows; weight decay applies to those rows only.
class Adagrad : public OptimizerWith<AdagradOptions> {
 public:
  using OptimizerWith::OptimizerWith;

 private:
  std::vector<StateName> state_names() const override { return {"sum"}; }
  void update(const AdagradOptions& options, Tensor& parameter, const Tensor& grad, State& state) override;
  bool update_rows(const AdagradOptions& options, Tensor& parameter, const SparseGrad& grad, State& state) override;
};

/// Options of Adam.
struct AdamOptions {
  double lr = 1e-3;         ///< The learning rate.
  double beta1 = 0.9;       ///< The decay of the average of gradients, below 1.
  double beta2 = 0.999;     ///< The decay of the average of squares, below 1.
  double eps = 1e-8;        ///< Added to the denominator.
  double weight_decay = 0;  ///< The factor of the L2 penalty.
  bool amsgrad = false;     ///< Divide by the largest second moment so far (Reddi, Kale & Kumar 2018).
  bool maximize = false;    ///< Go up the gradient instead of down.
  OptionFields fields();    ///< As OptimizerWith reads them.
};
/// Kingma & Ba 2015, Algorithm 1; weight decay is added to the gradient. Sparse gradients update only their rows of the
/// parameter and of both moments, as in PyTorch's SparseAdam; weight decay applies to those rows only.
class Adam : public OptimizerWith<AdamOptions> {
 public:
  using OptimizerWith::OptimizerWith;

 private:
  std::vector<StateName> state_names() const override {
    return {"exp_avg", "exp_avg_sq", {"max_exp_avg_sq", StateName::kOptional}};
  }
  void update(const AdamOptions& options, Tensor& parameter, const Tensor& grad, State& state) override;
  bool update_rows(const AdamOptions& options, Tensor& parameter, const SparseGrad& grad, State& state) override;
};

/// Options of AdamW.
struct AdamWOptions {
  double lr = 1e-3;            ///< The learning rate.
  double beta1 = 0.9;          ///< The decay of the average of gradients, below 1.
  double beta2 = 0.999;        ///< The decay of the average of squares, below 1.
  double eps = 1e-8;           ///< Added to the denominator.
  double weight_decay = 1e-2;  ///< Decoupled: p shrinks by lr weight_decay.
  bool amsgrad = false;        ///< As for Adam.
  bool maximize = false;       ///< Go up the gradient instead of down.
  OptionFields fields();       ///< As OptimizerWith reads them.
};
/// Adam with decoupled weight decay (Loshchilov & Hutter 2019): p ← (1 - lr weight_decay) p before each step. Sparse
/// gradients as for Adam.
class AdamW : public OptimizerWith<AdamWOptions> {
 public:
  using OptimizerWith::OptimizerWith;

 private:
  std::vector<StateName> state_names() const override {
    return {"exp_avg", "exp_avg_sq", {"max_exp_avg_sq", StateName::kOptional}};
  }
  void update(const AdamWOptions& options, Tensor& parameter, const Tensor& grad, State& state) override;
  bool update_rows(const AdamWOptions& options, Tensor& parameter, const SparseGrad& grad, State& state) override;
};

/// Options of SparseAdam.
struct SparseAdamOptions {
  double lr = 1e-3;       ///< The learning rate.
  double beta1 = 0.9;     ///< The decay of the average of gradients, below 1.
  double beta2 = 0.999;   ///< The decay of the average of squares, below 1.
  double eps = 1e-8;      ///< Added to the denominator.
  bool maximize = false;  ///< Go up the gradient instead of down.
  OptionFields fields();  ///< As OptimizerWith reads them.
};
/// Adam for sparse gradients only (nn::Embedding with sparse): moments and parameters are updated in the rows that have
/// a gradient, eps is added before the bias correction, all as in PyTorch. A dense gradient is an Error; Adam takes
/// both.
class SparseAdam : public OptimizerWith<SparseAdamOptions> {
 public:
  using OptimizerWith::OptimizerWith;
  using OptimizerWith::step;
  void step() override;

 private:
  std::vector<StateName> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  void update(const SparseAdamOptions& options, Tensor& parameter, const Tensor& grad, State& state) override;
  bool update_rows(const SparseAdamOptions& options, Tensor& parameter, const SparseGrad& grad, State& state) override;
};

/// Options of Adamax.
struct AdamaxOptions {
  double lr = 2e-3;         ///< The learning rate.
  double beta1 = 0.9;       ///< The decay of the average of gradients, below 1.
  double beta2 = 0.999;     ///< The decay of the average of squares, below 1.
  double eps = 1e-8;        ///< Added to the denominator.
  double weight_decay = 0;  ///< The factor of the L2 penalty.
  bool maximize = false;    ///< Go up the gradient instead of down.
  OptionFields fields();    ///< As OptimizerWith reads them.
};
/// Kingma & Ba 2015, Algorithm 2: Adam by the infinity norm.
class Adamax : public OptimizerWith<AdamaxOptions> {
 public:
  using OptimizerWith::OptimizerWith;

 private:
  std::vector<StateName> state_names() const override { return {"exp_avg", "exp_inf"}; }
  void update(const AdamaxOptions& options, Tensor& parameter, const Tensor& grad, State& state) override;
};

/// Options of NAdam.
struct NAdamOptions {
  double lr = 2e-3;                     ///< The learning rate.
  double beta1 = 0.9;                   ///< The decay of the average of gradients, below 1.
  double beta2 = 0.999;                 ///< The decay of the average of squares, below 1.
  double eps = 1e-8;                    ///< Added to the denominator.
  double weight_decay = 0;              ///< The factor of the L2 penalty, or of decoupled decay.
  double momentum_decay = 4e-3;         ///< How fast beta1 is approached.
  bool decoupled_weight_decay = false;  ///< As for AdamW, instead of the penalty.
  bool maximize = false;                ///< Go up the gradient instead of down.
  OptionFields fields();                ///< As OptimizerWith reads them.
};
/// Adam with Nesterov momentum (Dozat 2016).
class NAdam : public OptimizerWith<NAdamOptions> {
 public:
  using OptimizerWith::OptimizerWith;

 private:
  std::vector<StateName> state_names() const override {
    return {"exp_avg", "exp_avg_sq", {"mu_product", StateName::kNumber}};
  }
  void update(const NAdamOptions& options, Tensor& parameter, const Tensor& grad, State& state) override;
};

/// Options of RAdam.
struct RAdamOptions {
  double lr = 1e-3;                     ///< The learning rate.
  double beta1 = 0.9;                   ///< The decay of the average of gradients, below 1.
  double beta2 = 0.999;                 ///< The decay of the average of squares, below 1.
  double eps = 1e-8;                    ///< Added to the denominator.
  double weight_decay = 0;              ///< The factor of the L2 penalty, or of decoupled decay.
  bool decoupled_weight_decay = false;  ///< As for AdamW, instead of the penalty.
  bool maximize = false;                ///< Go up the gradient instead of down.
  OptionFields fields();                ///< As OptimizerWith reads them.
};
/// Rectified Adam (Liu et al. 2020): no second moment until its variance is tractable.
class RAdam : public OptimizerWith<RAdamOptions> {
 public:
  using OptimizerWith::OptimizerWith;

 private:
  std::vector<StateName> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  void update(const RAdamOptions& options, Tensor& parameter, const Tensor& grad, State& state) override;
};

/// Options of RMSprop.
struct RMSpropOptions {
  double lr = 1e-2;         ///< The learning rate.
  double alpha = 0.99;      ///< The decay of the average of squares, below 1.
  double eps = 1e-8;        ///< Added to the denominator.
  double weight_decay = 0;  ///< The factor of the L2 penalty.
  double momentum = 0;      ///< 0: none.
  bool centered = false;    ///< Divide by the standard deviation, not the root of the mean square (Graves 2013).
  bool maximize = false;    ///< Go up the gradient instead of down.
  OptionFields fields();    ///< As OptimizerWith reads them.
};
/// Hinton 2012 (Neural Networks for Machine Learning, lecture 6e).
class RMSprop : public OptimizerWith<RMSpropOptions> {
 public:
  using OptimizerWith::OptimizerWith;

 private:
  std::vector<StateName> state_names() const override {
    return {"square_avg", {"grad_avg", StateName::kOptional}, {"momentum_buffer", StateName::kOptional}};
  }
  void update(const RMSpropOptions& options, Tensor& parameter, const Tensor& grad, State& state) override;
};

/// Options of Adadelta.
struct AdadeltaOptions {
  double lr = 1;            ///< The learning rate.
  double rho = 0.9;         ///< The decay of both averages, below 1.
  double eps = 1e-6;        ///< Added to the denominator.
  double weight_decay = 0;  ///< The factor of the L2 penalty.
  bool maximize = false;    ///< Go up the gradient instead of down.
  OptionFields fields();    ///< As OptimizerWith reads them.
};
/// Zeiler 2012, Algorithm 1.
class Adadelta : public OptimizerWith<AdadeltaOptions> {
 public:
  using OptimizerWith::OptimizerWith;

 private:
  std::vector<StateName> state_names() const override { return {"square_avg", "acc_delta"}; }
  void update(const AdadeltaOptions& options, Tensor& parameter, const Tensor& grad, State& state) override;
};

}  // namespace reel::optim
#pragma GCC visibility pop
