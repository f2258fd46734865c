// This file has powers and remainders of batches. xsimd 8.1's pow is off by tens of ulps and undefined at 0, and its
// fmod is not exact. Powers of float32 are computed in float64, where no rounding error counts, those of float64 by
// sums of two numbers or, where the instruction set has no fused product, by the C library.
#pragma once
#include <limits>

#include "lib/cpu/simd/batch.h"

namespace reel::cpu::REEL_ISA {

/// Doubles are the lanes of a batch of float32, as two batches of float64.
struct Doubles {
  Batch<double> low, high;
};
#if defined(__AVX512F__)
inline Doubles to_doubles(const Batch<float>& x) {
  return {_mm512_cvtps_pd(_mm512_castps512_ps256(x)), _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1))};
}
inline Batch<float> to_floats(const Doubles& x) {
  return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(x.low)), _mm512_cvtpd_ps(x.high), 1);
}
#elif defined(__AVX2__)
inline Doubles to_doubles(const Batch<float>& x) {
  return {_mm256_cvtps_pd(_mm256_castps256_ps128(x)), _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1))};
}
inline Batch<float> to_floats(const Doubles& x) {
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps(x.low)), _mm256_cvtpd_ps(x.high), 1);
}
#else
inline Doubles to_doubles(const Batch<float>& x) { return {_mm_cvtps_pd(x), _mm_cvtps_pd(_mm_movehl_ps(x, x))}; }
inline Batch<float> to_floats(const Doubles& x) { return _mm_movelh_ps(_mm_cvtpd_ps(x.low), _mm_cvtpd_ps(x.high)); }
#endif
/// Computes f(x...) in float64.
template <class F, class... X>
Batch<float> in_float64(const F& f, const X&... x) {
  return to_floats({f(to_doubles(x).low...), f(to_doubles(x).high...)});
}

/// Returns a - x y, rounded once.
#if defined(__AVX512F__)
inline Batch<double> residual(const Batch<double>& a, const Batch<double>& x, const Batch<double>& y) {
  return _mm512_fnmadd_pd(x, y, a);
}
#elif defined(__AVX2__)
inline Batch<double> residual(const Batch<double>& a, const Batch<double>& x, const Batch<double>& y) {
  return _mm256_fnmadd_pd(x, y, a);
}
#endif

using Words = xsimd::batch<uint64_t, Arch>;
inline Words words_of(const Batch<double>& x) { return xsimd::bitwise_cast<Words>(x); }
inline Batch<double> double_of(const Words& x) { return xsimd::bitwise_cast<Batch<double>>(x); }

/// BinaryParts has the parts of numbers 2^exponent significand, sqrt(1/2) <= significand < sqrt(2).
struct BinaryParts {
  Batch<double> exponent, significand;
};
/// Returns the parts of a normal number above 0.
inline BinaryParts binary_parts(const Batch<double>& x) {
  constexpr uint64_t kRoot = 0x3fe6a09e667f3bcd, kOne = 0x3ff0000000000000;
  const Words shifted = words_of(x) + Words(kOne - kRoot);
  // An integer below 2^52 in the last bits of 2^52 is added to it.
  return {double_of((shifted >> 52) | Words(0x4330000000000000)) - Batch<double>(0x1p52 + 1023),
          double_of((shifted & Words(0x000fffffffffffff)) + Words(kRoot))};
}
// The integer n nearest to a number, as the sum n + 1.5 * 2^52, whose last bits are those of n.
inline constexpr double kShift64 = 0x1.8p52;
/// Returns 2^n of such a sum, -1023 < n < 1024.
inline Batch<double> power_of_two(const Batch<double>& sum) {
  return double_of((words_of(sum) << 52) + Words(0x3ff0000000000000));
}

/// Returns x^y for normal x > 0 and finite y to 2^-28 of it, as 2^(y log2(x)), and less than any float32 or more than
/// all where that is so. With x = 2^k m, sqrt(1/2) <= m < sqrt(2), the logarithm of m is a polynomial in (m - 1) / (m +
/// 1).
inline Batch<double> short_power(const Batch<double>& x, const Batch<double>& y) {
  using B = Batch<double>;
  const auto [k, m] = binary_parts(x);
  const B s = (m - B(1)) / (m + B(1));
  const B p = polynomial(s * s, 2.88539008177785, 0.96179669411330522, 0.57707794237703016, 0.41220925104196578,
                         0.31990575525048206, 0.28289928270370531);
  const B exponent = xsimd::min(B(160), xsimd::max(B(-160), y * fma(s, p, k)));
  const B sum = exponent + B(kShift64), r = exponent - (sum - B(kShift64));
  return power_of_two(sum) * polynomial(r, 1.000000000554172, 0.69314720573611254, 0.24022646890577754,
                                        0.055503287772197343, 0.0096184889668382471, 0.0013399931366474355,
                                        0.00015345809408112463);
}
inline Batch<float> power_of_positive(const Batch<float>& x, const Batch<float>& y) {
  return in_float64([](const auto& a, const auto& b) { return short_power(a, b); }, x, y);
}

