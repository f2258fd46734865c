// This file has the error functions and the gamma function and its kin for batches, of which xsimd 8.1 lacks some; its
// erfc and lgamma are off by thousands of ulps, its erf of float64 by 67. The polynomials are minimax fits of our own.
#pragma once
#include <limits>

#include "lib/cpu/simd/power.h"

namespace reel::cpu::REEL_ISA {

// ---- the error functions. (1 + 2 a) e^(a²) erfc(a) is nearly a polynomial in (a - k) / (a + k) for all a >= 0
// (Shepherd & Laframboise 1981).

inline Batch<float> erfc(const Batch<float>& x) {
  using B = Batch<float>;
  const B a = xsimd::min(B(10.1f), abs(x)), t = (a - B(2.5f)) / (a + B(2.5f)), square = a * a;
  const B first(1.264838181f),
      slope = polynomial(t, -0.1223566995f, -0.09902420286f, 0.1576278764f, -0.1029734572f, 0.03277729839f,
                         0.000978783812f, -0.004421419873f, 0.000344036125f, 0.0006169308303f, 8.064098148e-5f);
  const B p = fma(slope, t, first), d = fma(a, B(2), B(1)), q = p / d;
  // `rest` makes up for the rounding errors of p, d and q, relative to p, which is 1.19 to 16 %.
  const B large = xsimd::max(B(1), a + a), small = xsimd::min(B(1), a + a);
  const B rest = (residual(p, q, d) + fma(slope, t, first - p) - q * (large - d + small)) * B(0.84f);
  const auto [sum, r, tail, error] = reduce_exponent(B(0) - square);
  const B product = fma(q, fma(tail, r * r, r), q);
  // residual() is what the square is too large by, and e^-square too small.
  const B y = scale(fma(product, residual(square, a, a) + error + rest, product), sum);
  return select(a < B(0.5f), B(1) - fma(x, erf_near_zero(x), x), select(x < B(0), B(2) - y, y));
}

/// A Square is a² as square + rest, exactly.
struct Square {
  Batch<double> square, rest;
};
inline Square square_of(const Batch<double>& a) {
  const Batch<double> square = a * a;
#if defined(__AVX2__)
  return {square, Batch<double>(0) - residual(square, a, a)};
#else
  const Batch<double> high = double_of(words_of(a) & Words(~uint64_t{0x7ffffff})), low = a - high;
  return {square, high * high - square + (high + high) * low + low * low};
#endif
}
/// Returns e^-a² p / (1 + 2 a). Near the end of the range the power is made e^64 times as large, since xsimd's exp
/// gives no subnormal numbers.
inline Batch<double> erfc_of(const Batch<double>& a, const Batch<double>& p) {
  using B = Batch<double>;
  const auto [square, rest] = square_of(a);
  const auto small = square > B(690);
  const B q = p / fma(a, B(2), B(1)), power = exp(select(small, B(64), B(0)) - square);
  return power * fnma(q, rest, q) * select(small, B(1.603810890548638e-28), B(1));
}
/// Returns erf(x) / x for |x| <= 1.
inline Batch<double> erf_near_zero(const Batch<double>& x) {
  return polynomial(x * x, 1.12837916709551257, -0.376126389031837476, 0.112837916709548579, -0.0268661706450729592,
                    0.00522397762478136979, -0.000854832697876514882, 0.000120553310375511081,
                    -0.0000149255935187282267, 1.64609729541537657e-6, -1.63500261920772685e-7, 1.46578835309196535e-8,
                    -1.13656706718271593e-9, 5.94525558422348744e-11);
}
inline Batch<double> erfc(const Batch<double>& x) {
  using B = Batch<double>;
  const B a = xsimd::min(B(27.3), abs(x)), t = (a - B(4)) / (a + B(4));
  const B p =
      polynomial(t, 1.23299511862555251, -0.139621116840562857, 0.0153796521026201401, 0.0680970542547335361,
                 -0.101039066036323579, 0.0937328349969148188, -0.0663303658120383078, 0.037167515560698005,
                 -0.0161977340547266448, 0.00503196977063078044, -0.000757773361394024287, -0.000199255579611960286,
                 0.000150622290057722448, -0.000024402953730211296, -0.0000112248213008563202, 5.71749836849291154e-6,
                 3.01273142599741063e-7, -8.3476596992354073e-7, 6.28882771334497381e-8, 1.15160197642225835e-7,
                 -7.84198721565005848e-9, -1.36499477809628261e-8, -1.80015892401719421e-9);
  const B y = erfc_of(a, p);
  return select(a < B(0.5), fnma(x, erf_near_zero(x), B(1)), select(x < B(0), B(2) - y, y));
}
/// Returns x times a polynomial in x² up to 1, and 1 - erfc(x) beyond. From 6 on it is 1.
inline Batch<double> erf(const Batch<double>& x) {
  using B = Batch<double>;
  const B a = xsimd::min(B(6), abs(x)), t = (a - B(3)) / (a + B(3));
  const B small = x * erf_near_zero(x);
  const auto is_small = a < B(1);
  if (xsimd::all(is_small)) return small;
  const B p =
      polynomial(t, 1.25300805827019716, -0.135621106101641347, -0.0475622941913995188, 0.129645152341701694,
                 -0.119273816941490584, 0.0683064220975513897, -0.0237804645809363607, 0.00248948352158208209,
                 0.00178235139560877995, -0.000965844826388093913, -0.000306180385709692478, 0.0000141027038807606462);
  return select(is_small, small, (B(1) - erfc_of(a, p)) | xsimd::bitofsign(x));
}

/// Returns the normal distribution function (1 + erf(x / sqrt(2))) / 2. For x <= 0 it is 2^(-1 - a m(a)), a = |x|, with
/// a polynomial m; left of -5.7, where it is below half of the last digit of 1, it is 0.
inline Batch<float> normal_cdf(const Batch<float>& x) {
  using B = Batch<float>;
  const B a = abs(x);
  // This is Estrin's scheme: a short chain of operations leaves the processor others to do meanwhile.
  const B a2 = a * a, a4 = a2 * a2;
  const B low = fma(polynomial(a, 0.05243477707f, -0.006931148299f), a2, polynomial(a, 1.151104268f, 0.4592214477f));
  const B high =
      fma(polynomial(a, -7.496464395e-5f, 9.558465519e-6f), a2, polynomial(a, -1.495506051e-5f, 0.0002843231869f));
  const B m = fma(fma(a4, B(-5.127263508e-7f), high), a4, low);
  const B sum = fnma(a, m, B(kShift)), r = fnma(a, m, B(0) - unshifted(sum)), r2 = r * r;
  const B p =
      fma(fma(polynomial(r, 0.00133988733f, 0.0001535326158f), r2, polynomial(r, 0.0555033248f, 0.009618437839f)), r2,
          polynomial(r, 0.6931472028f, 0.2402264791f));
  const B tail = select(a < B(5.7f), fma(r, p, B(1)) * power_of_two<-1>(sum), B(0));
  return select(x < B(0), tail, B(1) - tail);
}

// ---- log Γ ----------------------------------------------------------------------------------------------------------

/// Returns log Γ(x) for x > 0. lgamma(2 + d) is d times a polynomial for |d| <= 1/2. Γ(x + 1) = x Γ(x) takes up to two
/// steps to there, whose factors have one logarithm; beyond 4.5 Stirling's series is used.
inline Batch<float> lgamma_of_positive(const Batch<float>& x) {
  using B = Batch<float>;
  const B one(1), two(2);
  const auto far_below = x < B(0.5f), below = x < B(1.5f), above = x >= B(2.5f), far_above = x >= B(3.5f);
  const auto large = x >= B(4.5f);
  const B base = select(below, select(far_below, B(0), one), select(above, select(far_above, B(4), B(3)), two));
  const B up = select(far_below, x * (x + one), x), down = select(far_above, (x - one) * (x - two), x - one);
  const B l = log(select(large, x, select(below, up, select(above, down, one))));
  const B d = x - base;
  const B p = polynomial(d, 0.422784335f, 0.3224670347f, -0.06735228224f, 0.02058073421f, -0.007386158845f,
                         0.002891734638f, -0.001185957808f, 0.0005015091205f, -0.0002536219509f, 0.0001223738639f);
  const B near = fma(d, p, select(below, B(0) - l, l));
  const B inverse = one / x;
  const B series = inverse * polynomial(inverse * inverse, 0.08333333136f, -0.002777044671f, 0.0007528786597f);
  return select(large, fma(x - B(0.5f), l - one, series + B(0.418938533f)), near);
}
/// Returns log |Γ(x)|. The C library computes it left of 0, where it has zeros.
inline Batch<float> lgamma(const Batch<float>& x) {
  using B = Batch<float>;
  const auto positive = x > B(0);
  const B y = lgamma_of_positive(x);
  if (xsimd::all(positive)) return y;
  return select(positive, y, per_lane(select(positive, B(1), x), [](float v) { return functors::lgamma(v); }));
}
inline Batch<double> lgamma(const Batch<double>& x) {
  return per_lane(x, [](double v) { return functors::lgamma(v); });
}

// ---- ψ and its derivatives, as in number.h --------------------------------------------------------------------------

/// Returns ψ(x): ten steps upwards at once are D'(z) / D(z) (2 x + 9), z = x (x + 9), with D(z) = z (z + 8) (z + 14) (z
/// + 18) (z + 20): the factors are x + k times x + 9 - k.
inline Batch<double> digamma(const Batch<double>& given) {
  using B = Batch<double>;
  const auto left = given < B(0);
  B x = given, reflected(0);
  if (xsimd::any(left)) {
    const B rest = given - nearbyint(given), tangent = tan(rest * B(functors::kPi));
    reflected = select(
        left, select(rest == B(0), B(std::numeric_limits<double>::quiet_NaN()), B(-functors::kPi) / tangent), B(0));
    x = select(left, B(1) - given, given);
  }
  const auto low = x < B(10);
  const B from = select(low, x, B(1)), z = from * (from + B(9)), y = select(low, x + B(10), x);
  const B sum = fma(from, B(2), B(9)) * polynomial(z, 40320., 24352., 3924., 240., 5.) /
                (z * polynomial(z, 40320., 12176., 1308., 60., 1.));
  const B inverse = B(1) / y, w = inverse * inverse;
  const B series = w * polynomial(w, 1. / 12, -1. / 120, 1. / 252, -1. / 240, 1. / 132, -691. / 32760, 1. / 12);
  const B result = reflected - select(low, sum, B(0)) + log(y) - B(0.5) * inverse - series;
  return select(given == B(0), B(-1) / given, result);
}

/// Returns x^n for n >= 0.
inline Batch<double> whole_power(Batch<double> x, int n) {
  Batch<double> result(1);
  for (; n; n /= 2, x = x * x)
    if (n % 2) result = result * x;
  return result;
}
/// Returns ζ(s, q) for q > 0 by Euler and Maclaurin's formula, from s + begin on.
inline Batch<double> hurwitz_zeta(int s, Batch<double> q, double begin) {
  using B = Batch<double>;
  const B end(s + begin);
  B sum(0);
  for (auto low = q < end; xsimd::any(low); low = q < end) {
    sum = select(low, sum + whole_power(B(1) / q, s), sum);
    q = select(low, q + B(1), q);
  }
  const B inverse = B(1) / q, z = inverse * inverse, before = whole_power(inverse, s - 1), power = before * inverse;
  sum = sum + before * B(1. / (s - 1)) + B(0.5) * power;
  B factor = power * inverse * B(s);
  for (int j = 0; j < 8; ++j) {
    sum = fma(factor, B(functors::bernoulli_of_factorial(j)), sum);
    factor = factor * z * B((s + 2. * j + 1) * (s + 2. * j + 2));
  }
  return sum;
}
/// Returns ζ(n + 1, x) for x <= 0 and NaN as polygamma takes it: the sum over all integers, which has period 1, takes
/// the place of the long one.
[[gnu::noinline]] inline Batch<double> zeta_left_of_zero(int n, const Batch<double>& given, double begin) {
  using B = Batch<double>;
  const B x = select(given > B(0), B(0), given), right = x - floor(x), left = ceil(x) - x;
  const B mirrored = hurwitz_zeta(n + 1, left, begin) - hurwitz_zeta(n + 1, B(1) - x, begin);
  const B sum = hurwitz_zeta(n + 1, right, begin) + (n % 2 ? mirrored : B(0) - mirrored);
  return select(right == B(0), B(functors::kInfinity), sum);
}
/// Stirling's series is exact to float64 from n + 11 on, to float32 from n + 5 on.
inline Batch<double> polygamma_from(int n, const Batch<double>& x, double begin) {
  using B = Batch<double>;
  if (n == 0) return digamma(x);
  const auto positive = x > B(0);
  B sum = hurwitz_zeta(n + 1, select(positive, x, B(1)), begin);
  if (!xsimd::all(positive)) [[unlikely]]
    sum = select(positive, sum, zeta_left_of_zero(n, x, begin));
  double factor = n % 2 ? 1 : -1;
  for (int i = 2; i <= n; ++i) factor *= i;
  return B(factor) * sum;
}
inline Batch<double> polygamma(int n, const Batch<double>& x) { return polygamma_from(n, x, 10); }
inline Batch<float> polygamma(int n, const Batch<float>& x) {
  return in_float64([n](const Batch<double>& v) { return polygamma_from(n, v, 4); }, x);
}

}  // namespace reel::cpu::REEL_ISA
