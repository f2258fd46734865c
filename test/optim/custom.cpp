#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "reel/autograd.h"
#include "reel/nn.h"
#include "reel/optim.h"
#include "reel/random.h"

// Optimizers that are not the library's, written by the public headers alone.
using namespace reel;
using Catch::Matchers::Contains;

namespace {

struct LionOptions {
  double lr = 1e-4, beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
  optim::OptionFields fields() {
    return {{"lr", &lr}, {"beta1", &beta1, 0, 1}, {"beta2", &beta2, 0, 1}, {"weight_decay", &weight_decay}};
  }
};

/// Chen et al. 2023, Algorithm 2.
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

struct RuleOptions {
  double lr = 1;
  int64_t period = 2;
  bool centered = false;
  double shift = -1;
  optim::OptionFields fields() {
    return {{"lr", &lr}, {"period", &period, 1, 10}, {"centered", &centered}, {"shift", &shift, -2, 1}};
  }
  void check() const { REEL_CHECK(!centered || period > 1, "Rule: centered needs a period"); }
};

/// Has a state of each kind, takes rows where they are few, and may do what is not allowed.
class Rule : public optim::OptimizerWith<RuleOptions> {
 public:
  using OptimizerWith::OptimizerWith;
  bool assigns = false;
  int dense = 0, sparse = 0;

 private:
  std::vector<StateName> state_names() const override {
    return {"a", {"b", StateName::kOptional}, "c", "d", {"count", StateName::kNumber}};
  }
  void update(const RuleOptions& o, Tensor& p, const Tensor& grad, State& state) override {
    if (assigns) p = p - grad;
    if (o.centered) state.start(1, p).add_(1);
    state[0].add_(grad), state[3].add_(2);
    state.number += 2;
    ++dense;
  }
  bool update_rows(const RuleOptions&, Tensor& p, const SparseGrad& grad, State&) override {
    if (grad.ids.numel() > 2) return false;
    p.index_fill_(0, grad.ids, 7);
    return ++sparse > 0;
  }
};

Tensor parameter(const std::vector<double>& values) {
  return tensor(values, {.dtype = kFloat64, .requires_grad = true});
}

}  // namespace

TEST_CASE("an optimizer of one's own does what its formula says") {
  Tensor p = parameter({0.5, -2, 3});
  Lion lion({p}, {.lr = 0.1, .beta1 = 0.8, .beta2 = 0.9, .weight_decay = 0.5});
  std::vector<double> x = p.to_vector<double>(), m(3, 0);
  for (int t = 0; t < 6; ++t) {
    lion.zero_grad();
    sum(square(p - 1) * (t % 2 ? 1 : -3)).backward();
    lion.step();
    for (size_t i = 0; i < x.size(); ++i) {
      const double g = 2 * (x[i] - 1) * (t % 2 ? 1 : -3), c = 0.8 * m[i] + (1 - 0.8) * g;
      m[i] = 0.9 * m[i] + (1 - 0.9) * g;
      x[i] -= 0.1 * ((c > 0) - (c < 0) + 0.5 * x[i]);
      CHECK(p.to_vector<double>()[i] == Approx(x[i]).epsilon(1e-12));
    }
  }
  CHECK(lion.state_dict()["state.0.exp_avg"][1].item<double>() == Approx(m[1]).epsilon(1e-12));
}

TEST_CASE("an optimizer of one's own has groups, schedules and a state that is saved") {
  manual_seed(3);
  nn::Sequential net{nn::Linear(2, 8), reel::tanh, nn::Linear(8, 2)};
  const Tensor x = tensor({{0., 0.}, {0., 1.}, {1., 0.}, {1., 1.}}), y = tensor({0, 1, 1, 0});
  Lion lion(net[0].parameters(), {.lr = 0.02});
  lion.add_param_group(net[2].parameters(), {.lr = 0.01});
  optim::ExponentialLR schedule(lion, 0.99);
  const auto train = [&](auto& optimizer, int steps) {
    double loss = 0;
    for (int step = 0; step < steps; ++step) {
      const Tensor l = nn::cross_entropy(net(x), y);
      optimizer.zero_grad();
      l.backward();
      optimizer.step();
      loss = l.template item<double>();
    }
    return loss;
  };
  CHECK(train(lion, 300) < 0.1);
  schedule.step();
  CHECK(lion.lr(1) == Approx(0.0099));
  CHECK(lion.momentum() == 0.9);
  lion.set_momentum(1, 0.5);
  CHECK(lion.options(1).beta1 == 0.5);

  StateDict saved, weights;
  for (const auto& [name, tensor] : lion.state_dict()) saved.emplace_back(name, tensor.clone());
  for (const auto& [name, tensor] : net.state_dict()) weights.emplace_back(name, tensor.clone());
  const double loss = train(lion, 3);
  net.load_state_dict(weights);
  Lion resumed(net[0].parameters());
  resumed.add_param_group(net[2].parameters(), {});
  resumed.load_state_dict(saved);
  CHECK(resumed.lr(0) == lion.lr(0));
  CHECK(resumed.options(1).beta1 == 0.5);
  CHECK(train(resumed, 3) == loss);

  CHECK_THROWS_WITH(Lion(net.parameters(), {.beta2 = 1}), Contains("beta2 = 1"));
  saved[0].second = full({}, -1., {.dtype = kFloat64});
  CHECK_THROWS_WITH(resumed.load_state_dict(saved), Contains("param_groups.0: Optimizer: lr = -1"));
}

TEST_CASE("an optimizer of one's own may have any number and kind of states and options") {
  Tensor p = parameter({1, 2});
  const auto give = [&] { p.set_grad(ones({2}, {.dtype = kFloat64})); };
  give();
  Rule rule({p}, {.period = 3, .centered = true});
  rule.step();
  const StateDict dict = rule.state_dict();
  CHECK(dict["param_groups.0.period"].item<int>() == 3);
  CHECK(dict["param_groups.0.centered"].item<bool>());
  CHECK(dict["state.0.count"].item<double>() == 3);
  CHECK(dict["state.0.b"][0].item<double>() == 1);
  CHECK(dict["state.0.c"][0].item<double>() == 0);
  CHECK(dict["state.0.d"][1].item<double>() == 2);
  Rule other({parameter({0, 0})});
  other.load_state_dict(dict);
  CHECK(other.options().period == 3);
  CHECK(other.options().centered);
  CHECK(other.state_dict()["state.0.count"].item<double>() == 3);
  CHECK_FALSE(Rule({parameter({1})}).state_dict().contains("state.0.a"));

  CHECK_THROWS_WITH(Rule({p}, {.period = 0}), Contains("period = 0"));
  CHECK_THROWS_WITH(Rule({p}, {.shift = -3}), Contains("shift = -3"));
  CHECK_THROWS_WITH(Rule({p}, {.period = 1, .centered = true}), Contains("Rule: centered needs a period"));
  CHECK_THROWS_WITH(rule.momentum(), Contains("no momentum"));

  nn::Embedding table(6, 1, {.sparse = true});
  Rule rows(table.parameters());
  sum(table(tensor({1, 4}))).backward();
  rows.step();
  CHECK(table.weight[4].item<double>() == 7);
  rows.zero_grad();
  sum(table(tensor({1, 3, 4}))).backward();
  rows.step();
  CHECK(rows.sparse == 1);
  CHECK(rows.dense == 1);

  rule.assigns = true;
  CHECK_THROWS_WITH(rule.step(), Contains("update() has assigned to the handle of the parameter of shape [2]"));
}
