#include <reel/reel.h>

#include <iostream>

using namespace reel;

struct Net : nn::Module {
  nn::Linear hidden{*this, "hidden", 2, 16};
  nn::Linear out{*this, "out", 16, 1};
  Tensor forward(const Tensor& x) const { return out(tanh(hidden(x))); }
};

int main() {
  manual_seed(1);
  Net net;
  optim::Adam adam(net.parameters(), {.lr = 0.05});
  const Tensor x = randn({64, 2}), y = x.select(1, 0).unsqueeze(1) * x.select(1, 1).unsqueeze(1);
  double first = 0, last = 0;
  for (int step = 0; step < 100; ++step) {
    const Tensor loss = mse_loss(net.forward(x), y);
    adam.zero_grad();
    loss.backward();
    adam.step();
    (step == 0 ? first : last) = loss.item<double>();
  }
  std::cout << "loss " << first << " -> " << last << '\n';
  return last < 0.5 * first ? 0 : 1;
}
