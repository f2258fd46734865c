// The code of autograd.md.
#include "samples/guide/guide.h"

namespace guide_autograd {
using namespace reel;

void run() {
  nn::Linear layer(3, 3);
  // [leaf]
  Tensor x = tensor({1.0, 2.0, 3.0}).requires_grad_();
  Tensor loss = sum(x * x * x);
  loss.backward();  // adds to x.grad(), and frees the graph
  x.grad();         // 3 x²
  // [/leaf]
  REEL_CHECK(allclose(x.grad(), tensor({3.0, 12.0, 27.0})), "leaf");

  // [higher]
  Tensor y = sum(x * x * x);
  Tensor slope = grad({y}, {x}, {}, {.create_graph = true})[0];  // 3 x², which can be differentiated again
  Tensor curvature = grad({sum(slope)}, {x})[0];                 // 6 x
  // [/higher]
  REEL_CHECK(allclose(curvature, 6 * x.detach()), "higher");

  // [checkpoint]
  auto block = [&](const std::vector<Tensor>& in) { return std::vector{tanh(layer(in[0]))}; };
  std::vector<Tensor> out = checkpoint(block, {x});  // recomputed in backward() instead of kept
  // [/checkpoint]
  sum(out[0]).backward();
  REEL_CHECK(x.grad().defined() && layer.weight.grad().defined(), "checkpoint");
}

}  // namespace guide_autograd

void gradients() { guide_autograd::run(); }
