#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "reel/autograd.h"
#include "reel/nn.h"
#include "reel/random.h"
#include "reel/testing.h"
#include "test/support/figures.h"
#include "test/support/names.h"

using namespace reel;
using Catch::Matchers::Contains;

namespace {

double distance(const Tensor& a, const Tensor& b) { return amax(abs(a - b)).item<double>(); }

// The largest singular value, by many power iterations.
double sigma(const Tensor& matrix) {
  Tensor v = ones({matrix.size(1)}, {.dtype = matrix.dtype()});
  for (int i = 0; i < 500; ++i) v = matmul(matrix.t(), matmul(matrix, v)), v = v / norm(v);
  return norm(matmul(matrix, v)).item<double>();
}

}  // namespace

TEST_CASE("weight_norm splits a weight into norms and directions") {
  manual_seed(1);
  nn::Linear layer(3, 2);
  layer.to(kFloat64);
  const Tensor before = layer.weight.clone(), x = randn({4, 3}, {.dtype = kFloat64});
  const Tensor plain = layer(x);
  nn::weight_norm(layer);
  CHECK(nn::is_parametrized(layer, "weight"));
  CHECK(names(layer.state_dict()) ==
        Names{"bias", "parametrizations.weight.original0", "parametrizations.weight.original1"});
  CHECK(layer.parameters().size() == 3);
  const Tensor g = layer.get_parameter("parametrizations.weight.original0"),
               v = layer.get_parameter("parametrizations.weight.original1");
  CHECK(g.shape() == Shape{2, 1});
  CHECK(distance(g, norm(before, 2, 1, true)) < 1e-15);
  CHECK(distance(layer.weight, before) < 1e-15);
  CHECK(distance(layer(x), plain) < 1e-14);

  // Several uses in one graph, some of them not recorded.
  const Tensor c = randn({4, 2}, {.dtype = kFloat64});
  const Tensor first = layer(x);
  no_grad([&] { return layer(x * 3); });
  sum(c * (first + layer(x * x))).backward();
  CHECK_FALSE(layer.weight.requires_grad());
  const auto f = [&](const std::vector<Tensor>& in) {
    const Tensor w = in[1] * (in[0] / norm(in[1], 2, 1, true));
    return sum(c * (linear(x, w, layer.bias) + linear(x * x, w, layer.bias)));
  };
  const Tensor g2 = g.detach().clone().requires_grad_(), v2 = v.detach().clone().requires_grad_();
  f({g2, v2}).backward();
  CHECK(distance(g.grad(), g2.grad()) < 1e-13);
  CHECK(distance(v.grad(), v2.grad()) < 1e-13);

  no_grad([&] { Tensor(g).mul_(2); });
  CHECK(distance(no_grad([&] { return layer(x) - layer.bias; }), 2 * (plain - layer.bias)) < 1e-14);
  nn::remove_parametrizations(layer, "weight");
  CHECK_FALSE(nn::is_parametrized(layer, "weight"));
  CHECK(names(layer.state_dict()) == Names{"weight", "bias"});
  CHECK(distance(layer.weight, 2 * before) < 1e-15);
  CHECK(layer.weight.requires_grad());
  CHECK(layer.weight.is_leaf());
  CHECK(distance(layer(x) - layer.bias, 2 * (plain - layer.bias)) < 1e-14);
}

TEST_CASE("a parametrized layer holds no graph") {
  nn::Linear layer(3, 2);
  nn::weight_norm(layer, {.dim = {}});
  CHECK(layer.get_parameter("parametrizations.weight.original0").dim() == 0);
  {
    const Tensor y = layer(ones({1, 3}));
    CHECK(live_nodes() > 0);
  }
  CHECK(live_nodes() == 0);
  CHECK_THROWS_AS(layer(ones({1, 4})), Error);
  CHECK(live_nodes() == 0);
}

