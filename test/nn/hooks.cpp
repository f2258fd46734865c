#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "reel/autograd.h"
#include "reel/nn.h"
#include "reel/random.h"

using namespace reel;
using Catch::Matchers::Contains;

namespace {

struct Two : nn::Layer<Two> {
  using Layer::Layer;
  Two() = default;
  nn::Parameter scale{*this, "scale", full({2}, 3.0)};
  std::pair<Tensor, int> forward(const Tensor& a, int factor, const std::vector<Tensor>& more) const {
    return {a * scale * factor + more.at(0), 7};
  }
};

struct Outer : nn::Layer<Outer> {
  nn::Linear inner{*this, "inner", 2, 2};
  Tensor forward(const Tensor& x) const { return inner(x); }
};

struct Deep : nn::Layer<Deep> {
  Outer encoder;
  Deep() { register_module("encoder", encoder); }
  Tensor forward(const Tensor& x) const { return encoder(x); }
};

Tensor row(double a, double b, bool grad = false) {
  return tensor(std::vector<float>{static_cast<float>(a), static_cast<float>(b)}, {1, 2}, {.requires_grad = grad});
}

}  // namespace

TEST_CASE("forward hooks see and replace what a layer gets and gives") {
  nn::Linear layer(2, 2);
  no_grad([&] { layer.weight.copy_(eye(2)), layer.bias.zero_(); });
  const Tensor x = row(1, 2);
  std::vector<std::string> order;
  const int64_t before = layer.register_forward_pre_hook([&](nn::Module& module, std::vector<Tensor>& inputs) {
    CHECK(&module == &layer);
    REQUIRE(inputs.size() == 1);
    CHECK(inputs[0].is_same(x));
    inputs[0] = inputs[0] * 10;
    order.push_back("before");
  });
  const int64_t after =
      layer.register_forward_hook([&](nn::Module&, const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs) {
        CHECK(equal(inputs[0], row(10, 20)));
        outputs.at(0) = outputs[0] + 1;
        order.push_back("after");
      });
  layer.register_forward_hook([&](nn::Module&, const std::vector<Tensor>&, std::vector<Tensor>& outputs) {
    CHECK(equal(outputs[0], row(11, 21)));
    order.push_back("last");
  });
  CHECK(equal(layer(x), row(11, 21)));
  CHECK(order == std::vector<std::string>{"before", "after", "last"});
  CHECK(equal(layer.forward(x), x));
  layer.remove_hook(before), layer.remove_hook(after);
  order.clear();
  layer.remove_hook(before);
  CHECK_THROWS_AS(layer.register_forward_hook({}), Error);
}

TEST_CASE("hooks look into lists and pairs and structs") {
  Two two;
  const Tensor a = row(1, 1), b = row(5, 6);
  std::vector<size_t> counts;
  two.register_forward_pre_hook([&](nn::Module&, std::vector<Tensor>& inputs) {
    counts.push_back(inputs.size());
    inputs[1] = inputs[1] * 2;
  });
  two.register_forward_hook([&](nn::Module&, const std::vector<Tensor>&, std::vector<Tensor>& outputs) {
    counts.push_back(outputs.size());
    outputs[0] = -outputs[0];
  });
  const auto [y, seven] = two(a, 2, std::vector<Tensor>{b});
  CHECK(equal(y, row(-16, -18)));
  CHECK(seven == 7);
  CHECK(counts == std::vector<size_t>{1 + 1, 1});

  nn::ChildSumTreeLSTM cell(2, 2);
  const CellState leaf = cell(a);
  std::vector<size_t> seen;
  cell.register_forward_pre_hook([&](nn::Module&, std::vector<Tensor>& inputs) { seen.push_back(inputs.size()); });
  const int64_t swap =
      cell.register_forward_hook([&](nn::Module&, const std::vector<Tensor>&, std::vector<Tensor>& outputs) {
        std::swap(outputs[0], outputs[1]);
      });
  const CellState swapped = cell(a, {leaf, leaf});
  cell.remove_hook(swap);
  const CellState state = cell(a, {leaf, leaf});
  CHECK(equal(state.h, swapped.c));
  CHECK(equal(state.c, swapped.h));
  CHECK(seen == std::vector<size_t>{5, 5});

  using nn::internal::collect_tensors;
  const std::tuple<CellState, std::optional<Tensor>, std::array<Tensor, 2>> all{{a, b}, a, {b, a}};
  CHECK(collect_tensors(all, ValuesIndices{a, b}, 3, std::string("no")).size() == 7);
  struct Nested {
    Tensor output;
    CellState state;
  };
  CHECK(collect_tensors(Nested{a, {b, b}}).size() == 3);
  struct Mixed {
    Tensor tensor;
    double number;
  };
  CHECK(collect_tensors(Mixed{a, 1}).empty());
}

