#include <reel/reel.h>

#include <iostream>

using namespace reel;

struct Net : nn::Layer<Net> {
  nn::Linear hidden{*this, "hidden", 2, 16};
  nn::Linear out{*this, "out", 16, 1};
  Tensor forward(const Tensor& x) const { return out(tanh(hidden(x))); }
};

// An optimizer of one's own: Lion (Chen et al. 2023, Algorithm 2).
struct LionOptions {
  double lr = 1e-4, beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
  optim::OptionFields fields() {
    return {{"lr", &lr}, {"beta1", &beta1, 0, 1}, {"beta2", &beta2, 0, 1}, {"weight_decay", &weight_decay}};
  }
};
class Lion : public optim::OptimizerWith<LionOptions> {
 public:
  using OptimizerWith::OptimizerWith;

 private:
  std::vector<StateName> state_names() const override { return {"exp_avg"}; }
  void update(const LionOptions& o, Tensor& p, const Tensor& grad, State& state) override {
    Tensor& m = state[0];
    p.mul_(1 - o.lr * o.weight_decay).sub_(sign(lerp(grad, m, o.beta1)), o.lr);
    m.lerp_(grad, 1 - o.beta2);
  }
};

// The losses of the first and the last step.
template <class Optimizer>
std::pair<double, double> train(Net& net, Optimizer& optimizer, int steps) {
  const Tensor x = randn({64, 2}), y = x.select(1, 0).unsqueeze(1) * x.select(1, 1).unsqueeze(1);
  double first = 0, last = 0;
  for (int step = 0; step < steps; ++step) {
    const Tensor loss = mse_loss(net(x), y);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  return {first, last};
}

bool learns(const char* name, const std::pair<double, double>& losses) {
  std::cout << name << ": loss " << losses.first << " -> " << losses.second << '\n';
  return losses.second < 0.5 * losses.first;
}

int main() {
  manual_seed(1);
  Net first, second;
  optim::Adam adam(first.parameters(), {.lr = 0.05});
  Lion lion(second.parameters(), {.lr = 0.01});
  bool good = learns("Adam", train(first, adam, 100)) && learns("Lion", train(second, lion, 100));

  optim::StepLR schedule(lion, {.step_size = 1, .gamma = 0.5});
  schedule.step();
  Lion resumed(second.parameters());
  resumed.load_state_dict(lion.state_dict());
  good = good && resumed.lr() == 0.005 && resumed.state_dict().contains("state.0.exp_avg");
  return good ? 0 : 1;
}
