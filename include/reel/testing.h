#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "reel/tensor.h"

#pragma GCC visibility push(default)
/// Checks for tests of custom ops and modules. They need no test framework: a failed check throws reel::Error.
namespace reel::testing {

/// The function under test. Its float64 inputs are differentiated, all others (indices, masks) are constants. The
/// result is float64.
using DifferentiableFunction = std::function<Tensor(const std::vector<Tensor>& inputs)>;

/// Of gradcheck and gradgradcheck.
struct GradcheckOptions {
  double eps = 1e-5;   ///< Half the width of the central difference: keep the inputs further than this from kinks.
  double atol = 1e-6;  ///< Passes if |analytic - numeric| <= atol + rtol |numeric|.
  double rtol = 1e-5;  ///< See atol.
  /// Whether to move all elements of an input at once, along a random direction of length 1, and to compare the
  /// derivative along it: two calls of f for an input instead of two for each of its n elements. The message does not
  /// say which elements are wrong, and an error of one element counts about 1/√n of itself.
  bool fast = false;
};

/// Compares the gradients of Σ c f(inputs), for random weights c, with central differences, one input element at a
/// time (see GradcheckOptions::fast for another way). The weights are normally distributed, because a plain sum does
/// not detect errors that cancel. The analytic gradients are taken at the inputs as they lie in memory, so strided
/// inputs test strided code. f is called twice for every element; it may draw random numbers, which are the same in
/// every call, and the generator is left as it was found.
///
/// Throws an Error that counts the wrong elements and names the input, the element and both values where they differ
/// most, or the reason why it cannot be checked: an input or the result of another float dtype, or a result whose shape
/// depends on the values.
void gradcheck(const DifferentiableFunction& f, TensorList inputs, GradcheckOptions options = {});

/// gradcheck() of the gradients of f, for random weights that are differentiated, too: in messages they are one more
/// input after those of f.
void gradgradcheck(const DifferentiableFunction& f, TensorList inputs, GradcheckOptions options = {});

/// Of assert_close.
struct AssertCloseOptions {
  ///@{
  /// Passes if |actual - expected| <= atol + rtol |expected|. By default what PyTorch's assert_close takes, of the
  /// coarser of the two dtypes: rtol 1e-7, 1.3e-6, 1e-3, 1.6e-2 and atol 1e-7, 1e-5, 1e-5, 1e-5 for float64, float32,
  /// float16, bfloat16, and equality for all others.
  std::optional<double> rtol = {}, atol = {};
  ///@}
  bool equal_nan = false;   ///< NaN is NaN.
  bool check_dtype = true;  ///< Different dtypes are an Error.
};

/// Throws an Error unless both have the same shape and dtype and all elements are close. The message holds how many are
/// not, and which is furthest off, with both values.
void assert_close(const Tensor& actual, const Tensor& expected, AssertCloseOptions options = {});
/// The same for lists, one by one: of gradients, say, or of parameters.
void assert_close(TensorList actual, TensorList expected, AssertCloseOptions options = {});

/// Finds what is not freed. Of the tensors and recorded ops that the calling thread makes while the scope lives, none
/// may be alive at its end: the destructor throws an Error (unless another exception is being thrown) that lists them
/// with the stack on which each was made (link with -rdynamic to see names in it).
///
///   { testing::LeakScope scope;
///     sum(net.forward(x)).backward();
///     net.zero_grad(); }
///
/// Tensors that outlive the scope on purpose, such as the states that an optimizer makes in its first step, must be
/// made before it.
class LeakScope {
 public:
  LeakScope();
  ~LeakScope() noexcept(false);
  LeakScope(const LeakScope&) = delete;
  LeakScope& operator=(const LeakScope&) = delete;

  /// Checks now instead of in the destructor, which then does not throw.
  void check();

 private:
  uint64_t since_;
  bool outer_, checked_ = false;
  int exceptions_;
};

}  // namespace reel::testing
#pragma GCC visibility pop
