#include "reel/testing.h"

#include <catch2/catch.hpp>
#include <limits>
#include <optional>

#include "reel/autograd.h"
#include "reel/nn.h"
#include "reel/ops.h"
#include "reel/optim.h"
#include "reel/random.h"

// The kit that users check their own code with.
namespace reel {

using Catch::Contains;

TEST_CASE("assert_close counts what differs and shows the furthest", "[testing]") {
  const Tensor x = tensor({{1., 2.}, {3., 4.}});
  CHECK_NOTHROW(testing::assert_close(x, x + 1e-7));
  CHECK_THROWS_WITH(testing::assert_close(x, tensor({{1., 2.5}, {3., 7.}})),
                    "assert_close: 2 of 4 elements differ, the furthest: 4 at [1, 1], not 7, with rtol 1.3e-06 and "
                    "atol 1e-05");
  CHECK_THROWS_WITH(testing::assert_close(x, x.to(kFloat64)), "assert_close: float32, not float64");
  CHECK_NOTHROW(testing::assert_close(x, x.to(kFloat64), {.check_dtype = false}));
  CHECK_THROWS_WITH(testing::assert_close(x, x[0]), "assert_close: shape [2, 2], not [2]");
  CHECK_THROWS_WITH(testing::assert_close(x, Tensor()), "assert_close: the expected tensor is undefined");
  CHECK_THROWS_WITH(testing::assert_close(tensor({1, 2}), tensor({1, 3})), Contains("1 of 2 elements differ"));
  CHECK_THROWS_WITH(testing::assert_close(std::vector{x, x}, std::vector{x, x * 2}),
                    Contains("tensor 1: assert_close: 4 of 4"));
  CHECK_NOTHROW(testing::assert_close(x, x * 1.5, {.rtol = 0.5}));

  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  const Tensor odd = tensor({nan, inf, 1.});
  CHECK_THROWS_WITH(testing::assert_close(odd, odd), Contains("1 of 3 elements differ, the furthest: nan at [0]"));
  CHECK_NOTHROW(testing::assert_close(odd, odd, {.equal_nan = true}));
  CHECK_THROWS_WITH(testing::assert_close(tensor({1., -inf}), tensor({1., inf})), Contains("-inf at [1], not inf"));
}

TEST_CASE("gradcheck reports the worst of the wrong elements", "[testing]") {
  const Tensor x = tensor(std::vector<double>{1, 2, 3});
  const auto slightly_and_badly_wrong = [](const std::vector<Tensor>& in) {
    const Tensor factor = tensor(std::vector<double>{1, 1.001, 5});
    return custom_op("twice", no_grad([&] { return in[0] * 2; }), {in[0]},
                     [factor](const Tensor& g) { return std::vector{g * 2 * factor}; });
  };
  CHECK_THROWS_WITH(testing::gradcheck(slightly_and_badly_wrong, {x}),
                    Contains("gradcheck: 2 of 3 elements wrong, the worst: input 0 [3], element [2]: analytic "));
  CHECK_THROWS_WITH(testing::gradcheck(slightly_and_badly_wrong, {x}, {.fast = true}),
                    Contains("gradcheck: 1 of 1 directions wrong, the worst: input 0 [3]: analytic "));
}

TEST_CASE("a fast gradcheck calls the function twice for an input", "[testing]") {
  manual_seed(4);
  const Tensor x = randn({50}, {.dtype = kFloat64}), ids = zeros({1}, {.dtype = kInt64}), w = randn_like(x);
  int calls = 0;
  const auto right = [&](const std::vector<Tensor>& in) { return ++calls, tanh(in[0]) * in[2]; };
  testing::gradcheck(right, {x, ids, w}, {.fast = true});
  CHECK(calls == 1 + 2 * 2);
  testing::gradgradcheck(right, {x, ids, w}, {.fast = true});
  testing::gradcheck(right, {x.narrow(0, 0, 0), ids, w.narrow(0, 0, 0)}, {.fast = true});

  // One element of fifty in error, and a second derivative that is missing.
  const auto wrong = [](const std::vector<Tensor>& in) {
    const Tensor slope = no_grad([&] { return in[0] * 2 + one_hot(tensor({7}), 50)[0].to(kFloat64) * 0.01; });
    return custom_op("square", no_grad([&] { return in[0] * in[0]; }), {in[0]},
                     [slope](const Tensor& g) { return std::vector{g * slope}; });
  };
  CHECK_THROWS_WITH(testing::gradcheck(wrong, {x}, {.fast = true}), Contains("1 of 1 directions wrong"));
  const auto once = [](const std::vector<Tensor>& in) {
    return custom_op("square", no_grad([&] { return in[0] * in[0]; }), {in[0]},
                     [slope = in[0].detach() * 2](const Tensor& g) { return std::vector{g * slope}; });
  };
  CHECK_THROWS_WITH(testing::gradgradcheck(once, {x}, {.fast = true}), Contains("1 of 2 directions wrong"));
}

TEST_CASE("a leak scope is silent about what is freed", "[testing]") {
  const nn::Linear net(3, 2);
  const Tensor x = randn({4, 3});
  for (int step = 0; step < 2; ++step) {
    testing::LeakScope scope;
    sum(square(net(x))).backward();
    for (const Tensor& p : net.parameters()) Tensor(p).set_grad({});
  }
}

TEST_CASE("a leak scope names the tensors and ops that outlive it", "[testing]") {
  const Tensor leaf = ones({2, 3}, {.requires_grad = true});
  std::optional<Tensor> kept;
  const auto leak = [&] {
    testing::LeakScope scope;
    const Tensor freed = leaf * 3;
    kept = tanh(leaf);
  };
  CHECK_THROWS_WITH(leak(), Contains("LeakScope: 1 tensor and 1 recorded op of this scope are still alive:") &&
                                Contains("float32 tensor [2, 3], result of tanh, made\n") &&
                                Contains("recorded op tanh of float32 [2, 3], made\n  at "));
  kept.reset();

  // The gradient of a leaf from outside is one of them, and an inner scope sees only what is its own.
  testing::LeakScope outer;
  const Tensor before = leaf + 1;
  {
    testing::LeakScope inner;
    const Tensor gone = before * 2;
  }
  CHECK_THROWS_WITH(outer.check(), Contains("result of add"));
}

TEST_CASE("a leak scope lets another exception pass", "[testing]") {
  Tensor kept;
  const auto fail = [&] {
    testing::LeakScope scope;
    kept = ones({2});
    throw std::runtime_error("mine");
  };
  CHECK_THROWS_WITH(fail(), "mine");
}

TEST_CASE("anomaly mode sees NaN in merged products and rows", "[testing]") {
  const double inf = std::numeric_limits<double>::infinity();
  const DetectAnomaly anomaly;
  {
    const Tensor weight = ones({2, 3}, {.requires_grad = true}), x = full({1, 3}, inf);
    const Tensor y = linear(x, weight);  // the gradient is 0 · inf
    CHECK_THROWS_WITH(y.backward(zeros({1, 2})),
                      Contains("backward: NaN in the gradient of input 1 of 'linear', recorded\n"));
  }
  {
    const Tensor weight = ones({4, 2}, {.requires_grad = true});
    const Tensor rows = embedding(weight, tensor({1, 3}), true);
    CHECK_THROWS_WITH(rows.backward(full({2, 2}, inf - inf)), Contains("'embedding', recorded\n"));
  }
  {
    const Tensor x = ones({4}, {.requires_grad = true});
    const Tensor part = (x * 2).narrow(0, 1, 2);
    CHECK_THROWS_WITH(part.backward(full({2}, inf - inf)), Contains("'narrow', recorded\n"));
  }
}

}  // namespace reel
