#pragma once
#include <optional>

#include "reel/ops/common.h"

#pragma GCC visibility push(default)
/// Elementwise arithmetic, functions, comparison and logic.
///
/// Operands broadcast as in NumPy and are converted to the dtype that PyTorch's type promotion gives. Functions of real
/// numbers (exp, sqrt, …) give float32 for integers and bools; float16 and bfloat16 are computed in float32 and rounded
/// once. Outside of a function's domain the result is NaN, as in C; NaN gives NaN. Empty tensors give empty tensors.
///
/// Results are row-major. But where all operands of the result's shape are the same permutation of row-major elements,
/// as two transposed matrices are, the result is that permutation, too.
namespace reel {

// ---- arithmetic -----------------------------------------------------------------------------------------------------

Tensor add(const Tensor& a, const Tensor& b);  ///< a + b
/// a + alpha b, computed in the type that a and b have in common. An Error if that is an integer and alpha is not.
Tensor add(const Tensor& a, const Tensor& b, Scalar alpha);
Tensor sub(const Tensor& a, const Tensor& b);                ///< a - b. An Error if both are bools.
Tensor sub(const Tensor& a, const Tensor& b, Scalar alpha);  ///< a - alpha b, as in add.
Tensor mul(const Tensor& a, const Tensor& b);                ///< a b, element by element.
Tensor div(const Tensor& a, const Tensor& b);                ///< True division: integers give float32.
///@{
/// add, sub, mul, div of the two operands.
inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
///@}
Tensor operator-(const Tensor& x);  ///< neg(x)
/// base to the power of exponent. A negative base with a fractional exponent gives NaN. Integers stay integers: a
/// negative number as their exponent is an Error, negative elements of a tensor give 0 but for bases 1 and -1.
Tensor pow(const Tensor& base, const Tensor& exponent);
///@{
/// The larger (smaller) of a and b; NaN where either is NaN. At ties each gets half the gradient.
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);
///@}
/// a - b trunc(a / b), C's: the sign of a. An integer b of 0 is an Error.
Tensor fmod(const Tensor& a, const Tensor& b);
/// a - b ⌊a / b⌋, Python's %: the sign of b. An integer b of 0 is an Error.
Tensor remainder(const Tensor& a, const Tensor& b);
/// ⌊a / b⌋, with gradient 0. Integers stay integers, and a b of 0 is an Error then.
Tensor floor_divide(const Tensor& a, const Tensor& b);
Tensor float_power(const Tensor& base, const Tensor& exponent);  ///< pow in float64, whatever the types.
Tensor hypot(const Tensor& a, const Tensor& b);                  ///< √(a² + b²) without intermediate overflow.
Tensor atan2(const Tensor& y, const Tensor& x);                  ///< The angle of the point (x, y), in [-π, π].
Tensor logaddexp(const Tensor& a, const Tensor& b);              ///< log(eᵃ + eᵇ) without intermediate overflow.
Tensor xlogy(const Tensor& x, const Tensor& y);                  ///< x log(y), 0 where x is 0 (and y not NaN).
/// start + weight (end - start); the weight may be a number or a tensor.
Tensor lerp(const Tensor& start, const Tensor& end, const Tensor& weight);
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, Scalar value = 1);  ///< x + value a b
/// x + value · a / b. An Error if all three are integers.
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, Scalar value = 1);
/// x between the bounds, which are numbers, tensors or, as {}, absent. Where max < min the result is max. Where x
/// equals a bound, its gradient is 0 if the bound is a number, and is shared evenly between x and the bound if that is
/// a tensor. A minimum (maximum) below (above) all that an integer type holds has no effect; one beyond its other end
/// is an Error.
Tensor clamp(const Tensor& x, const Bound& min, const Bound& max = {});
/// The same: std::clamp, for three arguments of one type, would be a better match otherwise.
template <class T>
requires std::same_as<T, Tensor> Tensor clamp(const T& x, const T& min, const T& max) {
  return clamp(x, Bound(min), Bound(max));
}
/// NaN and the infinities replaced; the defaults for these are the largest and the least number of x's type.
Tensor nan_to_num(const Tensor& x, double nan = 0, std::optional<double> posinf = {},
                  std::optional<double> neginf = {});
/// a where condition is true, b elsewhere; the three broadcast. Throws unless condition is bool. Each gets the gradient
/// of its elements only.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);

// ---- pointwise functions --------------------------------------------------------------------------------------------

