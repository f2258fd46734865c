#pragma once
#include <functional>
#include <string>
#include <vector>

#include "reel/optim/optimizer.h"

#pragma GCC visibility push(default)
/// L-BFGS, which takes a closure.
namespace reel::optim {

/// Options of LBFGS.
struct LBFGSOptions {
  double lr = 1;                   ///< The learning rate.
  int64_t max_iter = 20;           ///< Of one step().
  int64_t max_eval = 0;            ///< Calls of the closure in one step(); 0 is 5/4 of max_iter.
  double tolerance_grad = 1e-7;    ///< Done when no element of the gradient is larger.
  double tolerance_change = 1e-9;  ///< Done when neither the loss nor any parameter changes by more.
  int64_t history_size = 100;      ///< Pairs of changes that are kept.
  bool strong_wolfe = false;       ///< Search each direction for a step that meets the strong Wolfe conditions.
  OptionFields fields();           ///< As OptimizerWith reads them.
};

/// Limited-memory BFGS (Nocedal & Wright 2006, Algorithm 7.4, and for the line search 3.5 and 3.6 with cubic
/// interpolation), with the same steps as PyTorch's. It has one group, and step() takes a closure, which it calls many
/// times:
///
///   lbfgs.step([&] { lbfgs.zero_grad(); Tensor loss = f(); loss.backward(); return loss; });
class LBFGS : public OptimizerWith<LBFGSOptions> {
 public:
  /// One group of parameters.
  explicit LBFGS(std::vector<Tensor> parameters, LBFGSOptions options = {})
      : OptimizerWith(std::move(parameters), options) {}

  /// Returns the loss of the first call of the closure.
  Tensor step(const std::function<Tensor()>& closure) override;
  void step() override;  ///< An Error.
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& dict) override;

 private:
  struct Pair {
    Tensor y, s;  // changes of the gradient and of the parameters
    double rho;   // 1 / yᵀs
  };
  struct Memory {
    std::vector<Pair> pairs;  // oldest first
    Tensor direction, gradient;
    double length = 0, scale = 1, loss = 0;
    int64_t iterations = 0;
  };
  /// What a closure found at a point of the line.
  struct Trial {
    double t, loss, slope;
    Tensor gradient;
  };

  void update(const LBFGSOptions&, Tensor&, const Tensor&, State&) override {}  // which its step() does not call

  Tensor flat_gradient() const;
  void follow(const Tensor& gradient);
  void move(double t, const Tensor& direction);
  Tensor next_direction(const Tensor& gradient);
  Trial search(const std::function<Trial(double)>& at, double t, const Trial& start, double reach, int64_t most_trials,
               double tolerance_change) const;

  Memory memory_;
};

}  // namespace reel::optim
#pragma GCC visibility pop
