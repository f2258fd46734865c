#include "reel/random.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <thread>

#include "lib/device/philox.h"
#include "reel/autograd.h"
#include "reel/io.h"
#include "reel/ops.h"
#include "test/support/op_table.h"

using namespace reel;
using Catch::Matchers::Contains;

namespace {

double mean_of(const Tensor& x) { return mean(x.to(kFloat64)).item<double>(); }
double std_of(const Tensor& x) { return reel::std(x.to(kFloat64)).item<double>(); }

void check_block(uint64_t seed, uint64_t block, uint32_t extra, std::vector<uint32_t> expected) {
  const PhiloxBlock got = philox(seed, block, extra);
  CHECK(std::vector<uint32_t>(got.lane, got.lane + 4) == expected);
}

}  // namespace

TEST_CASE("Philox gives the numbers of its authors' reference") {
  check_block(0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});  // Random123's kat_vectors
  // Their other counters have a last word that is always 0 here; these come from the same rounds in Python.
  check_block(~0ull, ~0ull, ~0u, {0xeec03824, 0xe4c1e0f1, 0x3d16e5ca, 0xa00e8336});
  check_block(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x13198a2e, {0xae120e9d, 0xa08a4cab, 0xd28ec6a2, 0x42d73c1f});
}

TEST_CASE("normal numbers are those of the stream by Box and Muller's method, however many and from wherever",
          "[isa]") {
  const int64_t n = 1000;
  set_generator_state({3, 0});
  const std::vector<float> all = randn({n}).to_vector<float>();
  for (int64_t i = 0; i < n; i += 2) {
    const PhiloxBlock block = philox(3, static_cast<uint64_t>(i / 4));
    const double u = (static_cast<double>(block.lane[i % 4]) + 1) * 0x1p-32;
    const double angle = 2 * M_PI * static_cast<double>(block.lane[i % 4 + 1] >> 8) * 0x1p-24;
    CHECK(all[i] == Approx(std::sqrt(-2 * std::log(u)) * std::cos(angle)).margin(4e-6));
    CHECK(all[i + 1] == Approx(std::sqrt(-2 * std::log(u)) * std::sin(angle)).margin(4e-6));
  }
  for (const int64_t begin : {1, 2, 3, 4, 255, 258})
    for (const int64_t count : {1, 2, 5, 256, 700}) {
      set_generator_state({3, static_cast<uint64_t>(begin)});
      const std::vector<float> part = randn({count}).to_vector<float>();
      CHECK(part == std::vector<float>(all.begin() + begin, all.begin() + begin + count));
    }
  // All instruction sets and versions make these; a GPU's sines and logarithms differ in the last bits.
  if (test_device() != kCPU) return;
  CHECK(std::vector<float>(all.begin(), all.begin() + 4) ==
        std::vector{0.472554207f, 0.426344573f, 0.0877319574f, -0.913968503f});
}

TEST_CASE("a seed decides all that follows") {
  const auto draw = [] {
    return std::vector{rand({3}), randn({2, 2}), randint(100, {5}).to(kFloat32), randperm(7).to(kFloat32),
                       dropout(ones({9}), 0.5)};
  };
  manual_seed(5);
  const auto first = draw();
  CHECK(generator_state().seed == 5);
  manual_seed(5);
  const auto second = draw();
  for (size_t i = 0; i < first.size(); ++i) CHECK(equal(first[i], second[i]));
  manual_seed(6);
  CHECK_FALSE(equal(draw()[0], first[0]));
}

TEST_CASE("a restored state goes on where it was taken") {
  manual_seed(1);
  rand({3});
  const GeneratorState state = generator_state();
  CHECK(state.offset == 3);
  const Tensor then = randn({4});
  rand({11});
  set_generator_state(state);
  CHECK(equal(randn({4}), then));
}

TEST_CASE("numbers do not depend on how many are drawn at a time") {
  for (const DType dtype : {kFloat32, kFloat64}) {
    manual_seed(3);
    const Tensor all = randn({11}, {.dtype = dtype});
    manual_seed(3);
    const Tensor parts =
        cat({randn({3}, {.dtype = dtype}), randn({1}, {.dtype = dtype}), randn({7}, {.dtype = dtype})});
    CHECK(equal(all, parts));
  }
}