#if defined(__AVX2__)
/// Returns x^y for x > 0 and finite y to 1 ulp, as e^(y log(x)). The logarithm and its product with y are sums of two
/// numbers, the second of which has what the first one lacks. With x = 2^k m and s = (m - 1) / (m + 1) the logarithm is
/// k log(2) + 2 s + s^3 (2 / 3 + s^2 p(s^2)). The polynomials are minimax fits of our own.
inline Batch<double> power_of_positive(const Batch<double>& x, const Batch<double>& y) {
  using B = Batch<double>;
  constexpr double kLog2 = 0x1.62e42fefa38p-1, kLog2Rest = 0x1.ef35793c7673p-45;  // products of the first are exact
  const auto subnormal = x < B(std::numeric_limits<double>::min());
  const auto [shifted_k, m] = binary_parts(select(subnormal, x * B(0x1p54), x));
  const B k = select(subnormal, shifted_k - B(54), shifted_k);

  const B f = m - B(1), g = m + B(1), s = f / g, s_rest = (residual(f, s, g) - s * (m - (g - B(1)))) / g;
  const B square = s * s, square_rest = fma(s + s, s_rest, B(0) - residual(square, s, s));
  const B cube = square * s;
  const B cube_rest = fma(square, s_rest, fma(square_rest, s, B(0) - residual(cube, square, s)));
  const B third = cube * B(2. / 3);
  const B third_rest =
      fma(cube_rest, B(2. / 3), fma(cube, B(0x1.5555555555555p-55), B(0) - residual(third, cube, B(2. / 3))));
  const B p = polynomial(square, 0.4, 0.28571428571429364, 0.22222222221655885, 0.18181818335392802, 0.1538459496251843,
                         0.1333480469384731, 0.11706236339491206, 0.11723178623876518);
  const B whole = k * B(kLog2), twice = s + s, sum = whole + twice, larger = sum + third;
  const B smaller = ((whole - sum) + twice) + ((sum - larger) + third) + fma(k, B(kLog2Rest), s_rest + s_rest) +
                    fma(cube * square, p, third_rest);
  const B log = larger + smaller, log_rest = (larger - log) + smaller;

  const B factor = xsimd::min(B(0x1p64), xsimd::max(B(-0x1p64), y));
  const B product = factor * log, exponent = xsimd::min(B(800), xsimd::max(B(-800), product));
  const B exponent_rest =
      select(product == exponent, fma(factor, log_rest, B(0) - residual(product, factor, log)), B(0));
  const B shifted = fma(exponent, B(0x1.71547652b82fep+0), B(kShift64)), n = shifted - B(kShift64);
  const B near = residual(exponent, n, B(kLog2)), correction = residual(exponent_rest, n, B(kLog2Rest));
  const B r = near + correction, r_rest = (near - r) + correction;
  const B q = polynomial(r, 0.5, 0.1666666666666667, 0.04166666666666667, 0.008333333333326136, 0.0013888888888883748,
                         0.00019841269874820627, 2.4801587325547743e-05, 2.7557255400206422e-06, 2.75572736431103e-07,
                         2.5105217004720745e-08, 2.0914686968086876e-09);
  const B power = r + B(1), power_rest = ((B(1) - power) + r) + fma(r * r, q, fma(r_rest, r, r_rest));
  const B half = fma(n, B(0.5), B(kShift64));  // two factors, since 2^n may be subnormal or infinite
  return (power + power_rest) * power_of_two(half) * power_of_two(n - (half - B(kShift64)) + B(kShift64));
}
#endif

