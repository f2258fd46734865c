#pragma once
#include <tuple>
#include <type_traits>

#include "lib/functors/number.h"

// The formula of every pointwise op and of its derivative, once. T is float or double in a CUDA kernel, an
// xsimd::batch in a CPU kernel, an integer where a functor says so, and Tensor in a gradient that must itself be
// differentiable. Hence the vocabulary: operators, comparisons, select(c, a, b), and the functions found by
// argument-dependent lookup or declared in number.h. Parameters are members of the functor.
//
// nvcc rejects generic host/device lambdas, so everything is a struct with a template.

namespace reel::functors {

// A formula a line, whatever clang-format makes of templates:
// clang-format off

/// Which of its tensors a derivative reads: the tape keeps these and nothing else. Flags.
/// kSame: the derivative is the incoming gradient itself.
enum Save : int { kNothing = 0, kInput = 1, kOutput = 2, kA = 1, kB = 4, kSame = 8 };

// ---- one argument: operator()(x) and grad(g, x, y) ------------------------------------------------------------------
// kIntegers: the op is also defined for integers, and stays there.

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
struct NanToNum {
  double nan, most, least;
  static constexpr Save save = kInput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T x) const { return select(x != x, T(nan), select(x == T(kInfinity), T(most), select(x == T(-kInfinity), T(least), x))); }
  template <class T> REEL_HD T grad(T g, T x, T) const { return select(abs(x) < T(kInfinity), g, T(0)); }
};

// Activations.

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
  template <class T> REEL_HD T cdf(T x) const { return T(0.5) * (T(1) + erf(x * T(0.70710678118654752))); }
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
  static constexpr bool kIntegers = false;  // exact bounds for integers: minimum(maximum(x, low), high)
  // high wins where it is below low, as in PyTorch.
  template <class T> REEL_HD T operator()(T x) const {
    x = select(x < T(low), T(low), x);
    return select(x > T(high), T(high), x);
  }
  template <class T> REEL_HD T grad(T g, T x, T) const { return select((x <= T(low)) | (x >= T(high)) | (x != x), T(0), g); }
};

using UnaryList =
    std::tuple<Neg, Abs, Sign, Exp, Expm1, Log, Log1p, Sqrt, Rsqrt, Square, Reciprocal, Sin, Cos, Tanh, Sigmoid, Erf,
               Tan, Asin, Acos, Atan, Sinh, Cosh, Asinh, Acosh, Atanh, Log2, Log10, Exp2, Erfc, Lgamma, Polygamma, Floor,
               Ceil, Round, Trunc, NanToNum, Relu, LeakyRelu, Elu, Gelu, GeluTanh, Silu, Mish, LogSigmoid, Hardswish,
               Softplus, Clamp>;

// ---- two arguments: operator()(a, b), grad_a(g, a, b, y) and grad_b(g, a, b, y) -------------------------------------
// save_a and save_b say what grad_a and grad_b read: kA, kB, kOutput, or kSame.

struct Add {
  static constexpr int save_a = kSame, save_b = kSame;
  static constexpr bool kIntegers = true;
  template <class T> REEL_HD T operator()(T a, T b) const { return T(a + b); }
  template <class T> REEL_HD T grad_a(T g, T, T, T) const { return g; }
  template <class T> REEL_HD T grad_b(T g, T, T, T) const { return g; }
};
struct Sub {
  static constexpr int save_a = kSame, save_b = kNothing;
  static constexpr bool kIntegers = true;
  template <class T> REEL_HD T operator()(T a, T b) const { return T(a - b); }
  template <class T> REEL_HD T grad_a(T g, T, T, T) const { return g; }
  template <class T> REEL_HD T grad_b(T g, T, T, T) const { return -g; }
};
struct Mul {
  static constexpr int save_a = kB, save_b = kA;
  static constexpr bool kIntegers = true;
  template <class T> REEL_HD T operator()(T a, T b) const { return T(a * b); }
  template <class T> REEL_HD T grad_a(T g, T, T b, T) const { return g * b; }
  template <class T> REEL_HD T grad_b(T g, T a, T, T) const { return g * a; }
};
struct Div {
  static constexpr int save_a = kB, save_b = kA | kB;  // not the output, so that it may be changed in place
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T a, T b) const { return a / b; }
  template <class T> REEL_HD T grad_a(T g, T, T b, T) const { return g / b; }
  template <class T> REEL_HD T grad_b(T g, T a, T b, T) const { return -g * (a / b) / b; }
};
struct Pow {
  static constexpr int save_a = kA | kB, save_b = kA | kB | kOutput;
  static constexpr bool kIntegers = true;
  template <class T> REEL_HD T operator()(T a, T b) const { return pow(a, b); }
  // A constant (b = 0) has slope 0 also where pow(a, -1) is infinite. Elsewhere its slope moves with b.
  template <class T> REEL_HD T grad_a(T g, T a, T b, T) const {
    const T slope = g * pow(select((a == T(0)) & (b == T(0)), T(1), a), b - T(1));
    return select((b == T(0)) & ((slope != slope) | (abs(slope) == T(kInfinity))), T(0), b * slope);
  }
  // 0^b for b >= 0 stays the same whatever b does, though log(0) is infinite. Its slope does not move with a, either.
  template <class T> REEL_HD T grad_b(T g, T a, T b, T y) const {
    const auto flat = (a == T(0)) & (b >= T(0));
    return select(flat, T(0), g * y * log(select(flat, T(1), a)));
  }
};
// Beside NaN both operands have slope 1.
struct Maximum {
  static constexpr int save_a = kA | kB, save_b = kA | kB;
  static constexpr bool kIntegers = true;
  template <class T> REEL_HD T operator()(T a, T b) const { return select((a > b) | (a != a), a, b); }
  template <class T> REEL_HD T grad_a(T g, T a, T b, T) const { return select(a == b, g * T(0.5), select(a < b, T(0), g)); }
  template <class T> REEL_HD T grad_b(T g, T a, T b, T) const { return select(a == b, g * T(0.5), select(a > b, T(0), g)); }
};
struct Minimum {
  static constexpr int save_a = kA | kB, save_b = kA | kB;
  static constexpr bool kIntegers = true;
  template <class T> REEL_HD T operator()(T a, T b) const { return select((a < b) | (a != a), a, b); }
  template <class T> REEL_HD T grad_a(T g, T a, T b, T) const { return select(a == b, g * T(0.5), select(a > b, T(0), g)); }
  template <class T> REEL_HD T grad_b(T g, T a, T b, T) const { return select(a == b, g * T(0.5), select(a < b, T(0), g)); }
};

