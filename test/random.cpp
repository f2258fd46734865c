#include "reel/random.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <thread>

#include "lib/philox.h"
#include "reel/autograd.h"
#include "reel/ops.h"

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

TEST_CASE("every thread has a generator of its own") {
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
