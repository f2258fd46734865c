#pragma once
#include <optional>

#include "reel/ops/common.h"

/// Elementwise arithmetic, functions, comparison and logic.
namespace reel {

// ---- arithmetic -----------------------------------------------------------------------------------------------------

Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);  ///< True division: integers give float32.
inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
Tensor operator-(const Tensor& x);
Tensor pow(const Tensor& base, const Tensor& exponent);
Tensor maximum(const Tensor& a, const Tensor& b);  ///< NaN where either is NaN. At ties each gets half the gradient.
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor fmod(const Tensor& a, const Tensor& b);          ///< C's remainder: the sign of a.
Tensor remainder(const Tensor& a, const Tensor& b);     ///< Python's: the sign of b.
Tensor floor_divide(const Tensor& a, const Tensor& b);  ///< ⌊a / b⌋; integers stay integers. Its gradient is 0.
Tensor float_power(const Tensor& base, const Tensor& exponent);  ///< pow in float64, whatever the types.
Tensor hypot(const Tensor& a, const Tensor& b);                  ///< √(a² + b²) without overflow on the way.
Tensor atan2(const Tensor& y, const Tensor& x);                  ///< The angle of the point (x, y), in [-π, π].
Tensor logaddexp(const Tensor& a, const Tensor& b);              ///< log(eᵃ + eᵇ) without overflow on the way.
Tensor xlogy(const Tensor& x, const Tensor& y);                  ///< x log(y), 0 where x is 0 (and y not NaN).
/// start + weight (end - start); the weight may be a number or a tensor.
Tensor lerp(const Tensor& start, const Tensor& end, const Tensor& weight);
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, Scalar value = 1);  ///< x + value a b
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b,
               Scalar value = 1);  ///< x + value a / b, not integers.
/// x between the bounds, which are numbers, tensors or, as {}, absent. max wins where it is below min. Where x equals a
/// bound its slope is 0 if that is a number, and they share the gradient if it is a tensor, as by maximum and minimum.
Tensor clamp(const Tensor& x, const Bound& min, const Bound& max = {});
/// NaN and the infinities replaced; the defaults for these are the largest and the least number of x's type.
Tensor nan_to_num(const Tensor& x, double nan = 0, std::optional<double> posinf = {},
                  std::optional<double> neginf = {});
/// a where condition (bool) is true, b elsewhere.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);

// ---- pointwise functions --------------------------------------------------------------------------------------------

Tensor neg(const Tensor& x);
Tensor abs(const Tensor& x);
Tensor sign(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor expm1(const Tensor& x);
Tensor log(const Tensor& x);
Tensor log1p(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor square(const Tensor& x);
Tensor reciprocal(const Tensor& x);
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor tan(const Tensor& x);
Tensor asin(const Tensor& x);
Tensor acos(const Tensor& x);
Tensor atan(const Tensor& x);
Tensor sinh(const Tensor& x);
Tensor cosh(const Tensor& x);
Tensor asinh(const Tensor& x);
Tensor acosh(const Tensor& x);
Tensor atanh(const Tensor& x);
Tensor exp2(const Tensor& x);
Tensor log2(const Tensor& x);
Tensor log10(const Tensor& x);
/// log(x / (1 - x)); with eps x is clamped to [eps, 1 - eps] first.
Tensor logit(const Tensor& x, std::optional<double> eps = {});
Tensor erf(const Tensor& x);
Tensor erfc(const Tensor& x);    ///< 1 - erf(x), exact also where it is tiny.
Tensor lgamma(const Tensor& x);  ///< log |Γ(x)|
Tensor digamma(const Tensor& x);
Tensor polygamma(int64_t n, const Tensor& x);  ///< The n-th derivative of digamma, 0 ≤ n ≤ 170.
Tensor floor(const Tensor& x);
Tensor ceil(const Tensor& x);
Tensor round(const Tensor& x);  ///< Halves to even.
Tensor trunc(const Tensor& x);  ///< Towards 0.
Tensor frac(const Tensor& x);   ///< x - trunc(x)

// ---- comparison and logic: bool results, no gradient ----------------------------------------------------------------

Tensor eq(const Tensor& a, const Tensor& b);
Tensor ne(const Tensor& a, const Tensor& b);
Tensor lt(const Tensor& a, const Tensor& b);
Tensor le(const Tensor& a, const Tensor& b);
Tensor gt(const Tensor& a, const Tensor& b);
Tensor ge(const Tensor& a, const Tensor& b);
inline Tensor operator==(const Tensor& a, const Tensor& b) { return eq(a, b); }
inline Tensor operator!=(const Tensor& a, const Tensor& b) { return ne(a, b); }
inline Tensor operator<(const Tensor& a, const Tensor& b) { return lt(a, b); }
inline Tensor operator<=(const Tensor& a, const Tensor& b) { return le(a, b); }
inline Tensor operator>(const Tensor& a, const Tensor& b) { return gt(a, b); }
inline Tensor operator>=(const Tensor& a, const Tensor& b) { return ge(a, b); }
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor logical_xor(const Tensor& a, const Tensor& b);
Tensor logical_not(const Tensor& x);
Tensor isnan(const Tensor& x);
Tensor isinf(const Tensor& x);
Tensor isfinite(const Tensor& x);
/// |a - b| ≤ atol + rtol |b|, or equal (as infinities are), or with equal_nan both NaN.
Tensor isclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false);
bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false);
bool equal(const Tensor& a, const Tensor& b);  ///< Same shape and all elements equal.

// ---- bits of integers; bools take and give bools --------------------------------------------------------------------

Tensor bitwise_and(const Tensor& a, const Tensor& b);
Tensor bitwise_or(const Tensor& a, const Tensor& b);
Tensor bitwise_xor(const Tensor& a, const Tensor& b);
Tensor bitwise_not(const Tensor& x);
/// Not for bools. A number of places that is negative or not below the bits of the type shifts out all of them.
Tensor bitwise_left_shift(const Tensor& x, const Tensor& places);
Tensor bitwise_right_shift(const Tensor& x, const Tensor& places);  ///< Keeps the sign.
inline Tensor operator&(const Tensor& a, const Tensor& b) { return bitwise_and(a, b); }
inline Tensor operator|(const Tensor& a, const Tensor& b) { return bitwise_or(a, b); }
inline Tensor operator^(const Tensor& a, const Tensor& b) { return bitwise_xor(a, b); }
inline Tensor operator~(const Tensor& x) { return bitwise_not(x); }
Tensor operator!(const Tensor& x);  ///< Of bool tensors: (x > 0) & !mask.

}  // namespace reel
