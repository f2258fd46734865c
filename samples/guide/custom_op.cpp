#include <reel/testing.h>

#include <cmath>

#include "samples/guide/guide.h"

namespace guide_custom_op {
using namespace reel;

// [composed]
Tensor swish(const Tensor& x, double beta) { return x * sigmoid(beta * x); }  // its gradient is that of its parts
// [/composed]

// [short]
Tensor cube(const Tensor& x) {
  return custom_op("cube", no_grad([&] { return x * x * x; }), {x},
                   [x](const Tensor& grad) { return std::vector{grad * 3 * x * x}; });
}
// [/short]

// [long]
struct SoftSign : Function<SoftSign> {
  static constexpr const char* name = "soft_sign";
  static std::vector<Tensor> forward(FunctionContext& ctx, const std::vector<Tensor>& inputs) {
    const Tensor& x = inputs[0];
    ctx.save_for_backward({x});
    return {x / (1 + abs(x))};
  }
  static std::vector<Tensor> backward(FunctionContext& ctx, const std::vector<Tensor>& grads) {
    const Tensor scale = 1 + abs(ctx.saved()[0]);
    return {grads[0] / (scale * scale)};
  }
};
Tensor soft_sign(const Tensor& x) { return SoftSign::apply({x})[0]; }
// [/long]

// [raw]
Tensor clipped_exp(const Tensor& x) {
  REEL_CHECK(x.dtype() == kFloat32 && x.device() == kCPU, "clipped_exp: expected float32 on the CPU, got ", x.dtype());
  const Tensor in = x.detach().contiguous(), y = empty(x.shape());
  const float* from = in.data<float>();
  float* to = y.data<float>();
  for (int64_t i = 0; i < in.numel(); ++i) to[i] = std::min(std::exp(from[i]), 10.0f);
  return custom_op("clipped_exp", y, {x},
                   [x](const Tensor& grad) { return std::vector{grad * where(exp(x) < 10, exp(x), 0)}; });
}
// [/raw]

void run() {
  // [check]
  Tensor x = randn({2, 3}, {.dtype = kFloat64}).requires_grad_();
  testing::gradcheck([](const std::vector<Tensor>& in) { return cube(in[0]); }, {x});
  testing::gradgradcheck([](const std::vector<Tensor>& in) { return soft_sign(in[0]); }, {x});
  // [/check]
  testing::gradcheck([](const std::vector<Tensor>& in) { return swish(in[0], 2); }, {x});
  const Tensor a = tensor({0.5, 5.0}).requires_grad_();
  const Tensor y = clipped_exp(a);
  sum(y).backward();
  testing::assert_close(a.grad(), tensor({std::exp(0.5), 0.0}));
}

}  // namespace guide_custom_op

void custom_ops() { guide_custom_op::run(); }