TEST_CASE("a net with a parametrized part keeps it when it is moved") {
  struct Net : nn::Layer<Net> {
    nn::Linear a{*this, "a", 2, 2}, b{*this, "b", 2, 2};
    Tensor forward(const Tensor& x) const { return b(a(x)); }
  };
  const auto make = [] {
    Net net;
    nn::weight_norm(net.a);
    return net;
  };
  Net net = make(), moved = std::move(net);
  CHECK(net.parameters().empty());
  CHECK(moved.parameters().size() == 5);
  CHECK(nn::is_parametrized(moved.a, "weight"));
  CHECK_FALSE(nn::is_parametrized(net.a, "weight"));
  const Tensor g = moved.get_parameter("a.parametrizations.weight.original0"), x = ones({1, 2});
  const Tensor before = moved.a(x) - moved.a.bias;
  no_grad([&] { Tensor(g).mul_(2); });
  CHECK(distance(moved.a(x) - moved.a.bias, 2 * before) < 1e-6);
  sum(moved(x)).backward();
  CHECK(g.grad().defined());

  std::vector<nn::Linear> layers;
  for (int i = 0; i < 4; ++i) nn::spectral_norm(layers.emplace_back(3, 3));
  for (nn::Linear& layer : layers) {
    CHECK(layer(ones({1, 3})).numel() == 3);
    nn::remove_parametrizations(layer, "weight");
    CHECK(layer.weight.requires_grad());
  }
}

TEST_CASE("weight_norm takes any dimension and loads what another saved") {
  manual_seed(2);
  nn::Linear a(3, 4), b(3, 4);
  nn::weight_norm(a, {.dim = -1}), nn::weight_norm(b, {.dim = 1});
  nn::weight_norm(a, "bias"), nn::weight_norm(b, "bias");
  CHECK(a.get_parameter("parametrizations.weight.original0").shape() == Shape{1, 3});
  CHECK(a.get_parameter("parametrizations.bias.original0").shape() == Shape{4});
  const Tensor x = randn({2, 3});
  CHECK_FALSE(equal(a(x), b(x)));
  b.load_state_dict(a.state_dict());
  CHECK(equal(a(x), b(x)));
  CHECK_THROWS_WITH(nn::weight_norm(a, "x"), Contains("Linear has no parameter 'x'"));
}

TEST_CASE("parameters of an LSTM are parametrized by their names") {
  manual_seed(5);
  nn::LSTM lstm(3, 4, {.num_layers = 2, .bidirectional = true});
  const Tensor x = randn({5, 3}), plain = lstm(x).output;
  CHECK_THROWS_WITH(nn::weight_norm(lstm, "weight_hh_l2"), Contains("LSTM has no parameter 'weight_hh_l2'"));
  for (const auto& [name, parameter] : lstm.named_parameters())
    if (name.starts_with("weight_hh")) nn::weight_norm(lstm, name);
  CHECK(lstm.named_parameters().size() == 16 + 4);
  CHECK(distance(lstm(x).output, plain) < 1e-6);
  const nn::LSTM moved = std::move(lstm);
  sum(moved(x).output).backward();
  const Tensor g = moved.get_parameter("parametrizations.weight_hh_l1_reverse.original0");
  CHECK(g.grad().defined());
  no_grad([&] { Tensor(g).zero_(); });
  CHECK(distance(moved(x).output, plain) > 1e-3);

  nn::Linear layer(2, 2);
  nn::spectral_norm(layer, "weight");
  CHECK(nn::is_parametrized(layer, "weight"));
  struct Net : nn::Layer<Net> {
    nn::Linear layer{*this, "layer", 2, 2};
    Tensor forward(const Tensor& in) const { return layer(in); }
  } net;
  CHECK_THROWS_WITH(nn::weight_norm(net, "layer.weight"), Contains("'layer.weight' is in a part of Net"));
  struct Plain : nn::Module {
    nn::Parameter scale{*this, "scale", ones({2})};
  } plain_module;
  CHECK_THROWS_WITH(nn::weight_norm(plain_module, "scale"), Contains("Plain is not an nn::Layer"));
  nn::GRU gru(2, 2, {.bias = false});
  nn::spectral_norm(gru, "weight_ih_l0");
  CHECK(&gru.get_parameter("weight_hh_l0") == &gru.weights[1]);
  nn::remove_parametrizations(gru, "weight_ih_l0");
  CHECK(names(gru.state_dict()) == Names{"weight_ih_l0", "weight_hh_l0"});
}

