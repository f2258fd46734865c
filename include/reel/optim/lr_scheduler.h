#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "reel/optim/optimizer.h"

#pragma GCC visibility push(default)
/// Learning-rate schedules, PyTorch's by name and meaning. A schedule sets the rates of its optimizer, which must
/// outlive it, for epoch 0 when it is made and for the next epoch with each step(), called after the optimizer's; an
/// "epoch" may as well be an iteration. All but the closed forms (LambdaLR, OneCycleLR, CyclicLR, warm restarts) scale
/// the current rate, so several can be combined on one optimizer (ChainedScheduler).
namespace reel::optim {

/// The base of the schedules.
class LRScheduler {
 public:
  LRScheduler(const LRScheduler&) = delete;
  LRScheduler& operator=(const LRScheduler&) = delete;
  virtual ~LRScheduler() = default;

  virtual void step();  ///< Advances to the next epoch and sets its rates.
  /// Restarts at epoch 0, from the rates that the optimizer had initially.
  virtual void restart();
  /// Starts at epoch 0 behind another schedule, as a part of SequentialLR does: from the initial rates, but
  /// MultiplicativeLR and SWALR, which have no others than relative ones, from those that it left.
  virtual void take_over() { restart(); }
  /// The epoch whose rates are set.
  int64_t last_epoch() const { return last_epoch_; }
  std::vector<double> last_lr() const;  ///< Of every group.
  /// Whether this schedule was made for `optimizer`.
  bool serves(const Optimizer& optimizer) const { return &optimizer == &optimizer_; }

  /// The epoch, the initial rates and the schedule's own numbers; the current rates are in the optimizer's state dict.
  virtual StateDict state_dict() const;
  /// The Error lists what does not fit; the schedule is unchanged then.
  virtual void load_state_dict(const StateDict& dict);

 protected:
  explicit LRScheduler(Optimizer& optimizer);  ///< Stores the current rates as the initial ones.
  /// The one that the schedule was made for.
  Optimizer& optimizer() const { return optimizer_; }
  /// The group's rate when the first schedule was made.
  double base(int group) const { return base_[group]; }
  /// Replaces it.
  void set_base(int group, double lr) { base_[group] = lr; }
  /// The rate that the group has.
  double current(int group) const { return optimizer_.lr(group); }
  /// The schedule's own numbers in state dicts.
  using Numbers = std::vector<std::pair<std::string, double*>>;
  /// None by default.
  virtual Numbers numbers() { return {}; }
  /// Of epoch last_epoch(): called once more by the constructors of schedules whose epoch 0 has a rate of its own.
  void set_rates();
  /// Throws for optimizers without momentum.
  void check_momentum() const;
  int64_t last_epoch_ = 0;  ///< last_epoch(), changed by step() and restart().

 private:
  /// The group's rate in epoch last_epoch(); current() is still that of the epoch before.
  virtual double rate(int group) = 0;

  Optimizer& optimizer_;
  std::vector<double> base_;
};

/// Options of StepLR.
struct StepLROptions {
  int64_t step_size;   ///< Epochs between two changes.
  double gamma = 0.1;  ///< The factor of each.
};
/// Times gamma every step_size epochs.
class StepLR : public LRScheduler {
 public:
  /// Sets the rates of epoch 0. Options out of range are an Error.
  StepLR(Optimizer& optimizer, StepLROptions options);
  /// The same: StepLR(sgd, 30, 0.1).
  StepLR(Optimizer& optimizer, int64_t step_size, double gamma = 0.1)
      : StepLR(optimizer, StepLROptions{.step_size = step_size, .gamma = gamma}) {}

 private:
  double rate(int group) override;
  StepLROptions options_;
};

/// Options of MultiStepLR.
struct MultiStepLROptions {
  std::vector<int64_t> milestones;  ///< The epochs of the changes, ascending.
  double gamma = 0.1;               ///< The factor of each change.
};
/// Times gamma at each milestone.
class MultiStepLR : public LRScheduler {
 public:
  /// Sets the rates of epoch 0. Options out of range are an Error.
  MultiStepLR(Optimizer& optimizer, MultiStepLROptions options);

