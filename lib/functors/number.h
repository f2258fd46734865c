#pragma once
#include <cmath>
#include <cstdint>
#include <type_traits>

// The functions of plain numbers that the functors of pointwise.h are written with, and those that the C library lacks.

#if defined(__CUDACC__)
#define REEL_HD __host__ __device__
#else
#define REEL_HD
#endif

namespace reel::functors {

// clang-format off

template <class T>
concept Number = std::is_arithmetic_v<T>;
template <class T>
concept Float = std::is_floating_point_v<T>;
template <class T>
concept Integer = std::is_integral_v<T>;

inline constexpr double kInfinity = HUGE_VAL, kPi = 3.14159265358979323846, kLn2 = 0.69314718055994530942;

REEL_HD static inline float exp(float x) { return ::expf(x); }
REEL_HD static inline double exp(double x) { return ::exp(x); }
REEL_HD static inline float exp2(float x) { return ::exp2f(x); }
REEL_HD static inline double exp2(double x) { return ::exp2(x); }
REEL_HD static inline float expm1(float x) { return ::expm1f(x); }
REEL_HD static inline double expm1(double x) { return ::expm1(x); }
REEL_HD static inline float log(float x) { return ::logf(x); }
REEL_HD static inline double log(double x) { return ::log(x); }
REEL_HD static inline float log2(float x) { return ::log2f(x); }
REEL_HD static inline double log2(double x) { return ::log2(x); }
REEL_HD static inline float log10(float x) { return ::log10f(x); }
REEL_HD static inline double log10(double x) { return ::log10(x); }
REEL_HD static inline float log1p(float x) { return ::log1pf(x); }
REEL_HD static inline double log1p(double x) { return ::log1p(x); }
REEL_HD static inline float sqrt(float x) { return ::sqrtf(x); }
REEL_HD static inline double sqrt(double x) { return ::sqrt(x); }
REEL_HD static inline float sin(float x) { return ::sinf(x); }
REEL_HD static inline double sin(double x) { return ::sin(x); }
REEL_HD static inline float cos(float x) { return ::cosf(x); }
REEL_HD static inline double cos(double x) { return ::cos(x); }
REEL_HD static inline float tan(float x) { return ::tanf(x); }
REEL_HD static inline double tan(double x) { return ::tan(x); }
REEL_HD static inline float asin(float x) { return ::asinf(x); }
REEL_HD static inline double asin(double x) { return ::asin(x); }
REEL_HD static inline float acos(float x) { return ::acosf(x); }
REEL_HD static inline double acos(double x) { return ::acos(x); }
REEL_HD static inline float atan(float x) { return ::atanf(x); }
REEL_HD static inline double atan(double x) { return ::atan(x); }
REEL_HD static inline float sinh(float x) { return ::sinhf(x); }
REEL_HD static inline double sinh(double x) { return ::sinh(x); }
REEL_HD static inline float cosh(float x) { return ::coshf(x); }
REEL_HD static inline double cosh(double x) { return ::cosh(x); }
REEL_HD static inline float tanh(float x) { return ::tanhf(x); }
REEL_HD static inline double tanh(double x) { return ::tanh(x); }
REEL_HD static inline float asinh(float x) { return ::asinhf(x); }
REEL_HD static inline double asinh(double x) { return ::asinh(x); }
REEL_HD static inline float acosh(float x) { return ::acoshf(x); }
REEL_HD static inline double acosh(double x) { return ::acosh(x); }
REEL_HD static inline float atanh(float x) { return ::atanhf(x); }
REEL_HD static inline double atanh(double x) { return ::atanh(x); }
REEL_HD static inline float erf(float x) { return ::erff(x); }
REEL_HD static inline double erf(double x) { return ::erf(x); }
REEL_HD static inline float erfc(float x) { return ::erfcf(x); }
REEL_HD static inline double erfc(double x) { return ::erfc(x); }
REEL_HD static inline float floor(float x) { return ::floorf(x); }
REEL_HD static inline double floor(double x) { return ::floor(x); }
REEL_HD static inline float ceil(float x) { return ::ceilf(x); }
REEL_HD static inline double ceil(double x) { return ::ceil(x); }
REEL_HD static inline float nearbyint(float x) { return ::nearbyintf(x); }
REEL_HD static inline double nearbyint(double x) { return ::nearbyint(x); }
REEL_HD static inline float trunc(float x) { return ::truncf(x); }
REEL_HD static inline double trunc(double x) { return ::trunc(x); }
REEL_HD static inline float abs(float x) { return ::fabsf(x); }
REEL_HD static inline double abs(double x) { return ::fabs(x); }
REEL_HD static inline float pow(float x, float y) { return ::powf(x, y); }
REEL_HD static inline double pow(double x, double y) { return ::pow(x, y); }
REEL_HD static inline float fmod(float x, float y) { return ::fmodf(x, y); }
REEL_HD static inline double fmod(double x, double y) { return ::fmod(x, y); }
REEL_HD static inline float atan2(float x, float y) { return ::atan2f(x, y); }
REEL_HD static inline double atan2(double x, double y) { return ::atan2(x, y); }
REEL_HD static inline float hypot(float x, float y) { return ::hypotf(x, y); }
REEL_HD static inline double hypot(double x, double y) { return ::hypot(x, y); }

template <Number T>
REEL_HD T select(bool c, T a, T b) {
  return c ? a : b;
}
template <Integer T>
REEL_HD T abs(T x) {
  return x < T(0) ? T(-x) : x;
}
/// Is b the divisor whose quotient of the least number overflows? An unsigned type has none: its T(-1) is its largest.
template <Integer T>
REEL_HD bool is_minus_one(T b) {
  return std::is_signed_v<T> && b == T(-1);
}
template <Integer T>
REEL_HD T fmod(T a, T b) {
  return b == T(0) || is_minus_one(b) ? T(0) : T(a % b);
}
/// An integer power; a negative exponent gives 0 but for bases 1 and -1.
template <Integer T>
REEL_HD T pow(T base, T exponent) {
  if (exponent < T(0)) return base == T(1) ? T(1) : base == T(-1) ? (exponent % 2 ? T(-1) : T(1)) : T(0);
  T result = 1;
  for (; exponent; exponent = T(exponent / 2), base = T(base * base))
    if (exponent % 2) result = T(result * base);
  return result;
}

/// A float as an integer, where a cast would be undefined or depend on the processor, too: rounded towards 0, saturated
/// at the ends of the type, 0 for NaN. uint8 takes the lowest bits of the int64 that this gives, as of any integer.
template <Integer To, Float From>
REEL_HD To to_integer(From x) {
  if constexpr (sizeof(To) < sizeof(int32_t)) {
    return static_cast<To>(to_integer<int64_t>(x));
  } else {
    constexpr To least = static_cast<To>(uint64_t{1} << (8 * sizeof(To) - 1)), most = static_cast<To>(~least);
    constexpr From end = -static_cast<From>(least);
    if (abs(x) < end) [[likely]]
      return static_cast<To>(x);
    return x >= end ? most : x < 0 ? least : To(0);
  }
}

/// The slope 0 for the gradient g. Not g times 0, which is NaN where g is infinite.
template <class T>
REEL_HD T zeros_like(T) {
  return T(0);
}
/// e^-x would overflow where the result is a subnormal number.
template <class T>
REEL_HD T sigmoid(T x) {
  const T e = exp(-abs(x));
  return select(x < T(0), e, T(1)) / (T(1) + e);
}
/// log(1 + e^x) for x <= 0.
template <class T>
REEL_HD T log1p_exp(T x) {
  return log1p(exp(x));
}
template <class T>
REEL_HD T silu(T x) {
  return x * sigmoid(x);
}

// clang-format on

// ---- the gamma function and its kin ---------------------------------------------------------------------------------

#if defined(__CUDA_ARCH__)
REEL_HD static inline float lgamma(float x) { return ::lgammaf(x); }
REEL_HD static inline double lgamma(double x) { return ::lgamma(x); }
#else
// Without writing to the C library's signgam, which threads share.
inline REEL_HD float lgamma(float x) {
  int sign;
  return ::lgammaf_r(x, &sign);
}
inline REEL_HD double lgamma(double x) {
  int sign;
  return ::lgamma_r(x, &sign);
}
#endif

/// ψ(x): reflected to x > 0, upwards by ψ(x) = ψ(x + 1) - 1/x, then by Stirling's series (Abramowitz & Stegun 6.3).
REEL_HD static inline double digamma(double x) {
  if (x == 0) return -1 / x;
  double sum = 0;
  if (x < 0) {
    const double rest = x - nearbyint(x);
    if (rest == 0) return NAN;
    sum = -kPi / tan(kPi * rest);
    x = 1 - x;
  }
  for (; x < 10; x += 1) sum -= 1 / x;
  const double z = 1 / (x * x);
  const double series =
      1. / 12 - z * (1. / 120 - z * (1. / 252 - z * (1. / 240 - z * (1. / 132 - z * (691. / 32760 - z / 12)))));
  return sum + log(x) - 0.5 / x - z * series;
}

/// B_2k / (2k)! of the Bernoulli number of k = j + 1, j < 8.
REEL_HD static inline double bernoulli_of_factorial(int j) {
  const double values[] = {1. / 12,          -1. / 720,
                           1. / 30240,       -1. / 1209600,
                           1. / 47900160,    -691. / 1307674368e3,
                           1. / 74724249600, -3617. / 10670622842880e3};
  return values[j];
}

/// ζ(s, q) = Σ (q + k)⁻ˢ over k = 0, 1, … for s > 1 and q > 0, by Euler and Maclaurin's formula (Johansson 2015).
REEL_HD static inline double hurwitz_zeta(double s, double q) {
  double sum = 0;
  for (; q < 10 + s; q += 1) sum += pow(q, -s);
  const double power = pow(q, -s);
  sum += pow(q, 1 - s) / (s - 1) + 0.5 * power;
  double factor = power * s / q;
  for (int j = 0; j < 8; ++j) {
    sum += bernoulli_of_factorial(j) * factor;
    factor *= (s + 2 * j + 1) * (s + 2 * j + 2) / (q * q);
  }
  return sum;
}

/// The n-th derivative of ψ, (-1)ⁿ⁺¹ n! ζ(n + 1, x) for n > 0. Left of 0 the sum over all integers, which has period 1,
/// takes the place of the long one. Static: it is too long for clang to inline, and the instruction sets must not share
/// it.
REEL_HD static inline double polygamma(int n, double x) {
  if (n == 0) return digamma(x);
  const double s = n + 1;
  double factor = n % 2 ? 1 : -1;
  for (int i = 2; i <= n; ++i) factor *= i;
  if (x > 0) return factor * hurwitz_zeta(s, x);
  const double right = x - floor(x), left = ceil(x) - x;
  if (right == 0) return factor * kInfinity;
  const double mirrored = hurwitz_zeta(s, left) - hurwitz_zeta(s, 1 - x);
  return factor * (hurwitz_zeta(s, right) + (n % 2 ? mirrored : -mirrored));
}
REEL_HD static inline float polygamma(int n, float x) {
  return static_cast<float>(polygamma(n, static_cast<double>(x)));
}

}  // namespace reel::functors