TEST_CASE("every thread has a generator of its own", "[cpu]") {
  manual_seed(9);
  const Tensor here = rand({4});
  manual_seed(9);
  Tensor unseeded, seeded;
  std::thread([&] { unseeded = rand({4}), manual_seed(9), seeded = rand({4}); }).join();
  CHECK(equal(rand({4}), here));
  CHECK(equal(seeded, here));
  CHECK_FALSE(equal(unseeded, here));
}

TEST_CASE("random numbers are distributed as they should be") {
  manual_seed(17);
  for (const DType dtype : {kFloat32, kFloat64}) {
    const Tensor u = rand({100000}, {.dtype = dtype}), n = randn({100000}, {.dtype = dtype});
    CHECK(u.dtype() == dtype);
    CHECK(min(u).item<double>() >= 0);
    CHECK(max(u).item<double>() < 1);
    CHECK(mean_of(u) == Approx(0.5).margin(0.005));
    CHECK(std_of(u) == Approx(std::sqrt(1 / 12.)).margin(0.005));
    CHECK(mean_of(n) == Approx(0).margin(0.02));
    CHECK(std_of(n) == Approx(1).margin(0.02));
    CHECK(mean_of(pow(n, 4)) == Approx(3).margin(0.2));
  }
  const Tensor dice = randint(1, 7, {60000});
  CHECK(dice.dtype() == kInt64);
  for (int face = 1; face <= 6; ++face) CHECK(sum(dice == face).item<double>() == Approx(10000).margin(400));
  CHECK_THROWS_WITH(randint(3, 3, {1}), Contains("randint: no integer in [3, 3)"));
}

TEST_CASE("randperm is a permutation, and all are equally likely") {
  manual_seed(2);
  const Tensor order = randperm(1000);
  CHECK(order.dtype() == kInt64);
  CHECK(equal(sort(order).values, arange(1000)));
  CHECK_FALSE(equal(order, arange(1000)));
  CHECK(randperm(0).shape() == Shape{0});
  std::vector<int> seen(27);
  for (int i = 0; i < 6000; ++i) {
    const auto p = randperm(3).to_vector<int64_t>();
    ++seen[p[0] * 9 + p[1] * 3 + p[2]];
  }
  CHECK(std::count(seen.begin(), seen.end(), 0) == 27 - 6);
  for (const int count : seen) CHECK((count == 0 || std::abs(count - 1000) < 150));
}

TEST_CASE("uniform_ and normal_ fill what they are given") {
  manual_seed(4);
  Tensor x = zeros({2, 1000}, {.dtype = kFloat64});
  x[1].uniform_(-3, -1);
  CHECK(sum(x[0]).item<double>() == 0);
  CHECK(mean_of(x[1]) == Approx(-2).margin(0.1));
  Tensor columns = x.t();  // not contiguous
  columns.normal_(10, 0.5);
  CHECK(mean_of(x) == Approx(10).margin(0.1));
  CHECK(std_of(x) == Approx(0.5).margin(0.05));
  Tensor half = zeros({1000}, {.dtype = kBFloat16});
  CHECK(mean_of(half.uniform_()) == Approx(0.5).margin(0.05));
  CHECK_THROWS_WITH(zeros({2}).requires_grad_().uniform_(), Contains("leaf"));
  CHECK_THROWS_WITH(arange(3).normal_(), Contains("int64"));
}

TEST_CASE("dropout zeroes a share and scales the rest") {
  manual_seed(8);
  const Tensor x = ones({100000}, {.dtype = kFloat64}).requires_grad_();
  const Tensor y = dropout(x, 0.25);
  CHECK(mean_of(y == 0) == Approx(0.25).margin(0.01));
  CHECK(max(y).item<double>() == Approx(4 / 3.));
  CHECK(equal(grad({sum(y)}, {x})[0], y));  // the same elements, the same scale
  CHECK(dropout(x, 0.25, false).is_same(x));
  CHECK(sum(dropout(x, 1)).item<double>() == 0);
  CHECK_THROWS_WITH(dropout(x, 1.5), Contains("dropout: the probability must be in [0, 1], got 1.5"));
}

