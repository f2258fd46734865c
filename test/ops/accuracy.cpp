#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>

#include "lib/functors/number.h"
#include "reel/ops.h"

// How exact float32 functions are, in units in the last place (ulp), against the C library's in double precision.
namespace reel {
namespace {

const double kInf = std::numeric_limits<double>::infinity(), kLargest = std::numeric_limits<float>::max();

/// The distance of two neighbours at x; that of subnormal numbers below the least normal one.
double ulp(double x) {
  int exponent;
  std::frexp(std::max(std::abs(x), 0x1p-126), &exponent);
  return std::ldexp(1., exponent - 24);
}

/// The error in ulp; infinite where NaN, an infinity or the sign of zero is wrong.
double error_in_ulp(double got, double exact) {
  const float rounded = static_cast<float>(exact);
  if (std::isnan(exact)) return std::isnan(got) ? 0 : kInf;
  if (std::isinf(got) && got == rounded) return 0;
  // The largest number and infinity are neighbours.
  if (std::abs(exact) >= kLargest && std::abs(got) >= kLargest) return 1;
  if (std::isnan(got) || std::isinf(got) || std::isinf(rounded)) return kInf;
  if (exact == 0 && got == 0 && std::signbit(got) != std::signbit(exact)) return kInf;
  return std::abs(got - exact) / ulp(exact);
}

/// All magnitudes of both signs, numbers of ordinary size, the neighbourhoods of 0.5, 1 and the ends, and special ones.
std::vector<float> sample(double low, double high) {
  std::vector<float> x;
  const auto add = [&](float v) {
    if (!(v < low || v > high)) x.push_back(v);
  };
  std::mt19937 random(1);
  for (int i = 0; i < 50000; ++i) add(std::bit_cast<float>(static_cast<uint32_t>(random())));
  const double from = std::max(low, -20.), to = std::min(high, 20.);
  for (int i = 0; i < 50000; ++i) add(static_cast<float>(from + (to - from) * random() * 0x1p-32));
  for (double centre : {low, high, 0.5, -0.5, 1., -1.})
    if (std::isfinite(centre))
      for (int i = -1000; i < 1000; ++i)
        add(std::bit_cast<float>(std::bit_cast<uint32_t>(static_cast<float>(centre)) + i));
  for (double v : {0., -0., kInf, -kInf, 0x1p-149, -0x1p-149, 0x1p-126, -0x1p-126}) add(static_cast<float>(v));
  x.push_back(std::numeric_limits<float>::quiet_NaN());
  return x;
}

struct Function {
  const char* name;
  Tensor (*call)(const Tensor&);
  double (*exact)(double);
  double low = -kInf, high = kInf;
  double bound = 1.5;  // more than that only with a reason
};

double logistic(double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }
double log1p_exp(double x) { return std::max(x, 0.) + std::log1p(std::exp(-std::abs(x))); }

}  // namespace

TEST_CASE("float32 functions are exact to 1.5 ulp", "[ops][cpu][isa][accuracy]") {
  // clang-format off
  const Function functions[] = {
      {"exp", exp, std::exp}, {"exp2", exp2, std::exp2}, {"expm1", expm1, std::expm1},
      {"log", log, std::log}, {"log2", log2, std::log2}, {"log10", log10, std::log10}, {"log1p", log1p, std::log1p},
      {"sqrt", sqrt, std::sqrt}, {"rsqrt", rsqrt, [](double x) { return 1 / std::sqrt(x); }},
      {"reciprocal", reciprocal, [](double x) { return 1 / x; }},
      {"square", square, [](double x) { return x * x; }},
      {"sin", sin, std::sin}, {"cos", cos, std::cos}, {"tan", tan, std::tan},
      {"asin", asin, std::asin}, {"acos", acos, std::acos}, {"atan", atan, std::atan},
      {"sinh", sinh, std::sinh}, {"cosh", cosh, std::cosh}, {"tanh", tanh, std::tanh},
      {"asinh", asinh, std::asinh}, {"acosh", acosh, std::acosh}, {"atanh", atanh, std::atanh},
      {"erf", erf, std::erf},
      // A product of five rounded factors.
      {"erfc", erfc, std::erfc, -kInf, kInf, 2.5},
      {"lgamma", lgamma, [](double x) { return std::lgamma(x); }, -kInf, kInf, 8},
      {"sigmoid", sigmoid, logistic},
      // At -infinity the product is NaN, as in PyTorch.
      {"silu", silu, [](double x) { return x * logistic(x); }},
      {"softplus", [](const Tensor& x) { return softplus(x); }, [](double x) { return x != x ? x : log1p_exp(x); }},
      {"logsigmoid", logsigmoid, [](double x) { return x != x ? x : -log1p_exp(-x); }, -kInf, 100},
      {"elu", [](const Tensor& x) { return elu(x); }, [](double x) { return x > 0 ? x : std::expm1(x); }},
      {"leaky_relu", [](const Tensor& x) { return leaky_relu(x); }, [](double x) { return x > 0 ? x : 0.01 * x; }},
      {"atan2", [](const Tensor& x) { return atan2(x, 3.5); }, [](double x) { return std::atan2(x, 3.5); }},
      {"atan2", [](const Tensor& x) { return atan2(x, -3.5); }, [](double x) { return std::atan2(x, -3.5); }},
      {"atan2", [](const Tensor& x) { return atan2(full_like(x, 0.3), x); }, [](double x) { return std::atan2(static_cast<double>(0.3f), x); }},
      {"hypot", [](const Tensor& x) { return hypot(x, 3.5); }, [](double x) { return std::hypot(x, 3.5); }},
      {"pow", [](const Tensor& x) { return pow(x, 0.3); }, [](double x) { return std::pow(x, static_cast<double>(0.3f)); }},
      {"pow", [](const Tensor& x) { return pow(x, -0.5); }, [](double x) { return std::pow(x, -0.5); }},
      {"pow", [](const Tensor& x) { return pow(x, -2); }, [](double x) { return std::pow(x, -2); }},
      {"pow", [](const Tensor& x) { return pow(1.7, x); }, [](double x) { return std::pow(static_cast<double>(1.7f), x); }},
      {"pow", [](const Tensor& x) { return pow(x, full_like(x, 0.5)); }, [](double x) { return std::pow(x, 0.5); }},
      {"pow", [](const Tensor& x) { return pow(x, 3); }, [](double x) { return x * x * x; }},
      // A product of three rounded factors, one of them a constant.
      {"selu", selu, [](double x) { return 1.0507009873554805 * (x > 0 ? x : 1.6732632423543772 * std::expm1(x)); }, -kInf, kInf, 2},
      {"hardswish", hardswish, [](double x) { return x <= -3 ? 0 : x >= 3 ? x : x * (x + 3) / 6; }, -kInf, kInf, 2.5},
      // Products and a quotient of rounded exponentials; where eˣ is subnormal it has few digits.
      {"mish", mish, [](double x) { return x > 40 ? x : x * std::tanh(std::log1p(std::exp(x))); }, -87, kInf, 4.5},
      // Left of 0 the distribution function is a difference, of ever fewer digits, as in PyTorch.
      {"gelu", gelu, [](double x) { return x * std::erfc(-x * std::sqrt(0.5)) / 2; }, -1, kInf, 3},
  };
  // clang-format on
  for (const Function& f : functions) {
    const std::vector<float> at = sample(f.low, f.high);
    const std::vector<double> y = f.call(tensor(at)).to_vector<double>();
    double worst = 0, worst_at = 0;
    for (size_t i = 0; i < at.size(); ++i)
      if (const double error = error_in_ulp(y[i], f.exact(at[i])); !(error <= worst)) worst = error, worst_at = at[i];
    std::printf("%-10s %.2f ulp at %.9g\n", f.name, worst, worst_at);
    INFO(f.name << ": " << worst << " ulp at " << worst_at);
    CHECK(worst <= f.bound);
  }
}

// The reduction of an angle is hardest where it is nearly a multiple of π / 2, and few samples are.
TEST_CASE("float32 sin, cos and tan are exact near multiples of pi / 2", "[ops][cpu][isa][accuracy]") {
  std::vector<float> at;
  for (int n = 1; n < 20000; ++n)
    for (int i = -2; i <= 2; ++i)
      at.push_back(std::bit_cast<float>(std::bit_cast<uint32_t>(static_cast<float>(n * M_PI_2)) + i));
  const Function functions[] = {{"sin", sin, std::sin}, {"cos", cos, std::cos}, {"tan", tan, std::tan}};
  for (const Function& f : functions) {
    const std::vector<double> y = f.call(tensor(at)).to_vector<double>();
    for (size_t i = 0; i < at.size(); ++i)
      if (const double error = error_in_ulp(y[i], f.exact(at[i])); !(error <= f.bound)) {
        INFO(f.name << " of " << at[i]);
        CHECK(error <= f.bound);
      }
  }
}

namespace {

/// All pairs of special and ordinary numbers, and pairs whose quotient is next to a whole number.
template <class T>
std::pair<std::vector<T>, std::vector<T>> pairs() {
  using Limits = std::numeric_limits<T>;
  const T some[] = {0,
                    T(-0.),
                    1,
                    -1,
                    2,
                    -2,
                    3,
                    -3,
                    4,
                    0.5,
                    -0.5,
                    1.5,
                    -7,
                    7.25,
                    1e5,
                    16777215,
                    -5,
                    0.75,
                    1.1,
                    T(-1e10),
                    1e9,
                    Limits::infinity(),
                    -Limits::infinity(),
                    Limits::quiet_NaN(),
                    Limits::denorm_min(),
                    -Limits::min(),
                    Limits::max(),
                    Limits::lowest()};
  std::pair<std::vector<T>, std::vector<T>> result;
  const auto add = [&](T a, T b) { result.first.push_back(a), result.second.push_back(b); };
  for (T a : some)
    for (T b : some) add(a, b);
  std::mt19937 random(2);
  for (int i = 0; i < 20000; ++i) {
    const T b = static_cast<T>(0.1 + 7 * random() * 0x1p-32), a = static_cast<T>(random() % (1u << i % 32)) * b;
    add(i % 3 ? a : -a, i % 2 ? b : -b);
    add(std::nextafter(a, T(i % 5 ? 1e30 : -1e30)), b);
  }
  return result;
}

bool is_neighbour(double x, double y) { return y != 0 && std::nextafter(y, x) == x; }

template <class T, class Op, class Exact>
void check_pairs(const char* name, const Op& op, const Exact& exact, double bound) {
  const auto [a, b] = pairs<T>();
  for (const size_t n : {size_t{1}, size_t{7}, a.size()}) {
    const auto first = [n](const std::vector<T>& x) { return tensor(std::vector<T>(x.begin(), x.begin() + n)); };
    const std::vector<T> y = op(first(a), first(b)).template to_vector<T>();
    for (size_t i = 0; i < n; ++i) {
      const double want = exact(a[i], b[i]);
      const double error = bound > 0 && sizeof(T) == 4                                ? error_in_ulp(y[i], want)
                           : bound > 0 && is_neighbour(y[i], want)                    ? 1
                           : std::isnan(want)                                         ? (std::isnan(y[i]) ? 0 : kInf)
                           : y[i] == want && std::signbit(y[i]) == std::signbit(want) ? 0
                                                                                      : kInf;
      INFO(name << '(' << a[i] << ", " << b[i] << ") = " << y[i] << ", not " << want);
      if (!(error <= bound)) CHECK(error <= bound);
    }
  }
}

template <class T>
T python_remainder(T a, T b) {
  const T rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

}  // namespace

TEST_CASE("powers follow C's rules for zeros, infinities, NaN and negative numbers", "[ops][cpu][isa][accuracy]") {
  const auto power = [](const Tensor& a, const Tensor& b) { return pow(a, b); };
  check_pairs<float>(
      "pow", power, [](double a, double b) { return std::pow(a, b); }, 1);
  check_pairs<double>(
      "pow", power, [](double a, double b) { return std::pow(a, b); }, 1);
  for (const double e : {-0.5, 0., 1e30, kInf, -kInf})
    for (const float x : {0.f, -0.f, 1.f, -1.f, 2.f, -2.f, INFINITY, -INFINITY}) {
      INFO(x << " to the power of " << e);
      CHECK(error_in_ulp(pow(tensor({x}), e).item<double>(), std::pow(static_cast<double>(x), e)) <= 1);
    }
}

TEST_CASE("powers of float64 are exact to 1 ulp", "[ops][cpu][isa][accuracy]") {
  std::mt19937_64 random(3);
  const auto uniform = [&](double low, double high) {
    return low + (high - low) * static_cast<double>(random()) * 0x1p-64;
  };
  std::vector<double> x, y;
  const auto add = [&](double base, double logarithm) { x.push_back(base), y.push_back(logarithm / std::log(base)); };
  for (int i = 0; i < 20000; ++i) {
    add(std::exp(uniform(-740, 700)), uniform(-760, 720));  // all powers, subnormal ones and those out of range as well
    add(1 + uniform(-1e-3, 1e-3), uniform(-700, 700));
    add(uniform(0.3, 3), uniform(-4, 4));
    x.push_back(uniform(0, 0x1p-1022)), y.push_back(uniform(-1, 1));
  }
  const std::vector<double> powers = pow(tensor(x), tensor(y)).to_vector<double>();
  for (size_t i = 0; i < x.size(); ++i) {
    const long double exact = std::pow(static_cast<long double>(x[i]), static_cast<long double>(y[i]));
    const double rounded = static_cast<double>(exact), got = powers[i];
    if (got == rounded) continue;
    const double step = std::abs(std::nextafter(rounded, got) - rounded);
    INFO(x[i] << " to the power of " << y[i] << " is " << got << ", not " << rounded);
    if (!(std::abs(got - exact) < step)) CHECK(std::abs(got - exact) < step);
  }
}

TEST_CASE("remainders are exact", "[ops][cpu][isa][accuracy]") {
  const auto mod = [](const Tensor& a, const Tensor& b) { return fmod(a, b); };
  const auto rest = [](const Tensor& a, const Tensor& b) { return remainder(a, b); };
  check_pairs<float>(
      "fmod", mod, [](float a, float b) { return std::fmod(a, b); }, 0);
  check_pairs<double>(
      "fmod", mod, [](double a, double b) { return std::fmod(a, b); }, 0);
  check_pairs<float>("remainder", rest, python_remainder<float>, 0);
  check_pairs<double>("remainder", rest, python_remainder<double>, 0);
}

TEST_CASE("float64 error functions and polygamma are exact to a few ulp", "[ops][cpu][isa][accuracy]") {
  std::vector<double> x;
  for (int i = -1400; i < 1400; ++i) x.push_back(i / 50. + 1e-3);
  for (double v : {0., -0., 1e-300, -1e-20, kInf, -kInf, std::nan("")}) x.push_back(v);
  const auto check = [&](const char* name, const Tensor& got, auto exact, double relative) {
    const std::vector<double> y = got.to_vector<double>();
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = exact(x[i]), error = std::abs(y[i] - want);
      const bool right = std::isnan(want)   ? std::isnan(y[i])
                         : std::isinf(want) ? y[i] == want
                                            : error <= std::max(std::abs(want) * relative, 0x1p-1060);
      INFO(name << '(' << x[i] << ") = " << y[i] << ", not " << want);
      if (!right) CHECK(right);
    }
  };
  check(
      "erf", erf(tensor(x)), [](double v) { return std::erf(v); }, 4e-16);
  check(
      "erfc", erfc(tensor(x)), [](double v) { return std::erfc(v); }, 2e-15);
  for (int n = 0; n < 4; ++n)
    check(
        "polygamma", polygamma(n, tensor(x)), [n](double v) { return functors::polygamma(n, v); }, 1e-12);
}

}  // namespace reel
