#pragma once
#include <span>
#include <utility>
#include <vector>

#include "reel/tensor.h"

// What reel/amp/autocast.h promises is said at the head of each op that autocast has a word on, in one line:
//
//   Tensor mm(const Tensor& a, const Tensor& b) {
//     if (const Lower low{}) return mm(low(a), low(b));
//     …
//
// Within that second call autocast is off, so the op does not come there again, and what it is made of stays as it is.
// Without autocast the line costs one load and a branch.
namespace reel {

/// The half type of the calling thread's products; kFloat32 without autocast.
extern constinit thread_local DType autocast_type;

namespace detail {
/// In a half type, if x is of float32 or the other half type. A parameter is cast once: autocast.cpp keeps the cast.
Tensor lowered(const Tensor& x, DType type);
/// In float32, if x is of a half type.
inline Tensor raised(const Tensor& x) { return x.defined() && is_half(x.dtype()) ? x.to(kFloat32) : x; }
template <class F>
std::vector<Tensor> each_of(std::span<const Tensor> list, const F& f) {
  std::vector<Tensor> result;
  for (const Tensor& x : list) result.push_back(f(x));
  return result;
}
}  // namespace detail

/// Turns autocast off, and is true if it was on.
class AutocastOff {
 public:
  AutocastOff() : was_(autocast_type) {
    if (*this) autocast_type = kFloat32;
  }
  ~AutocastOff() {
    if (*this) autocast_type = was_;
  }
  AutocastOff(const AutocastOff&) = delete;
  AutocastOff& operator=(const AutocastOff&) = delete;
  explicit operator bool() const { return was_ != kFloat32; }

 protected:
  const DType was_;
};

/// For ops that are computed in the half type.
struct Lower : AutocastOff {
  Tensor operator()(const Tensor& x) const { return detail::lowered(x, was_); }
  std::vector<Tensor> operator()(std::span<const Tensor> list) const { return detail::each_of(list, *this); }
};

/// For ops that are computed in float32.
struct Raise : AutocastOff {
  Tensor operator()(const Tensor& x) const { return detail::raised(x); }
  std::vector<Tensor> operator()(std::span<const Tensor> list) const { return detail::each_of(list, *this); }
};

/// For ops that want tensors of one type: the given ones are raised where one is float32, or halves differ.
class Widen : public AutocastOff {
 public:
  template <class... Given>
  explicit Widen(const Given&... given) {
    if (*this) (look(given), ...);
  }
  Tensor operator()(const Tensor& x) const { return widest_ == kFloat32 ? detail::raised(x) : x; }
  std::vector<Tensor> operator()(std::span<const Tensor> list) const { return detail::each_of(list, *this); }

 private:
  void look(const Tensor& x) {
    if (!x.defined() || !is_floating_point(x.dtype()) || x.dtype() == kFloat64) return;
    widest_ = widest_ == kBool || widest_ == x.dtype() ? x.dtype() : kFloat32;
  }
  void look(std::span<const Tensor> list) {
    for (const Tensor& x : list) look(x);
  }
  DType widest_ = kBool;
};

/// Autocast as it was at another time, with casts of its own: for what runs in the middle of something else, and whose
/// graph must not be tied to that.
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
