// A two-layer network learns random numbers by heart.
#include <reel/reel.h>

#include <iostream>

using namespace reel;

struct Net : nn::Layer<Net> {  // a plain struct: layers register themselves where they are declared
  nn::Linear hidden{*this, "hidden", 1000, 100};
  nn::Linear out{*this, "out", 100, 10};
  Tensor forward(const Tensor& x) const { return out(relu(hidden(x))); }
};

int main() {
  manual_seed(1);
  const Tensor x = randn({64, 1000}), y = randn({64, 10});

  Net net;
  optim::Adam adam(net.parameters(), {.lr = 1e-3});
  for (int step = 0; step <= 100; ++step) {
    const Tensor loss = mse_loss(net(x), y);  // recorded as it runs: any C++ may stand here
    if (step % 10 == 0) std::cout << "step " << step << "  loss " << loss.item<float>() << '\n';
    adam.zero_grad();
    loss.backward();
    adam.step();
  }
}