TEST_CASE("hooks run whatever forward returns") {
  struct Scored {
    Tensor logits;
    double scale;
  };
  struct Mixed : nn::Layer<Mixed> {
    Scored forward(const Tensor& x) const { return {x * 2, 3}; }
  } mixed;
  struct Nothing : nn::Layer<Nothing> {
    int calls = 0;
    void forward(int) { ++calls; }
  } nothing;
  struct Kept : nn::Layer<Kept> {
    Tensor last = ones({2});
    const Tensor& forward() const { return last; }
  } kept;
  std::vector<size_t> before, after;
  for (nn::Module* module :
       {static_cast<nn::Module*>(&mixed), static_cast<nn::Module*>(&nothing), static_cast<nn::Module*>(&kept)}) {
    module->register_forward_pre_hook([&](nn::Module&, std::vector<Tensor>& in) { before.push_back(in.size()); });
    module->register_forward_hook(
        [&](nn::Module&, const std::vector<Tensor>&, std::vector<Tensor>& out) { after.push_back(out.size()); });
  }
  const Tensor x = row(1, 2, true);
  const Scored scored = mixed(x);
  CHECK(equal(scored.logits, row(2, 4)));
  CHECK(scored.scale == 3);
  nothing(7);
  CHECK(nothing.calls == 1);
  CHECK(&kept() == &kept.last);
  CHECK(before == std::vector<size_t>{1, 0, 0});
  CHECK(after == std::vector<size_t>{0, 0, 1});

  kept.register_forward_hook([](nn::Module&, const std::vector<Tensor>&, std::vector<Tensor>& out) { out[0] = {}; });
  CHECK_THROWS_WITH(kept(), Contains("forward of Kept returns a reference"));
  mixed.register_full_backward_hook([](nn::Module&, std::vector<Tensor>&, const std::vector<Tensor>&) {});
  CHECK_THROWS_WITH(mixed(x), Contains("full backward hook: forward of Mixed gives no Tensors"));
  CHECK(no_grad([&] { return mixed(x).scale; }) == 3);
}

TEST_CASE("a layer may return a struct of many tensors") {
  struct Seven {
    Tensor a, b, c, d, e, f, g;
  };
  struct Twelve {
    Tensor a, b, c, d, e, f, g, h, i;
    CellState state;
    Tensor l;
  };
  struct Thirteen {
    Tensor a, b, c, d, e, f, g, h, i, j, k, l, m;
  };
  struct Many : nn::Layer<Many> {
    Seven forward(const Tensor& x) const { return {x, x, x, x, x, x, x}; }
  } many;
  const Tensor x = row(1, 2);
  CHECK(many(x).g.is_same(x));
  many.register_forward_hook([](nn::Module&, const std::vector<Tensor>&, std::vector<Tensor>& outputs) {
    CHECK(outputs.size() == 7);
    outputs.at(6) = outputs[6] * 2;
  });
  CHECK(equal(many(x).g, row(2, 4)));
  CHECK(many(x).f.is_same(x));
  CHECK(nn::internal::collect_tensors(Twelve{x, x, x, x, x, x, x, x, x, {x, x}, x}).size() == 12);
  CHECK(nn::internal::collect_tensors(Thirteen{}).empty());
}

