#include <catch2/catch.hpp>

#include "test/support/op_rows.h"
#include "test/support/wrong_calls.h"

namespace reel {

// clang-format off
const std::vector<Row>& pointwise_rows() {
  static const std::vector<Row> rows{

// ---- arithmetic

{"add", [](In x) { return add(x[0], x[1]); }, [](double a, double b) { return a + b; }, {range(-2, 2), range(-2, 2)},
 kArithmetic},
{"sub", [](In x) { return sub(x[0], x[1]); }, [](double a, double b) { return a - b; }, {range(-2, 2), range(-2, 2)},
 kArithmetic},
{"mul", [](In x) { return mul(x[0], x[1]); }, [](double a, double b) { return a * b; }, {range(-3, 3), range(-3, 3)},
 kArithmetic},
{"div", [](In x) { return div(x[0], x[1]); }, [](double a, double b) { return a / b; }, {range(-2, 2), range(0.6, 3)},
 kOfFloats},
{"operator+", [](In x) { return x[0] + x[1]; }, [](double a, double b) { return a + b; }, {range(-2, 2), range(-2, 2)},
 kArithmetic},
{"operator-", [](In x) { return x[0] - x[1]; }, [](double a, double b) { return a - b; }, {range(-2, 2), range(-2, 2)},
 kArithmetic},
{"operator*", [](In x) { return x[0] * x[1]; }, [](double a, double b) { return a * b; }, {range(-3, 3), range(-3, 3)},
 kArithmetic},
{"operator/", [](In x) { return x[0] / x[1]; }, [](double a, double b) { return a / b; },
 {range(-2, 2), range(-3, -0.6)}, kOfFloats},
{"operator-(x)", [](In x) { return -x[0]; }, [](double x) { return -x; }, {range(-3, 3)}, kArithmetic},
{"add(number)", [](In x) { return 2 + x[0]; }, [](double x) { return 2 + x; }, {range(-3, 3)}, kArithmetic},
{"sub(number)", [](In x) { return 2 - x[0]; }, [](double x) { return 2 - x; }, {range(-3, 3)}, kArithmetic},
{"mul(number)", [](In x) { return x[0] * 2.5; }, [](double x) { return x * 2.5; }, {range(-3, 3)}, kOfFloats},
{"div(number)", [](In x) { return 2 / x[0]; }, [](double x) { return 2 / x; }, {range(0.6, 3)}, kOfFloats},
{"mul(itself)", [](In x) { return x[0] * x[0]; }, [](double x) { return x * x; }, {range(-3, 3)}, kArithmetic},
{"pow", [](In x) { return pow(x[0], x[1]); }, [](double a, double b) { return std::pow(a, b); },
 {range(0.3, 2.5), range(-2, 2)}},
{"pow(whole)", [](In x) { return pow(x[0], x[1]); }, [](double a, double b) { return std::pow(a, b); },
 {whole(0, 3), whole(0, 4)}, {.integers = true, .differentiable = false}},
{"pow(2)", [](In x) { return pow(x[0], 2); }, [](double x) { return x * x; }, {range(-3, 3)}, kArithmetic},
{"pow(3.)", [](In x) { return pow(x[0], 3.); }, [](double x) { return x * x * x; }, {range(-2, 2)}, kOfFloats},
{"pow(0.5)", [](In x) { return pow(x[0], 0.5); }, [](double x) { return std::sqrt(x); }, {range(0.3, 3)}, kOfFloats},
{"pow(-1.)", [](In x) { return pow(x[0], -1.); }, [](double x) { return 1 / x; }, {range(0.6, 3)}, kOfFloats},
{"pow(2, x)", [](In x) { return pow(2., x[0]); }, [](double x) { return std::exp2(x); }, {range(-3, 3)}, kOfFloats},
{"maximum", [](In x) { return maximum(x[0], x[1]); }, [](double a, double b) { return a != a || a > b ? a : b; },
 {range(-3, 3), range(-3, 3)}, kArithmetic},
{"minimum", [](In x) { return minimum(x[0], x[1]); }, [](double a, double b) { return a != a || a < b ? a : b; },
 {range(-3, 3), range(-3, 3)}, kArithmetic},
{"fmod", [](In x) { return fmod(x[0], x[1]); }, [](double a, double b) { return std::fmod(a, b); },
 {range(-5, 5), range(0.6, 3)}, kArithmetic},
{"remainder", [](In x) { return remainder(x[0], x[1]); }, ref::python_remainder, {range(-5, 5), range(0.6, 3)},
 kArithmetic},
{"remainder(negative)", [](In x) { return remainder(x[0], x[1]); }, ref::python_remainder,
 {range(-5, 5), range(-3, -0.6)}},
{"floor_divide", [](In x) { return floor_divide(x[0], x[1]); }, ref::floor_divide, {range(-5, 5), range(0.6, 3)},
 kArithmetic},
{"floor_divide(negative)", [](In x) { return floor_divide(x[0], x[1]); }, ref::floor_divide,
 {range(-5, 5), range(-3, -0.6)}},
{"float_power", [](In x) { return float_power(x[0], x[1]).to(x[0].dtype()); },
 [](double a, double b) { return std::pow(a, b); }, {range(0.3, 2.5), range(-2, 2)}},
{"hypot", [](In x) { return hypot(x[0], x[1]); }, [](double a, double b) { return std::hypot(a, b); },
 {range(-3, 3), range(-3, 3)}, kOfFloats},
{"atan2", [](In x) { return atan2(x[0], x[1]); }, [](double a, double b) { return std::atan2(a, b); },
 {range(-3, 3), range(-3, 3)}, kOfFloats},
{"logaddexp", [](In x) { return logaddexp(x[0], x[1]); },
 ref::logaddexp,
 {range(-3, 3), range(-3, 3)}, kOfFloats},
{"xlogy", [](In x) { return xlogy(x[0], x[1]); }, [](double a, double b) { return a == 0 && b == b ? 0 : a * std::log(b); },
 {range(-3, 3), range(0.2, 3)}, kOfFloats},
{"lerp", [](In x) { return lerp(x[0], x[1], x[2]); }, [](double a, double b, double c) { return a + c * (b - a); },
 {range(-3, 3), range(-3, 3), range(-0.5, 1.5)}},
{"lerp(number)", [](In x) { return lerp(x[0], x[1], 0.75); },
 [](Ref x) { return ref::zip(x[0], x[1], [](double a, double b) { return a + 0.75 * (b - a); }); },
 {{kMatrix}, {kMatrix}}},
{"addcmul", [](In x) { return addcmul(x[0], x[1], x[2], 2); }, [](double a, double b, double c) { return a + 2 * b * c; },
 {range(-3, 3), range(-3, 3), range(-3, 3)}, {.integers = true, .tolerance = 4}},
{"addcdiv", [](In x) { return addcdiv(x[0], x[1], x[2], 0.5); },
 [](double a, double b, double c) { return a + 0.5 * b / c; }, {range(-3, 3), range(-3, 3), range(0.6, 3)},
 {.tolerance = 4}},
{"clamp(tensors)", [](In x) { return clamp(x[0], x[1], x[2]); },
 [](double x, double low, double high) { return std::min(std::max(x, low), high); },
 {range(-3, 3), range(-2, -0.2), range(0.2, 2)}, kArithmetic},
{"clamp(min tensor)", [](In x) { return clamp(x[0], x[1]); }, [](double x, double low) { return x < low || low != low ? low : x; },
 {range(-3, 3), range(-2, 2)}, kArithmetic},
{"clamp(max tensor)", [](In x) { return clamp(x[0], {}, x[1]); },
 [](double x, double high) { return x > high || high != high ? high : x; }, {range(-3, 3), range(-2, 2)}, kArithmetic},
{"nan_to_num", [](In x) { return nan_to_num(x[0], 1, 2, -2); },
 [](double x) { return x != x ? 1 : std::isinf(x) ? (x > 0 ? 2 : -2) : x; }, {range(-3, 3)}, kArithmetic},
{"clamp", [](In x) { return clamp(x[0], -1, 2); }, [](double x) { return std::clamp(x, -1., 2.); }, {range(-3, 3)}, {}},
{"clamp(whole)", [](In x) { return clamp(x[0], 1, 2); }, [](double x) { return std::clamp(x, 1., 2.); }, {range(-3, 3)},
 kArithmetic},
{"clamp(crossed)", [](In x) { return clamp(x[0], 2, 1); }, [](double x) { return x != x ? x : 1; }, {range(-3, 3)},
 kArithmetic},
{"clamp(min)", [](In x) { return clamp(x[0], 1); }, [](double x) { return std::max(x, 1.); }, {range(-3, 3)},
 kArithmetic},
{"clamp(max)", [](In x) { return clamp(x[0], {}, 1); }, [](double x) { return std::min(x, 1.); }, {range(-3, 3)},
 kArithmetic},
{"where", [](In x) { return where(x[0], x[1], x[2]); }, [](double c, double a, double b) { return c ? a : b; },
 {mask(), range(-3, 3), range(-3, 3)}, kMoves},

// ---- pointwise functions

{"neg", [](In x) { return neg(x[0]); }, [](double x) { return -x; }, {range(-3, 3)}, kArithmetic},
{"abs", [](In x) { return abs(x[0]); }, [](double x) { return std::abs(x); }, {range(-3, 3)}, kArithmetic},
{"sign", [](In x) { return sign(x[0]); }, [](double x) { return double((x > 0) - (x < 0)); }, {range(-3, 3)},
 kArithmetic},
{"exp", [](In x) { return exp(x[0]); }, [](double x) { return std::exp(x); }, {range(-3, 3)}, kOfFloats},
{"expm1", [](In x) { return expm1(x[0]); }, [](double x) { return std::expm1(x); }, {range(-3, 3)}, kOfFloats},
{"log", [](In x) { return log(x[0]); }, [](double x) { return std::log(x); }, {range(0.2, 4)}, kOfFloats},
{"log1p", [](In x) { return log1p(x[0]); }, [](double x) { return std::log1p(x); }, {range(-0.8, 4)}, kOfFloats},
{"sqrt", [](In x) { return sqrt(x[0]); }, [](double x) { return std::sqrt(x); }, {range(0.2, 9)}, kOfFloats},
{"rsqrt", [](In x) { return rsqrt(x[0]); }, [](double x) { return 1 / std::sqrt(x); }, {range(0.2, 9)}, kOfFloats},
{"square", [](In x) { return square(x[0]); }, [](double x) { return x * x; }, {range(-3, 3)}, kArithmetic},
{"reciprocal", [](In x) { return reciprocal(x[0]); }, [](double x) { return 1 / x; }, {range(0.3, 3)}, kOfFloats},
{"sin", [](In x) { return sin(x[0]); }, [](double x) { return std::sin(x); }, {range(-5, 5)}, kOfFloats},
{"cos", [](In x) { return cos(x[0]); }, [](double x) { return std::cos(x); }, {range(-5, 5)}, kOfFloats},
{"tanh", [](In x) { return tanh(x[0]); }, [](double x) { return std::tanh(x); }, {range(-3, 3)}, kOfFloats},
{"sigmoid", [](In x) { return sigmoid(x[0]); }, ref::sigmoid, {range(-5, 5)}, kOfFloats},
{"erf", [](In x) { return erf(x[0]); }, [](double x) { return std::erf(x); }, {range(-3, 3)}, kOfFloats},
{"tan", [](In x) { return tan(x[0]); }, [](double x) { return std::tan(x); }, {range(-1.2, 1.2)}, kOfFloats},
{"asin", [](In x) { return asin(x[0]); }, [](double x) { return std::asin(x); }, {range(-0.9, 0.9)}, kOfFloats},
{"acos", [](In x) { return acos(x[0]); }, [](double x) { return std::acos(x); }, {range(-0.9, 0.9)}, kOfFloats},
{"atan", [](In x) { return atan(x[0]); }, [](double x) { return std::atan(x); }, {range(-3, 3)}, kOfFloats},
{"sinh", [](In x) { return sinh(x[0]); }, [](double x) { return std::sinh(x); }, {range(-3, 3)}, kOfFloats},
{"cosh", [](In x) { return cosh(x[0]); }, [](double x) { return std::cosh(x); }, {range(-3, 3)}, kOfFloats},
{"asinh", [](In x) { return asinh(x[0]); }, [](double x) { return std::asinh(x); }, {range(-3, 3)}, kOfFloats},
{"acosh", [](In x) { return acosh(x[0]); }, [](double x) { return std::acosh(x); }, {range(1.2, 5)}, kOfFloats},
{"atanh", [](In x) { return atanh(x[0]); }, [](double x) { return std::atanh(x); }, {range(-0.9, 0.9)}, kOfFloats},
{"exp2", [](In x) { return exp2(x[0]); }, [](double x) { return std::exp2(x); }, {range(-3, 3)}, kOfFloats},
{"log2", [](In x) { return log2(x[0]); }, [](double x) { return std::log2(x); }, {range(0.2, 4)}, kOfFloats},
{"log10", [](In x) { return log10(x[0]); }, [](double x) { return std::log10(x); }, {range(0.2, 4)}, kOfFloats},
{"erfc", [](In x) { return erfc(x[0]); }, [](double x) { return std::erfc(x); }, {range(-3, 3)}, kOfFloats},
{"lgamma", [](In x) { return lgamma(x[0]); }, [](double x) { return std::lgamma(x); }, {range(0.4, 6)}, kOfFloats},
{"tan(beyond)", [](In x) { return tan(x[0]); }, [](double x) { return std::tan(x); }, {range(1.8, 4.4)}},
{"lgamma(negative)", [](In x) { return lgamma(x[0]); }, [](double x) { return std::lgamma(x); }, {range(-1.9, -1.1)}},
{"digamma", [](In x) { return digamma(x[0]); }, ref::digamma, {range(0.4, 6)}, kOfFloats},
{"digamma(negative)", [](In x) { return digamma(x[0]); }, ref::digamma, {range(-2.8, -2.2)}},
{"polygamma(1)", [](In x) { return polygamma(1, x[0]); }, [](double x) { return ref::polygamma(1, x); }, {range(0.4, 6)},
 kOfFloats},
{"polygamma(2)", [](In x) { return polygamma(2, x[0]); }, [](double x) { return ref::polygamma(2, x); }, {range(0.4, 6)}},
{"polygamma(3, negative)", [](In x) { return polygamma(3, x[0]); }, [](double x) { return ref::polygamma(3, x); },
 {range(-2.65, -2.35)}},
{"logit", [](In x) { return logit(x[0]); }, [](double x) { return std::log(x / (1 - x)); }, {range(0.1, 0.9)}, kOfFloats},
{"logit(eps)", [](In x) { return logit(x[0], 0.2); }, [](double x) { return [](double p) { return std::log(p / (1 - p)); }(std::clamp(x, 0.2, 0.8)); }, {range(0.1, 0.9)}},
{"floor", [](In x) { return floor(x[0]); }, [](double x) { return std::floor(x); }, {range(-3, 3)}, kArithmetic},
{"ceil", [](In x) { return ceil(x[0]); }, [](double x) { return std::ceil(x); }, {range(-3, 3)}, kArithmetic},
{"round", [](In x) { return round(x[0]); }, [](double x) { return std::nearbyint(x); }, {range(-3, 3)}, kArithmetic},
{"trunc", [](In x) { return trunc(x[0]); }, [](double x) { return std::trunc(x); }, {range(-3, 3)}, kArithmetic},
{"frac", [](In x) { return frac(x[0]); }, [](double x) { return x - std::trunc(x); }, {range(-3, 3)}, kArithmetic},
{"round(halves)", [](In x) { return round(x[0] / 2); }, [](double x) { return std::nearbyint(x / 2); }, {whole(-6, 6)},
 {.integers = true, .integers_give = Result::kFloat, .differentiable = false}},
// ---- comparison and logic

{"eq", [](In x) { return eq(x[0], x[1]); }, [](double a, double b) { return double(a == b); },
 {whole(-1, 2), whole(-1, 2)}, kCompares},
{"ne", [](In x) { return ne(x[0], x[1]); }, [](double a, double b) { return double(a != b); },
 {whole(-1, 2), whole(-1, 2)}, kCompares},
{"lt", [](In x) { return lt(x[0], x[1]); }, [](double a, double b) { return double(a < b); },
 {whole(-1, 2), whole(-1, 2)}, kCompares},
{"le", [](In x) { return le(x[0], x[1]); }, [](double a, double b) { return double(a <= b); },
 {whole(-1, 2), whole(-1, 2)}, kCompares},
{"gt", [](In x) { return gt(x[0], x[1]); }, [](double a, double b) { return double(a > b); },
 {whole(-1, 2), whole(-1, 2)}, kCompares},
{"ge", [](In x) { return ge(x[0], x[1]); }, [](double a, double b) { return double(a >= b); },
 {whole(-1, 2), whole(-1, 2)}, kCompares},
{"operator==", [](In x) { return x[0] == x[1]; }, [](double a, double b) { return double(a == b); },
 {whole(-1, 2), whole(-1, 2)}, kCompares},
{"operator!=", [](In x) { return x[0] != x[1]; }, [](double a, double b) { return double(a != b); },
 {whole(-1, 2), whole(-1, 2)}, kCompares},
{"operator<", [](In x) { return x[0] < x[1]; }, [](double a, double b) { return double(a < b); },
 {whole(-1, 2), whole(-1, 2)}, kCompares},
{"operator<=", [](In x) { return x[0] <= x[1]; }, [](double a, double b) { return double(a <= b); },
 {whole(-1, 2), whole(-1, 2)}, kCompares},
{"operator>", [](In x) { return x[0] > 0; }, [](double x) { return double(x > 0); }, {whole(-1, 2)}, kCompares},
{"operator>=", [](In x) { return x[0] >= 0.5; }, [](double x) { return double(x >= 0.5); }, {whole(-1, 2)}, kCompares},
{"logical_and", [](In x) { return logical_and(x[0], x[1]); }, [](double a, double b) { return double(a && b); },
 {whole(-1, 2), whole(-1, 2)}, kCompares},
{"logical_or", [](In x) { return logical_or(x[0], x[1]); }, [](double a, double b) { return double(a || b); },
 {whole(-1, 2), whole(-1, 2)}, kCompares},
{"logical_xor", [](In x) { return logical_xor(x[0], x[1]); }, [](double a, double b) { return double(!a != !b); },
 {whole(-1, 2), whole(-1, 2)}, kCompares},
{"logical_not", [](In x) { return logical_not(x[0]); }, [](double x) { return double(!x); }, {whole(-1, 2)}, kCompares},
{"isnan", [](In x) { return isnan(x[0]); }, [](double x) { return double(x != x); }, {whole(-1, 2)}, kCompares},
{"isinf", [](In x) { return isinf(x[0]); }, [](double x) { return double(std::isinf(x)); }, {whole(-1, 2)}, kCompares},
{"isfinite", [](In x) { return isfinite(x[0]); }, [](double x) { return double(std::isfinite(x)); }, {whole(-1, 2)},
 kCompares},
{"isclose", [](In x) { return isclose(x[0], x[1], 0.25, 0.5); },
 [](double a, double b) { return double(a == b || (std::isfinite(a - b) && std::abs(a - b) <= 0.5 + 0.25 * std::abs(b))); },
 {whole(-3, 3), whole(-3, 3)}, kCompares},
{"allclose", [](In x) { return Tensor(allclose(x[0], x[0] + 0)); }, [](Ref) { return Array{{}, {1}}; }, {{kMatrix}},
 kCompares},
{"bitwise_and", [](In x) { return bitwise_and(x[0].to(kInt64), x[1].to(kInt64)); },
 [](Ref x) { return ref::zip(x[0], x[1], [](double a, double b) { return double(int64_t(a) & int64_t(b)); }); },
 {{kMatrix, -9, 9, Input::kWholeNumbers}, {kMatrix, -9, 9, Input::kWholeNumbers}}, kFinds},
{"bitwise_or", [](In x) { return bitwise_or(x[0].to(kInt64), x[1].to(kInt64)); },
 [](Ref x) { return ref::zip(x[0], x[1], [](double a, double b) { return double(int64_t(a) | int64_t(b)); }); },
 {{kMatrix, -9, 9, Input::kWholeNumbers}, {kMatrix, -9, 9, Input::kWholeNumbers}}, kFinds},
{"bitwise_xor", [](In x) { return bitwise_xor(x[0].to(kInt64), x[1].to(kInt64)); },
 [](Ref x) { return ref::zip(x[0], x[1], [](double a, double b) { return double(int64_t(a) ^ int64_t(b)); }); },
 {{kMatrix, -9, 9, Input::kWholeNumbers}, {kMatrix, -9, 9, Input::kWholeNumbers}}, kFinds},
{"bitwise_left_shift", [](In x) { return bitwise_left_shift(x[0].to(kInt64), x[1].to(kInt64)); },
 [](Ref x) { return ref::zip(x[0], x[1], [](double a, double b) { return double(int64_t(a) << int64_t(b)); }); },
 {{kMatrix, -9, 9, Input::kWholeNumbers}, {kMatrix, 0, 9, Input::kWholeNumbers}}, kFinds},
{"bitwise_right_shift", [](In x) { return bitwise_right_shift(x[0].to(kInt64), x[1].to(kInt64)); },
 [](Ref x) { return ref::zip(x[0], x[1], [](double a, double b) { return double(int64_t(a) >> int64_t(b)); }); },
 {{kMatrix, -9, 9, Input::kWholeNumbers}, {kMatrix, 0, 9, Input::kWholeNumbers}}, kFinds},
{"bitwise_not", [](In x) { return bitwise_not(x[0].to(kInt64)); },
 [](Ref x) { return build(kMatrix, [&](const Index& at) { return double(~int64_t(x[0](at))); }); },
 {{kMatrix, -9, 9, Input::kWholeNumbers}}, kFinds},
{"equal", [](In x) { return Tensor(equal(x[0], x[0].clone())); }, [](Ref) { return Array{{}, {1}}; }, {{kMatrix}},
 kCompares},
{"equal(not)", [](In x) { return Tensor(equal(x[0], x[1])); },
 [](Ref x) { return Array{{}, {double(x[0].data == x[1].data)}}; }, {{kMatrix}, {kMatrix}}, kCompares},

};
  return rows;
}
// clang-format on

TEST_CASE("bits of integers and bools", "[ops]") {
  for (const DType dtype : {kUInt8, kInt32, kInt64}) {
    INFO(dtype);
    const Tensor a = tensor({12, 10, 0}).to(dtype), b = tensor({10, 3, 255}).to(dtype);
    CHECK((a & b).dtype() == dtype);
    CHECK((a & b).to_vector<int>() == std::vector{8, 2, 0});
    CHECK((a | b).to_vector<int>() == std::vector{14, 11, 255});
    CHECK((a ^ 6).to_vector<int>() == std::vector{10, 12, 6});
    CHECK((~a).to_vector<int>() == (dtype == kUInt8 ? std::vector{243, 245, 255} : std::vector{-13, -11, -1}));
    CHECK(bitwise_left_shift(a, tensor({1, 70, 2})).to_vector<int>() == std::vector{24, 0, 0});
    CHECK(bitwise_right_shift(a, tensor({2, -1, 0})).to_vector<int>() == std::vector{3, 0, 0});
  }
  CHECK(bitwise_right_shift(tensor({-9, -9}), tensor({2, 64})).to_vector<int>() == std::vector{-3, -1});
  CHECK(bitwise_left_shift(1, tensor({63})).item<int64_t>() == std::numeric_limits<int64_t>::min());
  const Tensor yes = tensor({true, false}), no = tensor({true, true});
  CHECK((yes ^ no).dtype() == kBool);
  CHECK((yes ^ no).to_vector<int>() == std::vector{0, 1});
  CHECK((~yes).to_vector<int>() == std::vector{0, 1});
}

TEST_CASE("bounds of integers are exact", "[ops][isa]") {
  const int64_t large = (int64_t{1} << 60) + 1, most = std::numeric_limits<int64_t>::max();
  const Tensor x = tensor({-large, int64_t{-3}, int64_t{0}, int64_t{7}, large + 1, most});
  CHECK(clamp(x, -2, 5).to_vector<int64_t>() == std::vector<int64_t>{-2, -2, 0, 5, 5, 5});
  CHECK(clamp(x, 5, -2).to_vector<int64_t>() == std::vector<int64_t>(6, -2));
  CHECK(clamp(x, -large + 1, large).to_vector<int64_t>() ==
        std::vector{-large + 1, int64_t{-3}, int64_t{0}, int64_t{7}, large, large});
  CHECK(clamp(x, {}, most).to_vector<int64_t>() == x.to_vector<int64_t>());
  CHECK(clamp(tensor({1, 200}).to(kUInt8), -1, 100).to_vector<int>() == std::vector{1, 100});
  CHECK(clamp(arange(40).to(kInt32), 3, 30).sum().item<int64_t>() == 9 + (3 + 30) * 28 / 2 + 30 * 9);
}

TEST_CASE("neg and abs of half types keep all but the sign", "[ops][isa]") {
  const double inf = ref::kInfinity;
  std::vector<double> values = {0., -0., 1.5, -1.5, inf, -inf, std::nan(""), 0x1p-24, -0x1p-24, 65504};
  for (int i = 0; i < 60; ++i) values.push_back(i - 30.25);
  for (const DType dtype : {kFloat16, kBFloat16})
    for (const int64_t step : {1, 3}) {
      const Tensor x = tensor(values).to(dtype).slice(0, 0, std::nullopt, step);
      const std::vector<float> from = x.to_vector<float>(), negative = neg(x).to_vector<float>(),
                               magnitude = abs(x).to_vector<float>();
      for (size_t i = 0; i < from.size(); ++i) {
        INFO(dtype << ' ' << from[i]);
        CHECK((negative[i] == -from[i] || (std::isnan(from[i]) && std::isnan(negative[i]))));
        CHECK((magnitude[i] == std::abs(from[i]) || (std::isnan(from[i]) && std::isnan(magnitude[i]))));
        if (std::isnan(from[i])) continue;  // whose sign is not specified
        CHECK(std::signbit(negative[i]) != std::signbit(from[i]));
        CHECK_FALSE(std::signbit(magnitude[i]));
      }
    }
}

TEST_CASE("quotients are rounded down as in Python", "[ops]") {
  CHECK(floor_divide(tensor({7, -7, 7, -7}), tensor({2, 2, -2, -2})).to_vector<int>() == std::vector{3, -4, -4, 3});
  CHECK(remainder(tensor({7, -7, 7, -7}), tensor({2, 2, -2, -2})).to_vector<int>() == std::vector{1, 1, -1, -1});
  const int64_t least = std::numeric_limits<int64_t>::min();
  CHECK(floor_divide(tensor({least}), -1).item<int64_t>() == least);
  CHECK(floor_divide(1., 0.1).item<double>() == 9);
  CHECK(remainder(tensor({5.}), -3.).item<double>() == -1);
}

TEST_CASE("close tensors", "[ops]") {
  const double inf = ref::kInfinity, nan = std::nan("");
  const Tensor a = tensor({1., inf, nan, -inf, 0.}), b = tensor({1.000001, inf, nan, inf, 1e-9});
  CHECK(isclose(a, b).to_vector<int>() == std::vector{1, 1, 0, 0, 1});
  CHECK(isclose(a, b, 0, 0, true).to_vector<int>() == std::vector{0, 1, 1, 0, 0});
  CHECK(allclose(tensor({1, 2}), tensor({1., 2.00001})));
  CHECK_FALSE(allclose(a, b));
  CHECK(isfinite(b).to_vector<int>() == std::vector{1, 0, 0, 0, 1});
}

TEST_CASE("nan_to_num knows the limits of its type", "[ops]") {
  for (const DType dtype : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
    const Tensor x = tensor({std::nan(""), ref::kInfinity, -ref::kInfinity, 5.}).to(dtype), y = nan_to_num(x);
    INFO(dtype);
    CHECK(y.dtype() == dtype);
    CHECK(all(isfinite(y)).item<bool>());
    CHECK(y[0].item<double>() == 0);
    CHECK(y[1].item<double>() == -y[2].item<double>());
    CHECK(y[1].item<double>() >= 65504);
    CHECK(y[3].item<double>() == 5);
  }
}

TEST_CASE("a bound that is a tensor gets the gradient where it takes the place of x and half where they are equal",
          "[ops]") {
  const Tensor x = tensor({-2., 0., 1., 3.}).requires_grad_(), low = tensor({-1.}).requires_grad_(),
               high = tensor({1.}).requires_grad_();
  sum(clamp(x, low, high) * tensor({1., 2., 4., 8.})).backward();
  CHECK(x.grad().to_vector<double>() == std::vector<double>{0, 2, 2, 0});
  CHECK(low.grad().item<double>() == 1);
  CHECK(high.grad().item<double>() == 10);
  CHECK(std::isnan(clamp(x, {}, tensor({std::nan("")}))[0].item<double>()));
}

TEST_CASE("the slope of atan2 is finite at the origin and near it", "[ops]") {
  const Tensor a = tensor({0., 1e-25}).requires_grad_(), b = tensor({0., 1e-25}).requires_grad_();
  sum(atan2(a, b)).backward();
  CHECK(a.grad()[0].item<double>() == 0);
  CHECK(b.grad()[0].item<double>() == 0);
  CHECK(a.grad()[1].item<double>() == Approx(5e24));
  CHECK(b.grad()[1].item<double>() == Approx(-5e24));
}

TEST_CASE("lerp reaches both ends", "[ops]") {
  const Tensor a = tensor({1e8, -3.}), b = tensor({1., 1e-9});
  CHECK(equal(lerp(a, b, 0), a));
  CHECK(equal(lerp(a, b, 1), b));
  Tensor y = a.clone();
  CHECK(equal(y.lerp_(b, 0.25), lerp(a, b, 0.25)));
}

TEST_CASE("wrong calls of pointwise ops", "[ops]") {
  static const WrongCall calls[] = {
      {[](World& w) { bitwise_and(w.vector, w.whole); },
       "bitwise_and: tensors of float32 and int64; only integers and bools have bits"},
      {[](World& w) { bitwise_left_shift(w.mask, w.mask); },
       "bitwise_left_shift: tensors of bool and bool; only integers can be shifted"},
      {[](World& w) { floor_divide(w.ids, w.whole); }, "floor_divide: integer division by zero"},
      {[](World& w) { remainder(w.ids, w.whole); }, "remainder: integer division by zero"},
      {[](World& w) { clamp(w.matrix, {}, {}); }, "clamp: neither a minimum nor a maximum"},
      {[](World& w) { lerp(w.ids, w.whole, 1); },
       "lerp: tensors of int64, int64 and int64; at least one must be floating point"},
      {[](World& w) { lerp(w.matrix, w.cube, w.vector); }, "lerp: shapes …"},
      {[](World& w) { polygamma(-1, w.vector); }, "polygamma: the order must be in [0, 170], got -1"},
      {[](World& w) { isclose(w.vector, w.vector, -1); },
       "isclose: tolerances must not be negative, got rtol -1 and atol 1e-08"},
      {[](World& w) { addcmul(w.undefined, w.vector, w.vector); }, "addcmul: undefined tensor"},
      {[](World& w) { w.vector.addcdiv_(w.cube, w.cube); }, "addcdiv_: …"},
      {[](World& w) { w.leaf.lerp_(w.leaf, 0.5); },
       "lerp_: a leaf that requires grad can be changed in place only under no_grad"},
  };
  check_wrong_calls(calls);
}

TEST_CASE("a C++ integer beside integers that cannot hold it is an Error, and is compared as it is") {
  const Tensor bytes = tensor({1, 2, 255}, {.dtype = kUInt8}), ints = tensor({1, 2, INT32_MAX}, {.dtype = kInt32});
  const auto check = [](const Tensor& x, int64_t number) {
    INFO(x.dtype() << " and " << number);
    const Tensor wide = x.to(kInt64);
    Tensor (*const comparisons[])(const Tensor&, const Tensor&) = {eq, ne, lt, le, gt, ge};
    for (const auto& compare : comparisons) {
      CHECK(equal(compare(x, number), compare(wide, number)));
      CHECK(equal(compare(number, x), compare(number, wide)));
      CHECK(equal(compare(x, tensor(number)), compare(wide, number)));
    }
    Tensor (*const others[])(const Tensor&, const Tensor&) = {add,
                                                              sub,
                                                              mul,
                                                              maximum,
                                                              minimum,
                                                              fmod,
                                                              remainder,
                                                              floor_divide,
                                                              bitwise_or,
                                                              bitwise_xor,
                                                              bitwise_left_shift,
                                                              bitwise_right_shift};
    for (const auto& op : others) {
      CHECK_THROWS_WITH(op(x, number), Catch::Contains(": " + std::to_string(number) + " does not fit into "));
      CHECK_THROWS_WITH(op(number, x), Catch::Contains(" does not fit into "));
    }
    CHECK_THROWS_WITH(pow(number, x), Catch::Contains("pow: ") && Catch::Contains(" does not fit into "));
    CHECK_THROWS_WITH(where(x > 1, x, number), Catch::Contains("where: ") && Catch::Contains(" does not fit into "));
    CHECK_THROWS_WITH(add(x, x, number), Catch::Contains("add: ") && Catch::Contains(" does not fit into "));
    CHECK_THROWS_WITH(sub(x, x, number), Catch::Contains("sub: ") && Catch::Contains(" does not fit into "));
    CHECK_THROWS_WITH(addcmul(x, x, x, number), Catch::Contains("addcmul: ") && Catch::Contains(" does not fit into "));
    CHECK_THROWS_WITH(index_add(x, 0, tensor({0, 1, 2}), x, number), Catch::Contains(" does not fit into "));
    CHECK_THROWS_WITH(x.clone().add_(number), Catch::Contains(" does not fit into "));
  };
  for (const int64_t number : {int64_t{256}, int64_t{257}, int64_t{-256}, int64_t{1} << 32 | 1, INT64_MAX, INT64_MIN})
    check(bytes, number);
  for (const int64_t number : {int64_t{1} << 31, int64_t{1} << 32 | 1, -(int64_t{1} << 31) - 1, INT64_MAX, INT64_MIN})
    check(ints, number);
  // A negative number wraps in uint8, as in full() and in PyTorch, but is compared as it is.
  CHECK((bytes + -1).to_vector<int64_t>() == std::vector<int64_t>{0, 1, 254});
  CHECK((bytes > -1).all().item<bool>());
  CHECK(!(bytes == -1).any().item<bool>());
  CHECK((bytes > tensor(-1)).all().item<bool>());
}

TEST_CASE("ranges of a dtype that does not hold their ends are an Error") {
  CHECK_THROWS_WITH(arange(250, 257, 1, {.dtype = kUInt8}), "arange: 256 does not fit into uint8");
  CHECK(arange(250, 256, 1, {.dtype = kUInt8}).size(0) == 6);
  CHECK_THROWS_WITH(arange(0, 3e9, 1e9 + 2e8, {.dtype = kInt32}), "arange: 2400000000 does not fit into int32");
  CHECK_THROWS_WITH(arange(int64_t{1} << 31, 0, -1000000000, {.dtype = kInt32}),
                    "arange: 2147483648 does not fit into int32");
  CHECK(arange(1000, 0, 1, {.dtype = kUInt8}).numel() == 0);
  CHECK_THROWS_WITH(linspace(0, 300, 3, {.dtype = kUInt8}), "linspace: 300 does not fit into uint8");
  CHECK_THROWS_WITH(linspace(3e9, 0, 3, {.dtype = kInt32}), "linspace: 3e+09 does not fit into int32");
  CHECK(linspace(0, 300, 1, {.dtype = kUInt8}).item<int>() == 0);
  CHECK_THROWS_WITH(randperm(257, {.dtype = kUInt8}), "randperm: 256 does not fit into uint8");
  CHECK_THROWS_WITH(zeros({3}, {.dtype = kUInt8}).index_put_({Slice(0, 2)}, 300),
                    "index_put_: 300 does not fit into uint8");
}

TEST_CASE("a power does not depend on its neighbours", "[ops][isa]") {
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16}) {
    const std::vector<double> exponents{2, 1, 3, -1, 0.5, -0.5, 1.7, 0, -3, 2.5};
    const Tensor x = (rand({1003}) * 4).to(dtype), other = randint(0, 10, {1003});
    const Tensor choices = tensor(exponents).to(dtype), y = index_select(choices, 0, other), mixed = pow(x, y);
    for (size_t i = 0; i < exponents.size(); ++i) {
      CAPTURE(dtype, exponents[i]);
      const Tensor chosen = other == static_cast<int64_t>(i);
      const Tensor alike = pow(x, full(x.shape(), exponents[i], {.dtype = dtype}));
      CHECK(equal(masked_select(mixed, chosen), masked_select(alike, chosen)));
      for (const int64_t at : {0, 15, 1000, 1002}) CHECK(equal(pow(x[at], choices[int64_t(i)]), alike[at]));
    }
  }
}

}  // namespace reel
