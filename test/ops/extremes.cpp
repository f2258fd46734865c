#include <catch2/catch.hpp>
#include <cfloat>
#include <cmath>
#include <cstdio>
#include <limits>
#include <sstream>

#include "reel/autograd.h"
#include "reel/ops.h"
#include "test/support/op_table.h"

// Where formulas break: infinities, NaN, denormals, cancellation, long sums; and how exact they are elsewhere.
namespace reel {
namespace {

const double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<double> special_values(DType dtype) {
  std::vector<double> values{0.,   -0., 0.5,  -0.5, 1.,    -1.,  1.5,   -1.5,  3.,     20.,  -20.,  87.,
                             -87., 89., -89., 300., -300., 1e30, -1e30, 1e-30, -1e-30, kInf, -kInf, kNan};
  if (dtype == kFloat32)
    values.insert(values.end(), {FLT_MIN, -FLT_MIN, 1e-40, -1e-40, 1.4e-45, FLT_MAX, -FLT_MAX});
  else
    values.insert(values.end(), {DBL_MIN, -DBL_MIN, 1e-310, -1e-310, 5e-324, 709., -745., 1e300, -1e300, DBL_MAX});
  for (double& v : values)
    if (dtype == kFloat32) v = static_cast<float>(v);
  return values;
}

/// Right but for rounding and an absolute error of `slack`; below the smallest normal number everything is zero.
bool close(double got, double exact, DType dtype, double slack = 0) {
  if (dtype == kFloat32) exact = static_cast<float>(exact);
  const double eps = dtype == kFloat32 ? FLT_EPSILON : DBL_EPSILON, tiny = dtype == kFloat32 ? FLT_MIN : DBL_MIN;
  if (std::isnan(exact)) return std::isnan(got);
  const double largest = dtype == kFloat32 ? FLT_MAX : DBL_MAX;
  if (std::isinf(exact)) return got == exact || std::abs(got) >= largest;
  if (std::isinf(got) && (got > 0) == (exact > 0)) return std::abs(exact) >= largest * (1 - 16 * eps);
  return std::abs(got - exact) <= 16 * eps * std::abs(exact) + tiny + slack;
}

std::string scientific(double x) {
  std::ostringstream text;
  text << x;
  return text.str();
}

double item(const Tensor& x) { return x.item<double>(); }

std::vector<double> gradient(const std::function<Tensor(const Tensor&)>& f, const Tensor& at) {
  const Tensor x = at.detach().requires_grad_(), y = f(x);
  return grad({y}, {x}, {ones_like(y)})[0].to_vector<double>();
}
std::vector<double> second_derivative(const std::function<Tensor(const Tensor&)>& f, const Tensor& at) {
  const Tensor x = at.detach().requires_grad_(), y = f(x);
  const Tensor slope = grad({y}, {x}, {ones_like(y)}, {.create_graph = true})[0];
  if (!slope.requires_grad()) return std::vector<double>(at.numel());
  const Tensor bend = grad({slope}, {x}, {ones_like(y)}, {.allow_unused = true})[0];
  return bend.defined() ? bend.to_vector<double>() : std::vector<double>(at.numel());
}

bool all_finite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
}

}  // namespace

TEST_CASE("pointwise ops at infinities, NaN, zeros and denormals", "[ops][isa][extremes]") {
  for_each_row([](const Row& row) {
    if (!row.reference.one && !row.reference.two) return;
    if (std::string(row.name).find("dropout") != std::string::npos) return;  // its row adds and takes off a shift
    for (DType dtype : {kFloat32, kFloat64}) {
      const std::vector<double> a = special_values(dtype);
      const Tensor x = tensor(a).to(dtype);
      const int64_t n = x.numel();
      if (row.reference.one) {
        const std::vector<double> y = row.call({x}).to_vector<double>();
        const double eps = dtype == kFloat32 ? FLT_EPSILON : DBL_EPSILON;
        const std::string name = row.name;
        const auto slack = [&](double at) {
          // Left of 0, gelu is a small difference of large numbers, and silu has a tiny factor.
          const bool gated = name == "gelu" || name == "gelu_tanh" || name == "silu" || name == "silu_";
          if (gated && at > -100 && at < 0) return -at * eps;
          // A difference, and a sum around a root.
          return name == "tanhshrink" || name.starts_with("digamma") ? 8 * eps : 0;
        };
        for (int64_t i = 0; i < n; ++i) {
          INFO(dtype << " at " << scientific(a[i]) << ": " << scientific(y[i]));
          CHECK(close(y[i], row.reference.one(a[i]), dtype, slack(a[i])));
        }
      } else {
        const Tensor left = x.unsqueeze(1).expand({n, n}), right = x.expand({n, n});
        const std::vector<double> y = row.call({left, right}).to_vector<double>();
        for (int64_t i = 0; i < n * n; ++i) {
          INFO(dtype << " at " << scientific(a[i / n]) << " and " << scientific(a[i % n]) << ": " << scientific(y[i]));
          CHECK(close(y[i], row.reference.two(a[i / n], a[i % n]), dtype));
        }
      }
    }
  });
}

