#include "reel/nn/container.h"

#include <algorithm>

#include "lib/nn/hooks.h"
#include "reel/nn/sequential.h"

namespace reel::nn {
namespace {

// "0: float32 [2, 3], 1: float32 [3]"
std::string listed(const std::vector<std::pair<std::string, Tensor>>& parameters) {
  std::string all;
  for (const auto& [name, tensor] : parameters)
    all += detail::concat(all.empty() ? "" : ", ", name, ": ", tensor.dtype(), " ", tensor.shape());
  return all;
}

}  // namespace

Parameter& ParameterList::append(const Tensor& parameter) {
  REEL_CHECK(parameter.defined(), "ParameterList: parameter ", list_.size(), " is undefined");
  return list_.emplace_back(*this, std::to_string(list_.size()), parameter);
}

size_t ParameterList::wrap(int64_t index) const {
  REEL_CHECK(index >= -size() && index < size(), "ParameterList: there is no parameter ", index, " among ", size());
  return static_cast<size_t>(index < 0 ? index + size() : index);
}

std::string ParameterList::extra_repr() const { return listed(named_parameters(false)); }

Parameter& ParameterDict::insert(const std::string& name, const Tensor& parameter) {
  REEL_CHECK(parameter.defined(), "ParameterDict: parameter '", name, "' is undefined");
  return list_.emplace_back(name, Parameter(*this, name, parameter)).second;
}

bool ParameterDict::contains(std::string_view name) const {
  return std::any_of(list_.begin(), list_.end(), [&](const auto& item) { return item.first == name; });
}

std::vector<std::string> ParameterDict::keys() const {
  std::vector<std::string> result;
  for (const auto& [name, parameter] : list_) result.push_back(name);
  return result;
}

std::vector<std::pair<std::string, Tensor>> ParameterDict::items() const { return {list_.begin(), list_.end()}; }

std::string ParameterDict::extra_repr() const { return listed(items()); }

// ---- Sequential -----------------------------------------------------------------------------------------------------

void Sequential::check_step(const std::string& name, const Module* layer) const {
  for (const Step& step : steps_) REEL_CHECK(step.name != name, "Sequential: the name '", name, "' is used already");
  if (layer) check_part(name, *layer);
}

void Sequential::append(std::string name, std::function<Tensor(const Tensor&)> run, std::unique_ptr<Module> layer) {
  check_step(name, layer.get());
  if (layer) register_module(name, *layer);
  steps_.push_back({std::move(name), std::move(run), std::move(layer)});
}

Tensor Sequential::forward(const Tensor& x) const {
  Tensor y = x;
  for (const Step& step : steps_) y = step.run(y);
  return y;
}

Sequential& Sequential::extend(Sequential&& other) {
  REEL_CHECK(this != &other, "Sequential: extended by itself");
  for (int64_t i = 0; i < other.size(); ++i) check_step(std::to_string(size() + i), nullptr);
  for (Step& step : other.steps_) {
    if (step.layer) other.unregister_module(*step.layer);
    append(std::to_string(size()), std::move(step.run), std::move(step.layer));
  }
  other.steps_.clear();
  return *this;
}

Module& Sequential::at(int64_t index) const {
  REEL_CHECK(index >= -size() && index < size(), "Sequential: there is no step ", index, " among ", size());
  const Step& step = steps_[static_cast<size_t>(index < 0 ? index + size() : index)];
  REEL_CHECK(step.layer, "Sequential: step ", index, " is a function, not a module");
  return *step.layer;
}

}  // namespace reel::nn
