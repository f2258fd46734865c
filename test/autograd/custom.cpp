// Ops of the user's own: custom_op and Function.
#include "reel/reel.h"
#include "reel/testing.h"
#include "test/support/pch.h"

using namespace reel;

namespace {

Tensor cube(const Tensor& x) {
  return custom_op("cube", no_grad([&] { return x * x * x; }), {x},
                   [x](const Tensor& g) { return std::vector{g * 3 * x * x}; });
}

struct SumAndDifference : Function<SumAndDifference> {
  static constexpr const char* name = "sum_and_difference";
  static std::vector<Tensor> forward(FunctionContext& ctx, const std::vector<Tensor>& in) {
    ctx.state<int>() = 42;
    return {in[0] + in[1], in[0] - in[1]};
  }
  static std::vector<Tensor> backward(FunctionContext& ctx, const std::vector<Tensor>& g) {
    REEL_CHECK(ctx.state<int>() == 42, "state was lost");
    return {ctx.needs_input_grad(0) ? g[0] + g[1] : Tensor(), ctx.needs_input_grad(1) ? g[0] - g[1] : Tensor()};
  }
};

struct Exponential : Function<Exponential> {
  static constexpr const char* name = "exponential";
  static std::vector<Tensor> forward(FunctionContext& ctx, const std::vector<Tensor>& in) {
    const Tensor y = exp(in[0]);
    ctx.save_for_backward({y});
    return {y};
  }
  static std::vector<Tensor> backward(FunctionContext& ctx, const std::vector<Tensor>& g) {
    return {g[0] * ctx.saved()[0]};
  }
};

}  // namespace

TEST_CASE("a custom op of one lambda is differentiable twice", "[custom]") {
  const Tensor x = tensor({2.0, -3.0}).to(kFloat64).requires_grad_();
  const Tensor first = grad({sum(cube(x))}, {x}, {}, {.create_graph = true})[0];
  CHECK(first.to_vector<double>() == std::vector<double>{12, 27});
  CHECK(grad({sum(first)}, {x})[0].to_vector<double>() == std::vector<double>{12, -18});
  CHECK_NOTHROW(testing::gradcheck([](const std::vector<Tensor>& in) { return cube(in[0]); }, {x}));
}

TEST_CASE("the engine sums, casts and checks what a custom rule returns", "[custom]") {
  const Tensor x = ones({3}).requires_grad_();
  auto returning = [&](const Tensor& g) {
    return sum(custom_op("made_up", x.detach(), {x}, [g](const Tensor&) { return std::vector{g}; }));
  };
  returning(ones({2, 3}, {.dtype = kFloat64})).backward();
  CHECK(x.grad().dtype() == kFloat32);
  CHECK(x.grad().to_vector<float>() == std::vector<float>{2, 2, 2});
  CHECK_THROWS_WITH(returning(ones({4})).backward(),
                    "made_up: its rule returned a gradient of shape [4] for input 0 of shape [3]");
  const Tensor two = custom_op("two", x.detach(), {x}, [](const Tensor& g) { return std::vector{g, g}; });
  CHECK_THROWS_WITH(sum(two).backward(), "two: its rule returned 2 gradients for 1 inputs");
}

TEST_CASE("a Function has several outputs and keeps state", "[custom]") {
  const Tensor a = tensor({1.0}).requires_grad_(), b = tensor({5.0}).requires_grad_();
  std::vector<Tensor> out = SumAndDifference::apply({a, b});
  CHECK(out[0].item<float>() == 6);
  (out[0] * 2 + out[1] * 3).backward();
  CHECK(a.grad().item<float>() == 5);
  CHECK(b.grad().item<float>() == -1);
  out = SumAndDifference::apply({a.detach(), b});
  out[1].backward();  // no gradient for the other output: zeros
  CHECK(b.grad().item<float>() == -2);
  CHECK(!no_grad([&] { return SumAndDifference::apply({a, b}); })[0].requires_grad());
}

TEST_CASE("a Function that saves its output is no cycle and differentiable twice", "[custom]") {
  const int64_t before = live_nodes();
  {
    const Tensor x = tensor({0.5}).to(kFloat64).requires_grad_();
    const Tensor y = Exponential::apply({x})[0];
    const Tensor g = grad({y}, {x}, {}, {.create_graph = true})[0];
    CHECK(g.item<double>() == Approx(std::exp(0.5)));
    CHECK(grad({g}, {x})[0].item<double>() == Approx(std::exp(0.5)));
    Exponential::apply({x});
  }
  CHECK(live_nodes() == before);
}