TEST_CASE("zeros keep their sign", "[ops][isa][extremes]") {
  const struct {
    const char* name;
    Tensor (*call)(const Tensor&);
  } odd[] = {{"sqrt", sqrt},   {"sin", sin},          {"tanh", tanh}, {"expm1", expm1}, {"log1p", log1p},
             {"erf", erf},     {"floor", floor},      {"ceil", ceil}, {"round", round}, {"tan", tan},
             {"asin", asin},   {"atan", atan},        {"sinh", sinh}, {"asinh", asinh}, {"atanh", atanh},
             {"trunc", trunc}, {"softsign", softsign}};
  for (DType dtype : {kFloat32, kFloat64}) {
    const Tensor zero = tensor(std::vector<double>{-0., 0.}).to(dtype);
    for (const auto& f : odd) {
      INFO(f.name << ' ' << dtype);
      const std::vector<double> y = f.call(zero).to_vector<double>();
      CHECK((y[0] == 0 && std::signbit(y[0])));
      CHECK((y[1] == 0 && !std::signbit(y[1])));
    }
    CHECK(std::signbit(neg(zero).to_vector<double>()[1]));
    CHECK(!std::signbit(abs(zero).to_vector<double>()[0]));
    CHECK(reciprocal(zero).to_vector<double>() == std::vector<double>{-kInf, kInf});
  }
}

