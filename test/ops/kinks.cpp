#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numeric>

#include "reel/nn.h"
#include "reel/random.h"
#include "reel/testing.h"
#include "test/ops/edges.h"

// Derivatives where formulas have kinks, and where they meet NaN, infinity and zero. Figures that are not obvious are
// PyTorch 2.15's.
namespace reel {

// ---- derivatives at kinks -------------------------------------------------------------------------------------------

TEST_CASE("the slope of a remainder by its divisor is a whole number, whose slope is 0", "[ops]") {
  const Tensor a = doubles({7.3, -5.1, 1e6 + 0.3}), b = doubles({0.7, 1.3, -0.37});
  for (const bool python : {false, true}) {
    const auto rest = python ? static_cast<Tensor (*)(const Tensor&, const Tensor&)>(remainder) : fmod;
    INFO((python ? "remainder" : "fmod"));
    const Tensor slope = gradient([&](const Tensor& x) { return rest(a, x); }, b);
    const Tensor quotient = python ? floor_divide(a, b) : trunc(a / b);
    CHECK(equal(slope, -quotient * doubles({1, 2, 3})));
    CHECK(numbers(second_derivative([&](const Tensor& x) { return rest(a, x); }, b)) == Numbers{0, 0, 0});
    CHECK(numbers(second_derivative([&](const Tensor& x) { return rest(x, x * 0.3); }, a)) == Numbers{0, 0, 0});
  }
}

TEST_CASE("all derivatives of a standard deviation of equal elements are 0", "[ops]") {
  const auto of = [](const Tensor& x) { return reel::std(x); };
  const Tensor equals = full({3}, 2., wide());
  CHECK(numbers(gradient(of, equals)) == Numbers{0, 0, 0});
  CHECK(numbers(second_derivative(of, equals)) == Numbers{0, 0, 0});
  CHECK(numbers(second_derivative([](const Tensor& x) { return norm(x); }, zeros({3}, wide()))) == Numbers{0, 0, 0});
  const Numbers bends = numbers(second_derivative(of, doubles({2, 2.5, 4})));
  const Numbers torch{-0.11085795263429121, 0.14781060351238812, -0.03695265087809674};
  for (size_t i = 0; i < 3; ++i) CHECK(bends[i] == Approx(torch[i]).epsilon(1e-12));
}

TEST_CASE("logit at the ends of its domain and beyond", "[ops]") {
  const Tensor x = doubles({-0.5, 0, 1, 1.5, 0.5});
  const Numbers y = numbers(logit(x)), slope = numbers(gradient([](const Tensor&z) { return logit(z); }, x));
  CHECK((std::isnan(y[0]) && y[1] == -kInf && y[2] == kInf && std::isnan(y[3]) && y[4] == 0));
  CHECK((std::isnan(slope[0]) && slope[1] == kInf && slope[2] == kInf && std::isnan(slope[3]) && slope[4] == 20));
  const auto bounded = [](const Tensor& z) { return logit(z, 0.25); };
  CHECK(numbers(gradient(bounded, doubles({-0.5, 0, 0.25, 0.75, 1.5, 0.5}))) ==
        Numbers{0, 0, 3 / 0.1875, 4 / 0.1875, 0, 24});
  CHECK(numbers(second_derivative(bounded, doubles({0, 1, 0.5}))) == Numbers{0, 0, 0});
}

TEST_CASE("equal elements share the gradient of the median of all", "[ops]") {
  const auto of_all = [](const Tensor& x) { return median(x); };
  CHECK(numbers(gradient(of_all, doubles({2, 2, 2, 2}))) == Numbers{0.25, 0.25, 0.25, 0.25});
  CHECK(numbers(gradient(of_all, doubles({1, 5, 2, 2, 0}))) == Numbers{0, 0, 0.5, 0.5, 0});
  CHECK(numbers(gradient(of_all, doubles({1, kNan, 2}))) == Numbers{0, 1, 0});
}

TEST_CASE("what counts for nothing in addmm may hold NaN and has a gradient of zeros", "[ops]") {
  const Tensor bad = doubles({1, kNan, 0, 1}).view({2, 2}), one = ones({2, 2}, wide());
  CHECK(equal(addmm(bad, one, one, 0), one * 2));
  CHECK(equal(addmm(one, bad, one, 1, 0), one));
  CHECK(equal(baddbmm(one.unsqueeze(0), bad.unsqueeze(0), one.unsqueeze(0), 2, 0), one.unsqueeze(0) * 2));
  Tensor x = one.clone().requires_grad_(), a = one.clone().requires_grad_();
  sum(addmm(x, a, one, 0)).backward();
  CHECK(numbers(x.grad()) == Numbers{0, 0, 0, 0});
  CHECK(numbers(a.grad()) == Numbers{2, 2, 2, 2});
  a.set_grad({});
  sum(addmm(x, a, one, 1, 0)).backward();
  CHECK(numbers(a.grad()) == Numbers{0, 0, 0, 0});
  CHECK(no_grad([&] { return addmm(x, a, one, 0); }).requires_grad() == false);
}

// ---- NaN, infinity and zero in derivatives --------------------------------------------------------------------------

TEST_CASE("slopes at NaN", "[ops]") {
  const Tensor x = doubles({kNan, -5, 5});
  const std::pair<std::function<Tensor(const Tensor&)>, Numbers> cases[] = {
      {[](const Tensor& z) { return clamp(z, -1, 1); }, {0, 0, 0}},
      {[](const Tensor& z) { return clamp(z, -1); }, {0, 0, 3}},
      {[](const Tensor& z) { return clamp(z, {}, 1); }, {0, 2, 0}},
      {[](const Tensor& z) { return hardtanh(z); }, {0, 0, 0}},
      {[](const Tensor& z) { return relu6(z); }, {0, 0, 3}},
      {[](const Tensor& z) { return elu(z, 0.5); }, {1, std::exp(-5.), 3}},
      {[](const Tensor& z) { return celu(z, 0.5); }, {1, 2 * std::exp(-10.), 3}},
      {[](const Tensor& z) { return hardswish(z); }, {1, 0, 3}},
      {[](const Tensor& z) { return maximum(z, 0); }, {1, 0, 3}},
      {[](const Tensor& z) { return maximum(0, z); }, {1, 0, 3}},
      {[](const Tensor& z) { return minimum(z, 0); }, {1, 2, 0}},
      {[](const Tensor& z) { return minimum(0, z); }, {1, 2, 0}},
      {[](const Tensor& z) { return maximum(z, kNan); }, {1, 2, 3}},
      {[](const Tensor& z) { return minimum(kNan, z); }, {1, 2, 3}}};
  int at = 0;
  for (const auto& [f, slopes] : cases) {
    INFO(at++);
    for (const Tensor& g : {gradient(f, x), gradient(f, x.clone().requires_grad_(), true)}) {
      const Numbers got = numbers(g);
      for (size_t i = 0; i < 3; ++i) CHECK(got[i] == Approx(slopes[i]).margin(1e-15));
    }
    CHECK(std::isnan(f(x)[0].item<double>()));
  }
  // Without a bound on that side infinity is inside.
  CHECK(numbers(gradient([](const Tensor& z) { return clamp(z, -1); }, doubles({kInf, -kInf}))) == Numbers{1, 0});
  CHECK(numbers(gradient([](const Tensor& z) { return clamp(z, {}, 1); }, doubles({kInf, -kInf}))) == Numbers{0, 2});
}

TEST_CASE("the slope of a remainder by zero or infinity", "[ops]") {
  const Tensor a = doubles({-1, 1, 1, -1, 1, 3}), b = doubles({kInf, kInf, -kInf, -kInf, 0, 2});
  const auto slopes = [&](Tensor (*f)(const Tensor&, const Tensor&), bool create_graph) {
    const auto by = [&](const Tensor& x) { return f(a, x); };
    return numbers(gradient(by, create_graph ? b.clone().requires_grad_() : b, create_graph));
  };
  for (const bool create_graph : {false, true}) {
    INFO(create_graph);
    CHECK(slopes(remainder, create_graph) == Numbers{1, 0, 3, 0, -kInf, -6});
    CHECK(slopes(fmod, create_graph) == Numbers{0, 0, 0, 0, -kInf, -6});
  }
  Tensor (*const both[])(const Tensor&, const Tensor&) = {fmod, remainder};
  for (const auto f : both)
    CHECK(numbers(second_derivative([&](const Tensor& x) { return f(a, x); }, b)) == Numbers{0, 0, 0, 0, 0, 0});
}

TEST_CASE("a gradient of 0 stays 0 through xlogy at 0", "[ops]") {
  const Tensor x = doubles({2, 0, 0}).requires_grad_(), y = doubles({0, 0, 3});
  for (const bool create_graph : {false, true}) {
    const Numbers g = numbers(grad({xlogy(x, y)}, {x}, {doubles({0, 1, 1})}, {.create_graph = create_graph})[0]);
    CHECK((g[0] == 0 && g[1] == 0 && g[2] == Approx(std::log(3.)).epsilon(1e-14)));
  }
}

TEST_CASE("the slope of a product where zeros meet infinity or NaN", "[ops]") {
  const auto product = [](const Tensor& x) { return prod(x); };
  const Numbers one = numbers(gradient(product, doubles({kInf, 0, 2}))),
                two = numbers(gradient(product, doubles({kInf, 0, 0}))),
                nan = numbers(gradient(product, doubles({kNan, 0, 0})));
  CHECK((one[0] == 0 && one[1] == kInf && std::isnan(one[2])));
  CHECK((two[0] == 0 && std::isnan(two[1]) && std::isnan(two[2])));
  CHECK((nan[0] == 0 && std::isnan(nan[1]) && std::isnan(nan[2])));
  const Numbers running = numbers(gradient([](const Tensor& x) { return cumprod(x, 0); }, doubles({kInf, 0, 2})));
  CHECK((running[0] == 1 && running[1] == kInf && std::isnan(running[2])));
}

TEST_CASE("every slope of a product is the product of the others", "[ops]") {
  const auto same = [](double a, double b) {
    return (std::isnan(a) && std::isnan(b)) || a == b || a == Approx(b).epsilon(1e-14);
  };
  for (const Numbers& x : std::vector<Numbers>{{3},
                                               {0},
                                               {2, -3, 5},
                                               {0, 2, 3, 4, 5},
                                               {2, 0, 3, 0, 7},
                                               {0, 0, 0},
                                               {kInf, 2, 3},
                                               {2, -kInf, kInf},
                                               {0, kInf, 3},
                                               {0, 0, kInf, 2},
                                               {kNan, 2, 3},
                                               {1e300, 1e300},
                                               {1e-200, 3e-200, 2},
                                               {1e200, 1e-200, 1e200, 0.5}}) {
    INFO(doubles(x));
    const size_t n = x.size();
    const auto between = [&](size_t from, size_t to) {
      return std::accumulate(x.begin() + static_cast<int64_t>(from), x.begin() + static_cast<int64_t>(to), 1.,
                             std::multiplies<>());
    };
    const Numbers all = numbers(gradient([](const Tensor& z) { return prod(z); }, doubles(x)));
    const Numbers running = numbers(gradient([](const Tensor& z) { return cumprod(z, 0); }, doubles(x)));
    for (size_t i = 0; i < n; ++i) {
      INFO(i);
      CHECK(same(all[i], between(0, i) * between(i + 1, n)));
      double sum = 0;  // of the last from the last on, as 0 times infinity is NaN
      for (size_t k = n; k-- > i;) sum = static_cast<double>(k + 1) + (k + 1 < n ? x[k + 1] * sum : 0);
      CHECK(same(running[i], between(0, i) * sum));
    }
  }
  // Of more elements than a round of the sums spans, in any dimension, and twice.
  const Tensor x = doubles({2, 0, -1, 3, 1, 4, 0, 0, 5, 2, 1, -2, 3, 1, 0.5, 2, 4, 1, 1, -1, 0}).reshape({7, 3});
  for (const int64_t dim : {0, 1}) {
    const Tensor ones_off = where(eye(x.size(dim)).to(kBool), 1, x.transpose(dim, -1).unsqueeze(-2));
    CHECK(allclose(gradient([&](const Tensor& z) { return sum(prod(z, dim)); }, x).transpose(dim, -1),
                   prod(ones_off, -1), 1e-14, 0));
    for (const bool running : {false, true}) {
      const auto f = [&](const Tensor& z) { return running ? sum(cumprod(z, dim)) : sum(prod(z, dim)); };
      const auto of_list = [&](const std::vector<Tensor>& in) { return f(in[0]); };
      CHECK_NOTHROW(testing::gradcheck(of_list, {x}));
      CHECK_NOTHROW(testing::gradgradcheck(of_list, {x}));
    }
  }
}

TEST_CASE("derivatives of pow where the base or the exponent is 0", "[ops]") {
  // ∂²/∂a², ∂²/∂a∂b, ∂²/∂b∂a, ∂²/∂b² of a^b
  const auto derivatives = [](double base, double exponent) {
    const Tensor a = doubles({base}).requires_grad_(), b = doubles({exponent}).requires_grad_();
    const auto first = grad({pow(a, b)}, {a, b}, {doubles({1})}, {.create_graph = true});
    Numbers second;
    for (const Tensor& g : first)
      for (const Tensor& h : grad({g}, {a, b}, {doubles({1})}, {.retain_graph = true, .allow_unused = true}))
        second.push_back(h.defined() ? h.item<double>() : 0);
    return second;
  };
  CHECK(derivatives(0, 3) == Numbers{0, 0, 0, 0});
  CHECK(derivatives(0, 2) == Numbers{2, 0, 0, 0});
  CHECK(derivatives(0, 1.5) == Numbers{kInf, 0, 0, 0});
  CHECK(derivatives(0, 1) == Numbers{0, 1, 0, 0});
  CHECK(derivatives(0, 0) == Numbers{0, 1, 0, 0});
  const double log_2 = std::log(2.);
  const Numbers constant = derivatives(2, 0);  // the slope by the base is 0, but 1/2 times the exponent
  CHECK((constant[0] == 0 && constant[1] == 0.5 && constant[2] == 0.5 && constant[3] == Approx(log_2 * log_2)));
  const Tensor x = doubles({0, kNan, kInf, -3}).requires_grad_(), zero = zeros({4}, wide()).requires_grad_();
  CHECK(numbers(grad({pow(x, zero)}, {x}, {doubles({1, 1, kInf, kNan})})[0]) == Numbers{0, 0, 0, 0});
}

TEST_CASE("all derivatives of atan2 at the origin are 0", "[ops]") {
  const Tensor a = doubles({0, 1}).requires_grad_(), b = doubles({0, 2}).requires_grad_();
  const auto first = grad({atan2(a, b)}, {a, b}, {doubles({1, 1})}, {.create_graph = true});
  CHECK((numbers(first[0])[0] == 0 && numbers(first[0])[1] == Approx(0.4)));
  for (const Tensor& g : first)
    for (const Tensor& h : grad({g}, {a, b}, {doubles({1, 1})}, {.retain_graph = true})) {
      CHECK(numbers(h)[0] == 0);
      CHECK(std::abs(numbers(h)[1]) > 0.1);
    }
}

TEST_CASE("norms of negative order", "[ops]") {
  // A norm that is 0 does not change with the others, and its slope at 0 has no sign.
  for (const double p : {-0.5, -1., -2., -3.}) {
    INFO(p);
    const auto f = [p](const Tensor& x) { return linalg::vector_norm(x, p); };
    for (const DType dtype : {kFloat64, kFloat32, kFloat16}) {
      CHECK(f(doubles({0, 2, -3}).to(dtype)).item<double>() == 0);
      CHECK(numbers(gradient(f, doubles({0, 2, -3}).to(dtype))) == Numbers{0, 0, 0});
      CHECK(numbers(gradient(f, doubles({0, 0, 1}).to(dtype))) == Numbers{0, 0, 0});
    }
    CHECK(numbers(second_derivative(f, doubles({0, 2, -3}))) == Numbers{0, 0, 0});
    const auto of_list = [&](const std::vector<Tensor>& in) { return f(in[0]); };
    CHECK_NOTHROW(testing::gradcheck(of_list, {doubles({1, 2, -3, 0.5})}));
    CHECK_NOTHROW(testing::gradgradcheck(of_list, {doubles({1, 2, -3, 0.5})}));
    CHECK(numbers(gradient(f, doubles({kInf, 2, 1})))[0] == 0);
    CHECK(allclose(norm(doubles({1, 2, -3}), p), f(doubles({1, 2, -3}))));
  }
  CHECK(linalg::vector_norm(doubles({1, 2, -3}), -1).item<double>() == Approx(0.5454545454545455).epsilon(1e-14));
  const Numbers g = numbers(gradient([](const Tensor& x) { return norm(x, -1); }, doubles({1, 2, -3})));
  CHECK((g[0] == Approx(0.29752066115702486) && g[1] == Approx(0.07438016528925621) &&
         g[2] == Approx(-0.03305785123966943)));
  CHECK(norm(doubles({1, 2, -3}), -kInf).item<double>() == 1);
}

TEST_CASE("quantiles between an infinity and a number", "[ops]") {
  CHECK(quantile(doubles({-kInf, 0}), 0.5).item<double>() == -kInf);
  CHECK(quantile(doubles({kInf, 0}), 0.25).item<double>() == kInf);
}

TEST_CASE("the median of all elements may be changed while recording", "[ops]") {
  const Tensor x = doubles({1, 2, 3}), factor = full({}, 5., wide()).requires_grad_();
  Tensor middle = median(x);
  middle.mul_(factor).backward();
  CHECK(factor.grad().item<double>() == 2);
}

TEST_CASE("what a scattered extreme leaves out gets no NaN", "[ops][index]") {
  const Tensor x = full({}, 1., wide()).requires_grad_(), source = full({}, -0.5, wide()).requires_grad_();
  sqrt(scatter_reduce(x, 0, tensor(0), source, Reduce::kMax, false)).backward();
  CHECK(x.grad().item<double>() == 0);
  CHECK(std::isnan(source.grad().item<double>()));
}

TEST_CASE("NaNs share the gradient of a scattered extreme, and one that nothing is scattered to keeps its own",
          "[ops][index]") {
  const Tensor ids = tensor({1, 1, 2});
  const auto slopes = [&](Reduce reduce, bool include_self) {
    const Tensor x = doubles({kNan, 1, kNan, 2}).requires_grad_(), source = doubles({kNan, 0, kNan}).requires_grad_();
    sum(scatter_reduce(x, 0, ids, source, reduce, include_self)).backward();
    return std::pair(numbers(x.grad()), numbers(source.grad()));
  };
  for (const Reduce reduce : {Reduce::kMax, Reduce::kMin}) {
    CHECK(slopes(reduce, true) == std::pair(Numbers{1, 0, 0.5, 1}, Numbers{1, 0, 0.5}));
    CHECK(slopes(reduce, false) == std::pair(Numbers{1, 0, 0, 1}, Numbers{1, 0, 1}));
  }
}

TEST_CASE("the norm of single elements does not overflow", "[ops]") {
  const Tensor x = tensor(std::vector<float>{1e30F, -2e-30F, 0}, {3, 1});
  for (const double p : {-2., 0.5, 2., 3.}) {
    INFO(p);
    CHECK(equal(norm(x, p, 1), abs(x).squeeze(1)));
    CHECK(equal(gradient([&](const Tensor& z) { return norm(z, p, 1, true); }, x),
                sign(x) * tensor({1, 2, 3}).view({3, 1})));
  }
  CHECK(cosine_similarity(x.slice(0, 0, 1), ones({1, 1})).item<float>() == 1);
}

TEST_CASE("what renorm leaves as it is passes its gradient, beside NaN, too", "[ops]") {
  const Tensor x = doubles({1, kNan, 3, 1, 2, 0.5}).view({2, 3});
  const Numbers g = numbers(gradient([](const Tensor& z) { return round(renorm(z, 2, 1, 2.5)); }, x));
  CHECK(g == Numbers{0, 0, 0, 0, 0, 0});
  const auto first = [](const Tensor& z) { return renorm(z, 2, 1, 2.5).slice(1, 0, 2); };
  CHECK(numbers(gradient(first, x)) == Numbers{1, 2, 0, 3, 4, 0});
}

TEST_CASE("what follows an infinity in logcumsumexp has slope 0, also before others", "[ops]") {
  for (const bool create_graph : {false, true}) {
    const Tensor x = doubles({-3, kInf, 2.5, 1}).requires_grad_();
    const Numbers g = numbers(grad({logcumsumexp(x, 0)}, {x}, {ones({4}, wide())}, {.create_graph = create_graph})[0]);
    CHECK((g[0] == 1 && std::isnan(g[1]) && g[2] == 0 && g[3] == 0));
  }
}

TEST_CASE("slopes in half types that can be differentiated do not leave their range on the way", "[ops]") {
  const Tensor at = tensor(std::vector<float>{5, 8, -8, 300});
  const std::function<Tensor(const Tensor&)> functions[] = {mish, [](const Tensor& x) { return cosh(x * 1e-2) / x; },
                                                            [](const Tensor& x) { return 1 / (x * 1e-2); },
                                                            [](const Tensor& x) { return x / square(x * 0.5); }};
  for (const auto& f : functions)
    for (const bool create_graph : {false, true}) {
      const Tensor x = at.to(kFloat16).requires_grad_();
      const Tensor g = grad({f(x)}, {x}, {ones({4}, {.dtype = kFloat16})}, {.create_graph = create_graph})[0];
      testing::assert_close(g.to(kFloat32),
                            gradient([&](const Tensor& z) { return f(z); }, at) / tensor({1., 2., 3., 4.}).to(kFloat32),
                            {.rtol = 5e-3, .atol = 1e-3});
    }
}

TEST_CASE("a margin loss counts no gap of a target to itself, nor its infinity", "[ops]") {
  for (const int p : {1, 2}) {
    const Tensor x = doubles({-kInf, 2, 1, 3}).view({2, 2}).requires_grad_();
    const Tensor y = multi_margin_loss(x, tensor({0, 1}), {.p = p, .margin = 0.5, .reduction = kNoReduction});
    CHECK(numbers(y) == Numbers{kInf, 0});
    const Numbers g = numbers(grad({multi_margin_loss(x.slice(1, 0, 1), tensor({0, 0}), {.p = p})}, {x})[0]);
    CHECK(g == Numbers{0, 0, 0, 0});
  }
}

TEST_CASE("what is not the extreme or the median gets 0 of a gradient that is NaN", "[ops]") {
  const Tensor at = doubles({1, -2, 3, 3});
  const std::pair<std::function<Tensor(const Tensor&)>, std::vector<bool>> cases[] = {
      {[](const Tensor& x) { return max(x); }, {false, false, true, true}},
      {[](const Tensor& x) { return amin(x, 0); }, {false, true, false, false}},
      {[](const Tensor& x) { return median(x); }, {true, false, false, false}}};
  for (const auto& [f, chosen] : cases)
    for (const bool create_graph : {false, true}) {
      const Tensor x = at.clone().requires_grad_();
      const Numbers slopes = numbers(grad({f(x)}, {x}, {full({}, kNan, wide())}, {.create_graph = create_graph})[0]);
      for (size_t i = 0; i < 4; ++i) CHECK((chosen[i] ? std::isnan(slopes[i]) : slopes[i] == 0));
    }
}

TEST_CASE("what does not change with x has a gradient of zeros", "[ops]") {
  const std::function<Tensor(const Tensor&)> constants[] = {
      [](const Tensor& x) { return norm(x, 0); }, [](const Tensor& x) { return linalg::vector_norm(x, 0, 1); },
      [](const Tensor& x) { return cdist(x, x, 0); }, [](const Tensor& x) { return linalg::matrix_power(x, 0); },
      [](const Tensor& x) { return linalg::slogdet(x).sign; }};
  for (const auto& f : constants)
    for (const DType dtype : {kFloat64, kFloat16}) {
      const Tensor x = doubles({1, 2, 0, 4}).view({2, 2}).to(dtype).requires_grad_();
      sum(f(x)).backward();
      CHECK(numbers(x.grad()) == Numbers{0, 0, 0, 0});
      CHECK(x.grad().dtype() == dtype);
    }
}

TEST_CASE("sigmoid and silu below -88.7 are subnormal, not 0", "[ops]") {
  const Tensor x = tensor(std::vector<float>{-89, -95, -100});
  for (const Tensor& y : {sigmoid(x), silu(x) / x})
    testing::assert_close(y.to(kFloat64) * 1e40, exp(x.to(kFloat64)) * 1e40, {.rtol = 0.02});
}

TEST_CASE("an infinite gradient beside hardswish's range has derivatives of 0", "[ops]") {
  const Tensor x = doubles({-4, 4}).requires_grad_(), g = doubles({-INFINITY, INFINITY}).requires_grad_();
  const Tensor slope = grad({hardswish(x)}, {x}, {g}, {.create_graph = true})[0];
  CHECK(numbers(slope) == Numbers{0, INFINITY});
  const std::vector<Tensor> second = grad({sum(slope)}, {x, g});
  CHECK(numbers(second[0]) == Numbers{0, 0});
  CHECK(numbers(second[1]) == Numbers{0, 1});
}

TEST_CASE("logit rises at both zeros", "[ops]") {
  const Tensor x = doubles({0.0, -0.0, 1}).requires_grad_();
  CHECK(numbers(grad({sum(logit(x))}, {x})[0]) == Numbers{INFINITY, INFINITY, INFINITY});
}

}  // namespace reel