namespace {

// A number that is no tensor is an argument of apply, and a state for backward.
struct Scaled : Function<Scaled> {
  static constexpr const char* name = "scaled";
  static std::vector<Tensor> forward(FunctionContext& ctx, const std::vector<Tensor>& in, double factor,
                                     const std::string& label) {
    ctx.state<double>() = factor;
    CHECK(label == "by");
    return {in[0] * factor};
  }
  static std::vector<Tensor> backward(FunctionContext& ctx, const std::vector<Tensor>& g) {
    return {g[0] * ctx.state<double>()};
  }
};

// Saves its output, which lies behind something else in its storage: second of two rows.
struct SecondRow : Function<SecondRow> {
  static constexpr const char* name = "second_row";
  static std::vector<Tensor> forward(FunctionContext& ctx, const std::vector<Tensor>& in) {
    const Tensor y = stack({in[0], exp(in[0])})[1];
    ctx.save_for_backward({y});
    return {y};
  }
  static std::vector<Tensor> backward(FunctionContext& ctx, const std::vector<Tensor>& g) {
    return {g[0] * ctx.saved()[0]};
  }
};

// Saves its output, which is not contiguous and, as a part of a larger matrix, has gaps.
struct Transposed : Function<Transposed> {
  static constexpr const char* name = "transposed";
  static std::vector<Tensor> forward(FunctionContext& ctx, const std::vector<Tensor>& in) {
    const Tensor y = cat({in[0], exp(in[0])}, 1).narrow(1, in[0].size(1), in[0].size(1)).t();
    ctx.save_for_backward({y});
    return {y};
  }
  static std::vector<Tensor> backward(FunctionContext& ctx, const std::vector<Tensor>& g) {
    return {(g[0] * ctx.saved()[0]).t()};
  }
};

// The input itself, or a view of it, with the opposite gradient.
struct Reversed : Function<Reversed> {
  static constexpr const char* name = "reversed";
  static std::vector<Tensor> forward(FunctionContext&, const std::vector<Tensor>& in) {
    return {in[0], in[0].narrow(0, 1, 1)};
  }
  static std::vector<Tensor> backward(FunctionContext&, const std::vector<Tensor>& g) {
    return {-g[0] - cat({zeros({1}), g[1]})};
  }
};

struct Halves : Function<Halves> {
  static constexpr const char* name = "halves";
  static std::vector<Tensor> forward(FunctionContext&, const std::vector<Tensor>& in) {
    const Tensor both = in[0] * 2;
    return {both.narrow(0, 0, 2), both.narrow(0, 1, 2)};  // they overlap
  }
  static std::vector<Tensor> backward(FunctionContext&, const std::vector<Tensor>& g) {
    return {(cat({g[0], zeros({1})}) + cat({zeros({1}), g[1]})) * 2};
  }
};

const auto kAliasMessage = Catch::Contains("shares memory with an input of the custom op, checkpoint or backward hook");

}  // namespace

TEST_CASE("arguments of a Function behind its inputs reach forward", "[autograd]") {
  const Tensor x = tensor({1., 2.}).requires_grad_();
  const Tensor y = Scaled::apply({x}, 0.5, "by")[0] + Scaled::apply({x}, 4, "by")[0];
  CHECK(y.to_vector<double>() == std::vector<double>{4.5, 9});
  CHECK(grad({sum(y)}, {x})[0].to_vector<double>() == std::vector<double>{4.5, 4.5});
}

TEMPLATE_TEST_CASE("a Function may save an output that is a view", "[custom]", SecondRow, Transposed) {
  const int64_t before = live_nodes();
  {
    const Tensor x = tensor({{0.5, 1.0, -1.0}, {2.0, 0.0, 0.25}}).to(kFloat64).requires_grad_();
    const auto call = [](const std::vector<Tensor>& in) { return TestType::apply({in[0]})[0]; };
    testing::assert_close(grad({sum(call({x}))}, {x})[0], exp(x.detach()));
    CHECK_NOTHROW(testing::gradcheck(call, {x}));
    const Tensor first = grad({sum(call({x}))}, {x}, {}, {.create_graph = true})[0];
    testing::assert_close(grad({sum(first)}, {x})[0], exp(x.detach()));
    call({x});
  }
  CHECK(live_nodes() == before);
}