TEST_CASE("math functions are exact to 4 ulp", "[ops][isa][extremes][sweep]") {
  struct Sweep {
    const char* name;
    Tensor (*call)(const Tensor&);
    long double (*exact)(long double);
    double low, high;
  };
  // clang-format off
  const Sweep sweeps[] = {
      {"exp", exp, std::exp, -80, 80},          {"expm1", expm1, std::expm1, -20, 60},
      {"expm1", expm1, std::expm1, -1e-3, 1e-3}, {"log", log, std::log, 1e-30, 2},
      {"log", log, std::log, 0.9, 1.1},         {"log", log, std::log, 1, 1e30},
      {"log1p", log1p, std::log1p, -0.99, 10},  {"log1p", log1p, std::log1p, -1e-3, 1e-3},
      {"tanh", tanh, std::tanh, -10, 10},       {"tanh", tanh, std::tanh, -1e-2, 1e-2},
      {"erf", erf, std::erf, -4, 4},            {"erf", erf, std::erf, -1e-2, 1e-2},
      {"sin", sin, std::sin, -100, 100},        {"cos", cos, std::cos, -100, 100},
      {"sqrt", sqrt, std::sqrt, 0, 1e6},
      {"tan", tan, std::tan, -1.5, 1.5},        {"tan", tan, std::tan, -100, 100},
      {"asin", asin, std::asin, -1, 1},         {"acos", acos, std::acos, -1, 1},
      {"atan", atan, std::atan, -5, 5},         {"atan", atan, std::atan, 5, 1e6},
      {"sinh", sinh, std::sinh, -80, 80},       {"sinh", sinh, std::sinh, -1, 1},
      {"cosh", cosh, std::cosh, -80, 80},       {"asinh", asinh, std::asinh, -5, 5},
      {"asinh", asinh, std::asinh, 5, 1e10},    {"acosh", acosh, std::acosh, 1, 5},
      {"acosh", acosh, std::acosh, 5, 1e10},    {"atanh", atanh, std::atanh, -0.99, 0.99},
      {"exp2", exp2, std::exp2, -120, 120},     {"log2", log2, std::log2, 1e-30, 2},
      {"log2", log2, std::log2, 0.9, 1.1},      {"log10", log10, std::log10, 1e-30, 2},
      {"log10", log10, std::log10, 0.9, 1.1},   {"erfc", erfc, std::erfc, -4, 9},
      {"lgamma", lgamma, std::lgamma, 2.5, 50},
      {"hypot", [](const Tensor& x) { return hypot(x, 3.5); },
       [](long double x) { return std::hypot(x, 3.5L); }, -20, 20},
      {"atan2", [](const Tensor& x) { return atan2(x, -3.5); },
       [](long double x) { return std::atan2(x, -3.5L); }, -20, 20},
      {"sigmoid", sigmoid, [](long double x) { return 1 / (1 + std::exp(-x)); }, -20, 20},
      {"rsqrt", rsqrt, [](long double x) { return 1 / std::sqrt(x); }, 1e-6, 1e6},
  };
  // clang-format on
  for (const Sweep& sweep : sweeps) {
    double worst[2] = {}, worst_at[2] = {};
    for (DType dtype : {kFloat32, kFloat64}) {
      const Tensor x = linspace(sweep.low, sweep.high, 20001, {.dtype = kFloat64}).to(dtype);
      const std::vector<double> at = x.to_vector<double>(), y = sweep.call(x).to_vector<double>();
      for (size_t i = 0; i < at.size(); ++i) {
        const long double exact = sweep.exact(at[i]);
        int exponent;
        std::frexp(std::max<long double>(std::abs(exact), dtype == kFloat32 ? FLT_MIN : DBL_MIN), &exponent);
        const double ulp = std::ldexp(1., exponent - (dtype == kFloat32 ? 24 : 53));
        const double off = static_cast<double>(std::abs(y[i] - exact)) / ulp;
        if (!(off <= worst[dtype == kFloat64])) worst[dtype == kFloat64] = off, worst_at[dtype == kFloat64] = at[i];
      }
    }
    std::printf("%-8s on [%g, %g]: float32 %.2f ulp, float64 %.2f ulp\n", sweep.name, sweep.low, sweep.high, worst[0],
                worst[1]);
    INFO(sweep.name << " on [" << sweep.low << ", " << sweep.high << "], worst at " << worst_at[0] << " and "
                    << worst_at[1]);
    CHECK(worst[0] <= 4);
    CHECK(worst[1] <= 4);
  }
}

TEST_CASE("saturated functions have finite derivatives", "[ops][isa][extremes]") {
  struct Limits {
    const char* name;
    Tensor (*call)(const Tensor&);
    double left, right;  // of the slope
  };
  const Limits table[] = {
      {"sigmoid", sigmoid, 0, 0},
      {"tanh", tanh, 0, 0},
      {"erf", erf, 0, 0},
      {"relu", relu, 0, 1},
      {"gelu", gelu, 0, 1},
      {"silu", silu, 0, 1},
      {"elu", [](const Tensor& x) { return elu(x); }, 0, 1},
      {"leaky_relu", [](const Tensor& x) { return leaky_relu(x); }, 0.01, 1},
      {"softplus", [](const Tensor& x) { return softplus(x); }, 0, 1},
      {"gelu_tanh", gelu_tanh, 0, 1},
      {"mish", mish, 0, 1},
      {"logsigmoid", logsigmoid, 1, 0},
      {"hardswish", hardswish, 0, 1},
      {"selu", selu, 0, 1.0507009873554805},
      {"celu", [](const Tensor& x) { return celu(x, 2); }, 0, 1},
      {"tanhshrink", tanhshrink, 1, 1},
      {"erfc", erfc, 0, 0},
      {"logaddexp", [](const Tensor& x) { return logaddexp(x, 0.); }, 0, 1},
  };
  for (const Limits& f : table)
    for (DType dtype : {kFloat32, kFloat64})
      for (double far : {1e3, 1e4, 1e30}) {
        INFO(f.name << ' ' << dtype << " at -+" << far);
        const Tensor x = tensor(std::vector<double>{-far, far}).to(dtype);
        const std::vector<double> slopes = gradient(f.call, x);
        CHECK(slopes[0] == Approx(f.left).margin(1e-30));
        CHECK(slopes[1] == Approx(f.right));
        const std::vector<double> bends = second_derivative(f.call, x);
        CHECK(bends[0] == Approx(0).margin(1e-30));
        CHECK(bends[1] == Approx(0).margin(1e-30));
      }
}

