#pragma once
#include "lib/functors/list.h"
#include "lib/functors/number.h"

// Functions of three arguments: operator()(a, b, c). Their derivatives are written in ops.
namespace reel::functors {

// A formula a line, whatever clang-format makes of templates:
// clang-format off

/// a + c (b - a), from whichever end is nearer: exactly a at c = 0 and b at c = 1.
struct Lerp {
  template <class T> REEL_HD T operator()(T a, T b, T c) const {
    return select(abs(c) < T(0.5), a + c * (b - a), b - (b - a) * (T(1) - c));
  }
};
struct Addcmul {
  double value;
  template <class T> REEL_HD T operator()(T a, T b, T c) const { return a + T(value) * b * c; }
};
struct Addcdiv {
  double value;
  template <class T> REEL_HD T operator()(T a, T b, T c) const { return a + T(value) * (b / c); }
};

using TernaryList = std::tuple<Lerp, Addcmul, Addcdiv>;

// clang-format on

}  // namespace reel::functors