TEST_CASE("the state of the generator goes through a file") {
  manual_seed(0xFEDCBA9876543210);
  randn({7});
  const Tensor state = get_rng_state();
  CHECK((state.dtype() == kInt64 && state.shape() == Shape{2}));
  const auto path = std::filesystem::temp_directory_path() / "reel-rng-state.safetensors";
  io::save(StateDict{{"rng", state}}, path);
  const Tensor then = randn({9}), dropped = dropout(ones({50})), counts = poisson(full({9}, 30.));
  manual_seed(1);
  set_rng_state(*find(io::load(path), "rng"));
  CHECK(equal(randn({9}), then));
  CHECK(equal(dropout(ones({50})), dropped));
  CHECK(equal(poisson(full({9}, 30.)), counts));
  CHECK_THROWS_WITH(set_rng_state(ones({2})), "set_rng_state: float32 [2], not int64 [2] as get_rng_state gives it");
  std::filesystem::remove(path);
}

TEST_CASE("distributions have their moments") {
  manual_seed(23);
  const int64_t n = 200000;
  const auto median = [&](const Tensor& x) { return reel::sort(x).values[n / 2].item<double>(); };
  for (const DType dtype : {kFloat32, kFloat64}) {
    INFO(dtype);
    Tensor x = empty({n}, {.dtype = dtype});
    x.exponential_(2);
    CHECK(min(x).item<double>() > 0);
    CHECK(mean_of(x) == Approx(0.5).margin(0.005));
    CHECK(std_of(x) == Approx(0.5).margin(0.01));
    x.log_normal_(0.5, 0.25);
    CHECK(mean_of(log(x)) == Approx(0.5).margin(0.005));
    CHECK(std_of(log(x)) == Approx(0.25).margin(0.005));
    x.cauchy_(3, 2);
    CHECK(median(x) == Approx(3).margin(0.05));
    CHECK(median(abs(x - 3)) == Approx(2).margin(0.05));
    x.geometric_(0.25);
    CHECK(min(x).item<double>() == 1);
    CHECK(mean_of(x) == Approx(4).margin(0.05));
    CHECK(std_of(x) == Approx(std::sqrt(12)).margin(0.06));
    x.bernoulli_(0.3);
    CHECK(mean_of(x) == Approx(0.3).margin(0.005));
    CHECK(equal(x, (x == 1).to(dtype)));
    for (const double rate : {0.5, 3., 9.9, 10.1, 50., 1000.}) {
      const Tensor events = poisson(full({n}, rate, {.dtype = dtype}));
      INFO(rate);
      CHECK(equal(events, floor(events)));
      CHECK(mean_of(events) == Approx(rate).margin(0.01 * std::sqrt(rate)));
      CHECK(std_of(events) == Approx(std::sqrt(rate)).epsilon(0.01));
    }
  }
  Tensor dice = zeros({60000}, {.dtype = kUInt8});
  dice.random_(1, 7);
  for (int face = 1; face <= 6; ++face) CHECK(sum(dice == face).item<double>() == Approx(10000).margin(400));
  Tensor waits = zeros({n}, {.dtype = kInt64});
  CHECK(mean_of(waits.geometric_(0.5)) == Approx(2).margin(0.02));
}

TEST_CASE("draws follow their parameters") {
  manual_seed(29);
  const Tensor p = tensor({0., 0.25, 1.}).expand({50000, 3});
  const std::vector<double> shares = mean(bernoulli(p), 0).to_vector<double>();
  CHECK(shares[0] == 0);
  CHECK(shares[1] == Approx(0.25).margin(0.01));
  CHECK(shares[2] == 1);
  CHECK(poisson(zeros({4})).to_vector<double>() == std::vector<double>(4));

  const Tensor x =
      normal(tensor({{-5.}, {5.}}), tensor({0.5, 2.}).view({1, 2, 1}).expand({1, 2, 30000}).reshape({1, 60000}));
  CHECK(x.shape() == Shape{2, 60000});
  CHECK(mean_of(x[0]) == Approx(-5).margin(0.05));
  CHECK(std_of(x[1].narrow(0, 0, 30000)) == Approx(0.5).margin(0.02));
  CHECK(std_of(x[1].narrow(0, 30000, 30000)) == Approx(2).margin(0.05));
  CHECK(equal(normal(3., zeros({2})), full({2}, 3.)));

  const Tensor like = randn_like(zeros({3, 2}, {.dtype = kFloat64}));
  CHECK((like.dtype() == kFloat64 && like.shape() == Shape{3, 2}));
  CHECK(rand_like(like, {.dtype = kFloat32}).dtype() == kFloat32);
  const Tensor whole = randint_like(like, -3, 3);
  CHECK(whole.dtype() == kFloat64);
  CHECK(equal(whole, floor(whole)));
  manual_seed(4);
  const Tensor plain = rand({6});
  manual_seed(4);
  CHECK(equal(rand_like(plain), plain));
}

