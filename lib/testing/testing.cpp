#include "reel/testing.h"

#include <cmath>
#include <exception>
#include <limits>
#include <numeric>
#include <span>
#include <sstream>
#include <utility>

#include "lib/autograd/tape.h"
#include "lib/tensor/watch.h"
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

std::vector<Tensor> leaves_of(TensorList inputs) {
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
    if (!result[i].defined()) result[i] = zeros_like(targets[i].detach());
  return result;
}

void check_inputs(const char* name, TensorList inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    REEL_CHECK(inputs[i].defined(), name, ": input ", i, " is undefined");
    REEL_CHECK(checked(inputs[i]) || !inputs[i].is_floating_point(), name, ": input ", i, " is ", inputs[i].dtype(),
               ", too coarse for finite differences; make it float64");
  }
}

void check(const char* name, const DifferentiableFunction& f, TensorList inputs, const GradcheckOptions& options) {
  check_inputs(name, inputs);
  const SameNumbers numbers;
  const std::vector<Tensor> leaves = leaves_of(inputs);
  const Tensor y = f(leaves);
  REEL_CHECK(y.defined() && y.dtype() == kFloat64, name, ": the result is ",
             y.defined() ? name_of(y.dtype()) : "undefined", ", not float64");
  const Tensor cotangent = randn_like(y.detach());
  const std::vector<Tensor> analytic = gradients(y, leaves, cotangent, false);
  const std::vector<double> weights = cotangent.to_vector<double>();
  const Shape& shape = y.shape();

  struct {
    double ratio = 0;
    size_t input = 0;
    int64_t element = 0;
    double analytic = 0, numeric = 0;
  } worst;
  int64_t wrong = 0, compared = 0;
  size_t target = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!checked(inputs[i])) continue;
    const Tensor moved = inputs[i].detach().to(kCPU).clone();
    const std::span<double> values{moved.data<double>(), static_cast<size_t>(moved.numel())};
    const auto result = [&] {
      std::vector<Tensor> arguments = leaves;
      arguments[i] = leaf_of(moved.to(inputs[i].device()));
      numbers.again();
      const Tensor there = f(arguments);
      REEL_CHECK(there.shape() == shape, name, ": the result's shape changes with the values of input ", i, ", from ",
                 shape, " to ", there.shape());
      return there.to_vector<double>();
    };
    const auto compare = [&](int64_t element, double slope, const std::vector<double>& below,
                             const std::vector<double>& above, double distance) {
      double numeric = 0;
      for (size_t k = 0; k < weights.size(); ++k) numeric += weights[k] * (above[k] - below[k]);
      numeric /= distance;
      const double error = std::abs(slope - numeric), allowed = options.atol + options.rtol * std::abs(numeric);
      ++compared;
      if (error <= allowed) return;
      ++wrong;
      if (worst.ratio < error / allowed || std::isnan(error)) worst = {error / allowed, i, element, slope, numeric};
    };
    const std::vector<double> slopes = analytic[target++].to_vector<double>();
    if (options.fast && moved.numel()) {
      const std::vector<double> start(values.begin(), values.end());
      const Tensor random = randn({moved.numel()}, {.dtype = kFloat64, .device = kCPU});
      const std::vector<double> direction = (random / norm(random)).to_vector<double>();
      const auto result_at = [&](double step) {
        for (size_t j = 0; j < start.size(); ++j) values[j] = start[j] + step * direction[j];
        return result();
      };
      const std::vector<double> below = result_at(-options.eps), above = result_at(options.eps);
      compare(0, std::inner_product(slopes.begin(), slopes.end(), direction.begin(), 0.), below, above,
              2 * options.eps);
      continue;
    }
    for (int64_t j = 0; j < moved.numel(); ++j) {
      double& element = values[j];
      const double start = element, low = start - options.eps, high = start + options.eps;
      element = low;
      const std::vector<double> below = result();
      element = high;
      const std::vector<double> above = result();
      element = start;
      compare(j, slopes[j], below, above, high - low);
    }
  }
  if (!wrong) return;
  const Shape& at = inputs[worst.input].shape();
  detail::TextStream place;
  if (!options.fast) place << ", element " << position(worst.element, at);
  detail::fail(name, ": ", wrong, " of ", compared, options.fast ? " directions" : " elements",
               " wrong, the worst: input ", worst.input, " ", at, place.str(), ": analytic ", worst.analytic,
               ", numeric ", worst.numeric);
}

}  // namespace

void gradcheck(const DifferentiableFunction& f, TensorList inputs, GradcheckOptions options) {
  check("gradcheck", f, inputs, options);
}

