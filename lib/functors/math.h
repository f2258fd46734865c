#pragma once
#include "lib/functors/list.h"
#include "lib/functors/number.h"

// Mathematical functions of one argument: operator()(x) and grad(g, x, y). kIntegers: the op is also defined for
// integers, and stays there.
namespace reel::functors {

// A formula a line, whatever clang-format makes of templates:
// clang-format off

struct Neg {
  static constexpr Save save = kNothing;
  static constexpr bool kIntegers = true;
  // Not -x, which xsimd 8.1 takes for 0 - x on AVX-512: zeros would lose their sign.
  template <class T> REEL_HD T operator()(T x) const { return T(x * T(-1)); }
  template <class T> REEL_HD T grad(T g, T, T) const { return -g; }
};
struct Abs {
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = true;
  template <class T> REEL_HD T operator()(T x) const { return abs(x); }
  template <class T> REEL_HD T grad(T g, T x, T) const { return g * select(x > T(0), T(1), select(x < T(0), T(-1), T(0))); }
};
struct Sign {
  static constexpr Save save = kNothing;
  static constexpr bool kIntegers = true;
  template <class T> REEL_HD T operator()(T x) const { return select(x > T(0), T(1), select(x < T(0), T(-1), T(0))); }
  template <class T> REEL_HD T grad(T g, T, T) const { return zeros_like(g); }
};
struct Exp {
  static constexpr Save save = kOutput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return exp(x); }
  template <class T> REEL_HD T grad(T g, T, T y) const { return g * y; }
};
struct Expm1 {
  static constexpr Save save = kOutput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return expm1(x); }
  template <class T> REEL_HD T grad(T g, T, T y) const { return g * (y + T(1)); }
};
struct Log {
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return log(x); }
  template <class T> REEL_HD T grad(T g, T x, T) const { return g / x; }
};
struct Log1p {
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return log1p(x); }
  template <class T> REEL_HD T grad(T g, T x, T) const { return g / (x + T(1)); }
};
struct Sqrt {
  static constexpr Save save = kOutput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return sqrt(x); }
  template <class T> REEL_HD T grad(T g, T, T y) const { return g / (T(2) * y); }
};
struct Rsqrt {
  static constexpr Save save = kOutput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return T(1) / sqrt(x); }
  template <class T> REEL_HD T grad(T g, T, T y) const { return g * T(-0.5) * y * y * y; }
};
struct Square {
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = true;
  template <class T> REEL_HD T operator()(T x) const { return T(x * x); }
  template <class T> REEL_HD T grad(T g, T x, T) const { return g * T(2) * x; }
};
struct Reciprocal {
  static constexpr Save save = kOutput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return T(1) / x; }
  template <class T> REEL_HD T grad(T g, T, T y) const { return -g * y * y; }
};
struct Sin {
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return sin(x); }
  template <class T> REEL_HD T grad(T g, T x, T) const { return g * cos(x); }
};
struct Cos {
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return cos(x); }
  template <class T> REEL_HD T grad(T g, T x, T) const { return -g * sin(x); }
};
struct Tanh {
  static constexpr Save save = kOutput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return tanh(x); }
  template <class T> REEL_HD T grad(T g, T, T y) const { return g * (T(1) - y * y); }
};
struct Sigmoid {
  static constexpr Save save = kOutput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return sigmoid(x); }
  template <class T> REEL_HD T grad(T g, T, T y) const { return g * y * (T(1) - y); }
};
struct Erf {
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return erf(x); }
  template <class T> REEL_HD T grad(T g, T x, T) const { return g * T(1.1283791670955126) * exp(-(x * x)); }  // 2/√π
};
struct Tan {
  static constexpr Save save = kOutput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return tan(x); }
  template <class T> REEL_HD T grad(T g, T, T y) const { return g * (T(1) + y * y); }
};
struct Asin {
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return asin(x); }
  template <class T> REEL_HD T grad(T g, T x, T) const { return g / sqrt(T(1) - x * x); }
};
struct Acos {
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return acos(x); }
  template <class T> REEL_HD T grad(T g, T x, T) const { return -g / sqrt(T(1) - x * x); }
};
struct Atan {
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return atan(x); }
  template <class T> REEL_HD T grad(T g, T x, T) const { return g / (T(1) + x * x); }
};
struct Sinh {
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return sinh(x); }
  template <class T> REEL_HD T grad(T g, T x, T) const { return g * cosh(x); }
};
struct Cosh {
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return cosh(x); }
  template <class T> REEL_HD T grad(T g, T x, T) const { return g * sinh(x); }
};
struct Asinh {
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return asinh(x); }
  template <class T> REEL_HD T grad(T g, T x, T) const { return g / sqrt(x * x + T(1)); }
};
struct Acosh {
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return acosh(x); }
  template <class T> REEL_HD T grad(T g, T x, T) const { return g / sqrt(x * x - T(1)); }
};
struct Atanh {
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return atanh(x); }
  template <class T> REEL_HD T grad(T g, T x, T) const { return g / (T(1) - x * x); }
};
struct Log2 {
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return log2(x); }
  template <class T> REEL_HD T grad(T g, T x, T) const { return g / (x * T(kLn2)); }
};
struct Log10 {
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return log10(x); }
  template <class T> REEL_HD T grad(T g, T x, T) const { return g / (x * T(2.30258509299404568402)); }
};
struct Exp2 {
  static constexpr Save save = kOutput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return exp2(x); }
  template <class T> REEL_HD T grad(T g, T, T y) const { return g * y * T(kLn2); }
};
struct Erfc {
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return erfc(x); }
  template <class T> REEL_HD T grad(T g, T x, T) const { return g * T(-1.1283791670955126) * exp(-(x * x)); }
};
struct Lgamma {
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return lgamma(x); }
  template <class T> REEL_HD T grad(T g, T x, T) const { return g * polygamma(0, x); }
};
struct Polygamma {
  int n;
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return polygamma(n, x); }
  template <class T> REEL_HD T grad(T g, T x, T) const { return g * polygamma(n + 1, x); }
};
struct Floor {
  static constexpr Save save = kNothing;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return floor(x); }
  template <class T> REEL_HD T grad(T g, T, T) const { return zeros_like(g); }
};
struct Ceil {
  static constexpr Save save = kNothing;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return ceil(x); }
  template <class T> REEL_HD T grad(T g, T, T) const { return zeros_like(g); }
};
struct Round {
  static constexpr Save save = kNothing;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return nearbyint(x); }
  template <class T> REEL_HD T grad(T g, T, T) const { return zeros_like(g); }
};
struct Trunc {
  static constexpr Save save = kNothing;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return trunc(x); }
  template <class T> REEL_HD T grad(T g, T, T) const { return zeros_like(g); }
};
struct Frac {
  static constexpr Save save = kNothing;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return x - trunc(x); }
  template <class T> REEL_HD T grad(T g, T, T) const { return g; }
};
struct NanToNum {
  double nan, max, min;
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return select(x != x, T(nan), select(x == T(kInfinity), T(max), select(x == T(-kInfinity), T(min), x))); }
  template <class T> REEL_HD T grad(T g, T x, T) const { return select(abs(x) < T(kInfinity), g, T(0)); }
};

using MathList =
    std::tuple<Neg, Abs, Sign, Exp, Expm1, Log, Log1p, Sqrt, Rsqrt, Square, Reciprocal, Sin, Cos, Tanh, Sigmoid, Erf,
               Tan, Asin, Acos, Atan, Sinh, Cosh, Asinh, Acosh, Atanh, Log2, Log10, Exp2, Erfc, Lgamma, Polygamma, Floor,
               Ceil, Round, Trunc, Frac, NanToNum>;

// clang-format on

}  // namespace reel::functors
