#pragma once
#include <functional>
#include <vector>

#include "reel/tensor.h"

/// Checks for tests of one's own ops and modules. They need no test framework: what is wrong is thrown as an Error.
namespace reel::testing {

/// What is checked: float64 inputs get gradients, all others (indices, masks) are constants. The result is float64.
using DifferentiableFunction = std::function<Tensor(const std::vector<Tensor>& inputs)>;

struct GradcheckOptions {
  double eps = 1e-5;   ///< Half the width of the central difference: keep the inputs further than this from kinks.
  double atol = 1e-6;  ///< Right is |analytic - numeric| <= atol + rtol |numeric|.
  double rtol = 1e-5;
};

/// Compares the gradients of Σ c f(inputs), for random weights c, with central differences, one input element at a
/// time. The weights are normally distributed, because a plain sum hides what is symmetric. The analytic gradients are
/// taken at the inputs as they lie in memory, so strided inputs test strided code. f is called twice for every element;
/// it may draw random numbers, which are the same in every call, and the generator is left as it was found.
///
/// Throws an Error that names the input, the element and both values where they differ, or that says why it cannot be
/// checked: an input or the result of another float dtype, or a result whose shape depends on the values.
void gradcheck(const DifferentiableFunction& f, const std::vector<Tensor>& inputs, GradcheckOptions options = {});

/// gradcheck() of the gradients of f, for random weights that are differentiated, too: in messages they are one more
/// input behind those of f.
void gradgradcheck(const DifferentiableFunction& f, const std::vector<Tensor>& inputs, GradcheckOptions options = {});

}  // namespace reel::testing
