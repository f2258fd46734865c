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

}  // namespace

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
