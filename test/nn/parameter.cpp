#include "reel/nn/parameter.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "reel/nn.h"
#include "reel/optim.h"
#include "reel/random.h"
#include "test/support/names.h"

using namespace reel;
using Catch::Matchers::Contains;

namespace {

struct Scaled : nn::Layer<Scaled> {
  using Layer::Layer;
  Scaled() = default;
  nn::Parameter scale{*this, "scale", full({2}, 3.0)};
  nn::Linear inner{*this, "inner", 2, 2};
  nn::Buffer steps{*this, "steps", zeros({}, {.dtype = kInt64})};
  nn::Parameter shift{*this, "shift", zeros({2})};
  Tensor forward(const Tensor& x) const { return inner(x) * scale + shift; }
};

/// Every name leads to the member itself.
void check_members(Scaled& net) {
  CHECK(names(net.named_parameters()) == Names{"scale", "inner.weight", "inner.bias", "shift"});
  CHECK(&net.get_parameter("scale") == &net.scale);
  CHECK(&net.get_parameter("shift") == &net.shift);
  CHECK(&net.get_parameter("inner.weight") == &net.inner.weight);
  CHECK(&net.get_buffer("steps") == &net.steps);
}

// Copying would make a handle that the module does not see; std::swap would exchange the registrations.
static_assert(!std::is_copy_constructible_v<nn::Parameter> && !std::is_copy_constructible_v<nn::Buffer>);
static_assert(std::is_nothrow_move_constructible_v<nn::Parameter> && !std::is_swappable_v<nn::Parameter>);
static_assert(!std::is_assignable_v<nn::Parameter&, double>);

}  // namespace

TEST_CASE("assigning to a parameter replaces it for forward, optimizer, conversion and saving") {
  manual_seed(1);
  Scaled net;
  check_members(net);
  const Tensor old = net.scale;
  net.scale = full({2}, 5.0);
  CHECK_FALSE(net.scale.is_same(old));
  CHECK(net.scale.requires_grad());
  CHECK(net.parameters()[0].is_same(net.scale));
  CHECK(net.state_dict()["scale"][0].item<double>() == 5);
  check_members(net);

  optim::SGD sgd(net.parameters(), {.lr = 1});
  const Tensor x = ones({1, 2});
  sum(net(x)).backward();
  sgd.step();
  CHECK_FALSE(equal(net.scale, full({2}, 5.0)));
  CHECK(equal(old, full({2}, 3.0)));
  net.to(kFloat64);
  CHECK(net.scale.dtype() == kFloat64);
  CHECK(old.dtype() == kFloat32);

  StateDict dict = net.state_dict();
  Scaled other;
  other.scale = zeros({2});
  other.load_state_dict(dict);
  CHECK(equal(other.scale, net.scale.to(kFloat32)));

  net.steps = full({}, 7, {.dtype = kInt64});
  CHECK(net.state_dict()["steps"].item<int>() == 7);
  CHECK_FALSE(net.steps.requires_grad());
}

TEST_CASE("assigning another module's parameter ties the two") {
  struct Net : nn::Layer<Net> {
    nn::Embedding emb{*this, "emb", 5, 3};
    nn::Linear out{*this, "out", 3, 5, {.bias = false}};
    Net() { out.weight = emb.weight; }
    Tensor forward(const Tensor& ids) const { return out(emb(ids)); }
  };
  manual_seed(2);
  Net net;
  CHECK(net.out.weight.is_same(net.emb.weight));
  CHECK(names(net.named_parameters()) == Names{"emb.weight"});
  CHECK(names(net.state_dict()) == Names{"emb.weight", "out.weight"});
  optim::SGD sgd(net.parameters(), {.lr = 0.5});
  const Tensor before = net.emb.weight.detach().clone();
  sum(net(tensor({1, 2}))).backward();
  sgd.step();
  CHECK_FALSE(equal(net.emb.weight, before));
  CHECK(equal(net.emb.weight, net.out.weight));
  Net moved = std::move(net);
  CHECK(moved.out.weight.is_same(moved.emb.weight));
  CHECK(&moved.get_parameter("out.weight") == &moved.out.weight);

  // A frozen parameter stays frozen; a tensor becomes trainable.
  nn::Embedding frozen = nn::Embedding::from_pretrained(ones({5, 3}));
  moved.out.weight = frozen.weight;
  CHECK_FALSE(moved.out.weight.requires_grad());
  moved.out.weight = ones({5, 3});
  CHECK(moved.out.weight.requires_grad());
}

TEST_CASE("what cannot be a parameter or a buffer is refused by name, and nothing changes") {
  Scaled net;
  const Tensor old = net.scale, computed = ones({2}, {.requires_grad = true}) * 2;
  CHECK_THROWS_WITH(net.scale = ones({2}, {.dtype = kInt64}),
                    "Parameter 'scale' of Scaled: the tensor is int64, only floating-point tensors can be trained");
  CHECK_THROWS_WITH(
      net.inner.weight = computed,
      "Parameter 'weight' of inner (Linear): the tensor was computed from other tensors, detach() it first");
  CHECK_THROWS_WITH(net.steps = computed, Contains("Buffer 'steps' of Scaled: the tensor was computed"));
  CHECK_THROWS_WITH(nn::Parameter(net, "third", computed), Contains("Parameter 'third' of Scaled"));
  CHECK(net.scale.is_same(old));
  check_members(net);
  net.scale = full({1}, 4.0);  // any shape, which the forward checks
  CHECK(net(ones({1, 2})).numel() == 2);
}