Tensor neg(const Tensor& x);         ///< -x
Tensor abs(const Tensor& x);         ///< |x|; its slope at 0 is 0.
Tensor sign(const Tensor& x);        ///< -1, 0 or 1; 0 of NaN. Bools stay bools. Its gradient is 0.
Tensor exp(const Tensor& x);         ///< eˣ
Tensor expm1(const Tensor& x);       ///< eˣ - 1, exact also near 0.
Tensor log(const Tensor& x);         ///< The natural logarithm; -∞ at 0, NaN below.
Tensor log1p(const Tensor& x);       ///< log(1 + x), exact also near 0.
Tensor sqrt(const Tensor& x);        ///< √x; NaN below 0. Its slope at 0 is infinite.
Tensor rsqrt(const Tensor& x);       ///< 1 / √x; infinite at 0.
Tensor square(const Tensor& x);      ///< x²; integers stay integers, bools give int64.
Tensor reciprocal(const Tensor& x);  ///< 1 / x
Tensor sin(const Tensor& x);         ///< The sine of x radians.
Tensor cos(const Tensor& x);         ///< The cosine of x radians.
Tensor tan(const Tensor& x);         ///< The tangent of x radians.
Tensor asin(const Tensor& x);        ///< The inverse of sin, in [-π/2, π/2]; NaN outside of [-1, 1].
Tensor acos(const Tensor& x);        ///< The inverse of cos, in [0, π]; NaN outside of [-1, 1].
Tensor atan(const Tensor& x);        ///< The inverse of tan, in [-π/2, π/2].
Tensor sinh(const Tensor& x);        ///< (eˣ - e⁻ˣ) / 2
Tensor cosh(const Tensor& x);        ///< (eˣ + e⁻ˣ) / 2
Tensor tanh(const Tensor& x);        ///< sinh(x) / cosh(x)
Tensor asinh(const Tensor& x);       ///< The inverse of sinh.
Tensor acosh(const Tensor& x);       ///< The inverse of cosh, not negative; NaN below 1.
Tensor atanh(const Tensor& x);       ///< The inverse of tanh; ±∞ at ±1, NaN beyond.
Tensor exp2(const Tensor& x);        ///< 2ˣ
Tensor log2(const Tensor& x);        ///< The logarithm to base 2.
Tensor log10(const Tensor& x);       ///< The logarithm to base 10.
/// log(x / (1 - x)), whose slope is 1 / (x (1 - x)), both NaN outside of [0, 1]; with eps x is clamped to [eps, 1 -
/// eps] first, outside of which the slope is 0.
Tensor logit(const Tensor& x, std::optional<double> eps = {});
Tensor sigmoid(const Tensor& x);               ///< 1 / (1 + e⁻ˣ)
Tensor erf(const Tensor& x);                   ///< The error function, 2/√π ∫₀ˣ exp(-t²) dt.
Tensor erfc(const Tensor& x);                  ///< 1 - erf(x), exact also where it is tiny.
Tensor lgamma(const Tensor& x);                ///< log |Γ(x)|
Tensor digamma(const Tensor& x);               ///< The derivative of lgamma.
Tensor polygamma(int64_t n, const Tensor& x);  ///< The n-th derivative of digamma, 0 ≤ n ≤ 170.
///@{
/// x rounded down, up, to the nearest integer (halves to even), or towards 0. Integers stay as they are; the gradient
/// is 0.
Tensor floor(const Tensor& x);
Tensor ceil(const Tensor& x);
Tensor round(const Tensor& x);
Tensor trunc(const Tensor& x);
///@}
Tensor frac(const Tensor& x);  ///< x - trunc(x)

// ---- comparison and logic: bool results, no gradient ----------------------------------------------------------------

///@{
/// Whether a = b, a ≠ b, a < b, a ≤ b, a > b, a ≥ b, as bool tensors. NaN is unequal to everything and in no order. A
/// result is no C++ bool: `if (a == b)` does not compile, equal(a, b) or allclose(a, b) does.
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
///@}

///@{
/// Logic on tensors of any dtype, in which all but 0 is true (NaN, too).
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor logical_xor(const Tensor& a, const Tensor& b);
Tensor logical_not(const Tensor& x);
///@}
Tensor isnan(const Tensor& x);     ///< Whether each element is NaN; false for integers.
Tensor isinf(const Tensor& x);     ///< Whether each element is ±∞; false for integers.
Tensor isfinite(const Tensor& x);  ///< Whether each element is neither NaN nor ±∞; true for integers.
/// |a - b| ≤ atol + rtol |b|, or equal (as infinities are), or with equal_nan both NaN.
Tensor isclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false);
/// Whether isclose is true everywhere; a and b broadcast. Synchronizes with a GPU.
bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false);
bool equal(const Tensor& a, const Tensor& b);  ///< Same shape and all elements equal. Synchronizes with a GPU.

// ---- bits of integers; bools take and give bools --------------------------------------------------------------------

///@{
/// Bitwise and, or, exclusive or, complement of integers (two's complement); logic of bools. Floats are an Error.
Tensor bitwise_and(const Tensor& a, const Tensor& b);
Tensor bitwise_or(const Tensor& a, const Tensor& b);
Tensor bitwise_xor(const Tensor& a, const Tensor& b);
Tensor bitwise_not(const Tensor& x);
inline Tensor operator&(const Tensor& a, const Tensor& b) { return bitwise_and(a, b); }
inline Tensor operator|(const Tensor& a, const Tensor& b) { return bitwise_or(a, b); }
inline Tensor operator^(const Tensor& a, const Tensor& b) { return bitwise_xor(a, b); }
inline Tensor operator~(const Tensor& x) { return bitwise_not(x); }
///@}
/// x · 2^places. Not for bools. A negative number of places, or at least the width of the type, gives 0.
Tensor bitwise_left_shift(const Tensor& x, const Tensor& places);
/// ⌊x / 2^places⌋, which keeps the sign. Not for bools. A negative number of places, or at least the width of the type,
/// gives 0, or -1 for a negative x.
Tensor bitwise_right_shift(const Tensor& x, const Tensor& places);
Tensor operator!(const Tensor& x);  ///< logical_not of a bool tensor, (x > 0) & !mask; throws for others.

}  // namespace reel
#pragma GCC visibility pop
