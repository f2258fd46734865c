#include "lib/autograd/autocast.h"

#include <array>
#include <unordered_map>

#include "lib/autograd/backward.h"
#include "lib/device/device.h"
#include "lib/device/kernels/copy.h"

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
    LastStream stream;
  };
  std::unordered_map<const TensorImpl*, Entry> of;

  /// The cast of x that is kept; nullptr if there is none, or x has changed since.
  const Tensor* find(const Tensor& x, DType type) {
    const TensorImpl* const impl = TensorImpl::of(x);
    const auto found = of.find(impl);
    if (found == of.end()) return nullptr;
    Entry& entry = found->second;
    const bool fresh = TensorImpl::of(entry.seen)->storage == impl->storage && entry.version == x.version() &&
                       entry.cast_version == entry.cast.version() && entry.cast.dtype() == type &&
                       (entry.recorded || !grad_mode);
    if (!fresh) return nullptr;
    if (entry.stream.follow(entry.cast.device())) record_current_stream(entry.cast);
    return &entry.cast;
  }
  void keep(const Tensor& x, const Tensor& cast) {
    Entry& entry = of[TensorImpl::of(x)];
    entry = {x, x.detach(), x.version(), cast.version(), grad_mode, cast, {}};
    entry.stream.follow(cast.device());
  }
  // A cast made during a capture has no value outside of it, and one from outside has a stale value in a replay.
  const bool captured = capturing();
};

constinit thread_local ParameterCasts* parameter_casts = nullptr;

namespace {

bool to_be_cast(const Tensor& x, DType type) {
  if (!x.defined()) return false;
  const DType own = view_of(x).dtype;
  return own != type && own != kFloat64 && is_floating_point(own);
}
/// The casts to look in for x, and to keep x's in; nullptr if x is cast at each use.
ParameterCasts* casts_for(const Tensor& x) {
  const bool is_parameter = x.is_leaf() && TensorImpl::of(x)->requires_grad;
  return is_parameter && parameter_casts && parameter_casts->captured == capturing() ? parameter_casts : nullptr;
}

constexpr size_t kMaxTogether = 64;

/// Tensors that one kernel converts.
class Conversions {
 public:
  /// x as a new tensor, with its elements after run().
  Tensor add(const Tensor& x, DType type) {
    const View& from = view_of(x);
    const Tensor to = make_tensor(from.shape, type, TensorImpl::of(x)->device());
    blocks_[count_++] = whole_copy(from.data, from.dtype, view_of(to).data, type, from.numel);
    return to;
  }
  size_t count() const { return count_; }
  void run(const Tensor& on) const { kernels_of(on).copy_blocks({blocks_.data(), count_}); }

