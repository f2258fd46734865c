#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reel/nn/module.h"

#pragma GCC visibility push(default)
/// Parameters that are computed from others: while the layer runs, as layer(x), its member holds the value computed for
/// this call, and gradients flow to the originals. Between calls it holds the last computed value, or that of the state
/// dict loaded since, without history; layer.forward(x) computes nothing and trains nothing, so call the layer. A
/// parametrized layer belongs to one thread at a time.
///
/// What a parameter is computed from is saved under PyTorch's names: "parametrizations.weight.original", or
/// "…original0", "…original1" where there are several, and the n-th function's own parameters and buffers under
/// "parametrizations.weight.n.…".
namespace reel::nn {

/// A function that computes a parameter. It may have parameters and buffers of its own.
struct Parametrization : Module {
  /// The parameter, from what right_inverse has given.
  virtual Tensor forward(TensorList originals) = 0;
  /// The originals from which forward() computes `value`; by default value itself.
  virtual std::vector<Tensor> right_inverse(const Tensor& value) { return {value}; }
};

/// Has the parameter of that name, "weight", computed by f. `module` is a Layer, and the parameter one of its own. A
/// second parametrization of it gets what the first computes. The result must have the parameter's shape and dtype:
///
///   nn::register_parametrization(layer, "weight", [](const Tensor& w) { return triu(w) + triu(w, 1).t(); });
///
/// While a parameter is parametrized, assigning to it is an Error.
void register_parametrization(Module& module, std::string_view name, std::unique_ptr<Parametrization> f);
/// The same for a function without parameters.
void register_parametrization(Module& module, std::string_view name, std::function<Tensor(const Tensor&)> f);
/// Whether the parameter of that name is computed.
bool is_parametrized(const Module& module, std::string_view name);

/// What remove_parametrizations leaves behind.
struct RemoveParametrizationsOptions {
  bool leave_parametrized = true;  ///< Keep the computed value; otherwise the original, if there is but one.
};
/// Makes it a plain parameter again, of a new tensor where it was computed from several.
void remove_parametrizations(Module& module, std::string_view name, RemoveParametrizationsOptions options = {});

// ---- weight normalisation -------------------------------------------------------------------------------------------

/// Options of weight_norm.
struct WeightNormOptions {
  std::optional<int64_t> dim = 0;  ///< The dimension with a norm for each index; none: one norm for all.
};
/// weight = g v / ‖v‖ (Salimans & Kingma 2016): original0 is g, the norms, and original1 is v. They are trained by
/// calls of the layer, not by layer.forward(x). `name` is that of the parameter: weight_norm(lstm, "weight_hh_l0").
void weight_norm(Module& module, std::string_view name = "weight", WeightNormOptions options = {});
/// That of "weight".
inline void weight_norm(Module& module, WeightNormOptions options) { weight_norm(module, "weight", options); }

// ---- spectral normalisation -----------------------------------------------------------------------------------------

/// Options of spectral_norm.
struct SpectralNormOptions {
  int64_t n_power_iterations = 1;  ///< For each call in training.
  double eps = 1e-12;              ///< The least norm that is divided by.
  /// The dimension of the outputs: 0, but 1 for transposed convolutions.
  int64_t dim = 0;
};
/// weight = original / σ, where σ is an estimate of the largest singular value of the weight as a matrix (Miyato et al.
/// 2018). The buffers _u and _v are the singular vectors, which each call in training updates by power iteration;
/// layer.forward(x) neither updates them nor trains the original. `name` is that of the parameter.
void spectral_norm(Module& module, std::string_view name = "weight", SpectralNormOptions options = {});
/// That of "weight".
inline void spectral_norm(Module& module, SpectralNormOptions options) { spectral_norm(module, "weight", options); }

}  // namespace reel::nn
#pragma GCC visibility pop