TEST_CASE("a slope of 0 gives 0 for an infinite gradient", "[ops][isa][extremes]") {
  const std::pair<const char*, Tensor (*)(const Tensor&)> table[] = {
      {"floor", floor},
      {"ceil", ceil},
      {"round", round},
      {"trunc", trunc},
      {"sign", sign},
      {"floor_divide by", [](const Tensor& x) { return floor_divide(x, 1.); }},
      {"floor_divide of", [](const Tensor& x) { return floor_divide(1., x); }},
  };
  for (const auto& [name, f] : table)
    for (const DType dtype : {kFloat32, kFloat64, kFloat16})
      for (const bool create_graph : {false, true}) {
        INFO(name << ' ' << dtype);
        const Tensor x = full({11}, 0.3, {.dtype = dtype, .requires_grad = true}), y = f(x);
        const Tensor g = full({11}, kInf, {.dtype = dtype});
        const Tensor slope = grad({y}, {x}, {g}, {.create_graph = create_graph})[0];
        CHECK(slope.dtype() == dtype);
        CHECK(slope.to_vector<double>() == std::vector<double>(11, 0));
      }
}

TEST_CASE("derivatives at the edge of the domain", "[ops][extremes]") {
  const Tensor zero = zeros({1}, {.dtype = kFloat64});
  CHECK(gradient([](const Tensor& x) { return pow(x, 2.); }, zero)[0] == 0);
  CHECK(gradient([](const Tensor& x) { return pow(x, 3.); }, zero)[0] == 0);
  CHECK(gradient([](const Tensor& x) { return pow(x, 1.); }, zero)[0] == 1);
  CHECK(gradient([](const Tensor& x) { return pow(x, 0.); }, zero)[0] == 0);
  CHECK(gradient([](const Tensor& x) { return pow(0., x); }, zero + 2)[0] == 0);
  CHECK(gradient([](const Tensor& x) { return sqrt(x); }, zero)[0] == kInf);
  CHECK(gradient([](const Tensor& x) { return norm(x); }, zero)[0] == 0);
  CHECK(gradient([](const Tensor& x) { return xlogy(x, 0.); }, zero)[0] == 0);
  CHECK(gradient([](const Tensor& x) { return logaddexp(x, -kInf); }, zero - kInf)[0] == 0.5);
  CHECK(second_derivative([](const Tensor& x) { return logaddexp(x, 0.); }, zero)[0] == 0.25);
  CHECK(second_derivative([](const Tensor& x) { return pow(x, 3.); }, zero)[0] == 0);
  CHECK(second_derivative([](const Tensor& x) { return pow(x, 2.5); }, zero)[0] == 0);
  CHECK(gradient([](const Tensor& x) { return norm(x, 3); }, zero)[0] == 0);
}