TEST_CASE("a tiny probability succeeds as rarely as it should") {
  // The number here is 1.36e-8 in float64 and, of 24 bits, 0 in float32.
  const GeneratorState tiny{.seed = 1, .offset = 41841907};
  set_generator_state(tiny);
  REQUIRE(rand({1}).item<double>() == 0);
  CHECK(generator_state().offset == tiny.offset + 1);
  for (const double p : {1e-9, 1e-8, 2e-8}) {
    INFO(p);
    set_generator_state(tiny);
    CHECK(bernoulli(full({1}, p)).item<double>() == (p > 1.36e-8));
    CHECK(generator_state().offset == tiny.offset + 1);
    set_generator_state(tiny);
    CHECK(zeros({1}).bernoulli_(p).item<double>() == (p > 1.36e-8));
  }
  manual_seed(6);
  const Tensor u = rand({1000});
  manual_seed(6);
  CHECK(equal(bernoulli(full({1000}, 0.3)), (u < 0.3f).to(kFloat32)));  // other probabilities keep their outcomes
}

TEST_CASE("waiting times beyond a type are its largest number") {
  manual_seed(7);
  const Tensor x = zeros({50}, {.dtype = kInt64}), y = zeros({50}, {.dtype = kInt32});
  CHECK(min(Tensor(x).geometric_(1e-300)).item<int64_t>() == std::numeric_limits<int64_t>::max());
  CHECK(max(Tensor(y).geometric_(1e-15)).item<int64_t>() == std::numeric_limits<int32_t>::max());
  CHECK(min(y).item<int64_t>() > 0);
  manual_seed(8);
  Tensor(x).geometric_(1e-12);
  manual_seed(8);
  CHECK(equal(x, zeros({50}, {.dtype = kFloat64}).geometric_(1e-12).to(kInt64)));  // exact
}

TEST_CASE("multinomial draws categories with their probabilities") {
  manual_seed(31);
  const Tensor probs = tensor({{1., 0., 3.}, {0., 5., 5.}});
  const Tensor many = multinomial(probs, 50000, true);
  CHECK((many.dtype() == kInt64 && many.shape() == Shape{2, 50000}));
  CHECK(mean_of(many[0] == 0) == Approx(0.25).margin(0.01));
  CHECK(sum(many[0] == 1).item<double>() == 0);
  CHECK(mean_of(many[1] == 1) == Approx(0.5).margin(0.01));
  CHECK(min(many[1]).item<int64_t>() == 1);

  const Tensor weights = tensor({4., 3., 2., 1., 0.}).expand({20000, 5});
  const Tensor few = multinomial(weights, 4);
  CHECK(few.shape() == Shape{20000, 4});
  CHECK(mean_of(few.select(1, 0) == 0) == Approx(0.4).margin(0.015));
  CHECK(mean_of(few.select(1, 0) == 3) == Approx(0.1).margin(0.01));
  CHECK(equal(reel::sort(few, 1).values, arange(4).expand({20000, 4})));
  CHECK(multinomial(tensor({0., 1.}), 3, true).to_vector<int>() == std::vector{1, 1, 1});

  CHECK_THROWS_WITH(multinomial(tensor({0., 1.}), 2),
                    "multinomial: 2 different samples of a row with 1 possible categories");
  CHECK_THROWS_WITH(multinomial(tensor({0., -1.}), 1), Contains("must be finite and not negative"));
  CHECK_THROWS_WITH(multinomial(tensor({0, 1}), 1), Contains("probs of int64"));
  CHECK_THROWS_WITH(multinomial(zeros({2}), 1, true), Contains("0 possible"));
  CHECK_THROWS_WITH(multinomial(full({2}, 1e308, {.dtype = kFloat64}), 1, true), Contains("add up to infinity"));
  CHECK_THROWS_WITH(bernoulli(tensor({0.5, 1.5}, {.device = kCPU})),
                    "bernoulli: probabilities must be in [0, 1], got 0.5 to 1.5");
  CHECK_THROWS_WITH(poisson(tensor({-1.})), "poisson: the rate -1 is negative");
  CHECK_THROWS_WITH(normal(ones({2}, {.device = kCPU}), tensor({-1.}, {.device = kCPU})),
                    "normal: the standard deviation -1 is negative");
  Tensor whole = arange(3);
  CHECK_THROWS_WITH(whole.exponential_(), Contains("exponential_: a tensor of int64"));
  CHECK_THROWS_WITH(ones({2}).geometric_(0), "geometric_: the probability must be in (0, 1), got 0");
  CHECK_THROWS_WITH(ones({2}).random_(2, 2), "random_: no integer in [2, 2)");
}