struct Hypot {
  static constexpr int save_a = kA | kOutput, save_b = kB | kOutput;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T a, T b) const { return hypot(a, b); }
  template <class T> REEL_HD T grad_a(T g, T a, T, T y) const { return g * (a / y); }
  template <class T> REEL_HD T grad_b(T g, T, T b, T y) const { return g * (b / y); }
};
struct Atan2 {
  static constexpr int save_a = kA | kB, save_b = kA | kB;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T a, T b) const { return atan2(a, b); }
  // 0 at the origin, as are its derivatives. a² + b² would leave the range of T.
  template <class T> REEL_HD T grad_a(T g, T a, T b, T) const {
    const auto origin = (a == T(0)) & (b == T(0));
    const T r = hypot(select(origin, T(1), a), b);
    return select(origin, T(0), g * (b / r / r));
  }
  template <class T> REEL_HD T grad_b(T g, T a, T b, T) const { return grad_a(-g, b, a, b); }
};
struct Logaddexp {
  static constexpr int save_a = kA | kB, save_b = kA | kB;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T a, T b) const {
    const T most = select((a > b) | (a != a), a, b);
    return select(a == b, a + T(kLn2), most + log1p_exp(-abs(a - b)));
  }
  // Two equal infinities share the gradient: their difference is NaN.
  template <class T> REEL_HD T share(T a, T b) const {
    return sigmoid(select((a == b) & (abs(a) == T(kInfinity)), T(0), a - b));
  }
  template <class T> REEL_HD T grad_a(T g, T a, T b, T) const { return g * share(a, b); }
  template <class T> REEL_HD T grad_b(T g, T a, T b, T) const { return g * share(b, a); }
};
template <class T> REEL_HD T xlogy(T a, T b) { return select((a == T(0)) & (b == b), T(0), a * log(b)); }
struct Xlogy {
  static constexpr int save_a = kA | kB, save_b = kA | kB;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T a, T b) const { return xlogy(a, b); }
  template <class T> REEL_HD T grad_a(T g, T a, T b, T) const {
    return select((a == T(0)) & (b <= T(0)), T(0), xlogy(g, b));
  }
  template <class T> REEL_HD T grad_b(T g, T a, T b, T) const { return g * a / b; }
};
/// a where it is positive, a times the slope b elsewhere.
struct Prelu {
  static constexpr int save_a = kA | kB, save_b = kA;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T a, T b) const { return select(a > T(0), a, b * a); }
  template <class T> REEL_HD T grad_a(T g, T a, T b, T) const { return select(a > T(0), g, b * g); }
  template <class T> REEL_HD T grad_b(T g, T a, T, T) const { return select(a > T(0), T(0), g * a); }
};

// Division with a remainder has no vector form that is exact for all operands: kOneByOne, there T is never a batch.
// Their slope by b is the negative quotient, a whole number, whose own slope is exactly 0. It is computed from the
// remainder y or, where T is Tensor, by an op that is differentiable.

/// The quotient of which a = quotient b + y. Its own is -1 where y is b, infinite.
template <class T> REEL_HD T quotient_of(T a, T b, T y) {
  return select((abs(a) < T(kInfinity)) & (abs(y) == T(kInfinity)), T(-1), select(b == T(0), a / b, nearbyint((a - y) / b)));
}