TEST_CASE("softmax, logsumexp and losses of very large scores", "[ops][isa][extremes]") {
  for (DType dtype : {kFloat32, kFloat64}) {
    const auto row = [&](std::vector<double> values) { return tensor(values).to(dtype); };
    const auto numbers = [](const Tensor& x) { return x.to_vector<double>(); };
    using Numbers = std::vector<double>;
    const double big = dtype == kFloat32 ? 300 : 1000;
    INFO(dtype);

    CHECK(numbers(softmax(row({big, -big, big}), 0)) == Numbers{0.5, 0, 0.5});
    CHECK(numbers(softmax(row({-kInf, 0, 0}), 0)) == Numbers{0, 0.5, 0.5});
    CHECK(std::isnan(softmax(row({-kInf, -kInf}), 0)[0].item<double>()));
    CHECK(std::isnan(softmax(row({kNan, 1}), 0)[1].item<double>()));
    CHECK(numbers(log_softmax(row({big, -big}), 0)) == Numbers{0, -2 * big});
    CHECK(numbers(log_softmax(row({-kInf, 0}), 0)) == Numbers{-kInf, 0});
    CHECK(all_finite(gradient([](const Tensor& x) { return softmax(x, 0); }, row({-kInf, big, -big}))));
    CHECK(all_finite(gradient([](const Tensor& x) { return log_softmax(x, 0); }, row({-kInf, big, -big}))));

    CHECK(item(logsumexp(row({big, big}), 0)) == Approx(big + std::log(2)));
    CHECK(item(logsumexp(row({-big, -big}), 0)) == Approx(-big + std::log(2)));
    CHECK(item(logsumexp(row({-kInf, -kInf}), 0)) == -kInf);
    CHECK(item(logsumexp(row({kInf, 0}), 0)) == kInf);
    CHECK(item(logsumexp(row({-kInf, 5}), 0)) == 5);
    CHECK(gradient([](const Tensor& x) { return logsumexp(x, 0); }, row({-kInf, 5})) == Numbers{0, 1});

    const Tensor logits = row({big, -big, -big, big}).view({2, 2});
    CHECK(numbers(cross_entropy(logits, tensor({0, 0}), kNoReduction)) == Numbers{0, 2 * big});
    CHECK(gradient(
              [](const Tensor& x) {
                return cross_entropy(x, tensor({0, 0}), kSum);
              },
              logits) == Numbers{0, 0, -1, 1});
    const Tensor masked = row({-kInf, 0});
    CHECK(item(cross_entropy(masked, 1)) == 0);
    CHECK(item(cross_entropy(masked, 0)) == kInf);
    CHECK(gradient([](const Tensor& x) { return cross_entropy(x, 1); }, masked) == Numbers{0, 0});

    const Tensor z = row({big, -big, big, -big}), t = row({1, 1, 0, 0});
    CHECK(numbers(binary_cross_entropy_with_logits(z, t, kNoReduction)) == Numbers{0, big, big, 0});
    CHECK(gradient([&](const Tensor& x) { return binary_cross_entropy_with_logits(x, t, kSum); }, z) ==
          Numbers{0, -1, 1, 0});
    const Tensor certain = row({1, 0, 1, 0});
    CHECK(numbers(binary_cross_entropy(certain, t, kNoReduction)) == Numbers{0, 100, 100, 0});
    CHECK(all_finite(gradient([&](const Tensor& x) { return binary_cross_entropy(x, t, kSum); }, certain)));
  }
}

TEST_CASE("softmax along a dimension that is not the last gives what it gives along the last", "[ops][isa][extremes]") {
  const std::vector<double> columns{kInf, -kInf, kNan,  300,   -300, 300, -kInf, 0,    0,    1,    2,
                                    3,    0,     -kInf, -kInf, 65,   64,  63,    1e30, 1e30, -1e30};
  for (const DType dtype : {kFloat64, kFloat32, kFloat16, kBFloat16})
    for (const auto f : {softmax, log_softmax}) {
      INFO(dtype << (f == softmax ? " softmax" : " log_softmax"));
      const auto run = [&](int64_t dim) {
        const Tensor rows = tensor(columns, {7, 3}).to(dtype);
        const Tensor x = (dim ? rows : rows.t().contiguous()).detach().requires_grad_(), y = f(x, dim);
        const Tensor weights = tensor({1., 2., -3.}).to(dtype);
        const Tensor gx = grad({sum(y * (dim ? weights : weights.unsqueeze(1)))}, {x})[0];
        return std::pair(dim ? y : y.t(), dim ? gx : gx.t());
      };
      const auto [y, gy] = run(1);
      const auto [z, gz] = run(0);
      const double tolerance = dtype == kFloat64 ? 1e-14 : dtype == kFloat32 ? 1e-6 : dtype == kFloat16 ? 1e-3 : 1e-2;
      CHECK(allclose(z, y, tolerance, tolerance, true));
      CHECK(allclose(gz, gy, 4 * tolerance, 4 * tolerance, true));
    }
}