void gradgradcheck(const DifferentiableFunction& f, TensorList inputs, GradcheckOptions options) {
  check_inputs("gradgradcheck", inputs);
  const SameNumbers numbers;
  std::vector<Tensor> with_cotangent(inputs.begin(), inputs.end());
  with_cotangent.push_back(randn_like(f(leaves_of(inputs)).detach(), {.dtype = kFloat64}));
  numbers.again();
  const auto gradient = [&f](const std::vector<Tensor>& arguments) {
    const std::vector<Tensor> leaves(arguments.begin(), arguments.end() - 1);
    std::vector<Tensor> flat = gradients(f(leaves), leaves, arguments.back(), true);
    for (Tensor& g : flat) g = g.reshape({-1});
    return flat.empty() ? zeros({0}, {.dtype = kFloat64}) : cat(flat);
  };
  check("gradgradcheck", gradient, with_cotangent, options);
}

// ---- closeness ------------------------------------------------------------------------------------------------------

namespace {
AssertCloseOptions with_defaults(AssertCloseOptions options, DType a, DType b) {
  const auto of = [](DType dtype) -> std::pair<double, double> {
    switch (dtype) {
      case kFloat64: return {1e-7, 1e-7};
      case kFloat32: return {1.3e-6, 1e-5};
      case kFloat16: return {1e-3, 1e-5};
      case kBFloat16: return {1.6e-2, 1e-5};
      default: return {0, 0};
    }
  };
  if (!options.rtol) options.rtol = std::max(of(a).first, of(b).first);
  if (!options.atol) options.atol = std::max(of(a).second, of(b).second);
  return options;
}
}  // namespace

void assert_close(const Tensor& actual, const Tensor& expected, AssertCloseOptions options) {
  REEL_CHECK(actual.defined() && expected.defined(), "assert_close: the ", actual.defined() ? "expected" : "actual",
             " tensor is undefined");
  REEL_CHECK(actual.shape() == expected.shape(), "assert_close: shape ", actual.shape(), ", not ", expected.shape());
  REEL_CHECK(!options.check_dtype || actual.dtype() == expected.dtype(), "assert_close: ", actual.dtype(), ", not ",
             expected.dtype());
  options = with_defaults(options, actual.dtype(), expected.dtype());
  const NoGrad guard;
  const std::vector<double> a = actual.to_vector<double>(), e = expected.to_vector<double>();
  int64_t wrong = 0, worst = -1;
  double furthest = -1;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == e[i] || (options.equal_nan && std::isnan(a[i]) && std::isnan(e[i]))) continue;
    const double error = std::abs(a[i] - e[i]);
    if (error <= *options.atol + *options.rtol * std::abs(e[i]) && std::isfinite(e[i])) continue;
    ++wrong;
    const double distance = std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
    if (distance > furthest) furthest = distance, worst = static_cast<int64_t>(i);
  }
  if (wrong)
    detail::fail("assert_close: ", wrong, " of ", a.size(), " elements differ, the furthest: ", a[worst], " at ",
                 position(worst, actual.shape()), ", not ", e[worst], ", with rtol ", *options.rtol, " and atol ",
                 *options.atol);
}

void assert_close(TensorList actual, TensorList expected, AssertCloseOptions options) {
  REEL_CHECK(actual.size() == expected.size(), "assert_close: ", actual.size(), " tensors, not ", expected.size());
  for (size_t i = 0; i < actual.size(); ++i) try {
      assert_close(actual[i], expected[i], options);
    } catch (const Error& e) {
      detail::fail("tensor ", i, ": ", e.what());
    }
}

// ---- leaks ----------------------------------------------------------------------------------------------------------

LeakScope::LeakScope()
    : since_(next_watched()), outer_(std::exchange(watching, true)), exceptions_(std::uncaught_exceptions()) {}

LeakScope::~LeakScope() noexcept(false) {
  watching = outer_;
  if (!checked_ && std::uncaught_exceptions() == exceptions_) check();
}

void LeakScope::check() {
  checked_ = true;
  int tensors = 0, nodes = 0;
  detail::TextStream list;
  for_each_watched(since_, [&](TensorImpl* tensor, Node* node, const std::string& stack) {
    if (tensor) {
      ++tensors;
      list << tensor->view.dtype << " tensor " << tensor->view.shape;
      if (tensor->node) list << ", result of " << tensor->node->name;
    } else {
      ++nodes;
      list << "recorded op " << node->name << " of " << node->outputs()[0].metadata.dtype << ' '
           << node->outputs()[0].metadata.shape;
    }
    list << ", made\n" << stack;
  });
  if (tensors + nodes)
    detail::fail("LeakScope: ", tensors, tensors == 1 ? " tensor" : " tensors", " and ", nodes,
                 nodes == 1 ? " recorded op" : " recorded ops", " of this scope are still alive:\n", list.str());
}

}  // namespace reel::testing
