// What an exported graph makes of sizes: it is right at all of them, or refused.
#include <cmath>
#include <random>

#include "reel/autograd.h"
#include "reel/onnx.h"
#include "reel/ops.h"
#include "reel/random.h"
#include "test/support/folder.h"
#include "test/support/pch.h"

using namespace reel;
using Catch::Matchers::Contains;
using Tensors = std::vector<Tensor>;

namespace {

using Program = std::function<Tensors(const Tensors&)>;
const std::vector<onnx::DynamicDim> kOne{{.input = 0, .dim = 0, .name = "n"}},
    kTwo{{.input = 0, .dim = 0, .name = "batch"}, {.input = 0, .dim = 1, .name = "time"}};

/// Exports f with an example of a shape, and compares the graph with it at others. Returns the message of an Error of
/// the export.
std::string check(const Program& f, const std::vector<onnx::DynamicDim>& dynamic, const Shape& example,
                  const std::vector<Shape>& others) {
  const Folder folder;
  const auto file = folder / "f.onnx";
  const NoGrad guard;
  try {
    onnx::save(f, {randn(example)}, file, {.dynamic = dynamic});
  } catch (const Error& error) {
    return error.what();
  }
  const onnx::Model model = onnx::load(file);
  for (const Shape& other : others) {
    const Tensor x = randn(other);
    const Tensors expected = f({x}), got = model(Tensors{x});
    for (size_t i = 0; i < expected.size(); ++i) {
      INFO("from " << example << " at " << other << ", output " << i << ": " << expected[i].shape() << " and "
                   << got[i].shape());
      REQUIRE(got[i].shape() == expected[i].shape());
      REQUIRE(allclose(got[i], expected[i], 1e-5, 1e-5));
    }
  }
  return "";
}

}  // namespace

TEST_CASE("every linear formula of a size is exported right from all pairs of example sizes", "[onnx][cpu]") {
  // Of each pair some of the formulas.
  std::mt19937 generator(1);
  std::uniform_int_distribution<int64_t> factor(1, 3), term(-3, 5), dim(0, 1);
  for (int64_t batch = 1; batch <= 20; ++batch)
    for (int64_t time = 1; time <= 20; ++time) {
      struct Formula {
        int64_t dim, c, d;
      };
      std::vector<Formula> some;
      while (some.size() < 4) {
        const Formula one{dim(generator), factor(generator), term(generator)};
        if (one.c * (one.dim ? time : batch) + one.d >= 0) some.push_back(one);
      }
      const auto formulas = [&](const Tensors& in) {
        Tensors all;
        for (const auto& [dim, c, d] : some) all.push_back(zeros({c * in[0].size(dim) + d}));
        return all;
      };
      REQUIRE(check(formulas, kTwo, {batch, time}, {{3, 11}, {26, 4}, {9, 40}}) == "");
    }
}

TEST_CASE("parts, ranges, borders and shapes are exported right from all pairs of example sizes", "[onnx][cpu]") {
  manual_seed(2);
  for (int64_t batch = 1; batch <= 20; batch += 2)
    for (int64_t time = 2 + batch % 5; time <= 20; time += 5) {
      const auto parts = [](const Tensors& in) {
        const Tensor& x = in[0];
        const int64_t n = x.size(0), t = x.size(1);
        return Tensors{x.slice(1, 0, -1),
                       x.slice(1, 0, t - 1),
                       x.slice(1, 1),
                       x.narrow(1, 0, t - 1),
                       x.narrow(1, -2, 2),
                       x.narrow(1, t - 2, 1),
                       x.select(1, t - 1) + x.select(1, -1),
                       x.slice(0, n - 1),
                       x.slice(0, {}, {}, 2),
                       arange(t + 1).to(kFloat32),
                       arange(n, 2 * n + 3, 2).to(kFloat32),
                       pad(x, {1, 1}, kReflect),
                       pad(x, {2, 0, 0, 1}),
                       flip(x, 1).reshape({n * t, 3}),
                       x.view({1, n, 3 * t}),
                       cat({x, zeros({n, t + 1, 3})}, 1),
                       x.expand({2, n, t, 3}).sum(0) / t,
                       roll(x, 5, 1),
                       roll(x, -7, 0),
                       roll(x, t - 1, 1)};
      };
      REQUIRE(check(parts, kTwo, {batch, time, 3}, {{1, 11, 3}, {26, 2, 3}, {9, 40, 3}}) == "");
    }
}

