#include "reel/amp/grad_scaler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "lib/device/device.h"
#include "lib/optim/gradients.h"
#include "reel/autograd.h"
#include "reel/ops/pointwise.h"

namespace reel::amp {
namespace {

void check(const GradScalerOptions& o) {
  REEL_CHECK(o.init_scale > 0 && std::isfinite(static_cast<float>(o.init_scale)),
             "GradScaler: init_scale = ", o.init_scale);
  REEL_CHECK(o.growth_factor > 1 && std::isfinite(o.growth_factor), "GradScaler: growth_factor = ", o.growth_factor,
             ", not more than 1");
  REEL_CHECK(o.backoff_factor > 0 && o.backoff_factor < 1, "GradScaler: backoff_factor = ", o.backoff_factor,
             ", not between 0 and 1");
  REEL_CHECK(o.growth_interval > 0, "GradScaler: growth_interval = ", o.growth_interval);
}

}  // namespace

GradScaler::GradScaler(GradScalerOptions options) : options_(options), scale_(static_cast<float>(options.init_scale)) {
  if (options_.enabled) check(options_);
}

void GradScaler::check_used(const char* method) const {
  REEL_CHECK(used_, "GradScaler::", method, ": scale() has not been called");
}

// ---- an iteration ---------------------------------------------------------------------------------------------------

Tensor GradScaler::scale(const Tensor& output) {
  REEL_CHECK(output.defined(), "GradScaler::scale: undefined tensor");
  if (!options_.enabled) return output;
  REEL_CHECK(!capturing(), "GradScaler::scale: a captured graph would keep the scale of its capture");
  used_ = true;
  const Tensor wide = output.dim() == 0 && is_half(output.dtype()) ? output.to(kFloat32) : output;
  return wide * Tensor(scale_);
}

std::vector<Tensor> GradScaler::scale(TensorList outputs) {
  std::vector<Tensor> scaled;
  for (const Tensor& output : outputs) scaled.push_back(scale(output));
  return scaled;
}

void GradScaler::unscale_(optim::Optimizer& optimizer) {
  if (!options_.enabled) return;
  check_used("unscale_");
  const Stage stage = optimizers_[&optimizer].stage;
  REEL_CHECK(stage != Stage::kUnscaled,
             "GradScaler::unscale_: has been called for this optimizer since the last update()");
  REEL_CHECK(stage != Stage::kStepped, "GradScaler::unscale_: called after step()");
  NoGrad guard;
  optim::Gradients gradients;
  for (int g = 0; g < optimizer.num_groups(); ++g)
    for (const Tensor& p : optimizer.parameters(g)) {
      REEL_CHECK(p.dtype() != kFloat16 || !(p.sparse_grad() || p.grad().defined()),
                 "GradScaler::unscale_: the parameter of shape ", p.shape(),
                 " has a gradient of float16; parameters are to be float32, autocast makes the half copies");
      gradients.add(p);
    }

  const double factor = static_cast<float>(1.0 / static_cast<double>(scale_));
  std::vector<Tensor> flags;
  const auto flag_for = [&](Device device) {
    for (const Tensor& flag : flags)
      if (flag.device() == device) return flag;
    return flags.emplace_back(zeros({}, {.dtype = kBool, .device = device}));
  };
  for (const optim::Gradients::Batch& batch : gradients.batches())
    kernels_on(batch.device)
        .multi_tensor_scale(factor, nullptr, batch.gradients, view_of(flag_for(batch.device)).as<bool>());
  gradients.changed();
  optimizers_[&optimizer] = {Stage::kUnscaled, std::move(flags), {}};
}

bool GradScaler::OfOptimizer::not_finite() {
  if (!result) result = std::any_of(found.begin(), found.end(), [](const Tensor& flag) { return flag.item<bool>(); });
  return *result;
}

bool GradScaler::step(optim::Optimizer& optimizer) {
  if (!options_.enabled) {
    optimizer.step();
    return true;
  }
  check_used("step");
  const Stage stage = optimizers_[&optimizer].stage;
  REEL_CHECK(stage != Stage::kStepped, "GradScaler::step: has been called for this optimizer since the last update()");
  if (stage == Stage::kReady) unscale_(optimizer);
  OfOptimizer& state = optimizers_[&optimizer];
  REEL_CHECK(!state.found.empty(), "GradScaler::step: none of the optimizer's parameters has a gradient");
  const bool taken = !state.not_finite();
  if (taken) optimizer.step();
  state.stage = Stage::kStepped;
  return taken;
}

void GradScaler::update(std::optional<double> new_scale) {
  if (!options_.enabled) return;
  check_used("update");
  if (new_scale) {
    REEL_CHECK(*new_scale > 0 && std::isfinite(static_cast<float>(*new_scale)), "GradScaler::update: a scale of ",
               *new_scale);
    scale_ = static_cast<float>(*new_scale);
  } else {
    bool any = false, not_finite = false;
    for (auto& [optimizer, state] : optimizers_)
      any = any || !state.found.empty(), not_finite = state.not_finite() || not_finite;
    REEL_CHECK(any, "GradScaler::update: no optimizer was stepped or unscaled since the last update()");
    if (not_finite) {
      scale_ = static_cast<float>(static_cast<double>(scale_) * options_.backoff_factor);
      growth_tracker_ = 0;
    } else if (++growth_tracker_ == options_.growth_interval) {
      const float larger = static_cast<float>(static_cast<double>(scale_) * options_.growth_factor);
      if (std::isfinite(larger)) scale_ = larger;
      growth_tracker_ = 0;
    }
  }
  optimizers_.clear();
}

// ---- options and states ---------------------------------------------------------------------------------------------

void GradScaler::set_growth_factor(double factor) {
  GradScalerOptions changed = options_;
  changed.growth_factor = factor;
  check(changed), options_ = changed;
}
void GradScaler::set_backoff_factor(double factor) {
  GradScalerOptions changed = options_;
  changed.backoff_factor = factor;
  check(changed), options_ = changed;
}
void GradScaler::set_growth_interval(int64_t interval) {
  GradScalerOptions changed = options_;
  changed.growth_interval = interval;
  check(changed), options_ = changed;
}

StateDict GradScaler::state_dict() const {
  if (!options_.enabled) return {};
  const auto number = [](double value) { return full({}, value, {.dtype = kFloat64, .device = kCPU}); };
  const auto count = [](int64_t value) { return full({}, value, {.dtype = kInt64, .device = kCPU}); };
  StateDict dict;
  dict.emplace_back("scale", number(scale_));
  dict.emplace_back("growth_factor", number(options_.growth_factor));
  dict.emplace_back("backoff_factor", number(options_.backoff_factor));
  dict.emplace_back("growth_interval", count(options_.growth_interval));
  dict.emplace_back("_growth_tracker", count(growth_tracker_));
  return dict;
}

void GradScaler::load_state_dict(const StateDict& dict) {
  if (!options_.enabled) return;
  constexpr const char* op = "GradScaler::load_state_dict";
  constexpr std::array names{"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"};
  REEL_CHECK(!dict.empty(), op, ": the dict is empty; it may be that of a scaler that was not enabled");
  std::string problems;
  std::array<double, names.size()> values{};
  for (size_t i = 0; i < names.size(); ++i) {
    const Tensor* found = find(dict, names[i]);
    if (!found || !found->defined())
      problems += std::string("\n  missing: ") + names[i];
    else if (found->numel() != 1)
      problems += std::string("\n  shape of ") + names[i] + ": " + found->shape().to_string();
    else
      values[i] = found->item<double>();
  }
  for (const auto& [name, tensor] : dict)
    if (std::find(names.begin(), names.end(), name) == names.end()) problems += "\n  unexpected: " + name;
  REEL_CHECK(problems.empty(), op, ": the dict does not fit", problems);
  const auto whole = [&](size_t i) {
    REEL_CHECK(values[i] >= 0 && values[i] <= 0x1p53 && std::floor(values[i]) == values[i], op, ": ", names[i], " = ",
               values[i]);
    return static_cast<int64_t>(values[i]);
  };
  GradScalerOptions loaded = options_;
  loaded.growth_factor = values[1], loaded.backoff_factor = values[2], loaded.growth_interval = whole(3);
  const int64_t tracker = whole(4);
  REEL_CHECK(values[0] > 0 && std::isfinite(static_cast<float>(values[0])), op, ": scale = ", values[0]);
  check(loaded);
  options_ = loaded;
  scale_ = static_cast<float>(values[0]);
  growth_tracker_ = tracker;
}

}  // namespace reel::amp
