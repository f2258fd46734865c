#pragma once
#include <cmath>
#include <limits>
#include <xsimd/xsimd.hpp>

#include "lib/functors/number.h"

// The functions of batches that xsimd 8.1 lacks or gets wrong: exp of float32 flushes results below 2⁻¹²⁶ to zero, log
// of float64 is wrong for subnormal numbers, erf of float64 is not exact, pow is off by tens of ulps and undefined at
// 0, sin, cos and tan pull in functions that carry no instruction set in their names, erfc and lgamma are off by
// thousands of ulps, acosh is not NaN below 1, hypot overflows, atan2 is wrong for signed zeros and infinities.
// Included by batch.h only.
namespace reel::cpu::REEL_ISA {

template <class T, class F>
Batch<T> per_lane(const Batch<T>& x, const F& f) {
  alignas(Arch::alignment()) T lanes[Batch<T>::size];
  x.store_aligned(lanes);
  for (T& lane : lanes) lane = f(lane);
  return Batch<T>::load_aligned(lanes);
}
template <class T, class F>
Batch<T> per_lane(const Batch<T>& x, const Batch<T>& y, const F& f) {
  alignas(Arch::alignment()) T a[Batch<T>::size], b[Batch<T>::size];
  x.store_aligned(a);
  y.store_aligned(b);
  for (size_t i = 0; i < Batch<T>::size; ++i) a[i] = f(a[i], b[i]);
  return Batch<T>::load_aligned(a);
}

/// Cephes expf: 2ⁿ eʳ with |r| ≤ ln(2)/2; 1.5 ulp.
inline Batch<float> exp(const Batch<float>& x) {
  using B = Batch<float>;
  const B bounded = select(x < B(-104.0f), B(-104.0f), select(x > B(89.0f), B(89.0f), x));
  const B n = nearbyint(bounded * B(1.44269504088896341f));
  const B r = fma(n, B(2.12194440e-4f), fma(n, B(-0.693359375f), bounded));
  B p = fma(B(1.9875691500e-4f), r, B(1.3981999507e-3f));
  p = fma(p, r, B(8.3334519073e-3f));
  p = fma(p, r, B(4.1665795894e-2f));
  p = fma(p, r, B(1.6666665459e-1f));
  p = fma(p, r, B(5.0000001201e-1f));
  p = fma(p, r * r, r + B(1.0f));
#if defined(__AVX512F__)
  return _mm512_scalef_ps(p, n);
#else
  // In two factors: 2ⁿ itself may be out of range where the result is not.
  using I = xsimd::batch<int32_t, Arch>;
  const I all = xsimd::to_int(n), half = all >> 1;
  const B low = xsimd::bitwise_cast<B>((half + I(127)) << 23),
          high = xsimd::bitwise_cast<B>((all - half + I(127)) << 23);
  return select(x != x, x, p * low * high);
#endif
}

#if defined(__AVX2__)
/// Cephes tanhf below 0.625. Above t / (t + 2) for t = e^2|x| - 1 = 2ⁿ (eʳ - 1) + (2ⁿ - 1), where nothing cancels; from
/// 9.02 on it is 1. 1.5 ulp; where there is a fused multiply-add faster than xsimd's.
inline Batch<float> tanh(const Batch<float>& x) {
  using B = Batch<float>;
  const B z = x * x;
  B q = fma(B(-5.70498872745e-3f), z, B(2.06390887954e-2f));
  q = fma(q, z, B(-5.37397155531e-2f));
  q = fma(q, z, B(1.33314422036e-1f));
  q = fma(q, z, B(-3.33332819422e-1f));
  const B small = fma(q, z * x, x), twice = abs(x) * B(2.0f);
  const auto is_small = twice < B(1.25f);
  if (xsimd::all(is_small)) return copysign(small, x);
  const B bounded = select(twice > B(18.1f), B(18.1f), twice);
  const B n = nearbyint(bounded * B(1.44269504088896341f));
  const B r = fma(n, B(2.12194440e-4f), fma(n, B(-0.693359375f), bounded));
  B p = fma(B(1.9875691500e-4f), r, B(1.3981999507e-3f));  // exp's
  p = fma(p, r, B(8.3334519073e-3f));
  p = fma(p, r, B(4.1665795894e-2f));
  p = fma(p, r, B(1.6666665459e-1f));
  p = fma(p, r, B(5.0000001201e-1f));
  const B expm1_r = fma(p, r * r, r);
#if defined(__AVX512F__)
  const B power = _mm512_scalef_ps(B(1.0f), n);
#else
  const B power = xsimd::bitwise_cast<B>((xsimd::to_int(n) + xsimd::batch<int32_t, Arch>(127)) << 23);
#endif
  const B t = fma(power, expm1_r, power - B(1.0f));
  return copysign(select(is_small, small, t / (t + B(2.0f))), x);
}
#endif

// Subnormal numbers are scaled by 2⁵⁴ first.
template <class Log>
Batch<double> log_of(const Batch<double>& x, const Log& log, double of_two) {
  using B = Batch<double>;
  const auto tiny = (x > B(0)) & (x < B(std::numeric_limits<double>::min()));
  if (!xsimd::any(tiny)) return log(x);
  return select(tiny, log(x * B(0x1p54)) - B(54 * of_two), log(x));
}
inline Batch<double> log(const Batch<double>& x) {
  return log_of(
      x, [](const Batch<double>& v) { return xsimd::log(v); }, functors::kLn2);
}
inline Batch<double> log2(const Batch<double>& x) {
  return log_of(
      x, [](const Batch<double>& v) { return xsimd::log2(v); }, 1);
}
inline Batch<double> log10(const Batch<double>& x) {
  return log_of(
      x, [](const Batch<double>& v) { return xsimd::log10(v); }, 0.30102999566398119521);
}

/// xsimd's is off by 67 ulp, and NaN from 1e154 on.
inline Batch<double> erf(const Batch<double>& x) {
  return per_lane(x, [](double v) { return functors::erf(v); });
}
template <class T>
Batch<T> erfc(const Batch<T>& x) {
  return per_lane(x, [](T v) { return functors::erfc(v); });
}
template <class T>
Batch<T> lgamma(const Batch<T>& x) {
  return per_lane(x, [](T v) { return functors::lgamma(v); });
}
template <class T>
Batch<T> polygamma(int n, const Batch<T>& x) {
  return per_lane(x, [n](T v) { return functors::polygamma(n, v); });
}
template <class T>
Batch<T> acosh(const Batch<T>& x) {
  return select(x < Batch<T>(1), Batch<T>(std::numeric_limits<T>::quiet_NaN()), xsimd::acosh(x));
}

/// By the quotient of the larger and the smaller, which cannot overflow.
template <class T>
Batch<T> hypot(const Batch<T>& x, const Batch<T>& y) {
  using B = Batch<T>;
  const B a = abs(x), b = abs(y), most = select(a > b, a, b), least = select(a > b, b, a), ratio = least / most;
  const B infinity(std::numeric_limits<T>::infinity());
  const B length = select((most == B(0)) & (least == B(0)), most, most * sqrt(fma(ratio, ratio, B(1))));
  return select((a == infinity) | (b == infinity), infinity, length);
}
/// The angle within an octant, mirrored into its own.
template <class T>
Batch<T> atan2(const Batch<T>& y, const Batch<T>& x) {
  using B = Batch<T>;
  const B a = abs(y), b = abs(x), most = select(a > b, a, b), least = select(a > b, b, a);
  const B ratio = select(least == most, select(most == B(0), B(0), B(1)), least / most);
  B angle = xsimd::atan(ratio);
  angle = select(a > b, B(T(functors::kPi / 2)) - angle, angle);
  const B left = xsimd::bitofsign(x) | B(1);  // -1 also for -0
  angle = select(left < B(0), B(T(functors::kPi)) - angle, angle);
  return select((x != x) | (y != y), x + y, angle | xsimd::bitofsign(y));
}

// Both keep the sign of zero.
template <class T>
Batch<T> expm1(const Batch<T>& x) {
  return select(x == Batch<T>(0), x, xsimd::expm1(x));
}
template <class T>
Batch<T> log1p(const Batch<T>& x) {
  return select(x == Batch<T>(0), x, xsimd::log1p(x));
}

// Cephes and fdlibm: x = n π/2 + r with |r| ≤ π/4, π/2 in three parts of which n times the first two is exact.
template <class T>
struct Quadrant {
  Batch<T> n, sin, cos;  // n modulo 4, -2 … 2; sine and cosine of r
};
inline Quadrant<float> reduce_angle(const Batch<float>& x) {
  using B = Batch<float>;
  const B n = nearbyint(x * B(0.63661977236758134f));
  const B r = x - n * B(1.5703125f) - n * B(4.837512969970703125e-4f) - n * B(7.549789948768648e-8f), z = r * r;
  const B s = fma(fma(B(-1.9515295891e-4f), z, B(8.3321608736e-3f)), z, B(-1.6666654611e-1f));
  const B c = fma(fma(B(2.443315711809948e-5f), z, B(-1.388731625493765e-3f)), z, B(4.166664568298827e-2f));
  return {n - B(4) * nearbyint(n * B(0.25f)), fma(s * z, r, r), fma(c, z * z, B(1) - B(0.5f) * z)};
}
inline Quadrant<double> reduce_angle(const Batch<double>& x) {
  using B = Batch<double>;
  const B n = nearbyint(x * B(0.63661977236758134308));
  const B r = x - n * B(1.57079632673412561417) - n * B(6.07710050630396597660e-11) - n * B(2.02226624879595063154e-21);
  const B z = r * r;
  B s = fma(B(1.58969099521155010221e-10), z, B(-2.50507602534068634195e-8));
  s = fma(fma(s, z, B(2.75573137070700676789e-6)), z, B(-1.98412698298579493134e-4));
  s = fma(fma(s, z, B(8.33333333332248946124e-3)), z, B(-1.66666666666666324348e-1));
  B c = fma(B(-1.13596475577881948265e-11), z, B(2.08757232129817482790e-9));
  c = fma(fma(c, z, B(-2.75573143513906633035e-7)), z, B(2.48015872894767294178e-5));
  c = fma(fma(c, z, B(-1.38888888888741095749e-3)), z, B(4.16666666666666019037e-2));
  return {n - B(4) * nearbyint(n * B(0.25)), fma(s * z, r, r), fma(c, z * z, B(1) - B(0.5) * z)};
}
template <class T>
inline constexpr T kLargestAngle = sizeof(T) == 4 ? T(8000) : T(1e6);

template <class T>
Batch<T> sin(const Batch<T>& x) {
  using B = Batch<T>;
  if (!xsimd::all(abs(x) <= B(kLargestAngle<T>))) return per_lane(x, [](T v) { return functors::sin(v); });
  const auto [n, s, c] = reduce_angle(x);
  const B y = select(abs(n) == B(1), c, s);
  return select(x == B(0), x, select((n == B(-1)) | (abs(n) == B(2)), -y, y));  // keeps the sign of zero
}
template <class T>
Batch<T> cos(const Batch<T>& x) {
  using B = Batch<T>;
  if (!xsimd::all(abs(x) <= B(kLargestAngle<T>))) return per_lane(x, [](T v) { return functors::cos(v); });
  const auto [n, s, c] = reduce_angle(x);
  const B y = select(abs(n) == B(1), s, c);
  return select((n == B(1)) | (abs(n) == B(2)), -y, y);
}
template <class T>
Batch<T> tan(const Batch<T>& x) {
  using B = Batch<T>;
  if (!xsimd::all(abs(x) <= B(kLargestAngle<T>))) return per_lane(x, [](T v) { return functors::tan(v); });
  const auto [n, s, c] = reduce_angle(x);
  return select(x == B(0), x, select(abs(n) == B(1), -c / s, s / c));
}

#if defined(__SSE2__) && !defined(__SSE4_1__)
// Without an instruction for them xsimd loses the sign of zero.
template <class T>
Batch<T> floor(const Batch<T>& x) {
  return xsimd::floor(x) | xsimd::bitofsign(x);
}
template <class T>
Batch<T> ceil(const Batch<T>& x) {
  return xsimd::ceil(x) | xsimd::bitofsign(x);
}
template <class T>
Batch<T> trunc(const Batch<T>& x) {
  return xsimd::trunc(x) | xsimd::bitofsign(x);
}
template <class T>
Batch<T> nearbyint(const Batch<T>& x) {
  return xsimd::nearbyint(x) | xsimd::bitofsign(x);
}
#endif

/// The usual case is one exponent for all lanes, mostly a small integer; other lanes are left to the C library.
template <class T>
Batch<T> pow(const Batch<T>& x, const Batch<T>& y) {
  using B = Batch<T>;
  if (xsimd::all(y == B(2))) return x * x;
  if (xsimd::all(y == B(1))) return x;
  if (xsimd::all(y == B(3))) return x * x * x;
  if (xsimd::all(y == B(-1))) return B(1) / x;
  return per_lane(x, y, [](T a, T b) { return functors::pow(a, b); });
}

}  // namespace reel::cpu::REEL_ISA
