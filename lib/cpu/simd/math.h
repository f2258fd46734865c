#pragma once
#include <cmath>
#include <limits>
#include <type_traits>
#include <xsimd/xsimd.hpp>

#include "lib/functors/number.h"

// The functions of batches that xsimd 8.1 lacks or gets wrong: exp and exp2 of float32 flush results below 2⁻¹²⁶ to
// zero, exp2 and expm1 are infinite too early, most others of float32 are off by 2 to 4 ulps, log of float64 is wrong
// for subnormal numbers, sin, cos and tan pull in functions that carry no instruction set in their names, acosh is not
// NaN below 1, hypot overflows, atan2 is wrong for signed zeros and infinities. Included by batch.h only. More of them
// are in power.h and special.h.
namespace reel::cpu::REEL_ISA {

// These are defined in power.h and special.h. The declarations hide xsimd's functions from files that do not include
// the definitions, which the compiler or the linker then asks for.
template <class T>
Batch<T> pow(const Batch<T>& x, const Batch<T>& y);
template <class T>
Batch<T> fmod(const Batch<T>& x, const Batch<T>& y);
inline Batch<double> erf(const Batch<double>& x);
inline Batch<float> erfc(const Batch<float>& x);
inline Batch<double> erfc(const Batch<double>& x);
inline Batch<float> lgamma(const Batch<float>& x);
inline Batch<double> lgamma(const Batch<double>& x);

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

#if defined(__AVX512F__)
// xsimd 8.1 has none for AVX-512: its product and its sum are one instruction only where the compiler makes them one.
inline Batch<float> fma(const Batch<float>& x, const Batch<float>& y, const Batch<float>& z) {
  return _mm512_fmadd_ps(x, y, z);
}
inline Batch<float> fnma(const Batch<float>& x, const Batch<float>& y, const Batch<float>& z) {
  return _mm512_fnmadd_ps(x, y, z);
}
inline Batch<double> fma(const Batch<double>& x, const Batch<double>& y, const Batch<double>& z) {
  return _mm512_fmadd_pd(x, y, z);
}
#endif

// ---- float32: 1.5 ulp or better -------------------------------------------------------------------------------------
// Where a result is the sum of a large and a small term, the rounding error of the large one is added to the small one
// (Dekker 1971): for |a| >= |b| and s = a + b the error is (a - s) + b, exactly. The polynomials are minimax fits of
// our own, with coefficients rounded to float32 one after the other.

/// c[0] + c[1] x + c[2] x² + …
template <class T, class... C>
Batch<T> polynomial(const Batch<T>& x, std::type_identity_t<T> c0, C... more) {
  if constexpr (sizeof...(more) == 0)
    return Batch<T>(c0);
  else
    return fma(polynomial(x, more...), x, Batch<T>(c0));
}

/// a - x y, rounded once where xy is near a.
inline Batch<float> residual(const Batch<float>& a, const Batch<float>& x, const Batch<float>& y) {
#if defined(__AVX512F__)
  return _mm512_fnmadd_ps(x, y, a);  // xsimd 8.1's rounds twice unless the compiler fuses its two operations
#elif defined(__AVX2__)
  return _mm256_fnmadd_ps(x, y, a);
#else
  // Halves of 12 bits have exact products.
  const Batch<float> mask = xsimd::bitwise_cast<Batch<float>>(xsimd::batch<int32_t, Arch>(-0x1000));
  const Batch<float> x1 = x & mask, x2 = x - x1, y1 = y & mask, y2 = y - y1;
  return ((a - x1 * y1) - x1 * y2 - x2 * y1) - x2 * y2;
#endif
}

using Bits = xsimd::batch<int32_t, Arch>;
inline Bits bits_of(const Batch<float>& x) { return xsimd::bitwise_cast<Bits>(x); }
inline Batch<float> float_of(const Bits& x) { return xsimd::bitwise_cast<Batch<float>>(x); }

/// 1 / x to 12 %, which is enough for a correction: the logarithm, linear within a power of two, is in the bits.
inline Batch<float> about_reciprocal(const Batch<float>& x) { return float_of(Bits(0x7ef311c7) - bits_of(x)); }
/// y >= 0 with the sign of x.
inline Batch<float> with_sign(const Batch<float>& y, const Batch<float>& x) { return y | xsimd::bitofsign(x); }

// The integer n nearest to a float, as the sum n + 1.5 * 2^23, whose last bits are those of n.
inline constexpr float kShift = 0x1.8p23f;
inline Batch<float> shifted_product(const Batch<float>& x, float factor) {
  return fma(x, Batch<float>(factor), Batch<float>(kShift));
}
inline Batch<float> unshifted(const Batch<float>& sum) { return sum - Batch<float>(kShift); }
/// 2^(n + k) for -127 < n + k < 128.
template <int k = 0>
Batch<float> power_of_two(const Batch<float>& sum) {
  return float_of((bits_of(sum) << 23) + Bits((127 + k) << 23));
}
/// x 2^n for -252 < n < 254: rounded once, also where 2^n is out of range.
inline Batch<float> scale(const Batch<float>& x, const Batch<float>& sum) {
#if defined(__AVX512F__)
  return _mm512_scalef_ps(x, unshifted(sum));
#else
  const Bits one(0x3f800000), half = (bits_of(sum) << 22) & Bits(-0x800000), all = bits_of(sum) << 23;
  return x * float_of(one + half) * float_of(one + (all - half));
#endif
}

/// Below it odd functions with slope 1 at 0 are the identity; intermediate results would be subnormal.
inline constexpr float kTiny = 0x1p-64f;

/// x within [low, high]; NaN stays NaN.
inline Batch<float> bounded(const Batch<float>& x, float low, float high) {
  return xsimd::min(Batch<float>(high), xsimd::max(Batch<float>(low), x));
}

/// e^x = 2^n (1 + r + r² tail), |r| <= ln(2) / 2.
struct Exponential {
  Batch<float> sum, r, tail, error;  // sum: of n, see above; r + error is r before it was rounded
};
inline Batch<float> exp_tail(const Batch<float>& r) {
  return polynomial(r, 0.49999994f, 0.166665196f, 0.0416682363f, 0.00836882368f, 0.00138235523f);
}
inline Exponential reduce_exponent(const Batch<float>& x) {
  using B = Batch<float>;
  const B sum = shifted_product(x, 1.44269504088896341f), n = unshifted(sum);
  const B near = fma(n, B(-0.693359375f), x), r = fma(n, B(2.12194440e-4f), near);
  return {sum, r, exp_tail(r), fma(n, B(2.12194440e-4f), near - r)};
}

inline Batch<float> exp(const Batch<float>& x) {
  const auto [sum, r, tail, error] = reduce_exponent(bounded(x, -104, 89));
  return scale(fma(tail, r * r, r) + Batch<float>(1), sum);
}
inline Batch<float> exp2(const Batch<float>& x) {
  using B = Batch<float>;
  const B near = bounded(x, -151, 129), sum = near + B(kShift), r = (near - unshifted(sum)) * B(0.693147181f);
  return scale(fma(exp_tail(r), r * r, r) + B(1), sum);
}
/// 2^n (e^r - 1) + (2^n - 1). Half of it, since 2^n is out of range for the largest results.
inline Batch<float> expm1(const Batch<float>& x) {
  using B = Batch<float>;
  const auto [sum, r, tail, error] = reduce_exponent(bounded(x, -18, 89));
  const B half = power_of_two<-1>(sum), base = half - B(0.5f), y = fma(half, r, base);
  const B small = fma(half, fma(tail, r * r, error), fma(half, r, base - y));
  return select(abs(x) < B(kTiny), x, (y + small) * B(2));
}

/// sinh(n ln(2) + r) = 2^n (a C + b S) / 2 with a = 1 - 2^-2n, b = 1 + 2^-2n, and cosh with a and b exchanged; C and S
/// are cosh(r) and sinh(r). Beyond n = 16, 2^-2n does not count.
struct Hyperbolic {
  Batch<float> half, inverse, a, b, r, s, c;  // half: 2^n / 4; inverse: 2^-2n; S = r + s, C = 1 + c
};
inline Hyperbolic reduce_hyperbolic(const Batch<float>& x) {
  using B = Batch<float>;
  const B sum = shifted_product(x, 1.44269504088896341f), n = unshifted(sum);
  const B r = fma(n, B(2.12194440e-4f), fma(n, B(-0.693359375f), x)), z = r * r;
  const B few = xsimd::min(sum, B(kShift + 16)), inverse = float_of(Bits(0x3f800000) - (bits_of(few) << 24));
  return {power_of_two<-2>(sum),
          inverse,
          B(1) - inverse,
          B(1) + inverse,
          r,
          r * z * polynomial(z, 0.166666672f, 0.00833319128f, 0.000199592978f),
          z * polynomial(z, 0.5f, 0.0416664556f, 0.00139357755f)};
}
inline Batch<float> sinh(const Batch<float>& x) {
  using B = Batch<float>;
  const B magnitude = abs(x);
  const auto [half, inverse, a, b, r, s, c] = reduce_hyperbolic(xsimd::min(B(90), magnitude));
  const B y = fma(b, r, a), small = fma(b, s, fma(a, c, fma(b, r, a - y)));
  return select(magnitude < B(kTiny), x, with_sign((y + small) * half * B(2), x));
}
inline Batch<float> cosh(const Batch<float>& x) {
  using B = Batch<float>;
  const auto [half, inverse, a, b, r, s, c] = reduce_hyperbolic(xsimd::min(B(90), abs(x)));
  const B y = fma(a, r, b), small = fma(a, s, fma(b, c, fma(a, r, b - y)) + (B(1) - b + inverse));
  return (y + small) * half * B(2);
}

/// a / (1 + e^-x), as 2^n (a / d) with d = 2^n + e^r, whose rounding error is corrected. For a = 1 and a = x.
template <class Reciprocal>
Batch<float> logistic_quotient(const Batch<float>& a, const Batch<float>& x, const Reciprocal& reciprocal) {
  using B = Batch<float>;
  const B b = bounded(x, -174, 40), sum = shifted_product(b, 1.44269504088896341f), n = unshifted(sum);
  const B r = fma(n, B(2.12194440e-4f), fma(n, B(-0.693359375f), b));
#if defined(__AVX512F__)
  const B power = _mm512_scalef_ps(B(1), n);
#else
  const B power = power_of_two(xsimd::max(sum, B(kShift - 126)));
#endif
  const B tail = polynomial(r, -0.49999994f, 0.166665196f, -0.0416682363f, 0.00836882368f, -0.00138235523f);
  const B most = xsimd::max(power, B(1)), least = xsimd::min(power, B(1)) - fma(tail, r * r, r);
  const B d = most + least, q = a / d, y = fma(q * (d - most - least), reciprocal(d, q), q);
#if defined(__AVX512F__)
  return _mm512_scalef_ps(y, n);
#else
  return y * power * power_of_two(xsimd::min(sum + B(126), B(kShift)));
#endif
}
inline Batch<float> sigmoid(const Batch<float>& x) {
  using B = Batch<float>;
  return logistic_quotient(B(1), x, [](const B&, const B& q) { return q; });
}
inline Batch<float> silu(const Batch<float>& x) {
  using B = Batch<float>;
  const B infinity(std::numeric_limits<float>::infinity());
  const B y = logistic_quotient(xsimd::max(B(-200), x), x, [](const B& d, const B&) { return about_reciprocal(d); });
  return select(abs(x) == infinity, x + infinity, y);
}

/// erf(x) / x - 1 for |x| <= 0.9
inline Batch<float> erf_near_zero(const Batch<float>& x) {
  return polynomial(x * x, 0.128379166f, -0.376126319f, 0.112836815f, -0.0268590227f, 0.00520072179f, -0.000814415747f,
                    8.3922605e-05f);
}
/// Near 0 x times a polynomial in x², elsewhere 1 - e^-L with L = -log(erfc(x)). From 3.92 on it is 1.
inline Batch<float> erf(const Batch<float>& x) {
  using B = Batch<float>;
  const B a = xsimd::min(B(4), abs(x));
  const B l = polynomial(a, 1.12852001f, 0.635699153f, 0.105287164f, -0.0229062513f, 0.00322005223f, -0.000214605388f);
  const auto [sum, r, tail, error] = reduce_exponent(B(0) - a * l);
  const B power = power_of_two(sum), e = fma(power, fma(tail, r * r, r), power);
  return select(a < B(0.9f), fma(x, erf_near_zero(x), x), with_sign(B(1) - e, x));
}

// ---- the inverse trigonometric functions. pi is the sum of two numbers.

inline constexpr float kPiHigh = 3.14159274f, kPiLow = -8.74227766e-8f;

/// asin(x) = x + x z p(z), z = x² <= 1/4.
inline Batch<float> asin_terms(const Batch<float>& x, const Batch<float>& z) {
  return x * z * polynomial(z, 0.166667536f, 0.0749525279f, 0.0454759076f, 0.0241528526f, 0.0422104225f);
}
/// Beyond 1/2, where (1 - x) / 2 is less than x²: asin(x) = pi / 2 - 2 asin(sqrt((1 - x) / 2)).
inline Batch<float> asin(const Batch<float>& x) {
  using B = Batch<float>;
  const B a = abs(x), z = xsimd::min(x * x, fnma(a, B(0.5f), B(0.5f))), s = sqrt(z), terms = asin_terms(s, z);
  const B y = B(kPiHigh / 4) - s, half = y + (B(kPiHigh / 4) - y - s - (terms - B(kPiLow / 4)));
  return with_sign(select(a > B(0.5f), half + half, a + terms), x);
}
inline Batch<float> acos(const Batch<float>& x) {
  using B = Batch<float>;
  const B a = abs(x), z = xsimd::min(x * x, fnma(a, B(0.5f), B(0.5f)));
  const auto large = a > B(0.5f);
  const B s = select(large, sqrt(z), x), terms = asin_terms(s, z), twice = (s + terms) * B(2);
  const B beyond = select(x < B(0), B(kPiHigh) - (twice - B(kPiLow)), twice);
  return select(large, beyond, B(kPiHigh / 2) - (s + (terms - B(kPiLow / 2))));
}

/// atan(t) = t + t z p(z), z = t² <= 1.
inline Batch<float> atan_terms(const Batch<float>& t) {
  const Batch<float> z = t * t;
  return t * z *
         polynomial(z, -0.333332986f, 0.199985355f, -0.142641246f, 0.109516382f, -0.0840198547f, 0.057934247f,
                    -0.0311559234f, 0.0109034106f, -0.00179122353f);
}
inline Batch<float> atan(const Batch<float>& x) {
  using B = Batch<float>;
  const B a = abs(x);
  const B t = xsimd::min(a, B(1)) / xsimd::max(B(1), a), terms = atan_terms(t);
  return with_sign(select(a > B(1), B(kPiHigh / 2) - t - (terms - B(kPiLow / 2)), t + terms), x);
}
/// The angle within an octant, mirrored into its own: a multiple of pi / 2 plus or minus atan(least / most).
inline Batch<float> atan2(const Batch<float>& y, const Batch<float>& x) {
  using B = Batch<float>;
  const B a = abs(y), b = abs(x), most = xsimd::max(a, b), least = xsimd::min(a, b);
  const B t = select(least == most, select(most == B(0), B(0), B(1)), least / most);
  const B left = xsimd::bitofsign(x);  // also of -0
  const auto steep = a > b;
  const B turns = select(steep, B(1), select((left | B(1)) < B(0), B(2), B(0)));
  const B turned = select(steep, left ^ B(-0.0f), left), r = t ^ turned, terms = atan_terms(r);
  const B base = turns * B(kPiHigh / 2), sum = base + r;
  const B angle = sum + ((base - sum + r) + fma(turns, B(kPiLow / 2), terms));
  return select((x != x) | (y != y), x + y, abs(angle) | xsimd::bitofsign(y));
}

/// Scaled by a power of two, so that the squares stay in range.
inline Batch<float> hypot(const Batch<float>& x, const Batch<float>& y) {
  using B = Batch<float>;
  const B infinity(std::numeric_limits<float>::infinity());
  const B a = abs(x), b = abs(y), most = xsimd::max(a, b);
  const B size = xsimd::min(xsimd::max(most, B(0x1p-126f)), B(0x1p125f)) & infinity;
  const B shrink = float_of(Bits(0x7f000000) - bits_of(size)), u = a * shrink, v = b * shrink;
  const B length = size * sqrt(fma(u, u, v * v));
  return select((a == infinity) | (b == infinity), infinity, length);
}

// ---- logarithms of sums

/// x = 2^k (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2), for normal numbers x > 0.
struct Logarithm {
  Batch<float> k, f;
};
inline Logarithm split(const Batch<float>& x) {
  const Bits shifted = bits_of(x) + Bits(0x3f800000 - 0x3f3504f3);
  const Batch<float> k = xsimd::to_float((shifted >> 23) - Bits(127));
  return {k, float_of((shifted & Bits(0x007fffff)) + Bits(0x3f3504f3)) - Batch<float>(1)};
}
/// k log(2) + log(1 + f) + rest
inline Batch<float> log_of(const Batch<float>& k, const Batch<float>& f, const Batch<float>& rest) {
  using B = Batch<float>;
  const B p = polynomial(f, 0.333333313f, -0.250008225f, 0.20001246f, -0.166233227f, 0.142014295f, -0.131602243f,
                         0.127634093f, -0.0763631612f);
  const B y = fma(k, B(0.693359375f), f), small = fma(k, B(0.693359375f), B(0) - y) + f + rest;
  return y + fma(fma(p, f, B(-0.5f)), f * f, fma(k, B(-2.12194440e-4f), small));
}
/// log(1 + u + rest) for u >= 0 and a rounding error `rest` of it; u itself is the f of numbers near 1.
inline Batch<float> log1p_of(const Batch<float>& u, const Batch<float>& rest) {
  using B = Batch<float>;
  const B sum = B(1) + u, most = xsimd::max(u, B(1)), least = xsimd::min(u, B(1));
  const auto [k, f] = split(sum);
  const auto near = k == B(0);
  const B error = select(near, rest, most - sum + least + rest);
  return log_of(k, select(near, u, f), error * about_reciprocal(sum));
}
/// For x <= 0.
inline Batch<float> log1p_exp(const Batch<float>& x) {
  using B = Batch<float>;
  const auto [sum, r, tail, error] = reduce_exponent(bounded(x, -104, 0));
  const B near = r + B(1), small = fma(tail, r * r, B(1) - near + r), m = near + small;
  return log1p_of(scale(m, sum), scale(near - m + small, sum));
}

inline Batch<float> asinh(const Batch<float>& x) {
  using B = Batch<float>;
  const B a = abs(x), z = a * a;
  const B p = polynomial(z, -0.166666567f, 0.0749952421f, -0.0445652381f, 0.029770609f, -0.0197025966f, 0.0104533108f,
                         -0.00298277172f);
  // From 2^20 on the root is x.
  const auto huge = a > B(0x1p20f);
  const B root = sqrt(fma(a, a, B(1))), sum = select(huge, a, a + root);
  const auto [k, f] = split(sum);
  const B error = (root - sum + a) * about_reciprocal(sum);
  const B large = log_of(select(huge, k + B(1), k), f, select(huge, B(0), error));
  return select(a < B(0.75f), fma(a * z, p, a), select(a < B(std::numeric_limits<float>::infinity()), large, a)) |
         xsimd::bitofsign(x);
}
/// log(x + sqrt(x² - 1)) = log(1 + (t + sqrt(t² + 2 t))) with t = x - 1
inline Batch<float> acosh(const Batch<float>& x) {
  using B = Batch<float>;
  const B t = x - B(1), w = fma(t, t, t + t), root = sqrt(w);
  const B infinity(std::numeric_limits<float>::infinity());
  const B u = root + t, rest = root - u + t + residual(w, root, root) * about_reciprocal(root + root);
  // From 2^20 on it is log(x / 8) + log(16).
  const auto huge = x > B(0x1p20f);
  const B y = log1p_of(select(huge, fma(x, B(0.125f), B(-1)), u), select(huge, B(0), rest)) +
              select(huge, B(2.77258872f), B(0));
  return select(x < infinity, select(x < B(1), B(std::numeric_limits<float>::quiet_NaN()), y), x);
}
/// Near 0 a polynomial, elsewhere log((1 + x) / (1 - x)) / 2.
inline Batch<float> atanh(const Batch<float>& x) {
  using B = Batch<float>;
  const B a = abs(x), z = x * x, above = B(1) + a, below = B(1) - a, q = above / below;
  const B p = polynomial(z, 0.333332986f, 0.200026006f, 0.142212808f, 0.118354581f, 0.0509349406f, 0.17726104f);
  const auto [k, f] = split(q);
  const B error = (residual(above, q, below) + (B(1) - above + a)) * about_reciprocal(above);
  const B y = select(a < B(0.5f), fma(a * z, p, a), log_of(k, f, error) * B(0.5f));
  const B infinity(std::numeric_limits<float>::infinity());
  return select(a < B(1), y, select(a == B(1), infinity, infinity - infinity)) | xsimd::bitofsign(x);
}

#if defined(__AVX2__)
/// Cephes tanhf below 0.625. Above t / (t + 2) for t = e^2|x| - 1 = 2ⁿ (eʳ - 1) + (2ⁿ - 1), where nothing cancels; from
/// 9.02 on it is 1. 1.5 ulp; where there is a fused multiply-add faster than xsimd's.
inline Batch<float> tanh(const Batch<float>& x) {
  using B = Batch<float>;
  const B z = x * x;
  const B q =
      polynomial(z, -3.33332819422e-1f, 1.33314422036e-1f, -5.37397155531e-2f, 2.06390887954e-2f, -5.70498872745e-3f);
  const B small = fma(q, z * x, x), twice = abs(x) * B(2.0f);
  const auto is_small = twice < B(1.25f);
  if (xsimd::all(is_small)) return copysign(small, x);
  const B bounded = select(twice > B(18.1f), B(18.1f), twice);
  const B n = nearbyint(bounded * B(1.44269504088896341f));
  const B r = fma(n, B(2.12194440e-4f), fma(n, B(-0.693359375f), bounded));
  const B expm1_r = fma(exp_tail(r), r * r, r);
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

inline Batch<double> acosh(const Batch<double>& x) {
  using B = Batch<double>;
  return select(x < B(1), B(std::numeric_limits<double>::quiet_NaN()), xsimd::acosh(x));
}

/// By the quotient of the larger and the smaller, which cannot overflow.
inline Batch<double> hypot(const Batch<double>& x, const Batch<double>& y) {
  using T = double;
  using B = Batch<T>;
  const B a = abs(x), b = abs(y), most = select(a > b, a, b), least = select(a > b, b, a), ratio = least / most;
  const B infinity(std::numeric_limits<T>::infinity());
  const B length = select((most == B(0)) & (least == B(0)), most, most * sqrt(fma(ratio, ratio, B(1))));
  return select((a == infinity) | (b == infinity), infinity, length);
}
/// The angle within an octant, mirrored into its own.
inline Batch<double> atan2(const Batch<double>& y, const Batch<double>& x) {
  using T = double;
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

// Cephes and fdlibm: x = n π/2 + r with |r| ≤ π/4, π/2 in parts of which n times all but the last is exact.
template <class T>
struct Quadrant {
  Batch<T> n, sin, cos;  // n modulo 4, -2 … 2; sine and cosine of r
};
/// r + rest: rest is the rounding error of r.
struct Angle {
  Batch<float> sum, r, rest;  // sum: of n, see kShift
};
inline Angle reduce_quadrant(const Batch<float>& x) {
  using B = Batch<float>;
  const B sum = shifted_product(x, 0.63661977236758134f), n = unshifted(sum);
#if defined(__AVX2__)
  const B near = fma(n, B(-0x1.921fb6p+0f), x), r = fma(n, B(0x1.778p-25f), near);
  return {sum, r, fma(n, B(-0x1.68c234p-39f), fma(n, B(0x1.778p-25f), near - r))};
#else
  const B near = x - n * B(1.5703125f) - n * B(4.837512969970703125e-4f), part = n * B(0x1.444p-24f), r = near - part;
  return {sum, r, near - r - part - n * B(0x1.68c234p-39f)};
#endif
}
inline Batch<float> sin_of(const Batch<float>& r, const Batch<float>& rest, const Batch<float>& z) {
  return r + fma(z * r, polynomial(z, -1.6666654611e-1f, 8.3321608736e-3f, -1.9515295891e-4f), rest);
}
inline Batch<float> cos_of(const Batch<float>& z) {
  using B = Batch<float>;
  const B half = z * B(0.5f), y = B(1) - half;
  const B p = polynomial(z, 4.166664568298827e-2f, -1.388731625493765e-3f, 2.443315711809948e-5f);
  return y + fma(p, z * z, B(1) - y - half);
}
inline auto is_even(const Batch<float>& sum) { return xsimd::bool_cast((bits_of(sum) & Bits(1)) == Bits(0)); }
/// x with the sign turned where the second bit of n is set.
inline Batch<float> turned(const Batch<float>& x, const Bits& n) { return x ^ float_of((n & Bits(2)) << 30); }
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

inline Batch<float> sin(const Batch<float>& x) {
  using B = Batch<float>;
  if (!xsimd::all(abs(x) <= B(kLargestAngle<float>))) return per_lane(x, [](float v) { return functors::sin(v); });
  const auto [sum, r, rest] = reduce_quadrant(x);
  const B z = r * r;
  const B y = select(is_even(sum), sin_of(r, rest, z), cos_of(z));
  return select(x == B(0), x, turned(y, bits_of(sum)));  // keeps the sign of zero
}
inline Batch<float> cos(const Batch<float>& x) {
  using B = Batch<float>;
  if (!xsimd::all(abs(x) <= B(kLargestAngle<float>))) return per_lane(x, [](float v) { return functors::cos(v); });
  const auto [sum, r, rest] = reduce_quadrant(x);
  const B z = r * r;
  const B y = select(is_even(sum), cos_of(z), sin_of(r, rest, z));
  return turned(y, bits_of(sum) + Bits(1));
}
/// tan(r) = r + r z p(z), and -1 / tan(r) in every other quadrant.
inline Batch<float> tan(const Batch<float>& x) {
  using B = Batch<float>;
  if (!xsimd::all(abs(x) <= B(kLargestAngle<float>))) return per_lane(x, [](float v) { return functors::tan(v); });
  const auto [sum, r, rest] = reduce_quadrant(x);
  const B z = r * r;
  const B p = polynomial(z, 0.333333492f, 0.133326754f, 0.0540589169f, 0.0212861653f, 0.0108276168f, 9.79505203e-05f,
                         0.004372878f);
  const B small = fma(z * r, p, rest), y = r + small, inverse = B(-1) / y;
  const B corrected = fma(inverse * (r - y + small), inverse, inverse);
  return select(x == B(0), x, select(is_even(sum), y, corrected));
}

inline Batch<double> sin(const Batch<double>& x) {
  using B = Batch<double>;
  if (!xsimd::all(abs(x) <= B(kLargestAngle<double>))) return per_lane(x, [](double v) { return functors::sin(v); });
  const auto [n, s, c] = reduce_angle(x);
  const B y = select(abs(n) == B(1), c, s);
  return select(x == B(0), x, select((n == B(-1)) | (abs(n) == B(2)), -y, y));  // keeps the sign of zero
}
inline Batch<double> cos(const Batch<double>& x) {
  using B = Batch<double>;
  if (!xsimd::all(abs(x) <= B(kLargestAngle<double>))) return per_lane(x, [](double v) { return functors::cos(v); });
  const auto [n, s, c] = reduce_angle(x);
  const B y = select(abs(n) == B(1), s, c);
  return select((n == B(1)) | (abs(n) == B(2)), -y, y);
}
inline Batch<double> tan(const Batch<double>& x) {
  using B = Batch<double>;
  if (!xsimd::all(abs(x) <= B(kLargestAngle<double>))) return per_lane(x, [](double v) { return functors::tan(v); });
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

}  // namespace reel::cpu::REEL_ISA