TEST_CASE("three dynamic dimensions are told apart from any example", "[onnx][cpu]") {
  std::mt19937 generator(4);
  std::uniform_int_distribution<int64_t> size(1, 20);
  const std::vector<onnx::DynamicDim> dynamic{
      {.input = 0, .dim = 0, .name = "a"}, {.input = 0, .dim = 1, .name = "b"}, {.input = 0, .dim = 2, .name = "c"}};
  const auto f = [](const Tensors& in) {
    const Tensor& x = in[0];
    const int64_t a = x.size(0), b = x.size(1), c = x.size(2);
    return Tensors{zeros({a + 1}),     zeros({2 * b, c}),      zeros({a * b}),
                   zeros({b * c + 1}), x.reshape({a * b * c}), x.slice(2, 0, c - 1),
                   zeros({2 * a * c}), zeros({3 * b + 2}),     arange(c + 4).to(kFloat32)};
  };
  for (int round = 0; round < 20; ++round) {
    const Shape example{size(generator), size(generator), size(generator)};
    REQUIRE(check(f, dynamic, example, {{1, 5, 2}, {7, 3, 19}, {30, 2, 4}}) == "");
  }
}

TEST_CASE("positions are exported as the program wrote them", "[onnx][cpu]") {
  // A truncation to 32 rows is one, also where the examples are shorter.
  const auto f = [](const Tensors& in) {
    const Tensor& x = in[0];
    return Tensors{x.slice(0, 0, 32),    x.slice(0, 2, 100), x.slice(0, -32),
                   x.slice(0, -100, -1), x.slice(0, 40),     x.index({Slice(1, 32, 3)}),
                   x.narrow(0, -2, 2),   x.narrow(0, -2, 1), x.select(0, -1)};
  };
  for (const int64_t n : {2, 7, 31, 32, 33, 200})
    REQUIRE(check(f, kOne, {n, 6}, {{2, 6}, {7, 6}, {31, 6}, {33, 6}, {40, 6}, {250, 6}}) == "");
}

TEST_CASE("a formula of sizes that is none of the exported ones is refused, not guessed", "[onnx][cpu]") {
  struct Formula {
    const char* name;
    std::function<int64_t(int64_t n, int64_t m, int64_t k)> of;
  };
  const Formula formulas[] = {
      {"n / k", [](int64_t n, int64_t, int64_t k) { return n / k; }},
      {"n / k rounded up", [](int64_t n, int64_t, int64_t k) { return (n + k - 1) / k; }},
      {"n % k", [](int64_t n, int64_t, int64_t k) { return n % k; }},
      {"n rounded up to a multiple of k", [](int64_t n, int64_t, int64_t k) { return (n + k - 1) / k * k; }},
      {"min(n, 16 k)", [](int64_t n, int64_t, int64_t k) { return std::min(n, 16 * k); }},
      {"max(n, k)", [](int64_t n, int64_t, int64_t k) { return std::max(n, k); }},
      {"|n - k|", [](int64_t n, int64_t, int64_t k) { return std::abs(n - k); }},
      {"n > 10 k", [](int64_t n, int64_t, int64_t k) { return int64_t{n > 10 * k}; }},
      {"n == 1", [](int64_t n, int64_t, int64_t) { return int64_t{n == 1}; }},
      {"max(n, m)", [](int64_t n, int64_t m, int64_t) { return std::max(n, m); }},
      {"min(n, m)", [](int64_t n, int64_t m, int64_t) { return std::min(n, m); }},
      {"|n - m|", [](int64_t n, int64_t m, int64_t) { return std::abs(n - m); }},
      {"n + m", [](int64_t n, int64_t m, int64_t) { return n + m; }},
      {"n m / 2", [](int64_t n, int64_t m, int64_t) { return n * m / 2; }},
      {"100 % n", [](int64_t n, int64_t, int64_t) { return 100 % n; }},
      {"log2(n)", [](int64_t n, int64_t, int64_t) { return static_cast<int64_t>(std::log2(n)); }},
  };
  int refused = 0;
  for (const Formula& formula : formulas)
    for (const int64_t k : {2, 3, 5, 8, 32})
      for (int64_t n = 1 + k % 3; n <= 20; n += 3) {
        const int64_t m = (7 * n + 3 * k) % 20 + 1;
        const auto f = [&](const Tensors& in) { return Tensors{zeros({formula.of(in[0].size(0), in[0].size(1), k)})}; };
        INFO(formula.name << ", k = " << k << ", example " << n << ", " << m);
        const std::vector<Shape> others{{1, 1}, {3, 11}, {23, 30}, {64, 9}, {100, 101}, {2, 600}, {600, 2}};
        refused += !check(f, kTwo, {n, m}, others).empty();
      }
  CHECK(refused > 350);
}