TEST_CASE("full backward hooks see and replace gradients") {
  nn::Linear layer(2, 1, {.bias = false});
  no_grad([&] { layer.weight.copy_(row(2, 3)); });
  const Tensor x = row(1, 5, true);
  int calls = 0;
  const int64_t id = layer.register_full_backward_hook(
      [&](nn::Module& module, std::vector<Tensor>& grad_inputs, const std::vector<Tensor>& grad_outputs) {
        ++calls;
        CHECK(&module == &layer);
        REQUIRE(grad_inputs.size() == 1);
        REQUIRE(grad_outputs.size() == 1);
        CHECK(equal(grad_outputs[0], full({1, 1}, 4.0)));
        CHECK(equal(grad_inputs[0], row(8, 12)));
        grad_inputs[0] = grad_inputs[0] * 10;
      });
  (layer(x) * 4).reshape({}).backward();
  CHECK(calls == 1);
  CHECK(equal(x.grad(), row(80, 120)));
  CHECK(equal(layer.weight.grad(), row(4, 20)));
  no_grad([&] { layer(x); });
  CHECK(calls == 1);
  layer.remove_hook(id);
  CHECK(live_nodes() == 0);

  // Without inputs that require grad: when the outputs' gradients arrive.
  layer.register_full_backward_hook(
      [&](nn::Module&, std::vector<Tensor>& grad_inputs, const std::vector<Tensor>& grad_outputs) {
        ++calls;
        CHECK_FALSE(grad_inputs.at(0).defined());
        CHECK(grad_outputs.at(0).defined());
      });
  layer(row(1, 1)).reshape({}).backward();
  CHECK(calls == 2);

  // Differentiable in its turn.
  const Tensor u = row(1, 2, true);
  const Tensor cube = pow(nn::Functional([](const Tensor& v) { return v; })(u), 3);
  nn::Functional square([](const Tensor& v) { return reel::square(v); });
  square.register_full_backward_hook(
      [](nn::Module&, std::vector<Tensor>& grads, const std::vector<Tensor>&) { grads[0] = grads[0] * 3; });
  const Tensor first = grad({sum(square(u))}, {u}, {}, {.create_graph = true})[0];
  CHECK(equal(first, row(6, 12)));
  CHECK(equal(grad({sum(first)}, {u})[0], row(6, 6)));
}

TEST_CASE("a full backward hook that only observes changes no gradient") {
  const auto input_in_place = [](const Tensor& x) { return Tensor(x).mul_(3.0); };
  const auto cloned = [](const Tensor& x) { return x.clone().mul_(3.0); };
  for (const bool observed : {false, true}) {
    nn::Functional refused(input_in_place), fine(cloned);
    if (observed)
      for (nn::Functional* module : {&refused, &fine})
        module->register_full_backward_hook([](nn::Module&, std::vector<Tensor>&, const std::vector<Tensor>&) {});
    const Tensor x = row(1, 2, true), h = x * 2;
    Tensor y = fine(h);
    (sum(y) + sum(square(h))).backward();
    CHECK(equal(x.grad(), row(14, 22)));
    if (observed) {
      CHECK_THROWS_WITH(refused(x * 2), Contains("mul_: ") && Contains("backward hook"));
      CHECK_THROWS_WITH(y.mul_(2), Contains("mul_: ") && Contains("backward hook"));
      continue;
    }
    const Tensor u = row(1, 2, true), k = u * 2;
    y = refused(k);
    (sum(y) + sum(square(k))).backward();
    CHECK(equal(u.grad(), row(78, 150)));
    CHECK_NOTHROW(y.mul_(2));
  }
}