TEST_CASE("spectral_norm divides by the largest singular value") {
  manual_seed(3);
  struct Net : nn::Module {
    nn::Linear layer{*this, "layer", 5, 7};
  } net;
  net.to(kFloat64);
  const Tensor before = net.layer.weight.clone(), x = randn({2, 5}, {.dtype = kFloat64});
  nn::spectral_norm(net.layer, {.n_power_iterations = 3});
  CHECK(names(net.state_dict()) == Names{"layer.bias", "layer.parametrizations.weight.original",
                                         "layer.parametrizations.weight.0._u", "layer.parametrizations.weight.0._v"});
  for (int i = 0; i < 50; ++i) net.layer(x);
  CHECK(sigma(net.layer.weight) == Approx(1));
  CHECK(distance(net.layer.weight, before / sigma(before)) < 1e-10);

  const Tensor u = net.get_buffer("layer.parametrizations.weight.0._u");
  net.eval();
  const Tensor kept = u.clone();
  const Tensor y = net.layer(x);
  CHECK(equal(u, kept));
  net.train();
  net.layer(x);
  sum(square(y)).backward();  // what it needs has not been changed by the call after it
  const Tensor original = net.get_parameter("layer.parametrizations.weight.original");
  CHECK(distance(original, before) == 0);
  // The weight does not change with the scale of the original, so the gradient is orthogonal to it.
  CHECK(std::abs(sum(original.grad() * original).item<double>()) < 1e-9);
  nn::remove_parametrizations(net.layer, "weight", {.leave_parametrized = false});
  CHECK(equal(net.layer.weight, before));
  CHECK(net.layer.weight.is_same(original));
}

TEST_CASE("the weight that a parametrized layer shows is not stale after loading and conversion") {
  manual_seed(6);
  struct Net : nn::Module {
    nn::Linear layer{*this, "layer", 3, 4};
  } a, b;
  for (Net* net : {&a, &b}) nn::spectral_norm(net->layer), nn::weight_norm(net->layer, "bias");
  for (int i = 0; i < 20; ++i) a.layer(ones({1, 3}));
  const StateDict saved = a.state_dict();
  b.load_state_dict(saved);
  CHECK(distance(b.layer.weight, a.layer.weight) < 1e-5);
  CHECK(distance(b.layer.bias, a.layer.bias) < 1e-6);
  CHECK_FALSE(b.layer.weight.requires_grad());
  // Training is on, but loading makes no step of the power iteration.
  for (const auto& [name, tensor] : b.state_dict()) CHECK(equal(tensor, saved[name]));
  CHECK(b.get_submodule("layer.parametrizations.weight.0").is_training());
  b.to(kFloat64);
  CHECK(b.layer.weight.dtype() == kFloat64);
  CHECK(distance(b.layer.weight, a.layer.weight.to(kFloat64)) < 1e-5);
}

TEST_CASE("parametrizations of one's own are chained") {
  manual_seed(4);
  nn::Linear layer(3, 3, {.bias = false});
  const Tensor held = layer.weight;
  nn::register_parametrization(layer, "weight", [](const Tensor& w) { return triu(w) + triu(w, 1).t(); });
  nn::register_parametrization(layer, "weight", [](const Tensor& w) { return w * 2; });
  CHECK(names(layer.state_dict()) == Names{"parametrizations.weight.original"});
  CHECK(layer.parameters()[0].is_same(held));
  CHECK(equal(layer.weight, layer.weight.t()));
  CHECK(equal(layer.weight.select(0, 0), held.select(0, 0) * 2));
  sum(layer(eye(3))).backward();
  CHECK(equal(held.grad(), triu(full({3, 3}, 4.0)) - 2 * eye(3)));
  CHECK_THROWS_WITH(nn::register_parametrization(layer, "weight", [](const Tensor& w) { return w[0]; }),
                    Contains("the parameter is float32 [3, 3], the computed value float32 [3]"));
  CHECK_THROWS_WITH(nn::remove_parametrizations(layer, "bias"), Contains("'bias' of Linear is not parametrized"));
  CHECK_THROWS_WITH(layer.weight = ones({3, 3}), Contains("'weight' of Linear is computed by its parametrization"));
  nn::remove_parametrizations(layer, "weight");
  CHECK(layer.weight.is_same(held));
  CHECK(equal(held, held.t()));
}

TEST_CASE("normalised weights give PyTorch's numbers for PyTorch's weights") {
  const auto check = [](const std::string& name, const auto& normalise) {
    INFO(name);
    const Figures figures(name);
    nn::Linear layer(3, 4);
    normalise(layer);
    figures.load(layer).eval();
    StateDict outputs;
    outputs.emplace_back("output", layer(figures.in("x")));
    figures.check(layer, outputs);
  };
  check("weight_norm", [](nn::Linear& layer) { nn::weight_norm(layer, {.dim = 1}); });
  check("spectral_norm", [](nn::Linear& layer) { nn::spectral_norm(layer); });
}