TEST_CASE("what a program decides by a size is refused where the runs show it", "[onnx][cpu]") {
  const auto refusal = [](const Program& f) { return check(f, kOne, {5, 2}, {{1, 2}, {3, 2}, {600, 2}}); };
  // The runs have a larger size, and smaller ones.
  CHECK_THAT(
      refusal([](const Tensors& x) { return Tensors{x[0].narrow(0, 0, std::min<int64_t>(x[0].size(0), 512)) * 1}; }),
      Contains("onnx::save: at n = 1031 output 0 is a float32 [512, 2], and a float32 [1031, 2]"));
  CHECK_THAT(refusal([](const Tensors& x) { return Tensors{x[0].size(0) > 100 ? x[0] * 2 : x[0] * 3}; }),
             Contains("at n = 1031 output 0") && Contains("other elements"));
  CHECK_THAT(refusal([](const Tensors& x) { return Tensors{zeros({std::max<int64_t>(x[0].size(0), 3)})}; }),
             Contains("at n = 1 output 0 is a float32 [3], and a float32 [1]"));
  CHECK_THAT(refusal([](const Tensors& x) { return Tensors{x[0].size(0) == 1 ? x[0].squeeze(0) : x[0]}; }),
             Contains("at n = 1 output 0"));
  CHECK_THAT(refusal([](const Tensors& x) { return Tensors{x[0].size(0) % 2 ? relu(x[0]) : tanh(x[0])}; }),
             Contains("ops differ between two runs"));
  // What the program does not take, the graph need not.
  const auto limited = [](const Tensors& x) {
    if (x[0].size(0) == 1 || x[0].size(0) > 100) throw std::invalid_argument("not this one");
    return Tensors{x[0] * 2};
  };
  CHECK(check(limited, kOne, {5, 2}, {{3, 2}, {99, 2}}) == "");
}

TEST_CASE("an export is traced at the caller's sizes", "[onnx][cpu]") {
  std::vector<int64_t> seen;
  const auto of_32 = [&](const Tensors& x) {
    const int64_t n = x[0].size(0);
    if (n % 32) throw Error("not a multiple of 32");
    seen.push_back(n);
    return Tensors{zeros({n / 32, n + 2})};
  };
  CHECK_THAT(check(of_32, kOne, {32}, {}), Contains("onnx::save: at n = 33: not a multiple of 32"));
  seen.clear();
  const std::vector<onnx::DynamicDim> multiples{{.input = 0, .dim = 0, .name = "n", .sizes = {64, 96, 160}}};
  CHECK(check(of_32, multiples, {32}, {{32}, {128}, {320}}) == "");
  CHECK(std::vector<int64_t>(seen.begin(), seen.begin() + 4) == std::vector<int64_t>{32, 64, 96, 160});
  CHECK(seen.size() == 7);

  const auto f = [](const Tensors& x) { return Tensors{zeros({x[0].size(1)})}; };
  const auto two = [](const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
    return std::vector<onnx::DynamicDim>{{.input = 0, .dim = 0, .name = "a", .sizes = a},
                                         {.input = 0, .dim = 1, .name = "b", .sizes = b}};
  };
  CHECK_THAT(check(f, two({2, 3}, {}), {1, 1}, {}), Contains("the sizes of a are not at least three"));
  CHECK_THAT(check(f, two({2, 3, 3}, {}), {1, 1}, {}), Contains("the sizes of a are not at least three"));
  CHECK_THAT(check(f, two({2, 3, 0}, {}), {1, 1}, {}), Contains("the sizes of a are not at least three"));
  CHECK_THAT(check(f, two({2, 3, 5}, {4, 6, 10}), {1, 2}, {}), Contains("the sizes of a and b are a multiple"));
  CHECK_THAT(check(f, two({2, 3, 5}, {4, 9, 25}), {1, 1}, {}), Contains("may be 1 b or 1 a a"));
  CHECK(check(f, two({2, 3, 5}, {}), {1, 1}, {{4, 6}, {1, 9}}) == "");
  CHECK(check(f, two({2, 3, 5}, {7, 3, 4, 8, 20}), {1, 1}, {{4, 6}, {1, 9}}) == "");
}