 private:
  double rate(int group) override;
  MultiStepLROptions options_;
};

/// Times gamma every epoch.
class ExponentialLR : public LRScheduler {
 public:
  /// Sets the rates of epoch 0. Options out of range are an Error.
  ExponentialLR(Optimizer& optimizer, double gamma);

 private:
  double rate(int group) override;
  double gamma_;
};

/// Options of ConstantLR.
struct ConstantLROptions {
  double factor = 1. / 3;   ///< What the rate is multiplied with.
  int64_t total_iters = 5;  ///< Epochs that it takes.
};
/// Times factor for the first total_iters epochs.
class ConstantLR : public LRScheduler {
 public:
  /// Sets the rates of epoch 0. Options out of range are an Error.
  explicit ConstantLR(Optimizer& optimizer, ConstantLROptions options = {});

 private:
  double rate(int group) override;
  ConstantLROptions options_;
};

/// Options of LinearLR.
struct LinearLROptions {
  double start_factor = 1. / 3;  ///< The factor of epoch 0.
  double end_factor = 1;         ///< The factor at the end.
  int64_t total_iters = 5;       ///< Epochs that it takes.
};
/// Linear warm-up: the factor goes from start to end in total_iters epochs, and stays.
class LinearLR : public LRScheduler {
 public:
  /// Sets the rates of epoch 0. Options out of range are an Error.
  explicit LinearLR(Optimizer& optimizer, LinearLROptions options = {});

 private:
  double rate(int group) override;
  LinearLROptions options_;
};

/// Options of PolynomialLR.
struct PolynomialLROptions {
  int64_t total_iters = 5;  ///< Epochs that it takes.
  double power = 1;         ///< Of the polynomial.
};
/// Times (1 - epoch / total_iters)^power, down to 0.
class PolynomialLR : public LRScheduler {
 public:
  /// Sets the rates of epoch 0. Options out of range are an Error.
  explicit PolynomialLR(Optimizer& optimizer, PolynomialLROptions options = {});

 private:
  double rate(int group) override;
  PolynomialLROptions options_;
};

/// Options of CosineAnnealingLR.
struct CosineAnnealingLROptions {
  int64_t T_max;       ///< Epochs from the first rate to eta_min.
  double eta_min = 0;  ///< The smallest rate.
};
/// Half a cosine down in T_max epochs, then up again (Loshchilov & Hutter 2017, without restarts).
class CosineAnnealingLR : public LRScheduler {
 public:
  /// Sets the rates of epoch 0. Options out of range are an Error.
  CosineAnnealingLR(Optimizer& optimizer, CosineAnnealingLROptions options);

 private:
  double rate(int group) override;
  CosineAnnealingLROptions options_;
};

/// Options of CosineAnnealingWarmRestarts.
struct CosineAnnealingWarmRestartsOptions {
  int64_t T_0;         ///< Epochs of the first run.
  int64_t T_mult = 1;  ///< Each run is so many times as long as the one before.
  double eta_min = 0;  ///< The smallest rate.
};
/// SGDR (Loshchilov & Hutter 2017, eq. 5): half cosines, each from the first rate.
class CosineAnnealingWarmRestarts : public LRScheduler {
 public:
  /// Sets the rates of epoch 0. Options out of range are an Error.
  CosineAnnealingWarmRestarts(Optimizer& optimizer, CosineAnnealingWarmRestartsOptions options);

