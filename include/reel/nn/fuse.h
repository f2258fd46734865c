// This file declares fuse_for_inference, which prepares trained models for inference.
#pragma once
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "reel/nn/module.h"

#pragma GCC visibility push(default)
/// Models prepared for inference: norms folded into the layers in front of them, weights kept in the layouts of
/// kernels.
namespace reel::nn {

/// A FusionReport says what fuse_for_inference has done.
struct FusionReport {
  std::vector<std::string> fused;   ///< "conv1 (Conv2d): bn1 (BatchNorm2d), relu".
  std::vector<std::string> kept;    ///< Norms that stay, with the reason: "bn2 (BatchNorm2d): it has hooks".
  std::vector<std::string> packed;  ///< Paths of the weights that are kept in the layouts of kernels.
  std::string not_traced;           ///< Why the run could not be looked at, so that only Sequentials were.
  std::string to_string() const;    ///< A line for each of `fused` and `kept`, and the number of packed weights.
};
/// Writes to_string().
std::ostream& operator<<(std::ostream& out, const FusionReport& report);

namespace internal {
FusionReport fuse(Module& model, const std::vector<Tensor>& inputs, const std::function<std::vector<Tensor>()>& run);
}  // namespace internal

/// Prepares a trained model for fast inference, in place, and returns what was done:
///
///   nn::fuse_for_inference(net, zeros({1, 3, 224, 224}));
///   NoGrad no_grad;
///   Tensor scores = net(images);
///
/// - A BatchNorm1d, 2d or 3d that follows a Conv, ConvTranspose or Linear is folded into its weight and bias, and
///   returns what it is given. The weight is a new tensor; handles to the old one keep their values.
/// - A ReLU that follows a Conv or Linear, or its folded norm, is computed in place: what the layer returns may be
///   rectified already.
/// - Weights of Conv, ConvTranspose and Linear are kept a second time, in the layout that the CPU's kernels choose when
///   they first see inputs of a size. This takes as much memory again, and more where batches are of very different
///   sizes. What changes a weight (copy_, load_state_dict, to) drops the copy, and the next call makes it anew.
///
/// Results are those of the model in eval(), but for rounding.
///
/// The model is run once with the inputs, in evaluation mode, to see what follows what. The run keeps all its results
/// until the end, so that a batch of one is the best example. A norm is folded only if the layer in front is called
/// once, is used by that norm alone, and shares no weight, and neither has hooks. What follows must be the same in all
/// later calls: a model that decides by an `if` whether the norm is called must not be fused. Without inputs, and for
/// models whose ops cannot be traced (see onnx::save), only layers that are neighbours in a Sequential are fused; the
/// ReLU there is nn::ReLU or the function reel::relu.
///
/// The model is in eval() afterwards and its parameters are frozen. train() is an Error from then on. It still moves by
/// to(), and gradients flow to its inputs. state_dict() has the folded weight, a bias for it and nothing of the norm;
/// it loads into a model that was fused in the same way, and a state dict with the norm's tensors is an Error there. To
/// train on, keep the file of the model as it was before. Fusing again does no harm.
template <std::derived_from<Module> M, class... Inputs>
FusionReport fuse_for_inference(M& model, const Inputs&... inputs) {
  if constexpr (sizeof...(Inputs) == 0)
    return internal::fuse(model, {}, nullptr);
  else
    return internal::fuse(model, internal::collect_tensors(inputs...),
                          [&] { return internal::tensors_of_call(model, inputs...); });
}

}  // namespace reel::nn
#pragma GCC visibility pop
