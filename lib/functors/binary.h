#pragma once
#include "lib/functors/list.h"
#include "lib/functors/number.h"

// Functions of two arguments: operator()(a, b), grad_a(g, a, b, y) and grad_b(g, a, b, y). save_a and save_b say what
// grad_a and grad_b read: kA, kB, kOutput, or kSame.
namespace reel::functors {

// A formula a line, whatever clang-format makes of templates:
// clang-format off

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
/// AddScaled is a + alpha b.
struct AddScaled {
  double alpha;
  static constexpr int save_a = kSame, save_b = kNothing;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T a, T b) const { return a + T(alpha) * b; }
  template <class T> REEL_HD T grad_a(T g, T, T, T) const { return g; }
  template <class T> REEL_HD T grad_b(T g, T, T, T) const { return T(alpha) * g; }
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
    const T larger = select((a > b) | (a != a), a, b);
    return select(a == b, a + T(kLn2), larger + log1p_exp(-abs(a - b)));
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

// Division with a remainder is exact. The slope by b is the negative quotient, a whole number, whose own slope is
// exactly 0. It is computed from the remainder y or, where T is Tensor, by an op that is differentiable.

/// The quotient of which a = quotient b + y. Its own is -1 where y is b, infinite.
template <class T> REEL_HD T quotient_of(T a, T b, T y) {
  const auto finite = abs(a) < T(kInfinity), infinite = abs(y) == T(kInfinity);
  return select(finite & infinite, T(-1), select(b == T(0), a / b, nearbyint((a - y) / b)));
}

/// Returns whether the remainder is on the other side of 0 than the divisor, which is added to it then.
template <class T> REEL_HD auto is_opposite(T rest, T b) {
  return ((rest < T(0)) & (b > T(0))) | ((rest > T(0)) & (b < T(0)));
}

struct Fmod {
  static constexpr int save_a = kSame, save_b = kA | kB | kOutput;
  static constexpr bool kIntegers = true;
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
  static constexpr bool kIntegers = true;
  template <class T> REEL_HD T operator()(T a, T b) const {
    const T rest = fmod(a, b);
    const auto opposite = is_opposite(rest, b);
    if constexpr (std::is_integral_v<T>)
      return opposite ? T(rest + b) : rest;
    else
      return select(opposite, rest + b, rest);
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
  static constexpr bool kIntegers = true;
  template <class T> REEL_HD T operator()(T a, T b) const {
    const T rest = fmod(a, b);
    const auto below = is_opposite(rest, b);
    if constexpr (std::is_integral_v<T>) {
      return b == T(0) ? T(0) : is_minus_one(b) ? T(T(0) - a) : T(a / b - T(below));
    } else {
      const T ratio = a / b, quotient = (a - rest) / b - select(below, T(1), T(0)), whole = floor(quotient);
      const T rounded = whole + select(quotient - whole > T(0.5), T(1), T(0));
      return select(b == T(0), ratio, select(quotient == T(0), T(0) * ratio, rounded));
    }
  }
  template <class T> REEL_HD T grad_a(T g, T, T, T) const { return zeros_like(g); }
  template <class T> REEL_HD T grad_b(T g, T, T, T) const { return zeros_like(g); }
};

// Losses of a prediction a and a target b, each element by itself.

struct SquaredError {
  static constexpr int save_a = kA | kB, save_b = kA | kB;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T a, T b) const { const T d = a - b; return d * d; }
  template <class T> REEL_HD T grad_a(T g, T a, T b, T) const { return g * (T(2) * (a - b)); }
  template <class T> REEL_HD T grad_b(T g, T a, T b, T) const { return g * (T(2) * (b - a)); }
};
/// HuberError is Huber's function of the difference d, c (d - c / 2) / divisor for c, which is d clamped to ±delta.
struct HuberError {
  double delta, divisor;
  static constexpr int save_a = kA | kB, save_b = kA | kB;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T clamped(T d) const {
    d = select(d < T(-delta), T(-delta), d);
    return select(d > T(delta), T(delta), d);
  }
  template <class T> REEL_HD T operator()(T a, T b) const {
    const T d = a - b, c = clamped(d);
    return c * (d - c * T(0.5)) / T(divisor);
  }
  template <class T> REEL_HD T grad_a(T g, T a, T b, T) const { return g * (clamped(a - b) / T(divisor)); }
  template <class T> REEL_HD T grad_b(T g, T a, T b, T) const { return g * (clamped(b - a) / T(divisor)); }
};
/// LogisticLoss is -(b log σ(a) + (1 - b) log σ(-a)), in which each term is exact by itself, so nothing cancels.
struct LogisticLoss {
  static constexpr int save_a = kA | kB, save_b = kA;
  static constexpr bool kIntegers = false;
  template <class T> REEL_HD T operator()(T a, T b) const {
    const T rest = log1p_exp(-abs(a)), negative = select(a > T(0), T(0), a), positive = select(a > T(0), a, T(0));
    return (T(1) - b) * (positive + rest) - b * (negative - rest);
  }
  template <class T> REEL_HD T grad_a(T g, T a, T b, T) const { return g * ((T(1) - b) * sigmoid(a) - b * sigmoid(-a)); }
  template <class T> REEL_HD T grad_b(T g, T a, T, T) const { return -(g * a); }
};

using BinaryList = std::tuple<Add, Sub, AddScaled, Mul, Div, Pow, Maximum, Minimum, Hypot, Atan2, Logaddexp, Xlogy, Prelu, Fmod,
                              Remainder, FloorDivide, SquaredError, HuberError, LogisticLoss>;

// clang-format on

}  // namespace reel::functors
