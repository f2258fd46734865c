#pragma once
#include <vector>

#include "reel/state_dict.h"
#include "reel/tensor.h"

#pragma GCC visibility push(default)
/// Averages of weights over training, which often predict better than the last ones:
///
///   optim::ExponentialMovingAverage ema(net.parameters(), 0.999);
///   … sgd.step(), ema.update();
///   { auto averaged = ema.apply(); evaluate(net); }  // the net has the averages here, its own weights afterwards
namespace reel::optim {

/// The base of the averages: one tensor per parameter, of its shape and dtype, which follows a parameter that changes
/// its dtype or device (Module::to).
class WeightAverage {
 public:
  WeightAverage(const WeightAverage&) = delete;
  WeightAverage& operator=(const WeightAverage&) = delete;
  virtual ~WeightAverage() = default;

  /// Adds the current parameters to the averages. The first call copies them.
  void update();
  /// Calls of update().
  int64_t num_updates() const { return updates_; }
  /// In the order of the parameters; their values as they were at construction before the first update.
  const std::vector<Tensor>& averages() const { return averages_; }
  /// Copies the averages into the parameters.
  void copy_to_parameters() const;

  /// Exchanges parameters and averages until it is destroyed.
  class Applied {
   public:
    /// Exchanges them.
    explicit Applied(WeightAverage& average) : average_(average) { average_.swap(); }
    ~Applied() { average_.swap(); }
    Applied(const Applied&) = delete;
    Applied& operator=(const Applied&) = delete;

   private:
    WeightAverage& average_;
  };
  /// For a scope: const auto applied = average.apply();
  [[nodiscard]] Applied apply() { return Applied(*this); }

  StateDict state_dict() const;                 ///< "num_updates", "average.0", …, sharing storage.
  void load_state_dict(const StateDict& dict);  ///< Of the same parameters, or an Error.

 protected:
  explicit WeightAverage(std::vector<Tensor> parameters);  ///< Floating-point tensors.

 private:
  /// The weight of the parameter in update number n (from 0).
  virtual double weight(int64_t n) const = 0;
  void follow();
  void swap();

  std::vector<Tensor> parameters_, averages_;
  int64_t updates_ = 0;
};

/// a ← decay a + (1 - decay) p.
class ExponentialMovingAverage : public WeightAverage {
 public:
  /// decay is from 0 to 1.
  explicit ExponentialMovingAverage(std::vector<Tensor> parameters, double decay = 0.999);

 private:
  double weight(int64_t) const override { return 1 - decay_; }
  double decay_;
};

/// Stochastic weight averaging (Izmailov et al. 2018): the mean of all updates, each at the end of an epoch. Batch-norm
/// statistics belong to the weights they were taken with: run the training data through the net once in training mode
/// after copy_to_parameters().
class StochasticWeightAverage : public WeightAverage {
 public:
  /// Of these parameters.
  explicit StochasticWeightAverage(std::vector<Tensor> parameters) : WeightAverage(std::move(parameters)) {}

 private:
  double weight(int64_t n) const override { return 1 / static_cast<double>(n + 1); }
};

}  // namespace reel::optim
#pragma GCC visibility pop