TEST_CASE("an undefined parameter keeps its name free of tensors") {
  nn::Linear layer(2, 3, {.bias = false});
  CHECK(names(layer.named_parameters()) == Names{"weight"});
  CHECK(names(layer.state_dict()) == Names{"weight"});
  CHECK_THROWS_WITH(layer.get_parameter("bias"), Contains("no parameter 'bias'"));
  CHECK_THROWS_WITH(nn::Parameter(layer, "bias", ones({3})), Contains("'bias' is used already"));
  layer.bias = ones({3});
  CHECK(names(layer.named_parameters()) == Names{"weight", "bias"});
  CHECK(equal(layer(zeros({1, 2})), ones({1, 3})));
  layer.bias = {};
  CHECK(names(layer.named_parameters()) == Names{"weight"});
}

TEST_CASE("parameters and buffers follow their module when it is moved") {
  const auto make = [] {
    Scaled net;
    return std::make_unique<Scaled>(std::move(net));
  };
  const std::unique_ptr<Scaled> made = make();
  check_members(*made);

  std::vector<Scaled> nets;
  for (int i = 0; i < 5; ++i) nets.emplace_back();
  for (Scaled& net : nets) check_members(net);
  Scaled last = std::move(nets[4]);
  CHECK(nets[4].parameters().empty());
  nets.clear();
  check_members(last);
  last.scale = zeros({2});
  CHECK(equal(last(ones({1, 2})), last.shift.unsqueeze(0)));

  nn::Sequential steps{std::move(last), nn::BatchNorm1d(2)};
  check_members(steps[0].as_ref<Scaled>());
  auto& norm = steps[1].as_ref<nn::BatchNorm1d>();
  CHECK(&steps.get_buffer("1.running_mean") == &norm.running_mean);
  norm.running_mean = full({2}, 2.0);
  CHECK(steps.state_dict()["1.running_mean"][1].item<double>() == 2);
}

TEST_CASE("a number of parameters that is known at run time is a vector of them") {
  struct Net : nn::Module {
    std::vector<nn::Parameter> scales;
    explicit Net(int n) {
      for (int i = 0; i < n; ++i)
        scales.emplace_back(*this, "scale" + std::to_string(i), full({1}, static_cast<double>(i)));
    }
  };
  Net net(5);
  Net moved = std::move(net);
  CHECK(net.named_parameters().empty());
  REQUIRE(moved.named_parameters().size() == 5);
  for (size_t i = 0; i < 5; ++i) {
    CHECK(&moved.get_parameter("scale" + std::to_string(i)) == &moved.scales[i]);
    CHECK(moved.parameters()[i].item<double>() == static_cast<double>(i));
  }
  moved.scales.pop_back();
  CHECK(moved.parameters().size() == 4);

  nn::LSTM lstm(2, 2), peer(2, 2);
  lstm.weights[1] = peer.weights[1];
  CHECK(lstm.get_parameter("weight_hh_l0").is_same(peer.weights[1]));
  const nn::LSTM kept = std::move(lstm);
  CHECK(&kept.get_parameter("weight_hh_l0") == &kept.weights[1]);
}

TEST_CASE("a list and a dict of parameters are assigned to like members") {
  nn::ParameterList list({ones({1}), ones({2})});
  nn::Parameter& third = list.append(ones({3}));
  for (int i = 0; i < 20; ++i) list.append(ones({1}));
  third = zeros({3});
  list[0] = list[1];
  CHECK(list.get_parameter("2").is_same(third));
  CHECK(list.parameters().size() == 22);
  nn::ParameterList moved = std::move(list);
  CHECK(&moved[2] == &third);
  third = ones({3});
  CHECK(equal(moved.get_parameter("2"), ones({3})));

  nn::ParameterDict dict;
  dict.insert("a", ones({1})), dict.insert("b", ones({1}));
  dict["b"] = dict["a"];
  CHECK(dict.contains("b"));
  CHECK(dict.keys() == Names{"a", "b"});
  CHECK(dict.parameters().size() == 1);
  const nn::ParameterDict kept = std::move(dict);
  CHECK(kept["b"].is_same(kept["a"]));
}

TEST_CASE("a parameter and its module may be destroyed in either order") {
  struct Plain : nn::Module {};
  auto module = std::make_unique<Plain>();
  {
    const nn::Parameter local(*module, "local", ones({1}));
    CHECK(module->parameters().size() == 1);
  }
  CHECK(module->parameters().empty());
  nn::Parameter longer(*module, "longer", ones({1}));
  module.reset();
  longer = zeros({1});
  CHECK(longer.item<double>() == 0);
}

TEST_CASE("a parameter is an argument like any tensor") {
  Scaled net;
  int calls = 0;
  nn::Identity identity;
  identity.register_forward_pre_hook([&](nn::Module&, std::vector<Tensor>& inputs) { calls += inputs.size() == 1; });
  CHECK(identity(net.scale).is_same(net.scale));
  CHECK(nn::Identity()(net.scale).is_same(net.scale));
  CHECK(calls == 1);
  const std::vector<Tensor> both{net.scale, net.shift};
  CHECK(both[1].is_same(net.shift));
}
