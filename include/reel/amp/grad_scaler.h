#pragma once
#include <optional>
#include <unordered_map>
#include <vector>

#include "reel/optim/optimizer.h"
#include "reel/state_dict.h"
#include "reel/tensor.h"

#pragma GCC visibility push(default)
/// A scale of the loss that keeps float16 gradients from becoming 0.
namespace reel::amp {

/// Options of GradScaler.
struct GradScalerOptions {
  double init_scale = 65536;       ///< The initial scale.
  double growth_factor = 2;        ///< More than 1.
  double backoff_factor = 0.5;     ///< Between 0 and 1.
  int64_t growth_interval = 2000;  ///< Updates in a row without an infinity after which the scale grows.
  bool enabled = true;             ///< If not, step() is the optimizer's, and all else does nothing.
};

/// Keeps gradients of float16 from vanishing (Micikevicius et al. 2018): the loss, and so every gradient, is multiplied
/// by a scale. A step whose gradients are not all finite is left out and makes the scale smaller; after many steps that
/// are taken it grows.
///
///   amp::GradScaler scaler;
///   …
///     Tensor loss = amp::autocast(kFloat16, [&] { return net.loss(x, y); });
///     adam.zero_grad();
///     scaler.scale(loss).backward();
///     scaler.unscale_(adam);  // only where gradients are used before the step, to clip them, say
///     scaler.step(adam);
///     scaler.update();
///
/// The scale is a float32 number, and does what that of PyTorch's torch.amp.GradScaler does. With several optimizers
/// unscale_() and step() are called for each, update() once. unscale_() may be called once and before step(), step()
/// once before update(); another order is an Error, and so is a step of an optimizer without gradients. On a GPU only
/// step() synchronizes, once, to read one flag.
class GradScaler {
 public:
  explicit GradScaler(GradScalerOptions options = {});  ///< Options out of range are an Error.

  /// output times the scale. Of a half type with one element it becomes float32, in which the scale has room.
  Tensor scale(const Tensor& output);
  std::vector<Tensor> scale(TensorList outputs);  ///< Scales each of them.
  /// Divides the gradients of the optimizer's parameters by the scale, in place; sparse ones stay sparse. Once before
  /// step(), which does it otherwise. Gradients of float16 are an Error: parameters must be float32.
  void unscale_(optim::Optimizer& optimizer);
  /// The optimizer's step, unless a gradient is infinite or NaN. Returns whether it was taken. Once before update().
  bool step(optim::Optimizer& optimizer);
  /// Once an iteration, after all steps: adjusts the scale, or sets it to new_scale.
  void update(std::optional<double> new_scale = {});

  /// 1 where it is not enabled.
  double get_scale() const { return options_.enabled ? scale_ : 1; }
  /// The option `enabled`.
  bool is_enabled() const { return options_.enabled; }
  /// The current options; init_scale stays the initial one.
  const GradScalerOptions& options() const { return options_; }
  void set_growth_factor(double factor);       ///< More than 1, or an Error.
  void set_backoff_factor(double factor);      ///< Between 0 and 1, or an Error.
  void set_growth_interval(int64_t interval);  ///< At least 1, or an Error.

  /// "scale", "growth_factor", "backoff_factor", "growth_interval" and "_growth_tracker", as numbers; nothing where it
  /// is not enabled.
  StateDict state_dict() const;
  /// Loads all of them, or throws and changes nothing. Does nothing where it is not enabled.
  void load_state_dict(const StateDict& dict);

 private:
  enum class Stage { kReady, kUnscaled, kStepped };
  struct OfOptimizer {
    Stage stage = Stage::kReady;
    std::vector<Tensor> found = {};   // one flag for each device: a gradient is not finite
    std::optional<bool> result = {};  // read from them, once
    bool not_finite();
  };
  void check_used(const char* method) const;

  GradScalerOptions options_;
  float scale_;
  int64_t growth_tracker_ = 0;
  bool used_ = false;  // scale() was called
  std::unordered_map<optim::Optimizer*, OfOptimizer> optimizers_;
};

}  // namespace reel::amp
#pragma GCC visibility pop
