// This file has the p-norms of differences of vectors: how a kernel adds up the elements of a difference, and their
// derivatives, which are also written in tensors.
#pragma once
#include "lib/functors/number.h"

namespace reel::functors {

// Each formula has its line, whatever clang-format makes of templates:
// clang-format off

// A norm has join(sum, gap) for each element of a difference, merge(sum, sum) and finish(sum), which is y. The derivative
// by an element is slope(weight(g, y), gap, y), where weight is that of all elements of a difference.

/// A difference of 0 has the slope 0, and so has an element of 0.
template <class T> REEL_HD T signed_like(T x, T gap) { return select(gap > T(0), x, select(gap < T(0), -x, T(0))); }

struct CountNorm {
  template <class T> REEL_HD T join(T sum, T gap) const { return sum + select(gap == T(0), T(0), T(1)); }
  template <class T> REEL_HD T merge(T a, T b) const { return a + b; }
  template <class T> REEL_HD T finish(T sum) const { return sum; }
  template <class T> REEL_HD T weight(T g, T) const { return zeros_like(g); }
  template <class T> REEL_HD T slope(T w, T, T) const { return w; }
};
struct AbsNorm {
  template <class T> REEL_HD T join(T sum, T gap) const { return sum + abs(gap); }
  template <class T> REEL_HD T merge(T a, T b) const { return a + b; }
  template <class T> REEL_HD T finish(T sum) const { return sum; }
  template <class T> REEL_HD T weight(T g, T) const { return g; }
  template <class T> REEL_HD T slope(T w, T gap, T) const { return signed_like(w, gap); }
};
struct EuclideanNorm {
  template <class T> REEL_HD T join(T sum, T gap) const { return sum + gap * gap; }
  template <class T> REEL_HD T merge(T a, T b) const { return a + b; }
  template <class T> REEL_HD T finish(T sum) const { return sqrt(sum); }
  template <class T> REEL_HD T weight(T g, T y) const { return select(y == T(0), T(0), g / select(y == T(0), T(1), y)); }
  template <class T> REEL_HD T slope(T w, T gap, T) const { return w * gap; }
};
/// NaN wins. Elements that are equally large share g: the kernel divides the weight by their number.
struct MaxNorm {
  template <class T> REEL_HD T join(T sum, T gap) const { return merge(sum, T(abs(gap))); }
  template <class T> REEL_HD T merge(T a, T b) const { return select((b > a) | (b != b), b, a); }
  template <class T> REEL_HD T finish(T sum) const { return sum; }
  template <class T> REEL_HD T weight(T g, T) const { return g; }
  template <class T> REEL_HD T slope(T w, T gap, T y) const { return select(abs(gap) == y, signed_like(w, gap), T(0)); }
};
struct PowerNorm {
  double p;
  template <class T> REEL_HD T join(T sum, T gap) const { return sum + pow(abs(gap), T(p)); }
  template <class T> REEL_HD T merge(T a, T b) const { return a + b; }
  template <class T> REEL_HD T finish(T sum) const { return pow(sum, T(1 / p)); }
  template <class T> REEL_HD T weight(T g, T y) const { return g / pow(select(y == T(0), T(1), y), T(p - 1)); }
  template <class T> REEL_HD T slope(T w, T gap, T) const {
    return signed_like(w, gap) * pow(select(gap == T(0), T(1), abs(gap)), T(p - 1));
  }
};

// clang-format on

/// Calls f(norm) for the p-norm, p >= 0, of vectors of `size` elements. The power of a single element may be infinite.
template <class F>
auto with_norm(double p, int64_t size, const F& f) {
  if (p == 0) return f(CountNorm());
  if (p == 1 || size == 1) return f(AbsNorm());
  if (p == 2) return f(EuclideanNorm());
  return p == kInfinity ? f(MaxNorm()) : f(PowerNorm{p});
}

}  // namespace reel::functors
