#pragma once
#include <concepts>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "reel/nn/module.h"

#pragma GCC visibility push(default)
/// Models as ONNX files, for ONNX Runtime and all else that reads them.
namespace reel::onnx {

/// A dimension of an input that may have another size in each run of the exported graph.
struct DynamicDim {
  int input;         ///< Which input.
  int64_t dim;       ///< Which of its dimensions; negative ones count from the end.
  std::string name;  ///< "batch". Dimensions of one name have one size.
  /// Sizes at which the model is traced beside the example's, three or more, in place of those that save() chooses:
  /// multiples of 32 for a U-Net, say. No others are tried then, so that there should be one on either side of each
  /// size at which the program does something else. Two dimensions need lists that are no multiples of each other plus
  /// a constant. Given once for a name.
  std::vector<int64_t> sizes = {};
};

/// Of onnx::save.
struct SaveOptions {
  std::vector<std::string> inputs = {};   ///< Names of the inputs; "input_0", … without.
  std::vector<std::string> outputs = {};  ///< Names of the outputs; "output_0", … without.
  std::vector<DynamicDim> dynamic = {};   ///< All other dimensions are those of the example.
  std::string doc = {};                   ///< The model's description in the file.
  bool allow_unregistered = false;        ///< Write tensors that require grad and are no parameters of the model, too.
  int64_t external_above = int64_t{3} << 29;  ///< Bytes of weights from which on they are put into a file of their own.
};

namespace internal {
using Function = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;
void save(nn::Module* model, const Function& run, TensorList inputs, const std::filesystem::path& file,
          const SaveOptions& options);
}  // namespace internal

/// Writes model(inputs…), in evaluation mode, as an ONNX model (opset 17, IR version 8): the ops that lead from the
/// inputs to the outputs, and the weights under their state_dict paths. What does not depend on the inputs is computed
/// now, and is a constant there. Weights of more than `external_above` bytes go to a second file, "net.onnx.data"
/// beside "net.onnx". Files are replaced in one step each.
///
/// The model is run a few times, on the CPU: with the example inputs, and with their elements repeated to three larger
/// sizes of the dynamic dimensions. What the sizes have to do with each other is found by comparing these runs: a size
/// that is the same in all of them is a constant, others are computed from the inputs' sizes. Then the graph is
/// compared with the model where one dynamic dimension is 1, 2, 3 and 4, and where it is large: up to 1031, as long as
/// the model takes it and needs no more than about 100 MB. Runs see inputs of their own, and the model's modes and
/// buffers are left as they were. The graph's description lists the sizes that were tried, and those that the program
/// has read with Tensor::size().
///
/// What the program itself decides or computes by sizes is not in the graph: of min(n, 512), n % 7 or if (n > 100) it
/// has what they were in the runs. It is an Error if that shows in one of these, and goes unnoticed if it does not: at
/// a limit of 5,000, or where only both of two sizes decide. Let ops do it (slice(0, 0, 512) is exported as it is
/// written, a truncation), or give DynamicDim::sizes on both sides of the limit.
///
/// An Error that names the op: of ops that have no counterpart in ONNX, or none here (trees, packed lists and Ragged,
/// CRFs, of which the scores can be exported); of item() and other reads of values by the program; of writes through
/// views; of ops that are others in another run; and of sizes that are no multiple of, nor linear in, the sizes of
/// inputs or products of these, or of which two such formulas hold. Tensors that are used but not registered are an
/// Error, too: see nn::check.
///
///   onnx::save(net, {x}, "net.onnx", {.inputs = {"image"}, .outputs = {"logits"},
///                                     .dynamic = {{.input = 0, .dim = 0, .name = "batch"}}});
template <std::derived_from<nn::Module> M>
void save(M& model, TensorList inputs, const std::filesystem::path& file, const SaveOptions& options = {}) {
  internal::save(
      &model, [&](const std::vector<Tensor>& x) { return nn::internal::call_with_list(model, x); }, inputs, file,
      options);
}

/// The same of a function of the list of inputs that returns a Tensor, or a list of them: a part of a model, say, or
/// scores without a decoder. Weights are found as constants; they have no names.
template <class F>
requires(!std::derived_from<F, nn::Module>) && std::invocable<const F&, const std::vector<Tensor>&> void save(
                                                   const F& function, TensorList inputs,
                                                   const std::filesystem::path& file, const SaveOptions& options = {}) {
  internal::save(
      nullptr, [&](const std::vector<Tensor>& x) { return nn::internal::collect_tensors(function(x)); }, inputs, file,
      options);
}

}  // namespace reel::onnx
#pragma GCC visibility pop
