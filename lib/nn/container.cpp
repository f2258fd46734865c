#include "reel/nn/container.h"

#include <sstream>

#include "reel/nn/sequential.h"

namespace reel::nn {
namespace {

// "0: float32 [2, 3], 1: float32 [3]"
std::string listed(const std::vector<std::pair<std::string, Tensor>>& parameters) {
  std::ostringstream out;
  for (const auto& [name, tensor] : parameters)
    out << (out.tellp() ? ", " : "") << name << ": " << tensor.dtype() << " " << tensor.shape();
  return std::move(out).str();
}

}  // namespace

Tensor ParameterList::append(Tensor parameter) {
  REEL_CHECK(parameter.defined(), "ParameterList: parameter ", list_.size(), " is undefined");
  list_.push_back(register_parameter(std::to_string(list_.size()), std::move(parameter)));
  return list_.back();
}

const Tensor& ParameterList::operator[](int64_t index) const {
  REEL_CHECK(index >= -size() && index < size(), "ParameterList: there is no parameter ", index, " among ", size());
  return list_[static_cast<size_t>(index < 0 ? index + size() : index)];
}

std::string ParameterList::extra_repr() const { return listed(named_parameters(false)); }

bool ParameterDict::contains(std::string_view name) const {
  for (const auto& [key, tensor] : items())
    if (key == name) return true;
  return false;
}

Tensor ParameterDict::operator[](std::string_view name) const {
  for (const auto& [key, tensor] : items())
    if (key == name) return tensor;
  detail::fail("ParameterDict: there is no parameter '", name, "'");
}

std::vector<std::string> ParameterDict::keys() const {
  std::vector<std::string> result;
  for (const auto& [key, tensor] : items()) result.push_back(key);
  return result;
}

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
