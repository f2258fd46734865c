// This file has the formulas of grid_sample along one dimension: where a point of the grid lies among the elements of
// an image, and how much a neighbour at a distance counts.
#pragma once
#include "lib/functors/number.h"

namespace reel::functors {

// Each formula has its line, whatever clang-format makes of templates:
// clang-format off

/// Returns the position among n elements that -1 … 1 stands for.
template <class T> REEL_HD T grid_position(T grid, double n, bool align_corners) {
  return align_corners ? (grid + T(1)) * T((n - 1) / 2) : ((grid + T(1)) * T(n) - T(1)) / T(2);
}

/// Returns a position mirrored at low and high as often as it takes. Its slope is ±1.
template <class T> REEL_HD T reflected(T at, double low, double high) {
  if (high <= low) return at * T(0);
  const T distance = abs(at - T(low)), times = floor(distance / T(high - low)), extra = distance - times * T(high - low);
  return select(times - floor(times * T(0.5)) * T(2) == T(1), T(high - low) - extra, extra) + T(low);
}

// These are Keys' kernel (1981) with a = -0.75, at distances up to 1 and from 1 to 2, and its derivatives.
template <class T> REEL_HD T cubic_near(T d) { return (d * T(1.25) - T(2.25)) * d * d + T(1); }
template <class T> REEL_HD T cubic_far(T d) { return (((d - T(5)) * d + T(8)) * d - T(4)) * T(-0.75); }
template <class T> REEL_HD T cubic_near_slope(T d) { return (d * T(3.75) - T(4.5)) * d; }
template <class T> REEL_HD T cubic_far_slope(T d) { return ((d * T(3) - T(10)) * d + T(8)) * T(-0.75); }

// clang-format on

}  // namespace reel::functors