 private:
  double rate(int group) override;
  CosineAnnealingWarmRestartsOptions options_;
};

/// The form of the curve between two rates.
enum class Anneal { kCosine, kLinear };
///@{
/// Its values.
inline constexpr Anneal kCosine = Anneal::kCosine, kLinear = Anneal::kLinear;
///@}

/// Options of OneCycleLR.
struct OneCycleLROptions {
  double max_lr;        ///< The largest rate.
  int64_t total_steps;  ///< Of the cycle: epochs 0 … total_steps - 1. At most so many calls of step(), or an Error.
  double pct_start = 0.3;                    ///< The part of the steps in which the rate grows.
  Anneal anneal_strategy = Anneal::kCosine;  ///< The form of the way.
  bool cycle_momentum = true;     ///< The momentum goes down while the rate goes up. Needs an optimizer that has one.
  double base_momentum = 0.85;    ///< The smallest momentum.
  double max_momentum = 0.95;     ///< The largest momentum.
  double div_factor = 25;         ///< The first rate is max_lr / div_factor,
  double final_div_factor = 1e4;  ///< the last one that / final_div_factor.
  bool three_phase = false;       ///< Up, down as slowly, then to the last rate; otherwise up, then down.
};
/// Smith & Topin 2018 ("super-convergence"): up to max_lr and down to almost nothing in one cycle of all steps.
class OneCycleLR : public LRScheduler {
 public:
  /// Sets the rates of epoch 0. Options out of range are an Error.
  OneCycleLR(Optimizer& optimizer, OneCycleLROptions options);

 private:
  double rate(int group) override;
  OneCycleLROptions options_;
};

/// How the largest rate of a cycle changes.
enum class CycleMode { kTriangular, kTriangular2, kExpRange };
///@{
/// Its values.
inline constexpr CycleMode kTriangular = CycleMode::kTriangular, kTriangular2 = CycleMode::kTriangular2,
                           kExpRange = CycleMode::kExpRange;
///@}

/// Options of CyclicLR.
struct CyclicLROptions {
  double base_lr;                           ///< The smallest rate.
  double max_lr;                            ///< The largest rate.
  int64_t step_size_up = 2000;              ///< Epochs from the smallest to the largest.
  int64_t step_size_down = 0;               ///< 0: as step_size_up.
  CycleMode mode = CycleMode::kTriangular;  ///< How peaks change.
  double gamma = 1;                         ///< For kExpRange: the height of the peak is times gamma^epoch.
  bool cycle_momentum = true;               ///< The momentum goes the other way. Needs an optimizer that has one.
  double base_momentum = 0.8;               ///< The smallest momentum.
  double max_momentum = 0.9;                ///< The largest momentum.
};
/// Smith 2017: between base_lr and max_lr and back, for ever; in kTriangular2 each peak is half as high.
class CyclicLR : public LRScheduler {
 public:
  /// Sets the rates of epoch 0. Options out of range are an Error.
  CyclicLR(Optimizer& optimizer, CyclicLROptions options);

 private:
  double rate(int group) override;
  CyclicLROptions options_;
};

/// The first rate times factor(epoch).
class LambdaLR : public LRScheduler {
 public:
  /// Sets the rates of epoch 0. Options out of range are an Error.
  LambdaLR(Optimizer& optimizer, std::function<double(int64_t epoch)> factor);

 private:
  double rate(int group) override;
  std::function<double(int64_t)> factor_;
};

/// Times factor(epoch) every epoch but the first; behind another schedule (SequentialLR) times factor(0) at once.
class MultiplicativeLR : public LRScheduler {
 public:
  /// Sets the rates of epoch 0. Options out of range are an Error.
  MultiplicativeLR(Optimizer& optimizer, std::function<double(int64_t epoch)> factor);
  void take_over() override;

 private:
  double rate(int group) override;
  std::function<double(int64_t)> factor_;
};

/// Options of SWALR.
struct SWALROptions {
  double swa_lr;                             ///< The last rate.
  int64_t anneal_epochs = 10;                ///< Epochs until it is reached.
  Anneal anneal_strategy = Anneal::kCosine;  ///< The form of the way.
};
/// From the current rate to swa_lr, which then stays: for StochasticWeightAverage (Izmailov et al. 2018).
class SWALR : public LRScheduler {
 public:
  /// Sets the rates of epoch 0. Options out of range are an Error.
  SWALR(Optimizer& optimizer, SWALROptions options);
  void take_over() override;

