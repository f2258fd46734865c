#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "reel/autograd.h"
#include "reel/nn.h"
#include "test/support/names.h"

using namespace reel;
using Catch::Matchers::Contains;

namespace {

struct Stack : nn::Layer<Stack> {
  nn::ModuleList<nn::Linear> layers{*this, "layers"};
  nn::ModuleDict<> heads{*this, "heads"};
  nn::ParameterList scales{*this, "scales"};
  nn::ParameterDict offsets{*this, "offsets"};
  Stack() {
    for (int i = 0; i < 3; ++i) layers.emplace(2, 2);
    layers.push_back(nn::Linear(2, 2, {.bias = false}));
    heads.emplace<nn::Linear>("a", 2, 1);
    heads.add("b", nn::Dropout(0.2));
    scales.append(ones({2}));
    scales.append(zeros({3}));
    offsets.insert("start", ones({1}));
  }
  Tensor forward(Tensor x) const {
    for (const nn::Linear& layer : layers) x = relu(layer(x));
    return x;
  }
};

}  // namespace

TEST_CASE("containers name their parts as PyTorch does") {
  Stack stack;
  CHECK(names(stack.named_parameters()) == Names{"layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias",
                                                 "layers.2.weight", "layers.2.bias", "layers.3.weight",
                                                 "heads.a.weight", "heads.a.bias", "scales.0", "scales.1",
                                                 "offsets.start"});
  CHECK(stack(ones({1, 2})).shape() == Shape{1, 2});
  CHECK(stack.layers.size() == 4);
  CHECK(&stack.layers[-1] == &stack.layers[3]);
  CHECK_THROWS_WITH(stack.layers[4], "ModuleList: there is no module 4 among 4");
  for (nn::Linear& layer : stack.layers) layer.requires_grad_(false);
  CHECK_FALSE(stack.layers[2].weight.requires_grad());

  CHECK(stack.heads.keys() == Names{"a", "b"});
  CHECK(stack.heads.contains("b"));
  CHECK(stack.heads["a"].as_ref<nn::Linear>().out_features == 1);
  CHECK_THROWS_WITH(stack.heads["c"], "ModuleDict: there is no module 'c'");
  CHECK_THROWS_WITH(stack.heads.emplace<nn::Dropout>("a", 0.1), Contains("'a' is used already"));
  CHECK(stack.heads.size() == 2);
  for (auto [name, head] : stack.heads.items()) CHECK(head.path() == "heads." + name);

  CHECK(stack.scales.size() == 2);
  CHECK(stack.scales[-1].numel() == 3);
  int64_t total = 0;
  for (const Tensor& scale : stack.scales) total += scale.numel();
  CHECK(total == 5);
  CHECK_THROWS_AS(stack.scales[2], Error);
  CHECK(stack.offsets.contains("start"));
  CHECK(stack.offsets["start"].requires_grad());
  CHECK(stack.offsets.keys() == Names{"start"});
  CHECK_THROWS_WITH(stack.offsets["end"], "get_parameter: ParameterDict has no parameter 'end'");
  CHECK(stack.layers.to_string() ==
        "ModuleList(\n"
        "  (0): Linear(in_features=2, out_features=2, bias=true)\n"
        "  (1): Linear(in_features=2, out_features=2, bias=true)\n"
        "  (2): Linear(in_features=2, out_features=2, bias=true)\n"
        "  (3): Linear(in_features=2, out_features=2, bias=false)\n"
        ")");
  CHECK(stack.scales.to_string() == "ParameterList(0: float32 [2], 1: float32 [3])");
}

