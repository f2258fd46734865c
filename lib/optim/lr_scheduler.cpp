#include "reel/optim/lr_scheduler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "reel/autograd.h"

namespace reel::optim {
namespace {

double pi_times(double x) { return std::numbers::pi * x; }

/// From start (at 0) to end (at 1). Behind it a cosine goes on as PyTorch's, a line would run into negative rates.
double anneal(Anneal strategy, double start, double end, double part) {
  if (strategy == Anneal::kLinear) return start + (end - start) * std::min(part, 1.);
  return end + (start - end) / 2 * (1 + std::cos(pi_times(part)));
}

}  // namespace

// ---- what all share -------------------------------------------------------------------------------------------------

LRScheduler::LRScheduler(Optimizer& optimizer) : optimizer_(optimizer) {
  for (int g = 0; g < optimizer.num_groups(); ++g) base_.push_back(optimizer.initial_lr(g));
}

void LRScheduler::set_rates() {
  for (int g = 0; g < static_cast<int>(base_.size()); ++g) optimizer_.set_lr(g, rate(g));
}

void LRScheduler::step() {
  ++last_epoch_;
  try {
    set_rates();
  } catch (...) {
    --last_epoch_;
    throw;
  }
}

void LRScheduler::check_momentum() const {
  for (int g = 0; g < optimizer_.num_groups(); ++g) static_cast<void>(optimizer_.momentum(g));
}

void LRScheduler::restart() {
  last_epoch_ = 0;
  for (int g = 0; g < static_cast<int>(base_.size()); ++g) optimizer_.set_lr(g, base_[g]);
  set_rates();
}

std::vector<double> LRScheduler::last_lr() const {
  std::vector<double> rates;
  for (int g = 0; g < optimizer_.num_groups(); ++g) rates.push_back(optimizer_.lr(g));
  return rates;
}

StateDict LRScheduler::state_dict() const {
  StateDict dict{{"last_epoch", full({}, last_epoch_, {.dtype = kInt64, .device = kCPU})},
                 {"base_lrs", tensor(base_, {.device = kCPU})}};
  for (const auto& [name, number] : const_cast<LRScheduler*>(this)->numbers())
    dict.emplace_back(name, full({}, *number, {.dtype = kFloat64, .device = kCPU}));
  return dict;
}

void LRScheduler::load_state_dict(const StateDict& dict) {
  std::string problems;
  const auto take = [&](const std::string& name, const Shape& shape) {
    const Tensor* found = find(dict, name);
    if (found && found->shape() == shape) return *found;
    problems +=
        found ? "\n  shape of " + name + ": expected " + shape.to_string() + ", given is " + found->shape().to_string()
              : "\n  missing: " + name;
    return Tensor();
  };
  const Tensor epoch = take("last_epoch", {}), base = take("base_lrs", {static_cast<int64_t>(base_.size())});
  std::vector<Tensor> values;
  const Numbers own = numbers();
  for (const auto& [name, number] : own) values.push_back(take(name, {}));
  REEL_CHECK(problems.empty(), "LRScheduler::load_state_dict: the dict does not fit", problems);
  last_epoch_ = epoch.item<int64_t>();
  base_ = base.to_vector<double>();
  for (size_t i = 0; i < own.size(); ++i) *own[i].second = values[i].item<double>();
}

// ---- changes of the rate as it is found -----------------------------------------------------------------------------

StepLR::StepLR(Optimizer& optimizer, StepLROptions options) : LRScheduler(optimizer), options_(options) {
  REEL_CHECK(options.step_size > 0, "StepLR: step_size = ", options.step_size);
}
double StepLR::rate(int group) {
  return last_epoch_ > 0 && last_epoch_ % options_.step_size == 0 ? current(group) * options_.gamma : current(group);
}

MultiStepLR::MultiStepLR(Optimizer& optimizer, MultiStepLROptions options)
    : LRScheduler(optimizer), options_(std::move(options)) {}
double MultiStepLR::rate(int group) {
  const auto times = std::count(options_.milestones.begin(), options_.milestones.end(), last_epoch_);
  return current(group) * std::pow(options_.gamma, static_cast<double>(times));
}

ExponentialLR::ExponentialLR(Optimizer& optimizer, double gamma) : LRScheduler(optimizer), gamma_(gamma) {}
double ExponentialLR::rate(int group) { return last_epoch_ > 0 ? current(group) * gamma_ : current(group); }

ConstantLR::ConstantLR(Optimizer& optimizer, ConstantLROptions options) : LRScheduler(optimizer), options_(options) {
  REEL_CHECK(options.factor > 0, "ConstantLR: factor = ", options.factor);
  set_rates();
}
double ConstantLR::rate(int group) {
  const double factor = last_epoch_ == 0                      ? options_.factor
                        : last_epoch_ == options_.total_iters ? 1 / options_.factor
                                                              : 1;
  return current(group) * factor;
}

LinearLR::LinearLR(Optimizer& optimizer, LinearLROptions options) : LRScheduler(optimizer), options_(options) {
  REEL_CHECK(options.start_factor > 0 && options.start_factor <= 1, "LinearLR: start_factor = ", options.start_factor,
             " is not in (0, 1]");
  REEL_CHECK(options.end_factor >= 0 && options.end_factor <= 1, "LinearLR: end_factor = ", options.end_factor,
             " is not in [0, 1]");
  REEL_CHECK(options.total_iters > 0, "LinearLR: total_iters = ", options.total_iters, ", expected at least 1");
  set_rates();
}
double LinearLR::rate(int group) {
  if (last_epoch_ > options_.total_iters) return current(group);  // a rate of 0 cannot be scaled
  const auto factor = [&](int64_t epoch) {
    const double part = static_cast<double>(std::min(epoch, options_.total_iters)) / options_.total_iters;
    return options_.start_factor + (options_.end_factor - options_.start_factor) * part;
  };
  return current(group) * (last_epoch_ == 0 ? factor(0) : factor(last_epoch_) / factor(last_epoch_ - 1));
}

PolynomialLR::PolynomialLR(Optimizer& optimizer, PolynomialLROptions options)
    : LRScheduler(optimizer), options_(options) {
  REEL_CHECK(options.total_iters > 0, "PolynomialLR: total_iters = ", options.total_iters, ", expected at least 1");
}
double PolynomialLR::rate(int group) {
  const double n = static_cast<double>(options_.total_iters), e = static_cast<double>(last_epoch_);
  if (e == 0 || e > n) return current(group);
  return current(group) * std::pow((n - e) / (n - e + 1), options_.power);
}

CosineAnnealingLR::CosineAnnealingLR(Optimizer& optimizer, CosineAnnealingLROptions options)
    : LRScheduler(optimizer), options_(options) {
  REEL_CHECK(options.T_max > 0, "CosineAnnealingLR: T_max = ", options.T_max);
}
double CosineAnnealingLR::rate(int group) {
  if (last_epoch_ == 0) return current(group);
  const double t = static_cast<double>(options_.T_max), e = static_cast<double>(last_epoch_);
  if ((last_epoch_ - 1 - options_.T_max) % (2 * options_.T_max) == 0)  // at the bottom there is nothing to multiply
    return current(group) + (base(group) - options_.eta_min) * (1 - std::cos(pi_times(1 / t))) / 2;
  return (1 + std::cos(pi_times(e / t))) / (1 + std::cos(pi_times((e - 1) / t))) * (current(group) - options_.eta_min) +
         options_.eta_min;
}

MultiplicativeLR::MultiplicativeLR(Optimizer& optimizer, std::function<double(int64_t)> factor)
    : LRScheduler(optimizer), factor_(std::move(factor)) {}
double MultiplicativeLR::rate(int group) {
  return last_epoch_ > 0 ? current(group) * factor_(last_epoch_) : current(group);
}

void MultiplicativeLR::take_over() {
  std::vector<double> rates;
  for (int g = 0; g < optimizer().num_groups(); ++g) rates.push_back(current(g) * factor_(0));
  last_epoch_ = 0;
  for (int g = 0; g < optimizer().num_groups(); ++g) optimizer().set_lr(g, rates[g]);
}

SWALR::SWALR(Optimizer& optimizer, SWALROptions options) : LRScheduler(optimizer), options_(options) {
  REEL_CHECK(options.anneal_epochs >= 0, "SWALR: anneal_epochs = ", options.anneal_epochs);
}
void SWALR::take_over() { last_epoch_ = 0; }
double SWALR::rate(int group) {
  if (last_epoch_ == 0) return current(group);
  const auto part = [&](int64_t epoch) {
    const double done = static_cast<double>(epoch) / std::max<double>(1, static_cast<double>(options_.anneal_epochs));
    return anneal(options_.anneal_strategy, 0, 1, std::clamp(done, 0., 1.));
  };
  const double before = part(last_epoch_ - 1), now = part(last_epoch_);
  if (before == 1) return options_.swa_lr;
  const double start = (current(group) - before * options_.swa_lr) / (1 - before);
  return options_.swa_lr * now + start * (1 - now);
}

// ---- closed forms ---------------------------------------------------------------------------------------------------

CosineAnnealingWarmRestarts::CosineAnnealingWarmRestarts(Optimizer& optimizer,
                                                         CosineAnnealingWarmRestartsOptions options)
    : LRScheduler(optimizer), options_(options) {
  REEL_CHECK(options.T_0 > 0 && options.T_mult >= 1, "CosineAnnealingWarmRestarts: T_0 = ", options.T_0,
             ", T_mult = ", options.T_mult);
}
double CosineAnnealingWarmRestarts::rate(int group) {
  int64_t at = last_epoch_, length = options_.T_0;
  while (at >= length) {
    if (options_.T_mult == 1) {
      at %= length;
    } else {
      at -= length;
      length *= options_.T_mult;
    }
  }
  return anneal(Anneal::kCosine, base(group), options_.eta_min, static_cast<double>(at) / static_cast<double>(length));
}

OneCycleLR::OneCycleLR(Optimizer& optimizer, OneCycleLROptions options) : LRScheduler(optimizer), options_(options) {
  REEL_CHECK(options.total_steps > 0, "OneCycleLR: total_steps = ", options.total_steps);
  REEL_CHECK(options.pct_start >= 0 && options.pct_start <= 1, "OneCycleLR: pct_start = ", options.pct_start,
             " is not in [0, 1]");
  REEL_CHECK(options.div_factor > 0 && options.final_div_factor > 0, "OneCycleLR: div_factor = ", options.div_factor,
             ", final_div_factor = ", options.final_div_factor);
  if (options.cycle_momentum) check_momentum();
  for (int g = 0; g < optimizer.num_groups(); ++g) set_base(g, options.max_lr / options.div_factor);
  restart();
}
double OneCycleLR::rate(int group) {
  const OneCycleLROptions& o = options_;
  REEL_CHECK(last_epoch_ <= o.total_steps, "OneCycleLR: step ", last_epoch_, " of ", o.total_steps);
  struct Phase {
    double end, from, to, momentum_from, momentum_to;
  };
  const double total = static_cast<double>(o.total_steps), first = base(group), last = first / o.final_div_factor;
  const double peak = o.pct_start * total - 1;
  std::vector<Phase> phases{{peak, first, o.max_lr, o.max_momentum, o.base_momentum}};
  if (o.three_phase) {
    phases.push_back({2 * peak, o.max_lr, first, o.base_momentum, o.max_momentum});
    phases.push_back({total - 1, first, last, o.max_momentum, o.max_momentum});
  } else {
    phases.push_back({total - 1, o.max_lr, last, o.base_momentum, o.max_momentum});
  }
  const double at = static_cast<double>(last_epoch_);
  double begin = 0;
  size_t i = 0;
  while (i + 1 < phases.size() && at > phases[i].end) begin = phases[i++].end;
  const double length = phases[i].end - begin, part = length > 0 ? (at - begin) / length : 1;
  if (o.cycle_momentum)
    optimizer().set_momentum(group, anneal(o.anneal_strategy, phases[i].momentum_from, phases[i].momentum_to, part));
  return anneal(o.anneal_strategy, phases[i].from, phases[i].to, part);
}

CyclicLR::CyclicLR(Optimizer& optimizer, CyclicLROptions options) : LRScheduler(optimizer), options_(options) {
  REEL_CHECK(options.step_size_up > 0 && options.step_size_down >= 0, "CyclicLR: step sizes ", options.step_size_up,
             " and ", options.step_size_down);
  if (!options.step_size_down) options_.step_size_down = options.step_size_up;
  if (options.cycle_momentum) check_momentum();
  for (int g = 0; g < optimizer.num_groups(); ++g) set_base(g, options.base_lr);
  restart();
}
double CyclicLR::rate(int group) {
  const CyclicLROptions& o = options_;
  const double up = static_cast<double>(o.step_size_up), length = up + static_cast<double>(o.step_size_down);
  const double cycle = std::floor(static_cast<double>(last_epoch_) / length);
  const double at = static_cast<double>(last_epoch_) - cycle * length;
  const double height = at <= up ? at / up : (length - at) / (length - up);
  const double scale = o.mode == CycleMode::kTriangular2 ? std::pow(2, -cycle)
                       : o.mode == CycleMode::kExpRange  ? std::pow(o.gamma, static_cast<double>(last_epoch_))
                                                         : 1;
  if (o.cycle_momentum)
    optimizer().set_momentum(group, o.max_momentum - (o.max_momentum - o.base_momentum) * height * scale);
  return o.base_lr + (o.max_lr - o.base_lr) * height * scale;
}

LambdaLR::LambdaLR(Optimizer& optimizer, std::function<double(int64_t)> factor)
    : LRScheduler(optimizer), factor_(std::move(factor)) {
  set_rates();
}
double LambdaLR::rate(int group) { return base(group) * factor_(last_epoch_); }

// ---- schedules of schedules -----------------------------------------------------------------------------------------

std::vector<LRScheduler*> ChainedScheduler::pointers(
    std::initializer_list<std::reference_wrapper<LRScheduler>> schedulers) {
  std::vector<LRScheduler*> all;
  for (LRScheduler& schedule : schedulers) all.push_back(&schedule);
  return all;
}
ChainedScheduler::ChainedScheduler(Optimizer& optimizer, std::vector<LRScheduler*> schedulers)
    : LRScheduler(optimizer), schedulers_(std::move(schedulers)) {
  REEL_CHECK(!schedulers_.empty(), "ChainedScheduler: no schedulers");
  for (size_t i = 0; i < schedulers_.size(); ++i) {
    REEL_CHECK(schedulers_[i], "ChainedScheduler: scheduler ", i, " is null");
    REEL_CHECK(schedulers_[i]->serves(optimizer), "ChainedScheduler: scheduler ", i, " is another optimizer's");
  }
}
void ChainedScheduler::step() {
  ++last_epoch_;
  for (LRScheduler* scheduler : schedulers_) scheduler->step();
}
void ChainedScheduler::restart() {
  last_epoch_ = 0;
  for (LRScheduler* scheduler : schedulers_) scheduler->restart();
}

StateDict ChainedScheduler::state_dict() const {
  StateDict dict = LRScheduler::state_dict();
  for (size_t i = 0; i < schedulers_.size(); ++i)
    for (const auto& [name, tensor] : schedulers_[i]->state_dict())
      dict.emplace_back(std::to_string(i) + "." + name, tensor);
  return dict;
}
void ChainedScheduler::load_state_dict(const StateDict& dict) {
  const auto load = [&](const StateDict& whole) {
    LRScheduler::load_state_dict(whole);
    for (size_t i = 0; i < schedulers_.size(); ++i) {
      const std::string prefix = std::to_string(i) + ".";
      StateDict part;
      for (const auto& [name, tensor] : whole)
        if (name.starts_with(prefix)) part.emplace_back(name.substr(prefix.size()), tensor);
      schedulers_[i]->load_state_dict(part);
    }
  };
  const StateDict before = state_dict();
  try {
    load(dict);
  } catch (...) {  // A later part has failed: the earlier ones get their states back.
    load(before);
    throw;
  }
}

SequentialLR::SequentialLR(Optimizer& optimizer, std::vector<LRScheduler*> schedulers, std::vector<int64_t> milestones)
    : ChainedScheduler(optimizer, std::move(schedulers)), milestones_(std::move(milestones)) {
  REEL_CHECK(milestones_.size() + 1 == schedulers_.size(), "SequentialLR: ", milestones_.size(), " milestones for ",
             schedulers_.size(), " schedulers");
  REEL_CHECK(std::is_sorted(milestones_.begin(), milestones_.end()), "SequentialLR: the milestones are not in order");
  restart();
}
void SequentialLR::restart() {
  last_epoch_ = 0;
  schedulers_[0]->restart();
}
void SequentialLR::step() {
  ++last_epoch_;
  const auto after = std::upper_bound(milestones_.begin(), milestones_.end(), last_epoch_);
  LRScheduler& now = *schedulers_[after - milestones_.begin()];
  after != milestones_.begin() && after[-1] == last_epoch_ ? now.take_over() : now.step();
}

// ---- by a metric ----------------------------------------------------------------------------------------------------

ReduceLROnPlateau::ReduceLROnPlateau(Optimizer& optimizer, ReduceLROnPlateauOptions options)
    : LRScheduler(optimizer), options_(options) {
  REEL_CHECK(options.factor > 0 && options.factor < 1, "ReduceLROnPlateau: factor = ", options.factor,
             " is not in (0, 1)");
  restart();
}
void ReduceLROnPlateau::restart() {
  last_epoch_ = 0;
  best_ = std::numeric_limits<double>::infinity() * (options_.mode == PlateauMode::kMin ? 1 : -1);
  bad_epochs_ = cooldown_left_ = 0;
}
LRScheduler::Numbers ReduceLROnPlateau::numbers() {
  return {{"best", &best_}, {"num_bad_epochs", &bad_epochs_}, {"cooldown_counter", &cooldown_left_}};
}
bool ReduceLROnPlateau::better(double metric) const {
  const bool smaller = options_.mode == PlateauMode::kMin;
  if (options_.threshold_rel)
    return smaller ? metric < best_ * (1 - options_.threshold) : metric > best_ * (1 + options_.threshold);
  return smaller ? metric < best_ - options_.threshold : metric > best_ + options_.threshold;
}
void ReduceLROnPlateau::step() { detail::fail("ReduceLROnPlateau: step() needs the metric"); }
void ReduceLROnPlateau::step(double metric) {
  ++last_epoch_;
  if (better(metric))
    best_ = metric, bad_epochs_ = 0;
  else
    ++bad_epochs_;
  if (cooldown_left_ > 0) --cooldown_left_, bad_epochs_ = 0;
  if (bad_epochs_ <= static_cast<double>(options_.patience)) return;
  for (int g = 0; g < optimizer().num_groups(); ++g) {
    const double now = current(g), reduced = std::max(now * options_.factor, options_.min_lr);
    if (now - reduced > options_.eps) optimizer().set_lr(g, reduced);
  }
  cooldown_left_ = static_cast<double>(options_.cooldown);
  bad_epochs_ = 0;
}

}  // namespace reel::optim
