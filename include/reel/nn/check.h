#pragma once
#include <functional>
#include <iosfwd>
#include <string>
#include <type_traits>
#include <vector>

#include "reel/nn/module.h"

#pragma GCC visibility push(default)
/// Which parameters a model trains, found by running it once.
namespace reel::nn {

/// What check() finds.
struct Check {
  /// Tensors that the results depend on and that require grad, but that are no parameters of the model: a layer that
  /// was declared without `*this`, say. Training would not change them. "float32 [4, 8], used by linear in encoder
  /// (Encoder)".
  std::vector<std::string> unregistered;
  /// Paths of parameters that require grad and that no result depends on. Training leaves them as they are.
  std::vector<std::string> unused;
  bool good() const { return unregistered.empty() && unused.empty(); }  ///< Whether nothing was found.
  /// A line for each, or "all parameters are used, and all that is used is registered".
  std::string to_string() const;
};
/// Writes to_string().
std::ostream& operator<<(std::ostream& out, const Check& check);

namespace internal {
Check check(Module& model, const std::vector<Tensor>& inputs, const std::function<std::vector<Tensor>()>& run);
}  // namespace internal

/// Runs model(inputs…) once, recording, in evaluation mode, and compares what its results depend on with its
/// parameters. Inputs that require grad are not taken for parameters if they are Tensors, or lists or structs of
/// Tensors. The model's modes and buffers are restored.
///
///   REEL_CHECK(nn::check(net, x).good(), nn::check(net, x).to_string());
template <std::derived_from<Module> M, class... Inputs>
Check check(M& model, const Inputs&... inputs) {
  return internal::check(model, internal::collect_tensors(inputs...),
                         [&] { return internal::tensors_of_call(model, inputs...); });
}

}  // namespace reel::nn
#pragma GCC visibility pop