TEST_CASE("what a container refuses stays as it was") {
  struct Net : nn::Module {
    nn::Linear a{*this, "a", 2, 2};
  } net;
  nn::Sequential sequence;
  nn::ModuleList<nn::Linear> list;
  nn::ModuleDict<nn::Linear> dict;
  CHECK_THROWS_WITH(sequence.push_back(std::move(net.a)), Contains("'0' is part of another module already"));
  CHECK_THROWS_WITH(list.push_back(std::move(net.a)), Contains("part of another module"));
  CHECK_THROWS_WITH(dict.add("a", std::move(net.a)), Contains("part of another module"));
  CHECK(net.a.weight.defined());
  CHECK(net.parameters().size() == 2);
  CHECK(net.a.path() == "a");
  CHECK(sequence.size() + list.size() + dict.size() == 0);

  dict.emplace("a", 1, 1);
  sequence.push_back("a", relu).push_back("2", relu);
  // NOLINTBEGIN(bugprone-use-after-move): what is refused is not moved from.
  nn::Linear layer(2, 2);
  CHECK_THROWS_WITH(sequence.push_back("a", std::move(layer)), Contains("'a' is used already"));
  CHECK_THROWS_WITH(dict.add("a", std::move(layer)), Contains("'a' is used already"));
  CHECK(layer.weight.defined());
  auto owned = std::make_unique<nn::Linear>(2, 2);
  CHECK_THROWS_WITH(sequence.push_back("a", std::move(owned)), Contains("'a' is used already"));
  CHECK_THROWS_WITH(dict.insert("a", std::move(owned)), Contains("'a' is used already"));
  CHECK(owned);
  nn::Sequential more{nn::Linear(2, 2)};
  CHECK_THROWS_WITH(sequence.extend(std::move(more)), "Sequential: the name '2' is used already");
  CHECK(more.parameters().size() == 2);
  CHECK(more(ones({1, 2})).numel() == 2);
  // NOLINTEND(bugprone-use-after-move)
}

TEST_CASE("parts are found by number, name and type in a const forward") {
  struct Net : nn::Layer<Net> {
    nn::ModuleList<> layers{*this, "layers"};
    nn::Sequential body{*this, "body", nn::Linear(2, 3), relu};
    Net() { layers.emplace<nn::Linear>(3, 1); }
    Tensor forward(const Tensor& x) const {
      const Tensor h = body[0].as_ref<nn::Linear>()(x) + body["0"].as_ref<nn::Linear>()(x);
      return layers[0].as_ref<nn::Linear>()(h) + get_submodule("layers.0").as_ref<nn::Linear>()(h);
    }
  } net;
  CHECK(net(ones({4, 2})).shape() == Shape{4, 1});
  const Net& fixed = net;
  CHECK_THROWS_WITH(fixed.layers[0].as_ref<nn::Dropout>(), "Module::as_ref: layers.0 is a Linear");
  static_assert(std::is_same_v<decltype(net.body[0]), nn::Module&>);
  static_assert(std::is_same_v<decltype(fixed.body[0]), const nn::Module&>);
}

TEST_CASE("Sequential takes layers by value and functions") {
  struct Net : nn::Layer<Net> {
    nn::Sequential body{*this, "body", nn::Linear(2, 3), relu,
                        nn::Sequential{nn::Dropout(0.1), nn::Linear(3, 1, {.bias = false})}};
    Tensor forward(const Tensor& x) const { return body(x); }
  } net;
  CHECK(names(net.named_parameters()) == Names{"body.0.weight", "body.0.bias", "body.2.1.weight"});
  CHECK(net(ones({4, 2})).shape() == Shape{4, 1});
  CHECK(net.body[0].as_ref<nn::Linear>().out_features == 3);
  CHECK(net.body[-1].as_ref<nn::Sequential>().size() == 2);
  CHECK_THROWS_WITH(net.body[1], "Sequential: step 1 is a function, not a module");
  CHECK_THROWS_WITH(net.body[3], "Sequential: there is no step 3 among 3");
  CHECK_THROWS_WITH(net(ones({4, 5})), Contains("in body.0 (Linear)"));

  nn::Sequential named;
  named.push_back("first", nn::Linear(2, 2)).push_back("act", relu).push_back(nn::Identity());
  CHECK(named["first"].as_ref<nn::Linear>().in_features == 2);
  CHECK(names(named.named_parameters()) == Names{"first.weight", "first.bias"});
  CHECK_THROWS_WITH(named.push_back("act", relu), "Sequential: the name 'act' is used already");
  named.extend(nn::Sequential{nn::Linear(2, 1), sigmoid});
  CHECK(named.size() == 5);
  CHECK(names(named.named_parameters()) == Names{"first.weight", "first.bias", "3.weight", "3.bias"});
  const nn::Sequential moved = std::move(named);
  CHECK(moved(ones({1, 2})).shape() == Shape{1, 1});
  CHECK_THROWS_AS(nn::Sequential().push_back(std::unique_ptr<nn::Linear>()), Error);
  CHECK_THROWS_AS(nn::Functional(nullptr), Error);
  CHECK(nn::Identity()(CellState{ones({1}), ones({2})}).c.numel() == 2);
}
