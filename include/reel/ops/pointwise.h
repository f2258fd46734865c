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
Tensor fmod(const Tensor& a, const Tensor& b);  ///< C's remainder: the sign of a.
Tensor clamp(const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max = {});
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
Tensor erf(const Tensor& x);
Tensor floor(const Tensor& x);
Tensor ceil(const Tensor& x);
Tensor round(const Tensor& x);  ///< Halves to even.
Tensor relu(const Tensor& x);
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01);
Tensor elu(const Tensor& x, double alpha = 1.0);
Tensor gelu(const Tensor& x);  ///< The exact form, x Φ(x) (Hendrycks & Gimpel 2016).
Tensor silu(const Tensor& x);  ///< x sigmoid(x).
Tensor softplus(const Tensor& x, double beta = 1.0, double threshold = 20.0);

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
/// Of bool tensors: (x > 0) & !mask.
Tensor operator&(const Tensor& a, const Tensor& b);
Tensor operator|(const Tensor& a, const Tensor& b);
Tensor operator!(const Tensor& x);
bool equal(const Tensor& a, const Tensor& b);  ///< Same shape and all elements equal.

}  // namespace reel
