#pragma once
#include <functional>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include "reel/nn/module.h"

#pragma GCC visibility push(default)
/// What a model is made of, found by running it once.
namespace reel::nn {

/// One module of the tree. Numbers of parameters are its own, without those of the modules in it, and a shared one
/// counts where it comes first.
struct SummaryRow {
  std::string path;             ///< Module::path().
  std::string type;             ///< Module::name().
  int depth = 0;                ///< 0 for the model.
  int64_t calls = 0;            ///< 0 if it was not called as layer(x).
  std::vector<Shape> outputs;   ///< Of its last call.
  int64_t parameters = 0;       ///< Elements of its parameters.
  int64_t trainable = 0;        ///< Those that require grad.
  int64_t parameter_bytes = 0;  ///< Of its parameters.
  int64_t output_bytes = 0;     ///< Of all calls.
};

/// What summary() finds.
struct Summary {
  std::vector<SummaryRow> rows;  ///< The model first, each module before those in it.
  int64_t parameters = 0;        ///< Elements of all parameters.
  int64_t trainable = 0;         ///< Those that require grad.
  int64_t parameter_bytes = 0;   ///< Of all parameters.
  int64_t buffer_bytes = 0;      ///< Of all buffers.
  int64_t output_bytes = 0;      ///< Of the modules in which no others were called.
  /// Tensors that the results depend on and that training would not change: see Check::unregistered.
  std::vector<std::string> unregistered;
  std::string to_string() const;  ///< A table.
};
/// Writes to_string().
std::ostream& operator<<(std::ostream& out, const Summary& summary);

namespace internal {
Summary summarize(Module& model, const std::vector<Tensor>& inputs, const std::function<std::vector<Tensor>()>& run);
}  // namespace internal

/// Runs model(inputs…) once, in evaluation mode, and lists its modules with their parameters and outputs, and layers
/// that were not registered. The model's modes and buffers are restored.
///
///   std::cout << nn::summary(net, zeros({1, 784}));
template <std::derived_from<Module> M, class... Inputs>
Summary summary(M& model, const Inputs&... inputs) {
  static_assert(sizeof...(Inputs) > 0, "nn::summary runs the model: give it an input, nn::summary(net, x)");
  return internal::summarize(model, internal::collect_tensors(inputs...),
                             [&] { return internal::tensors_of_call(model, inputs...); });
}

}  // namespace reel::nn
#pragma GCC visibility pop
