// This file has autocast as ops see it: which dtypes their inputs get, and who keeps the casts of parameters.
#pragma once
#include <cstdint>
#include <span>

#include "lib/base/op_modes.h"
#include "reel/tensor.h"

namespace reel {

/// How autocast chooses the dtype of an op's floating-point inputs. float64 is left as it is.
enum class CastPolicy : uint8_t {
  kNone,     ///< The op computes in the dtypes that it is given.
  kHalf,     ///< float32 and the other half type become the half type of autocast.
  kFloat32,  ///< Half types become float32.
  kWidest    ///< Half types become float32 if another input is float32 or the other half type.
};

namespace detail {
/// results[i] becomes inputs[i], cast as the policy says. A parameter is cast once: the cast is kept until the
/// outermost guard ends. What has to be cast to the half type for a call is cast by one kernel, and so are the
/// gradients of the parameters among it; otherwise the casts of a small layer take longer than the layer.
void cast_inputs(CastPolicy policy, DType half, std::span<const Tensor* const> inputs, Tensor* results);
}  // namespace detail

/// The thread keeps the casts of its outermost guard here.
extern constinit thread_local struct ParameterCasts* parameter_casts;
/// Makes the thread keep the casts of parameters from now on; it must not keep any yet.
void keep_parameter_casts();
/// Drops the casts that the thread keeps, and keeps no more.
void release_parameter_casts();

/// Turns autocast off for as long as it lives; converts to true if it was on.
class AutocastOff {
 public:
  AutocastOff() : was_(op_modes.autocast) { op_modes.set_autocast(kFloat32); }
  ~AutocastOff() { op_modes.set_autocast(was_); }
  AutocastOff(const AutocastOff&) = delete;
  AutocastOff& operator=(const AutocastOff&) = delete;
  explicit operator bool() const { return was_ != kFloat32; }
  /// Returns the half type that autocast had; kFloat32 if it was off.
  DType type() const { return was_; }

 private:
  const DType was_;
};

/// Sets autocast for what runs inside another op or a backward pass. It has its own casts of parameters: a graph
/// recorded there must not share nodes with the graph around it.
class AutocastScope {
 public:
  explicit AutocastScope(DType type);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  DType before_;
  struct ParameterCasts* casts_before_;
};

}  // namespace reel
