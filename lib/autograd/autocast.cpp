#include "lib/autograd/autocast.h"

#include <unordered_map>

#include "lib/autograd/backward.h"
#include "lib/device.h"
#include "reel/amp/autocast.h"

namespace reel {

// ---- casts of parameters --------------------------------------------------------------------------------------------

/// The casts that parameters have got since the outermost guard began. Used at a hundred places, a weight is cast once,
/// and its gradients meet in the half type before the one cast back.
struct ParameterCasts {
  struct Entry {
    Tensor parameter;  // keeps the key's address from being reused
    Tensor seen;       // likewise the storage's that was cast
    uint32_t version, cast_version;
    bool recorded;
    Tensor cast;
  };
  std::unordered_map<const TensorImpl*, Entry> of;
  // A cast made during a capture has no value outside of it, and one from outside has a stale value in a replay.
  const bool captured = capturing();
};

constinit thread_local ParameterCasts* parameter_casts = nullptr;

namespace {

/// One cast may be part of several graphs, so a backward pass through one of them must not release it.
struct CastRule {
  static constexpr bool kSavesNothing = true;
  void operator()(Backward& back) { back.set(0, back.grad()); }
};

Tensor cast_of(const Tensor& x, DType type) {
  const Tensor y = no_grad([&] { return x.to(type); });
  if (recording(x)) record("autocast", y, inputs(x), CastRule{});
  return y;
}

}  // namespace

Tensor detail::cast_to_half(const Tensor& x, DType type) {
  if (!x.defined()) return x;
  TensorImpl* impl = TensorImpl::of(x);
  const DType own = impl->view.dtype;
  if (own == type || own == kFloat64 || !is_floating_point(own)) return x;
  const bool is_parameter = x.is_leaf() && impl->requires_grad;
  if (!is_parameter || !parameter_casts || parameter_casts->captured != capturing()) return x.to(type);
  ParameterCasts::Entry& entry = parameter_casts->of[impl];
  const bool fresh = entry.cast.defined() && TensorImpl::of(entry.seen)->storage == impl->storage &&
                     entry.version == x.version() && entry.cast_version == entry.cast.version() &&
                     entry.cast.dtype() == type && (entry.recorded || !grad_mode);
  if (!fresh) {
    const Tensor cast = cast_of(x, type);
    entry = {x, x.detach(), x.version(), cast.version(), grad_mode, cast};
  }
  return entry.cast;
}

AutocastScope::AutocastScope(DType type)
    : before_(std::exchange(op_modes.autocast, type)), casts_before_(std::exchange(parameter_casts, nullptr)) {
  if (type != kFloat32) parameter_casts = new ParameterCasts;
}
AutocastScope::~AutocastScope() {
  op_modes.autocast = before_;
  delete std::exchange(parameter_casts, casts_before_);
}

// ---- the user's guard -----------------------------------------------------------------------------------------------

namespace amp {

bool autocast_enabled() { return op_modes.autocast != kFloat32; }
DType autocast_dtype() { return op_modes.autocast; }

Autocast::Autocast(DType dtype, bool enabled) : before_(op_modes.autocast), outermost_(enabled && !parameter_casts) {
  REEL_CHECK(is_half(dtype), "Autocast: ", dtype, ", neither bfloat16 nor float16");
  if (outermost_) parameter_casts = new ParameterCasts;
  op_modes.autocast = enabled ? dtype : kFloat32;
}
Autocast::~Autocast() {
  op_modes.autocast = before_;
  if (outermost_) delete std::exchange(parameter_casts, nullptr);
}

}  // namespace amp
}  // namespace reel