/// Returns x^y by the rules of C's pow for zeros, infinities, NaN and negative x.
template <class T>
[[gnu::noinline]] Batch<T> power_of_any(const Batch<T>& x, const Batch<T>& y) {
  using B = Batch<T>;
  const B zero(0), one(1), infinity(std::numeric_limits<T>::infinity()), a = abs(x), b = abs(y);
  const auto ordinary = (a > zero) & (a < infinity) & (b < infinity);
  B power = power_of_positive(select(ordinary, a, one), select(ordinary, y, one));
  power = select(ordinary, power, select(((a > one) & (y > zero)) | ((a < one) & (y < zero)), infinity, zero));
  const B half = y * B(T(0.5));
  const auto whole = nearbyint(y) == y, odd = whole & ~(nearbyint(half) == half);
  power = select(odd, power | xsimd::bitofsign(x), power);
  power = select((x < zero) & (a < infinity) & ~whole, infinity - infinity, power);
  power = select((x != x) | (y != y), x + y, power);
  return select((y == zero) | (x == one) | ((a == one) & (b == infinity)), one, power);
}
template <class T>
Batch<T> power_of(const Batch<T>& x, const Batch<T>& y) {
  using B = Batch<T>;
#if !defined(__AVX2__)
  if constexpr (sizeof(T) == 8)
    return per_lane(x, y, [](T a, T b) { return functors::pow(a, b); });
  else
#endif
  {
    const B infinity(std::numeric_limits<T>::infinity());
    if (xsimd::all((x > B(0)) & (x < infinity) & (abs(y) < infinity))) return power_of_positive(x, y);
    return power_of_any(x, y);
  }
}
inline float first_lane(const Batch<float>& x) {
#if defined(__AVX512F__)
  return _mm512_cvtss_f32(x);
#elif defined(__AVX2__)
  return _mm256_cvtss_f32(x);
#else
  return _mm_cvtss_f32(x);
#endif
}
inline double first_lane(const Batch<double>& x) {
#if defined(__AVX512F__)
  return _mm512_cvtsd_f64(x);
#elif defined(__AVX2__)
  return _mm256_cvtsd_f64(x);
#else
  return _mm_cvtsd_f64(x);
#endif
}
/// Calls f with the function that raises to an exponent for which there is a short one. Returns false, having done
/// nothing, for others.
template <class T, class F>
bool with_short_power(T exponent, const F& f) {
  using B = Batch<T>;
  // The power of -0 is that of 0, and that of -infinity is infinity's.
  const auto root = [](const B& x) {
    const B infinity(std::numeric_limits<T>::infinity());
    return sqrt(select(x == B(0) - infinity, infinity, x + B(0)));
  };
  if (exponent == T(2))
    f([](const B& x) { return x * x; });
  else if (exponent == T(1))
    f([](const B& x) { return x; });
  else if (exponent == T(3))
    f([](const B& x) { return x * x * x; });
  else if (exponent == T(-1))
    f([](const B& x) { return B(1) / x; });
  else if (exponent == T(0.5))
    f(root);
  else if (exponent == T(-0.5))
    f([&root](const B& x) { return B(1) / root(x); });
  else
    return false;
  return true;
}
/// Returns x^y. Usually all lanes have one exponent. Where they do not, those with a short power get it, too: a result
/// does not depend on its neighbours.
template <class T>
Batch<T> pow(const Batch<T>& x, const Batch<T>& y) {
  using B = Batch<T>;
  // Powers of float64 are exact to 1 ulp, which those that are rounded twice are not.
  const auto with_power = [](T exponent, const auto& f) {
    return (sizeof(T) == 4 || (exponent != T(3) && exponent != T(-0.5))) && with_short_power(exponent, f);
  };
  const T exponent = first_lane(y);
  B result;
  if (xsimd::all(y == B(exponent)) && with_power(exponent, [&](const auto& power) { result = power(x); }))
    return result;
  result = power_of(x, y);
  const B twice = y + y;
  if (xsimd::any((abs(twice) <= B(6)) & (nearbyint(twice) == twice)))
    for (const T given : {T(-1), T(-0.5), T(0.5), T(1), T(2), T(3)})
      with_power(given, [&](const auto& power) { result = select(y == B(given), power(x), result); });
  return result;
}

/// Returns the remainder of x / y. It is exact: the quotient, cut off, is too large by 1 at most, and a - q b is a
/// multiple of the last digit of b. Where the quotient does not have all of its digits, the C library divides.
template <class T>
Batch<T> fmod(const Batch<T>& x, const Batch<T>& y) {
  using B = Batch<T>;
  const auto divide = [](T a, T b) { return functors::fmod(a, b); };
#if !defined(__AVX2__)
  if constexpr (sizeof(T) == 8)
    return per_lane(x, y, divide);
  else
#endif
  {
    const B a = abs(x), b = abs(y), q = a / b, infinity(std::numeric_limits<T>::infinity());
    if (xsimd::any((q >= B(sizeof(T) == 4 ? T(0x1p23) : T(0x1p52))) & (a < infinity) & (b > B(0)))) [[unlikely]]
      return per_lane(x, y, divide);
    const B rest = residual(a, trunc(q), b);
    return select(a < b, x, select(rest < B(0), rest + b, rest) | xsimd::bitofsign(x));
  }
}

}  // namespace reel::cpu::REEL_ISA
