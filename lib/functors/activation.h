#pragma once
#include "lib/functors/list.h"
#include "lib/functors/number.h"

// Activation functions of one argument, as those of math.h.
namespace reel::functors {

// A formula a line, whatever clang-format makes of templates:
// clang-format off

struct Relu {
  static constexpr Save save = kOutput;
  static constexpr bool kIntegers = true;
  template <class T> REEL_HD T operator()(T x) const { return select(x < T(0), T(0), x); }  // keeps NaN
  template <class T> REEL_HD T grad(T g, T, T y) const { return select(y <= T(0), T(0), g); }  // passes NaN on
};
struct LeakyRelu {
  double slope;
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return select(x > T(0), x, T(slope) * x); }
  template <class T> REEL_HD T grad(T g, T x, T) const { return select(x > T(0), g, T(slope) * g); }
};
/// ELU, SELU and CELU: scale x right of 0, scale alpha (exp(input_scale x) - 1) left of it.
struct Elu {
  double alpha, scale = 1, input_scale = 1;
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const {
    return select(x > T(0), T(scale) * x, T(scale * alpha) * expm1(T(input_scale) * x));
  }
  // The inner choice keeps exp from overflowing where it is not chosen: 0 times infinity would be the second derivative.
  template <class T> REEL_HD T grad(T g, T x, T) const {
    const T left = exp(T(input_scale) * select(x <= T(0), x, T(0)));
    return select(x <= T(0), g * T(scale * alpha * input_scale) * left, T(scale) * g);
  }
};
struct Gelu {
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T cdf(T x) const {
    if constexpr (requires { normal_cdf(x); })
      return normal_cdf(x);
    else
      return T(0.5) * (T(1) + erf(x * T(0.70710678118654752)));
  }
  template <class T> REEL_HD T operator()(T x) const { return x * cdf(x); }
  template <class T> REEL_HD T grad(T g, T x, T) const {
    return g * (cdf(x) + x * T(0.3989422804014327) * exp(T(-0.5) * x * x));  // 1/√(2π)
  }
};
/// The approximation x σ(2 √(2/π) (x + 0.044715 x³)) of Gelu, written with tanh as Hendrycks & Gimpel do. Beyond ±10 the
/// gate is 0 or 1, and its slope must not become 0 times infinity.
struct GeluTanh {
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T bounded(T x) const { return select(x < T(-10), T(-10), select(x > T(10), T(10), x)); }
  template <class T> REEL_HD T inner(T b) const { return T(0.7978845608028654) * (b + T(0.044715) * b * b * b); }
  template <class T> REEL_HD T operator()(T x) const { return T(0.5) * x * (T(1) + tanh(inner(bounded(x)))); }
  template <class T> REEL_HD T grad(T g, T x, T) const {
    const T b = bounded(x), t = tanh(inner(b)), slope = T(0.7978845608028654) * (T(1) + T(0.134145) * b * b);
    return g * T(0.5) * (T(1) + t + b * (T(1) - t * t) * slope);
  }
};
struct Silu {
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return silu(x); }
  template <class T> REEL_HD T grad(T g, T x, T) const {
    const T s = sigmoid(x);
    return g * s * (T(1) + x * (T(1) - s));
  }
};
struct Hardsigmoid {
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const {
    return select(x <= T(-3), T(0), select(x >= T(3), T(1), (x + T(3)) * T(1. / 6)));
  }
  template <class T> REEL_HD T grad(T g, T x, T) const {
    return select((x <= T(-3)) | (x >= T(3)) | (x != x), T(0), g * T(1. / 6));
  }
};
struct Softsign {
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return x / (T(1) + abs(x)); }
  template <class T> REEL_HD T grad(T g, T x, T) const {
    const T d = T(1) + abs(x);
    return g / d / d;  // d² may overflow
  }
};
struct Tanhshrink {
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return x - tanh(x); }
  template <class T> REEL_HD T grad(T g, T x, T) const {
    const T t = tanh(x);
    return g * t * t;
  }
};
struct Hardshrink {
  double lambda;
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return select(abs(x) <= T(lambda), T(0), x); }
  template <class T> REEL_HD T grad(T g, T x, T) const { return select(abs(x) <= T(lambda), T(0), g); }
};
struct Softshrink {
  double lambda;
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const {
    return select(abs(x) <= T(lambda), T(0), x + select(x > T(0), T(-lambda), T(lambda)));
  }
  template <class T> REEL_HD T grad(T g, T x, T) const { return select(abs(x) <= T(lambda), T(0), g); }
};
struct Threshold {
  double threshold, value;
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return select(x <= T(threshold), T(value), x); }
  template <class T> REEL_HD T grad(T g, T x, T) const { return select(x <= T(threshold), T(0), g); }
};
/// x tanh(log(1 + eˣ)) = x n / (n + 2) with n = eˣ (eˣ + 2); beyond 20 it is x.
struct Mish {
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T bounded(T x) const { return select(x > T(20), T(20), x); }
  template <class T> REEL_HD T operator()(T x) const {
    const T e = exp(bounded(x)), n = e * (e + T(2));
    return x * (n / (n + T(2)));
  }
  template <class T> REEL_HD T grad(T g, T x, T) const {
    const T b = bounded(x), e = exp(b), n = e * (e + T(2)), d = n + T(2);
    return g * (n / d + b * (T(4) * e * (e + T(1)) / (d * d)));
  }
};
struct LogSigmoid {
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return select(x > T(0), T(0), x) - log1p_exp(-abs(x)); }
  template <class T> REEL_HD T grad(T g, T x, T) const { return g * sigmoid(-x); }
};
struct Hardswish {
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const {
    return select(x <= T(-3), T(0), select(x >= T(3), x, x * (x + T(3)) * T(1. / 6)));
  }
  // Beyond the ends an infinite gradient must not meet a factor 0, also not in the derivatives of this.
  template <class T> REEL_HD T grad(T g, T x, T) const {
    const auto inside = (x > T(-3)) & (x < T(3));
    const T inner = select(inside, g, T(0)) * (x * T(1. / 3) + T(0.5));
    return select(inside, inner, select(x <= T(-3), T(0), g));
  }
};
struct Softplus {
  double beta, threshold;
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const {
    const T z = x * T(beta);
    return select(z > T(threshold), x, (select(z > T(0), z, T(0)) + log1p_exp(-abs(z))) / T(beta));
  }
  template <class T> REEL_HD T grad(T g, T x, T) const {
    const T z = x * T(beta);
    return select(z > T(threshold), g, g * sigmoid(z));
  }
};
/// At the bounds and at NaN, too, the slope is 0. A bound that is NaN is none.
struct Clamp {
  double low, high;
  static constexpr Save save = kInput;  // not the output, so that it may be changed in place
  static constexpr bool kIntegers = true;  // where both bounds are integers of the type that a double holds
  // high wins where it is below low, as in PyTorch.
  template <class T> REEL_HD T operator()(T x) const {
    x = select(x < T(low), T(low), x);
    return select(x > T(high), T(high), x);
  }
  template <class T> REEL_HD T grad(T g, T x, T) const { return select((x <= T(low)) | (x >= T(high)) | (x != x), T(0), g); }
};
/// Logit is the inverse of sigmoid on [eps, 1 - eps], to which it clamps; a negative eps is none.
struct Logit {
  double eps;
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const {
    if (eps >= 0) x = Clamp{eps, 1 - eps}(x);
    return log(x / (T(1) - x));
  }
  template <class T> REEL_HD T grad(T g, T x, T) const {
    const double low = eps < 0 ? 0 : eps;
    const auto inside = (x >= T(low)) & (x <= T(1 - low));
    const T safe = select(inside, x, T(0.5)), slope = g / (safe * (T(1) - safe) + T(0));  // not -0
    return select(inside, slope, T(eps < 0 ? NAN : 0));
  }
};

using ActivationList = std::tuple<Relu, LeakyRelu, Elu, Gelu, GeluTanh, Silu, Mish, LogSigmoid, Hardsigmoid, Hardswish, Softsign,
                                  Tanhshrink, Hardshrink, Softshrink, Threshold, Softplus, Clamp, Logit>;

// clang-format on

}  // namespace reel::functors