TEST_CASE("long sums and close numbers keep their digits", "[ops][isa][extremes]") {
  const double tenth = 0.1f;
  const Tensor many = full({10'000'000}, 0.1f);
  CHECK(item(sum(many)) == Approx(1e7 * tenth).epsilon(1e-6));
  CHECK(item(mean(many)) == Approx(tenth).epsilon(1e-6));
  CHECK(item(sum(many.view({-1, 10}), 0)[3]) == Approx(1e6 * tenth).epsilon(1e-6));
  CHECK(item(sum(many.view({10, -1}), 1)[3]) == Approx(1e6 * tenth).epsilon(1e-6));
  CHECK(item(sum(many.slice(0, 0, {}, 2))) == Approx(5e6 * tenth).epsilon(1e-6));
  CHECK(item(norm(many)) == Approx(std::sqrt(1e7) * tenth).epsilon(1e-6));
  CHECK(item(logsumexp(many, 0)) == Approx(tenth + std::log(1e7)).epsilon(1e-6));
  CHECK(item(cumsum(many.narrow(0, 0, 1'000'000), 0)[-1]) == Approx(1e6 * tenth).epsilon(1e-4));
  CHECK(item(var(tensor({10000., 10001., 10002.}))) == 1);
  CHECK(item(std(full({1000}, 12345.f))) == 0);
  CHECK(item(mean(ones({70000}, {.dtype = kFloat16}))) == 1);
  CHECK(item(sum(full({60000}, 0.5, {.dtype = kFloat16}))) == 30000);
  CHECK(item(sum(full({300}, 255, {.dtype = kUInt8}))) == 300 * 255);
  CHECK(sum(full({4}, int64_t{1} << 60)).item<int64_t>() == int64_t{1} << 62);
}

TEST_CASE("NaN is the largest", "[ops][isa][extremes]") {
  for (DType dtype : {kFloat16, kFloat32, kFloat64}) {
    const Tensor x = tensor(std::vector<double>{1, kNan, kInf, -2, kNan, -kInf}).to(dtype);
    INFO(dtype);
    for (const Tensor& y : {max(x), min(x), amax(x), amin(x), max(x, 0).values, min(x, 0).values, norm(x, kInf)})
      CHECK(std::isnan(item(y)));
    CHECK(item(argmax(x)) == 1);
    CHECK(item(argmin(x)) == 1);
    CHECK(item(max(x, 0).indices) == 1);
    CHECK(sort(x).indices.to_vector<int64_t>() == std::vector<int64_t>{5, 3, 0, 2, 1, 4});
    CHECK(sort(x, 0, true).indices.to_vector<int64_t>() == std::vector<int64_t>{1, 4, 2, 0, 3, 5});
    CHECK(topk(x, 3).indices.to_vector<int64_t>() == std::vector<int64_t>{1, 4, 2});
    CHECK(equal(x, x) == false);
    CHECK(item(any(x != x)) == 1);
    CHECK(item(sum(masked_fill(x, x != x, 0))) != 0);
  }
}

TEST_CASE("integers at their limits", "[ops][isa][extremes]") {
  const int64_t most = std::numeric_limits<int64_t>::max(), least = std::numeric_limits<int64_t>::min();
  const Tensor x = tensor(std::vector<int64_t>{most, least, most - 1});
  CHECK(max(x).item<int64_t>() == most);
  CHECK(min(x).item<int64_t>() == least);
  CHECK(maximum(x, most - 1).to_vector<int64_t>() == std::vector<int64_t>{most, most - 1, most - 1});
  CHECK(eq(x, most).to_vector<int64_t>() == std::vector<int64_t>{1, 0, 0});
  CHECK(clamp(x, 0, most - 1).to_vector<int64_t>() == std::vector<int64_t>{most - 1, 0, most - 1});
  CHECK(fmod(x, -1).to_vector<int64_t>() == std::vector<int64_t>{0, 0, 0});
  CHECK(sort(x).values.to_vector<int64_t>() == std::vector<int64_t>{least, most - 1, most});
  CHECK(where(x > 0, x, 0).to_vector<int64_t>() == std::vector<int64_t>{most, 0, most - 1});
  CHECK(pow(tensor({3, -3}), 39).to_vector<int64_t>() ==
        std::vector<int64_t>{4052555153018976267, -4052555153018976267});
}

}  // namespace reel
