#include "reel/testing.h"

#include <cmath>
#include <utility>

#include "reel/autograd.h"
#include "reel/ops.h"
#include "reel/random.h"

namespace reel::testing {
namespace {

/// Every call of the function under test draws the random numbers that the first one drew.
class SameNumbers {
 public:
  SameNumbers() : start_(generator_state()) {}
  ~SameNumbers() { again(); }
  SameNumbers(const SameNumbers&) = delete;
  SameNumbers& operator=(const SameNumbers&) = delete;
  void again() const { set_generator_state(start_); }

 private:
  GeneratorState start_;
};

bool checked(const Tensor& input) { return input.dtype() == kFloat64; }

/// A leaf of its own over the same elements, so that the caller's tensor keeps its gradient and history.
Tensor leaf_of(const Tensor& input) { return checked(input) ? input.detach().requires_grad_() : input; }

std::vector<Tensor> leaves_of(const std::vector<Tensor>& inputs) {
  std::vector<Tensor> leaves;
  for (const Tensor& input : inputs) leaves.push_back(leaf_of(input));
  return leaves;
}

Shape position(int64_t element, const Shape& shape) {
  Shape at = shape;
  for (int d = shape.size(); d-- > 0; element /= shape[d]) at[d] = element % shape[d];
  return at;
}

/// The gradients of Σ cotangent · y for the checked inputs, zeros where y does not depend on one.
std::vector<Tensor> gradients(const Tensor& y, const std::vector<Tensor>& leaves, const Tensor& cotangent,
                              bool create_graph) {
  std::vector<Tensor> targets, result;
  for (const Tensor& leaf : leaves)
    if (checked(leaf)) targets.push_back(leaf);
  if (y.requires_grad())
    result = grad({&y, 1}, targets, {&cotangent, 1}, {.create_graph = create_graph, .allow_unused = true});
  result.resize(targets.size());
  for (size_t i = 0; i < targets.size(); ++i)
    if (!result[i].defined()) result[i] = zeros(targets[i].shape(), {.dtype = kFloat64});
  return result;
}

void check_inputs(const char* name, const std::vector<Tensor>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    REEL_CHECK(inputs[i].defined(), name, ": input ", i, " is undefined");
    REEL_CHECK(checked(inputs[i]) || !inputs[i].is_floating_point(), name, ": input ", i, " is ", inputs[i].dtype(),
               ", too coarse for finite differences; make it float64");
  }
}

void check(const char* name, const DifferentiableFunction& f, const std::vector<Tensor>& inputs,
           const GradcheckOptions& options) {
  check_inputs(name, inputs);
  const SameNumbers numbers;
  const std::vector<Tensor> leaves = leaves_of(inputs);
  const Tensor y = f(leaves);
  REEL_CHECK(y.defined() && y.dtype() == kFloat64, name, ": the result is ",
             y.defined() ? name_of(y.dtype()) : "undefined", ", not float64");
  const Tensor cotangent = randn(y.shape(), {.dtype = kFloat64});
  const std::vector<Tensor> analytic = gradients(y, leaves, cotangent, false);
  const std::vector<double> weights = cotangent.to_vector<double>();
  const Shape shape = y.shape();

  size_t target = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!checked(inputs[i])) continue;
    const Tensor moved = inputs[i].detach().clone();
    const auto values_at = [&](double& element, double value) {
      const double before = std::exchange(element, value);
      std::vector<Tensor> arguments = leaves;
      arguments[i] = leaf_of(moved);
      numbers.again();
      const Tensor there = f(arguments);
      REEL_CHECK(there.shape() == shape, name, ": the result's shape changes with the values of input ", i, ", from ",
                 shape, " to ", there.shape());
      std::vector<double> values = there.to_vector<double>();
      element = before;
      return values;
    };
    const std::vector<double> slopes = analytic[target++].to_vector<double>();
    for (int64_t j = 0; j < moved.numel(); ++j) {
      double& element = moved.data<double>()[j];
      const double low = element - options.eps, high = element + options.eps;
      const std::vector<double> below = values_at(element, low), above = values_at(element, high);
      double numeric = 0;
      for (size_t k = 0; k < weights.size(); ++k) numeric += weights[k] * (above[k] - below[k]);
      numeric /= high - low;
      REEL_CHECK(std::abs(slopes[j] - numeric) <= options.atol + options.rtol * std::abs(numeric), name, ": input ", i,
                 " ", inputs[i].shape(), ", element ", position(j, inputs[i].shape()), ": analytic ", slopes[j],
                 ", numeric ", numeric);
    }
  }
}

}  // namespace

void gradcheck(const DifferentiableFunction& f, const std::vector<Tensor>& inputs, GradcheckOptions options) {
  check("gradcheck", f, inputs, options);
}

void gradgradcheck(const DifferentiableFunction& f, const std::vector<Tensor>& inputs, GradcheckOptions options) {
  check_inputs("gradgradcheck", inputs);
  const SameNumbers numbers;
  std::vector<Tensor> with_cotangent = inputs;
  with_cotangent.push_back(randn(f(leaves_of(inputs)).shape(), {.dtype = kFloat64}));
  numbers.again();
  const auto gradient = [&f](const std::vector<Tensor>& arguments) {
    const std::vector<Tensor> leaves(arguments.begin(), arguments.end() - 1);
    std::vector<Tensor> flat = gradients(f(leaves), leaves, arguments.back(), true);
    for (Tensor& g : flat) g = g.reshape({-1});
    return flat.empty() ? zeros({0}, {.dtype = kFloat64}) : cat(flat);
  };
  check("gradgradcheck", gradient, with_cotangent, options);
}

}  // namespace reel::testing
