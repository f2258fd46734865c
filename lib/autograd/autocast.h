#pragma once
#include <span>
#include <utility>
#include <vector>

#include "lib/core/op_modes.h"
#include "reel/tensor.h"

// An op that autocast gives a type (reel/amp/autocast.h lists them) begins with one line:
//
//   Tensor mm(const Tensor& a, const Tensor& b) {
//     if (const CastToHalf low{}) return mm(low(a), low(b));
//     …
//
// Autocast is off during the second call, so that this does not recurse, and the ops that mm is composed of are not
// cast again. Without autocast the line costs one load and a branch.
namespace reel {

/// The casts of its outermost guard.
extern constinit thread_local struct ParameterCasts* parameter_casts;

namespace detail {
/// x in the half type `type`, if it is of float32 or the other half type. A parameter is cast once: the cast is kept.
Tensor cast_to_half(const Tensor& x, DType type);
/// x in float32, if it is of a half type.
inline Tensor cast_to_float32(const Tensor& x) { return x.defined() && is_half(x.dtype()) ? x.to(kFloat32) : x; }
template <class F>
std::vector<Tensor> each_of(std::span<const Tensor> list, const F& f) {
  std::vector<Tensor> result;
  for (const Tensor& x : list) result.push_back(f(x));
  return result;
}
}  // namespace detail

/// Turns autocast off for as long as it lives; converts to true if it was on.
class AutocastOff {
 public:
  AutocastOff() : was_(op_modes.autocast) {
    if (*this) op_modes.autocast = kFloat32;
  }
  ~AutocastOff() {
    if (*this) op_modes.autocast = was_;
  }
  AutocastOff(const AutocastOff&) = delete;
  AutocastOff& operator=(const AutocastOff&) = delete;
  explicit operator bool() const { return was_ != kFloat32; }

 protected:
  const DType was_;
};

/// For ops that are computed in the half type.
struct CastToHalf : AutocastOff {
  Tensor operator()(const Tensor& x) const { return detail::cast_to_half(x, was_); }
  std::vector<Tensor> operator()(std::span<const Tensor> list) const { return detail::each_of(list, *this); }
};

/// For ops that are computed in float32.
struct CastToFloat32 : AutocastOff {
  Tensor operator()(const Tensor& x) const { return detail::cast_to_float32(x); }
  std::vector<Tensor> operator()(std::span<const Tensor> list) const { return detail::each_of(list, *this); }
};

/// For ops that need inputs of one type: halves are cast to float32 if another input is float32 or the other half type.
class CastToWidest : public AutocastOff {
 public:
  template <class... Given>
  explicit CastToWidest(const Given&... given) {
    if (*this) (consider(given), ...);
  }
  Tensor operator()(const Tensor& x) const { return widest_ == kFloat32 ? detail::cast_to_float32(x) : x; }
  std::vector<Tensor> operator()(std::span<const Tensor> list) const { return detail::each_of(list, *this); }

 private:
  void consider(const Tensor& x) {
    if (!x.defined() || !is_floating_point(x.dtype()) || x.dtype() == kFloat64) return;
    widest_ = widest_ == kBool || widest_ == x.dtype() ? x.dtype() : kFloat32;
  }
  void consider(std::span<const Tensor> list) {
    for (const Tensor& x : list) consider(x);
  }
  DType widest_ = kBool;
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