 private:
  double rate(int group) override;
  SWALROptions options_;
};

/// All of the schedules at once: step() calls theirs, in order. They must outlive it.
class ChainedScheduler : public LRScheduler {
 public:
  ///@{
  /// Sets the rates of epoch 0. Options out of range are an Error.
  ChainedScheduler(Optimizer& optimizer, std::vector<LRScheduler*> schedulers);
  ChainedScheduler(Optimizer& optimizer, std::initializer_list<std::reference_wrapper<LRScheduler>> schedulers)
      : ChainedScheduler(optimizer, pointers(schedulers)) {}
  ///@}
  void step() override;
  void restart() override;
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& dict) override;

 protected:
  /// Those that references are given to.
  static std::vector<LRScheduler*> pointers(std::initializer_list<std::reference_wrapper<LRScheduler>> schedulers);
  std::vector<LRScheduler*> schedulers_;  ///< Not owned.

 private:
  double rate(int group) override { return current(group); }
};

/// One schedule after the other, each from its own epoch 0 (take_over): the i-th ends at milestones[i].
///
///   optim::LinearLR warmup(adam, {.total_iters = 5});
///   optim::CosineAnnealingLR decay(adam, {.T_max = 95});
///   optim::SequentialLR schedule(adam, {warmup, decay}, {5});
class SequentialLR : public ChainedScheduler {
 public:
  ///@{
  /// Sets the rates of epoch 0. Options out of range are an Error.
  SequentialLR(Optimizer& optimizer, std::vector<LRScheduler*> schedulers, std::vector<int64_t> milestones);
  SequentialLR(Optimizer& optimizer, std::initializer_list<std::reference_wrapper<LRScheduler>> schedulers,
               std::vector<int64_t> milestones)
      : SequentialLR(optimizer, pointers(schedulers), std::move(milestones)) {}
  ///@}
  void step() override;
  void restart() override;

 private:
  std::vector<int64_t> milestones_;
};

/// Whether the smaller or the larger of two values is better.
enum class PlateauMode { kMin, kMax };
///@{
/// Its values.
inline constexpr PlateauMode kMin = PlateauMode::kMin, kMax = PlateauMode::kMax;
///@}

/// Options of ReduceLROnPlateau.
struct ReduceLROnPlateauOptions {
  PlateauMode mode = PlateauMode::kMin;  ///< Whether smaller or larger metrics are better.
  double factor = 0.1;                   ///< What the rate is multiplied with.
  int64_t patience = 10;                 ///< Epochs without an improvement before the rate is reduced.
  double threshold = 1e-4;               ///< By how much a metric has to be better to count,
  bool threshold_rel = true;             ///< as a part of the best one, or in itself.
  int64_t cooldown = 0;                  ///< Epochs after a reduction that are not counted.
  double min_lr = 0;                     ///< The rate is not reduced below this.
  double eps = 1e-8;                     ///< Changes of the rate below this are not made.
};
/// Times factor when a metric has stopped improving. step() takes the metric.
class ReduceLROnPlateau : public LRScheduler {
 public:
  /// Sets the rates of epoch 0. Options out of range are an Error.
  explicit ReduceLROnPlateau(Optimizer& optimizer, ReduceLROnPlateauOptions options = {});
  /// After an epoch with this loss or score.
  void step(double metric);
  void step() override;  ///< An Error.
  void restart() override;

 private:
  double rate(int group) override { return current(group); }
  Numbers numbers() override;
  bool better(double metric) const;

  ReduceLROnPlateauOptions options_;
  double best_, bad_epochs_ = 0, cooldown_left_ = 0;
};

}  // namespace reel::optim
#pragma GCC visibility pop