TEST_CASE("draws do not depend on how many are drawn at a time") {
  const auto both = [](auto draw) {
    manual_seed(3);
    const Tensor all = draw(11);
    manual_seed(3);
    return equal(all, cat({draw(3), draw(1), draw(7)}));
  };
  CHECK(both([](int64_t n) { return empty({n}).exponential_(); }));
  CHECK(both([](int64_t n) { return empty({n}).log_normal_(); }));
  CHECK(both([](int64_t n) { return poisson(full({n}, 20.)); }));
  CHECK(both([](int64_t n) { return poisson(full({n}, 2.)); }));
  CHECK(both([](int64_t n) { return multinomial(tensor({1., 2., 3.}), n, true); }));
}

TEST_CASE("uniform numbers of half types stay below the upper end") {
  for (const DType type : {kFloat16, kBFloat16}) {
    const Tensor u = rand({100000}, {.dtype = type}).to(kFloat32);
    CHECK(max(u).item<float>() < 1);
    CHECK(mean(u).item<float>() == Approx(0.5).margin(0.01));
    CHECK(max(empty({100000}, {.dtype = type}).uniform_(3, 4).to(kFloat32)).item<float>() < 4);
  }
}

TEST_CASE("numbers that a type cannot hold are refused") {
  using Catch::Contains;
  CHECK_THROWS_WITH(full({2}, 300, {.dtype = kUInt8}), "full: 300 does not fit into uint8");
  CHECK_THROWS_WITH(full({2}, 1e20, {.dtype = kInt64}), "full: 1e+20 does not fit into int64");
  CHECK_THROWS_WITH(zeros({2}, {.dtype = kInt32}).fill_(NAN), "fill_: nan does not fit into int32");
  CHECK_THROWS_WITH(randint(0, 1000, {2}, {.dtype = kUInt8}), "randint: 999 does not fit into uint8");
  CHECK_THROWS_WITH(randint(0, 100000, {2}, {.dtype = kFloat16}), Contains("exceed 2^11, too large for float16"));
  CHECK_THROWS_WITH(empty({2}).uniform_(-3e38, 3e38), Contains("is too wide for float32"));
  CHECK(full({1}, -1, {.dtype = kUInt8}).item<int>() == 255);
  CHECK(full({1}, std::numeric_limits<int64_t>::min()).item<int64_t>() == std::numeric_limits<int64_t>::min());
}

TEST_CASE("dropout of channels and alpha dropout") {
  manual_seed(37);
  const Tensor x = ones({200, 50, 4}, {.dtype = kFloat64});
  const Tensor y = dropout2d(x, 0.25);
  CHECK(equal(amin(y, 2), amax(y, 2)));
  CHECK(mean_of(y == 0) == Approx(0.25).margin(0.02));
  CHECK(max(y).item<double>() == Approx(4 / 3.));
  const Tensor unbatched = dropout1d(ones({5, 9}));
  CHECK(equal(amin(unbatched, 1), amax(unbatched, 1)));
  const Tensor z = dropout3d(ones({50, 2, 2, 2}), 0.5);
  CHECK(equal(amin(z, {1, 2, 3}), amax(z, {1, 2, 3})));

  const Tensor n = randn({400, 500}, {.dtype = kFloat64});
  for (const double p : {0.1, 0.5}) {
    const Tensor a = alpha_dropout(selu(n * 1), p);
    CHECK(mean_of(a) == Approx(mean_of(selu(n))).margin(0.02));
    CHECK(std_of(a) == Approx(std_of(selu(n))).margin(0.02));
  }
  const Tensor f = feature_alpha_dropout(x, 0.25);
  CHECK(equal(amin(f, 2), amax(f, 2)));
  CHECK(mean_of(f < 0) == Approx(0.25).margin(0.02));
  CHECK(alpha_dropout(x, 0.5, false).is_same(x));
  CHECK_THROWS_WITH(dropout1d(ones({2})), "dropout1d: x of shape [2]; expected [C, L] or [N, C, L]");
  CHECK_THROWS_WITH(alpha_dropout(arange(3)), Contains("alpha_dropout: a tensor of int64"));
}