TEST_CASE("an output that shares memory with an input is not changed in place while recording", "[custom]") {
  const Tensor x = tensor({1.0, 2.0}).requires_grad_();
  const std::vector<std::pair<std::string, std::function<Tensor(const Tensor&)>>> aliasing{
      {"the input of a Function", [](const Tensor& h) { return Reversed::apply({h})[0]; }},
      {"a view of it", [](const Tensor& h) { return Reversed::apply({h})[1]; }},
      {"custom_op",
       [](const Tensor& h) { return custom_op("same", h, {h}, [](const Tensor& g) { return std::vector{-g}; }); }},
      {"checkpoint",
       [](const Tensor& h) { return checkpoint([](const std::vector<Tensor>& in) { return in; }, {h})[0]; }},
      {"a view from checkpoint",
       [](const Tensor& h) {
         return checkpoint([](const std::vector<Tensor>& in) { return std::vector{in[0][1]}; }, {h})[0];
       }},
      {"a view of an output",
       [](const Tensor& h) {
         return Reversed::apply({h})[0].view({2, 1});
       }},
  };
  for (const auto& [name, call] : aliasing) {
    INFO(name);
    Tensor h = x * 3, y = call(h);
    CHECK_THROWS_WITH(y.mul_(10), Catch::StartsWith("mul_: ") && kAliasMessage);
    CHECK_THROWS_WITH(y.fill_(0), Catch::StartsWith("fill_: ") && kAliasMessage);
    CHECK_THROWS_WITH(y.unsqueeze(0).copy_(ones({1})), Catch::StartsWith("copy_: ") && kAliasMessage);
    CHECK(h.to_vector<float>() == std::vector<float>{3, 6});
    Tensor(x).set_grad({});
    (sum(h) + sum(square(h))).backward();
    CHECK(x.grad().to_vector<float>() == std::vector<float>{21, 39});
    h = x * 3, y = call(h);
    Tensor z = y.clone();
    sum(z.mul_(10)).backward();  // of a clone

    h = x * 3, y = call(h);
    no_grad([&, y = y]() mutable { y.mul_(10); });
    CHECK(h.to_vector<float>()[1] == 60);

    h = x * 3, y = call(h);
    h.mul_(10);
    const int64_t nodes = live_nodes();
    CHECK_THROWS_WITH(y * 2, kAliasMessage && Catch::Contains("in-place change of that input"));
    CHECK_THROWS_WITH(x.narrow(0, 0, 1) * y, kAliasMessage);
    CHECK_THROWS_WITH(x.narrow(0, 0, 1) + y, kAliasMessage);
    CHECK(live_nodes() == nodes);
    Tensor(x).set_grad({});
    sum(h).backward();
    CHECK(x.grad().to_vector<float>() == std::vector<float>{30, 30});
  }
  std::vector<Tensor> halves = Halves::apply({cat({x, x}).narrow(0, 0, 3)});
  CHECK_THROWS_WITH(halves[0].mul_(10), kAliasMessage);
}

TEST_CASE("an output with memory of its own may be changed in place", "[custom]") {
  const Tensor x = tensor({1.0, 2.0}).requires_grad_();
  Tensor a =
      custom_op("twice", no_grad([&] { return x * 2; }), {x}, [](const Tensor& g) { return std::vector{g * 2}; });
  Tensor b = SumAndDifference::apply({x, x.detach()})[0];
  Tensor c = checkpoint([](const std::vector<Tensor>& in) { return std::vector{exp(in[0]).view({2, 1})}; }, {x})[0];
  const std::vector<Tensor> two = checkpoint(
      [](const std::vector<Tensor>& in) {
        const Tensor first = in[0] * 1, second = first * first;
        return std::vector{first.view({2, 1}), second.view({2, 1})};
      },
      {x.detach().requires_grad_()});
  for (Tensor y : two) CHECK_NOTHROW(y.mul_(2));
  a.mul_(3), b.mul_(5), c.mul_(7);
  (sum(a) + sum(b) + sum(c)).backward();
  for (int i = 0; i < 2; ++i) CHECK(x.grad().to_vector<float>()[i] == Approx(6 + 5 + 7 * std::exp(i + 1.0)));
}

TEST_CASE("a checkpointed function that changes its input in place is refused", "[custom]") {
  const int64_t before = live_nodes();
  {
    const Tensor x = tensor({1.0, 2.0}).requires_grad_(), h = x * 2;
    const auto scale = [](const std::vector<Tensor>& in) {
      Tensor z = in[0];
      return std::vector{z.mul_(3) * 1};
    };
    CHECK_THROWS_WITH(checkpoint(scale, {h}), Catch::Contains("checkpoint: the function changes its input 0 in place"));
    sum(h).backward();
    CHECK(x.grad().to_vector<float>() == std::vector<float>{6, 6});
  }
  CHECK(live_nodes() == before);
}
