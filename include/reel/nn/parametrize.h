#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reel/nn/module.h"

/// Parameters that are computed from others: while a parametrized layer runs, as layer(x), its member shows the value
/// that was computed for this call, and gradients go on to what it was computed from. Outside of calls the member
/// shows the last value, without history, or that of the state dict which was loaded since; layer.forward(x) computes
/// nothing and trains nothing, so call the layer. A parametrized layer belongs to one thread at a time.
///
/// What a parameter is computed from is saved under PyTorch's names: "parametrizations.weight.original", or
/// "…original0", "…original1" where there are several, and the n-th function's own parameters and buffers under
/// "parametrizations.weight.n.…".
namespace reel::nn {

/// A function that computes a parameter. It may have parameters and buffers of its own.
struct Parametrization : Module {
  /// The parameter, from what right_inverse has given.
  virtual Tensor forward(std::span<const Tensor> originals) = 0;
  /// What forward makes `value` of; by default value itself.
  virtual std::vector<Tensor> right_inverse(const Tensor& value) { return {value}; }
};

namespace internal {
/// The member of a layer that PyTorch finds by its name.
template <class L>
Tensor& member(L& layer, std::string_view name) {
  if constexpr (requires { layer.member(name); }) {
    return layer.member(name);
  } else {
    REEL_CHECK(name == "weight", layer.name(), ": give the member itself, layer.", name, ", instead of its name");
    return layer.weight;
  }
}
}  // namespace internal

/// Has `parameter` computed by f: a member of `module`, which is a Layer, and one of its own parameters. Copies of the
/// handle, as named_parameters() gives, are refused; those in lstm.weights are lstm.member("weight_hh_l0"). A second
/// parametrization of it gets what the first computes. The result must have the parameter's shape and dtype:
///
///   nn::register_parametrization(layer, layer.weight, [](const Tensor& w) { return triu(w) + triu(w, 1).t(); });
void register_parametrization(Module& module, Tensor& parameter, std::unique_ptr<Parametrization> f);
void register_parametrization(Module& module, Tensor& parameter, std::function<Tensor(const Tensor&)> f);
bool is_parametrized(const Module& module, const Tensor& parameter);

struct RemoveParametrizationsOptions {
  bool leave_parametrized = true;  ///< Keep the computed value; otherwise the original, if there is but one.
};
/// Makes `parameter` a plain parameter again, and a new tensor where it was computed from several.
void remove_parametrizations(Module& module, Tensor& parameter, RemoveParametrizationsOptions options = {});

// ---- weight normalisation -------------------------------------------------------------------------------------------

struct WeightNormOptions {
  std::optional<int64_t> dim = 0;  ///< The dimension with a norm for each index; none: one norm for all.
};
/// weight = g v / ‖v‖ (Salimans & Kingma 2016): original0 is g, the norms, and original1 is v. They are trained by
/// calls of the layer, not by layer.forward(x).
void weight_norm(Module& module, Tensor& weight, WeightNormOptions options = {});
/// Of layer.weight; gives back the layer.
template <class L>
requires requires(L& layer) { layer.weight; }
L& weight_norm(L& layer, WeightNormOptions options = {}) { return weight_norm(layer, layer.weight, options), layer; }
/// By name, for those of LSTM, GRU and RNN: weight_norm(lstm, "weight_hh_l0").
template <class L>
L& weight_norm(L& layer, std::string_view name, WeightNormOptions options = {}) {
  return weight_norm(layer, internal::member(layer, name), options), layer;
}

// ---- spectral normalisation -----------------------------------------------------------------------------------------

struct SpectralNormOptions {
  int64_t n_power_iterations = 1;  ///< For each call in training.
  double eps = 1e-12;
  /// The dimension of the outputs: 0, but 1 for transposed convolutions.
  int64_t dim = 0;
};
/// weight = original / σ, where σ is an estimate of the largest singular value of the weight as a matrix (Miyato et al.
/// 2018). The buffers _u and _v are the singular vectors, which each call in training improves by power iteration;
/// layer.forward(x), which is no call, neither improves them nor trains the original.
void spectral_norm(Module& module, Tensor& weight, SpectralNormOptions options = {});
/// Of layer.weight; gives back the layer.
template <class L>
requires requires(L& layer) { layer.weight; }
L& spectral_norm(L& layer, SpectralNormOptions options = {}) {
  return spectral_norm(layer, layer.weight, options), layer;
}
template <class L>
L& spectral_norm(L& layer, std::string_view name, SpectralNormOptions options = {}) {
  return spectral_norm(layer, internal::member(layer, name), options), layer;
}

}  // namespace reel::nn