TEST_CASE("hooks may outlive or change their module's list of hooks") {
  int calls = 0;
  Tensor y;
  const Tensor x = row(1, 1, true);
  {
    nn::Linear layer(2, 2);
    layer.register_full_backward_hook([&](nn::Module&, std::vector<Tensor>&, const std::vector<Tensor>&) { ++calls; });
    y = layer(x);
  }
  sum(y).backward();
  CHECK(calls == 0);  // the module is gone
  CHECK(x.grad().defined());

  nn::Linear layer(2, 2);
  int64_t id = 0;
  id = layer.register_forward_pre_hook(
      [&](nn::Module& module, std::vector<Tensor>&) { ++calls, module.remove_hook(id); });
  layer(x), layer(x);
  CHECK(calls == 1);
  layer.register_forward_pre_hook([](nn::Module&, std::vector<Tensor>& inputs) { inputs.clear(); });
  CHECK_THROWS_WITH(layer(x), Contains("forward pre-hook: of 1 inputs it left 0"));
}

TEST_CASE("an error names the part of the model in which it was thrown") {
  Deep deep;
  CHECK_THROWS_WITH(deep(ones({1, 3})),
                    Contains("linear") && Contains("\n  in encoder.inner (Linear)") && !Contains("in encoder (Outer)"));
  CHECK(deep.encoder.inner.path() == "encoder.inner");
  CHECK_THROWS_WITH(nn::Linear(2, 2)(ones({1, 3})), Contains("linear") && !Contains("\n"));
  deep.encoder.register_forward_hook([](nn::Module&, const std::vector<Tensor>&, std::vector<Tensor>&) {});
  CHECK_THROWS_WITH(deep(ones({1, 3})), Contains("\n  in encoder.inner (Linear)"));
}

TEST_CASE("what is in a module is found by its path") {
  Deep deep;
  CHECK(deep.get_parameter("encoder.inner.weight").is_same(deep.encoder.inner.weight));
  CHECK(&deep.get_submodule("encoder.inner") == &deep.encoder.inner);
  CHECK(&deep.get_submodule("") == &deep);
  CHECK(deep.get_submodule("encoder").as_ref<Outer>().inner.weight.is_same(deep.encoder.inner.weight));
  CHECK_THROWS_WITH(deep.get_submodule("encoder").as_ref<nn::Linear>(), "Module::as_ref: encoder is a Outer");
  CHECK_THROWS_WITH(deep.get_parameter("encoder.weight"), "get_parameter: Deep has no parameter 'encoder.weight'");
  CHECK_THROWS_WITH(deep.get_parameter("encoder"), Contains("no parameter 'encoder'"));
  CHECK_THROWS_WITH(deep.get_buffer("x"), Contains("no buffer 'x'"));
  CHECK_THROWS_WITH(deep.get_submodule("encoder.inner.weight"), Contains("no module 'encoder.inner.weight'"));

  std::vector<std::string> visited;
  deep.apply([&](nn::Module& module) { visited.push_back(module.name()); });
  CHECK(visited == std::vector<std::string>{"Linear", "Outer", "Deep"});
  CHECK(deep.modules().size() == 3);
  CHECK(deep.named_parameters(false).empty());

  const StateDict dict = deep.state_dict();
  CHECK(dict["encoder.inner.bias"].numel() == 2);
  CHECK(dict.contains("encoder.inner.bias"));
  CHECK_THROWS_WITH(dict["bias"], "StateDict: there is no 'bias'");
}

TEST_CASE("buffers that do not persist are moved but not saved") {
  struct Cached : nn::Module {
    nn::Buffer table{*this, "table", ones({3}), false};
    nn::Buffer mean{*this, "mean", ones({2})};
  } cached;
  CHECK(cached.buffers().size() == 2);
  CHECK(cached.get_buffer("table").is_same(cached.table));
  CHECK(cached.state_dict().size() == 1);
  cached.load_state_dict(cached.state_dict());
  cached.to(kFloat64);
  CHECK(cached.table.dtype() == kFloat64);
}

