#include <catch2/catch.hpp>

#include "reel/autograd.h"
#include "test/support/op_rows.h"
#include "test/support/wrong_calls.h"

namespace reel {

// clang-format off
const std::vector<Row>& activation_rows() {
  static const std::vector<Row> rows{

{"relu", [](In x) { return relu(x[0]); }, [](double x) { return std::max(x, 0.); }, {range(-3, 3)}, kArithmetic},
{"leaky_relu", [](In x) { return leaky_relu(x[0]); }, [](double x) { return x > 0 ? x : 0.01 * x; }, {range(-3, 3)},
 kOfFloats},
{"leaky_relu(0.25)", [](In x) { return leaky_relu(x[0], 0.25); }, [](double x) { return x > 0 ? x : 0.25 * x; },
 {range(-3, 3)}, kOfFloats},
{"elu", [](In x) { return elu(x[0]); }, [](double x) { return x > 0 ? x : std::expm1(x); }, {range(-3, 3)}, kOfFloats},
{"elu(0.5)", [](In x) { return elu(x[0], 0.5); }, [](double x) { return x > 0 ? x : 0.5 * std::expm1(x); },
 {range(-3, 3)}, kOfFloats},
{"gelu", [](In x) { return gelu(x[0]); }, [](double x) { return x * std::erfc(-x / std::sqrt(2.)) / 2; },
 {range(-3, 3)}, kOfFloats},
{"silu", [](In x) { return silu(x[0]); }, [](double x) { return x * ref::sigmoid(x); }, {range(-3, 3)}, kOfFloats},
{"softplus", [](In x) { return softplus(x[0]); }, [](double x) { return x > 20 ? x : std::log1p(std::exp(x)); },
 {range(-4, 4)}, kOfFloats},
{"softplus(2, 3)", [](In x) { return softplus(x[0], 2, 3); },
 [](double x) { return 2 * x > 3 ? x : std::log1p(std::exp(2 * x)) / 2; }, {range(-3, 3)}, kOfFloats},
{"relu6", [](In x) { return relu6(x[0]); }, [](double x) { return std::clamp(x, 0., 6.); }, {range(-3, 9)}, kArithmetic},
{"hardtanh", [](In x) { return hardtanh(x[0]); }, [](double x) { return std::clamp(x, -1., 1.); }, {range(-3, 3)}, kArithmetic},
{"hardtanh(-2, 0.5)", [](In x) { return hardtanh(x[0], -2, 0.5); }, [](double x) { return std::clamp(x, -2., 0.5); }, {range(-3, 3)}},
{"prelu", [](In x) { return prelu(x[0], x[1]); },
 [](Ref x) { return build(kCube, [&](const Index& at) { return x[0](at) * (x[0](at) > 0 ? 1 : x[1]({at[1]})); }); },
 {{kCube}, {{3}, 0.1, 0.9}}},
{"prelu(one slope)", [](In x) { return prelu(x[0], x[1]); },
 [](Ref x) { return build(kMatrix, [&](const Index& at) { return x[0](at) * (x[0](at) > 0 ? 1 : x[1]({0})); }); },
 {{kMatrix}, {{1}, 0.1, 0.9}}},
{"rrelu", [](In x) { return rrelu(x[0]); }, [](double x) { return x > 0 ? x : x * 11 / 48; }, {range(-3, 3)}, kOfFloats},
{"rrelu(training)", [](In x) { return rrelu(x[0], 0.25, 0.25, true); }, [](double x) { return x > 0 ? x : 0.25 * x; }, {range(-3, 3)}},
{"selu", [](In x) { return selu(x[0]); }, [](double x) { return 1.0507009873554805 * (x > 0 ? x : 1.6732632423543772 * std::expm1(x)); }, {range(-3, 3)}, kOfFloats},
{"celu", [](In x) { return celu(x[0], 2); }, [](double x) { return x > 0 ? x : 2 * std::expm1(x / 2); }, {range(-3, 3)}, kOfFloats},
{"gelu_tanh", [](In x) { return gelu_tanh(x[0]); }, [](double x) { return x / 2 * (1 + std::tanh(std::sqrt(M_2_PI) * (x + 0.044715 * x * x * x))); }, {range(-3, 3)}, kOfFloats},
{"mish", [](In x) { return mish(x[0]); }, [](double x) { return x * std::tanh(std::log1p(std::exp(x))); }, {range(-4, 4)}, kOfFloats},
{"logsigmoid", [](In x) { return logsigmoid(x[0]); }, [](double x) { return -std::log1p(std::exp(-std::abs(x))) + (x > 0 ? 0 : x); }, {range(-4, 4)}, kOfFloats},
{"hardswish", [](In x) { return hardswish(x[0]); }, [](double x) { return x <= -3 ? 0 : x >= 3 ? x : x * (x + 3) / 6; }, {range(-4, 4)}, kOfFloats},
{"hardsigmoid", [](In x) { return hardsigmoid(x[0]); }, [](double x) { return std::clamp(x + 3, 0., 6.) / 6; }, {range(-4, 4)}, kOfFloats},
{"softsign", [](In x) { return softsign(x[0]); }, [](double x) { return x / (1 + std::abs(x)); }, {range(-3, 3)}, kOfFloats},
{"tanhshrink", [](In x) { return tanhshrink(x[0]); }, [](double x) { return x - std::tanh(x); }, {range(-3, 3)}, kOfFloats},
{"hardshrink", [](In x) { return hardshrink(x[0]); }, [](double x) { return std::abs(x) <= 0.5 ? 0 : x; }, {range(-3, 3)}},
{"softshrink", [](In x) { return softshrink(x[0]); }, [](double x) { return x > 0.5 ? x - 0.5 : x < -0.5 ? x + 0.5 : x * 0; }, {range(-3, 3)}, kOfFloats},
{"threshold", [](In x) { return threshold(x[0], 0.5, 2); }, [](double x) { return x <= 0.5 ? 2 : x; }, {range(-3, 3)}, kArithmetic},
{"glu", [](In x) { return glu(x[0]); },
 [](Ref x) { return build({3, 2}, [&](const Index& at) { return x[0](at) * ref::sigmoid(x[0]({at[0], at[1] + 2})); }); },
 {{kMatrix}}},
{"glu(0)", [](In x) { return glu(x[0], 0); },
 [](Ref x) { return build({1, 3, 4}, [&](const Index& at) { return x[0](at) * ref::sigmoid(x[0](with(at, 0, 1))); }); },
 {{kCube}}},
{"softmax", [](In x) { return softmax(x[0], -1); }, [](Ref x) { return along(x[0], 2, ref::softmax); }, {{kCube}}},
{"softmax(dim)", [](In x) { return softmax(x[0], 1); }, [](Ref x) { return along(x[0], 1, ref::softmax); }, {{kCube}}},
{"softmax(long)", [](In x) { return softmax(x[0], 1); }, [](Ref x) { return along(x[0], 1, ref::softmax); },
 {{{2, 21}}}},
{"log_softmax", [](In x) { return log_softmax(x[0], 1); }, [](Ref x) { return along(x[0], 1, ref::log_softmax); },
 {{kMatrix}}},
{"log_softmax(dim)", [](In x) { return log_softmax(x[0], 0); }, [](Ref x) { return along(x[0], 0, ref::log_softmax); },
 {{kCube}}},
{"softmin", [](In x) { return softmin(x[0], 1); },
 [](Ref x) { return along(x[0], 1, [](Line l) { for (double& v : l) v = -v; return ref::softmax(l); }); }, {{kCube}}},
// From the same noise with and without logits: what remains is the logits less their mean.
{"gumbel_softmax", [](In x) {
   const auto log_of = [](const Tensor& logits) { return manual_seed(3), log(gumbel_softmax(logits, 2)); };
   const Tensor y = (log_of(x[0]) - log_of(zeros_like(x[0]))) * 2;
   return y - mean(y, -1, true) + 1;
 },
 [](Ref x) { return along(x[0], 1, [](Line l) { const double m = ref::average(l); for (double& v : l) v += 1 - m; return l; }); },
 {{kMatrix}}, {.tolerance = 8}},

};
  return rows;
}
// clang-format on

TEST_CASE("slopes at the corners are PyTorch's", "[ops]") {
  const auto slope = [](auto f, std::vector<double> at) {
    const Tensor x = tensor(at).requires_grad_();
    return grad({sum(f(x))}, {x})[0].template to_vector<double>();
  };
  using Numbers = std::vector<double>;
  CHECK(slope(relu6, {0, 3, 6}) == Numbers{0, 1, 0});
  CHECK(slope([](const Tensor& x) { return hardtanh(x); }, {-1, 0, 1}) == Numbers{0, 1, 0});
  CHECK(slope([](const Tensor& x) { return clamp(x, -1, 1); }, {-1, 0, 1}) == Numbers{0, 1, 0});
  CHECK(slope(hardswish, {-3, 3}) == Numbers{0, 1});
  CHECK(slope(relu, {-1, 0, double(NAN)}) == Numbers{0, 0, 1});  // a NaN shows
  CHECK(slope([](const Tensor& x) { return hardshrink(x); }, {-0.5, 0.5, 1}) == Numbers{0, 0, 1});
  CHECK(slope([](const Tensor& x) { return softshrink(x); }, {-0.5, 0.5, 1}) == Numbers{0, 0, 1});
  CHECK(slope([](const Tensor& x) { return threshold(x, 0.5, 7); }, {0.5, 1}) == Numbers{0, 1});
  CHECK(slope([](const Tensor& x) { return prelu(x, 0.25); }, {-1, 0, 1}) == Numbers{0.25, 0.25, 1});
}

TEST_CASE("rrelu draws a slope for every element in training", "[ops]") {
  manual_seed(5);
  const Tensor x = full({10000}, -1., {.requires_grad = true}), y = rrelu(x, 0.1, 0.3, true);
  CHECK(max(y).item<double>() <= -0.1f);
  CHECK(min(y).item<double>() > -0.3f);
  CHECK(mean(y).item<double>() == Approx(-0.2).margin(0.002));
  CHECK(equal(grad({sum(y)}, {x})[0], -y));
  CHECK(equal(rrelu(ones({3}), 0.1, 0.3, true), ones({3})));
}

TEST_CASE("gumbel_softmax draws with the probabilities of the softmax", "[ops]") {
  manual_seed(6);
  const Tensor logits = log(tensor({0.5, 0.3, 0.2})).expand({20000, 3}).clone().requires_grad_();
  const Tensor hard = gumbel_softmax(logits, 0.7, true);
  CHECK(equal(hard, (hard > 0.5).to(kFloat32)));
  CHECK(equal(sum(hard.detach(), 1), ones({20000})));
  const std::vector<double> shares = mean(hard, 0).to_vector<double>();
  CHECK(shares[0] == Approx(0.5).margin(0.012));
  CHECK(shares[1] == Approx(0.3).margin(0.012));
  CHECK(any(grad({sum(hard * tensor({1., 2., 3.}))}, {logits})[0] != 0).item<bool>());
}

TEST_CASE("wrong calls of activations", "[ops]") {
  static const WrongCall calls[] = {
      {[](World& w) { hardtanh(w.vector, 1, -1); }, "hardtanh: min_val 1 is greater than max_val -1"},
      {[](World& w) { prelu(w.matrix, w.vector); },
       "prelu: a weight of shape [3] for x of shape [3, 4]; there must be one slope, or one for each channel "
       "(dimension 1)"},
      {[](World& w) { rrelu(w.vector, 1, 0); }, "rrelu: the range of slopes [1, 0] is empty"},
      {[](World& w) { celu(w.vector, 0); }, "celu: alpha is 0"},
      {[](World& w) { softshrink(w.vector, -1); }, "softshrink: lambda -1 is negative"},
      {[](World& w) { glu(w.vector); }, "glu: dimension 0 of x, shape [3], cannot be halved"},
      {[](World& w) { gumbel_softmax(w.vector, 0); }, "gumbel_softmax: the temperature tau must be positive, got 0"},
      {[](World& w) { gumbel_softmax(w.ids); }, "gumbel_softmax: logits of int64, not floating point"},
      {[](World& w) { mish(w.undefined); }, "mish: undefined tensor"},
  };
  check_wrong_calls(calls);
}

}  // namespace reel