struct Fmod {
  static constexpr int save_a = kSame, save_b = kA | kB | kOutput;
  static constexpr bool kIntegers = true, kOneByOne = true;
  template <class T> REEL_HD T operator()(T a, T b) const { return fmod(a, b); }
  template <class T> REEL_HD T grad_a(T g, T, T, T) const { return g; }
  template <class T> REEL_HD T grad_b(T g, T a, T b, T y) const {
    if constexpr (requires { floor_divide(a, b); }) {
      const T quotient = floor_divide(abs(a), abs(b));
      return g * select((a < T(0)) == (b < T(0)), -quotient, quotient);
    } else {
      return -g * quotient_of(a, b, y);
    }
  }
};
struct Remainder {
  static constexpr int save_a = kSame, save_b = kA | kB | kOutput;
  static constexpr bool kIntegers = true, kOneByOne = true;
  template <class T> REEL_HD T operator()(T a, T b) const {
    const T rest = fmod(a, b);
    return rest != T(0) && (rest < T(0)) != (b < T(0)) ? T(rest + b) : rest;
  }
  template <class T> REEL_HD T grad_a(T g, T, T, T) const { return g; }
  template <class T> REEL_HD T grad_b(T g, T a, T b, T y) const {
    if constexpr (requires { floor_divide(a, b); })
      return -g * floor_divide(a, b);
    else
      return -g * quotient_of(a, b, y);
  }
};
/// ⌊a / b⌋, of the exact quotient as in Python.
struct FloorDivide {
  static constexpr int save_a = kNothing, save_b = kNothing;
  static constexpr bool kIntegers = true, kOneByOne = true;
  template <class T> REEL_HD T operator()(T a, T b) const {
    const T rest = fmod(a, b);
    const bool below = rest != T(0) && (rest < T(0)) != (b < T(0));
    if constexpr (std::is_integral_v<T>) {
      return b == T(0) ? T(0) : is_minus_one(b) ? T(T(0) - a) : T(a / b - T(below));
    } else {
      if (b == T(0)) return a / b;
      const T quotient = (a - rest) / b - T(below), whole = floor(quotient);
      if (quotient == T(0)) return T(0) * (a / b);
      return whole + T(quotient - whole > T(0.5));
    }
  }
  template <class T> REEL_HD T grad_a(T g, T, T, T) const { return zeros_like(g); }
  template <class T> REEL_HD T grad_b(T g, T, T, T) const { return zeros_like(g); }
};

using BinaryList = std::tuple<Add, Sub, Mul, Div, Pow, Maximum, Minimum, Hypot, Atan2, Logaddexp, Xlogy, Prelu, Fmod,
                              Remainder, FloorDivide>;

// ---- three arguments: operator()(a, b, c). Their derivatives are written in ops. ------------------------------------

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

// ---- bits of integers -----------------------------------------------------------------------------------------------

struct BitAnd { template <class T> REEL_HD T operator()(T a, T b) const { return T(a & b); } };
struct BitOr { template <class T> REEL_HD T operator()(T a, T b) const { return T(a | b); } };
struct BitXor { template <class T> REEL_HD T operator()(T a, T b) const { return T(a ^ b); } };
/// By a number of places outside [0, bits of T) all bits of T are shifted out.
struct ShiftLeft {
  template <class T> REEL_HD T operator()(T a, T b) const {
    return b < T(0) || b >= T(8 * sizeof(T)) ? T(0) : T(static_cast<uint64_t>(a) << b);
  }
};
struct ShiftRight {
  template <class T> REEL_HD T operator()(T a, T b) const {
    return b < T(0) || b >= T(8 * sizeof(T)) ? (a < T(0) ? T(-1) : T(0)) : T(a >> b);
  }
};

using BitList = std::tuple<BitAnd, BitOr, BitXor, ShiftLeft, ShiftRight>;

// ---- comparisons: bool results --------------------------------------------------------------------------------------

struct Eq { template <class T> REEL_HD auto operator()(T a, T b) const { return a == b; } };
struct Ne { template <class T> REEL_HD auto operator()(T a, T b) const { return a != b; } };
struct Lt { template <class T> REEL_HD auto operator()(T a, T b) const { return a < b; } };
struct Le { template <class T> REEL_HD auto operator()(T a, T b) const { return a <= b; } };
struct LogicalAnd { template <class T> REEL_HD auto operator()(T a, T b) const { return (a != T(0)) & (b != T(0)); } };
struct LogicalOr { template <class T> REEL_HD auto operator()(T a, T b) const { return (a != T(0)) | (b != T(0)); } };
struct LogicalXor { template <class T> REEL_HD auto operator()(T a, T b) const { return (a != T(0)) != (b != T(0)); } };

using CompareList = std::tuple<Eq, Ne, Lt, Le, LogicalAnd, LogicalOr, LogicalXor>;

// clang-format on

// ---- positions in the lists -----------------------------------------------------------------------------------------

template <class F, class... All>
consteval int position(std::tuple<All...>*) {
  int at = 0;
  (void)((std::is_same_v<F, All> ? true : (++at, false)) || ...);
  return at;
}
/// The row of F in a backend's table.
template <class List, class F>
inline constexpr int index_of = position<F>(static_cast<List*>(nullptr));

}  // namespace reel::functors