TEST_CASE("a module that is moved keeps its parts and its place") {
  const auto make = [] {
    Outer outer;
    outer.eval();
    return std::make_unique<Outer>(std::move(outer));
  };
  const std::unique_ptr<Outer> outer = make();
  CHECK_FALSE(outer->is_training());
  CHECK(outer->children() == std::vector<nn::Module*>{&outer->inner});
  CHECK(outer->inner.path() == "inner");

  struct Stack : nn::Module {
    std::vector<nn::Linear> layers;
  } stack;
  for (int i = 0; i < 5; ++i) stack.layers.emplace_back(stack, "layer" + std::to_string(i), 1, 1);
  for (size_t i = 0; i < 5; ++i) CHECK(stack.children().at(i) == &stack.layers[i]);
  Stack moved = std::move(stack);
  CHECK(moved.parameters().size() == 10);
  CHECK(stack.parameters().empty());
  for (size_t i = 0; i < 5; ++i) CHECK(moved.children().at(i) == &moved.layers[i]);

  int calls = 0;
  nn::Linear layer(1, 1);
  layer.register_forward_pre_hook(
      [&](nn::Module& module, std::vector<Tensor>&) { calls += module.as_ref<nn::Linear>().in_features == 1; });
  nn::Linear target = std::move(layer);
  target(ones({1, 1}));
  CHECK(calls == 1);
}

TEST_CASE("a hook that no call would run is refused") {
  struct Net : nn::Module {
    nn::Linear layer{*this, "layer", 1, 1};
    Tensor forward(const Tensor& x) const { return layer(x); }
  } net;
  const auto refused = Contains("Net is not an nn::Layer");
  CHECK_THROWS_WITH(net.register_forward_pre_hook([](nn::Module&, std::vector<Tensor>&) {}),
                    "register_forward_pre_hook: Net is not an nn::Layer, so no call would run it; write `struct Net : "
                    "nn::Layer<Net>` and call the module, net(x) instead of net.forward(x)");
  CHECK_THROWS_WITH(net.register_forward_hook([](nn::Module&, const std::vector<Tensor>&, std::vector<Tensor>&) {}),
                    refused);
  CHECK_THROWS_WITH(
      net.register_full_backward_hook([](nn::Module&, std::vector<Tensor>&, const std::vector<Tensor>&) {}), refused);
  CHECK_THROWS_WITH(nn::register_parametrization(net.layer, "weight", [](const Tensor& w) { return w[0]; }),
                    Contains("the computed value"));
  nn::ModuleList<nn::Linear> list;
  CHECK_THROWS_AS(list.register_forward_pre_hook([](nn::Module&, std::vector<Tensor>&) {}), Error);

  // A layer around it has calls, and so have the library's own.
  int calls = 0;
  const auto count = [&](nn::Module&, std::vector<Tensor>&) { ++calls; };
  nn::Sequential outer{nn::Linear(1, 1), relu};
  outer.register_forward_pre_hook(count), outer[0].register_forward_pre_hook(count);
  net.layer.register_forward_pre_hook(count);
  outer(ones({1, 1})), net.forward(ones({1, 1}));
  CHECK(calls == 3);
}

TEST_CASE("hooks of a layer keep their own states from call to call") {
  nn::Linear layer(2, 2);
  std::vector<int> seen;
  const auto count = [&seen, calls = 0](auto&&...) mutable { seen.push_back(++calls); };
  layer.register_forward_pre_hook(count);
  layer.register_forward_hook(count);
  layer.register_full_backward_hook(count);
  for (int i = 0; i < 2; ++i) sum(layer(row(1, 2, true))).backward();
  CHECK(seen == std::vector<int>{1, 1, 1, 2, 2, 2});
}