 private:
  std::array<BlockCopy, kMaxTogether> blocks_;
  size_t count_ = 0;
};

/// One cast may be part of several graphs, so a backward pass through one of them must not release it.
struct CastRule {
  static constexpr bool kSavesNothing = true;
  void operator()(Backward& back) const {
    const size_t count = back.num_outputs();
    std::array<Tensor, kMaxTogether> grads;
    Conversions conversions;
    const Tensor* first = nullptr;  // of those that are converted
    for (size_t i = 0; i < count; ++i) {
      const Tensor& g = back.grad(static_cast<int>(i));
      if (!g.defined() || !back.needs(static_cast<int>(i))) continue;
      const bool alike = !first || (g.dtype() == first->dtype() && g.device() == first->device());
      if (count == 1 || back.create_graph() || !is_half(g.dtype()) || !g.is_contiguous() || !alike) {
        grads[i] = g;  // set() converts it
        continue;
      }
      grads[i] = conversions.add(g, kFloat32);
      first = &g;
    }
    if (first) conversions.run(*first);
    for (size_t i = 0; i < count; ++i)
      if (grads[i].defined()) back.set(static_cast<int>(i), std::move(grads[i]));
  }
};

Tensor cast_of(const Tensor& x, DType type) {
  const Tensor y = no_grad([&] { return x.to(type); });
  if (recording(x)) record("autocast", y, inputs(x), CastRule{});
  return y;
}

// x in the half type `type`, if it is of float32 or the other half type.
Tensor cast_to_half(const Tensor& x, DType type) {
  if (!to_be_cast(x, type)) return x;
  ParameterCasts* const casts = casts_for(x);
  if (!casts) return x.to(type);
  if (const Tensor* const kept = casts->find(x, type)) return *kept;
  const Tensor cast = cast_of(x, type);
  casts->keep(x, cast);
  return cast;
}

// cast_to_half of each, by one kernel.
void cast_together(std::span<const Tensor* const> given, DType type, Tensor* results) {
  // Of each, what to do: nothing, to convert it with others, or by itself.
  std::array<size_t, kMaxTogether> chosen;
  size_t count = 0;
  const auto goes_along = [&](const Tensor& x) {
    return !is_tracing() && view_of(x).dtype == kFloat32 && x.is_contiguous() && count < kMaxTogether &&
           (count == 0 || x.device() == given[chosen[0]]->device());
  };
  for (size_t i = 0; i < given.size(); ++i) {
    const Tensor& x = *given[i];
    ParameterCasts* const casts = to_be_cast(x, type) ? casts_for(x) : nullptr;
    const Tensor* const kept = casts ? casts->find(x, type) : nullptr;
    if (kept || !to_be_cast(x, type) || !goes_along(x))
      results[i] = kept ? *kept : cast_to_half(x, type);
    else
      chosen[count++] = i;
  }
  if (count == 0) return;
  if (count == 1) return results[chosen[0]] = cast_to_half(*given[chosen[0]], type), void();
  Conversions conversions;
  std::array<const Tensor*, kMaxTogether> parameters, their_casts;
  size_t recorded = 0;
  for (size_t c = 0; c < count; ++c) results[chosen[c]] = conversions.add(*given[chosen[c]], type);
  conversions.run(*given[chosen[0]]);
  for (size_t c = 0; c < count; ++c) {
    const Tensor &x = *given[chosen[c]], &cast = results[chosen[c]];
    if (!casts_for(x)) {  // its graph must not live as long as the casts that are kept
      if (recording(x)) record("to", cast, inputs(x), CastRule{});
    } else if (recording(x)) {
      parameters[recorded] = &x, their_casts[recorded++] = &cast;
    }
  }
  if (recorded) record_always("autocast", {their_casts.data(), recorded}, {parameters.data(), recorded}, CastRule{});
  for (size_t c = 0; c < count; ++c)
    if (ParameterCasts* const casts = casts_for(*given[chosen[c]])) casts->keep(*given[chosen[c]], results[chosen[c]]);
}

// Returns the dtype that all half and float32 inputs have, or float32.
DType widest_of(std::span<const Tensor* const> inputs) {
  std::optional<DType> widest;
  for (const Tensor* x : inputs) {
    if (!x->defined() || !is_floating_point(x->dtype()) || x->dtype() == kFloat64) continue;
    widest = !widest || *widest == x->dtype() ? x->dtype() : kFloat32;
  }
  return widest.value_or(kFloat32);
}

}  // namespace

void detail::cast_inputs(CastPolicy policy, DType half, std::span<const Tensor* const> inputs, Tensor* results) {
  if (policy == CastPolicy::kHalf) return cast_together(inputs, half, results);
  const bool to_float32 = policy == CastPolicy::kFloat32 || widest_of(inputs) == kFloat32;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& x = *inputs[i];
    results[i] = to_float32 && x.defined() && is_half(x.dtype()) ? x.to(kFloat32) : x;
  }
}

AutocastScope::AutocastScope(DType type)
    : before_(op_modes.autocast), casts_before_(std::exchange(parameter_casts, nullptr)) {
  op_modes.set_autocast(type);
  if (type != kFloat32) parameter_casts = new ParameterCasts;
}
AutocastScope::~AutocastScope() {
  op_modes.set_autocast(before_);
  delete std::exchange(parameter_casts, casts_before_);
}

void keep_parameter_casts() { parameter_casts = new ParameterCasts; }
void release_parameter_casts() { delete std::exchange(parameter_casts, nullptr); }

}  // namespace reel
