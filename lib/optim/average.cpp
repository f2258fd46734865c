#include "reel/optim/average.h"

#include <array>
#include <string>

#include "lib/device/device.h"
#include "lib/optim/optimizer.h"
#include "reel/autograd.h"
#include "reel/ops.h"

namespace reel::optim {

WeightAverage::WeightAverage(std::vector<Tensor> parameters) : parameters_(std::move(parameters)) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& p = parameters_[i];
    REEL_CHECK(p.defined() && p.is_floating_point(), "WeightAverage: parameter ", i, " is ",
               p.defined() ? name_of(p.dtype()) : "undefined");
    averages_.push_back(p.detach().clone());
  }
}

void WeightAverage::follow() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (fits(averages_[i], parameters_[i].dtype(), parameters_[i])) continue;
    REEL_CHECK(!capturing(), "WeightAverage: parameter ", i, " of shape ", parameters_[i].shape(),
               " has changed its dtype or device; what converts its average cannot be captured, update once before");
    averages_[i] = fitted(averages_[i], parameters_[i].dtype(), parameters_[i]);
  }
}

void WeightAverage::update() {
  NoGrad guard;
  follow();
  if (capturing()) {  // each replay has a weight of its own
    REEL_CHECK(updates_ > 0, "WeightAverage::update: the first one, which copies, cannot be captured, make it before");
    current_capture->before_replay([this] { update(); });
    undo_if_capture_fails([this, before = updates_] { updates_ = before; });
  }
  const double by = updates_ ? weight(updates_) : 1;
  const std::array<Tensor, functors::kMaxStates> no_states;
  UpdateBatch batch;
  batch.next({0, updates_});
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (by == 1)
      averages_[i].copy_(parameters_[i]);
    else
      take_step(functors::AverageUpdate{by}, averages_[i], parameters_[i], no_states);
  }
  batch.flush();
  ++updates_;
}

void WeightAverage::copy_to_parameters() const {
  NoGrad guard;
  for (size_t i = 0; i < parameters_.size(); ++i) Tensor(parameters_[i]).copy_(averages_[i]);
}

void WeightAverage::swap() {
  NoGrad guard;
  follow();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor own = parameters_[i].clone();
    parameters_[i].copy_(averages_[i]);
    averages_[i].copy_(own);
  }
}

StateDict WeightAverage::state_dict() const {
  StateDict dict{{"num_updates", full({}, updates_, {.dtype = kInt64, .device = kCPU})}};
  for (size_t i = 0; i < averages_.size(); ++i) dict.emplace_back("average." + std::to_string(i), averages_[i]);
  return dict;
}

void WeightAverage::load_state_dict(const StateDict& dict) {
  NoGrad guard;
  const Tensor* updates = find(dict, "num_updates");
  REEL_CHECK(updates && updates->numel() == 1, "WeightAverage::load_state_dict: no num_updates");
  REEL_CHECK(dict.size() == averages_.size() + 1, "WeightAverage::load_state_dict: ", dict.size() - 1, " averages for ",
             averages_.size(), " parameters");
  std::vector<const Tensor*> given;
  for (size_t i = 0; i < averages_.size(); ++i) {
    const std::string name = "average." + std::to_string(i);
    given.push_back(find(dict, name));
    REEL_CHECK(given[i], "WeightAverage::load_state_dict: missing: ", name);
    REEL_CHECK(given[i]->shape() == averages_[i].shape(), "WeightAverage::load_state_dict: shape of ", name,
               ": expected ", averages_[i].shape(), ", given is ", given[i]->shape());
  }
  follow();
  for (size_t i = 0; i < averages_.size(); ++i) averages_[i].copy_(*given[i]);
  updates_ = updates->item<int64_t>();
}

ExponentialMovingAverage::ExponentialMovingAverage(std::vector<Tensor> parameters, double decay)
    : WeightAverage(std::move(parameters)), decay_(decay) {
  REEL_CHECK(decay >= 0 && decay <= 1, "ExponentialMovingAverage: decay = ", decay, " is not in [0, 1]");
}

}  // namespace reel::optim
