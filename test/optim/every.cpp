#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "reel/autograd.h"
#include "reel/nn.h"
#include "reel/optim.h"
#include "reel/random.h"
#include "reel/reel.h"

// What holds for every optimizer, and for the averages of parameters.
namespace reel {
namespace {

using Tensors = std::vector<Tensor>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Maker {
  const char* name;
  std::function<std::unique_ptr<optim::Optimizer>(Tensors, bool maximize)> make;
  bool takes_rows, takes_dense = true;
};

template <class Optimizer, class Options>
Maker maker(const char* name, Options options, bool takes_rows = false) {
  return {name,
          [options](Tensors parameters, bool maximize) {
            Options own = options;
            own.maximize = maximize;
            return std::make_unique<Optimizer>(std::move(parameters), own);
          },
          takes_rows, !std::is_same_v<Optimizer, optim::SparseAdam>};
}

std::vector<Maker> makers(double decay) {
  using namespace optim;
  return {
      maker<SGD>("SGD", SGDOptions{.lr = 0.1, .weight_decay = decay}, true),
      maker<SGD>("SGD with momentum", SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = decay}, true),
      maker<SGD>("SGD with Nesterov momentum",
                 SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = decay, .nesterov = true}),
      maker<Adagrad>("Adagrad", AdagradOptions{.lr = 0.1, .weight_decay = decay}, true),
      maker<Adam>("Adam", AdamOptions{.lr = 0.1, .weight_decay = decay}, true),
      maker<Adam>("Adam with amsgrad", AdamOptions{.lr = 0.1, .weight_decay = decay, .amsgrad = true}, true),
      maker<AdamW>("AdamW", AdamWOptions{.lr = 0.1, .weight_decay = decay}, true),
      maker<SparseAdam>("SparseAdam", SparseAdamOptions{.lr = 0.1}, true),
      maker<Adamax>("Adamax", AdamaxOptions{.lr = 0.1, .weight_decay = decay}),
      maker<NAdam>("NAdam", NAdamOptions{.lr = 0.1, .weight_decay = decay}),
      maker<RAdam>("RAdam", RAdamOptions{.lr = 0.1, .weight_decay = decay}),
      maker<RMSprop>("RMSprop", RMSpropOptions{.weight_decay = decay}),
      maker<RMSprop>("centered RMSprop", RMSpropOptions{.weight_decay = decay, .momentum = 0.9, .centered = true}),
      maker<Adadelta>("Adadelta", AdadeltaOptions{.weight_decay = decay}),
  };
}

StateDict converted(const StateDict& dict, DType dtype) {
  StateDict result;
  for (const auto& [name, tensor] : dict)
    result.emplace_back(name, tensor.dim() > 0 && tensor.is_floating_point() ? tensor.to(dtype) : tensor.clone());
  return result;
}

/// A table whose rows are looked up, so that its gradients are rows or dense.
struct Table : nn::Module {
  explicit Table(bool rows) : table(*this, "table", 6, 5, {.sparse = rows}) {}
  void set_grads(int step) {
    const Tensor ids = tensor({1, 4, step % 3, 4}).to(table.weight.device());
    zero_grad();
    sum(square(table(ids) + (step - 1))).backward();
  }
  nn::Embedding table;
};

}  // namespace

// ---- parameters whose dtype or device changes -----------------------------------------------------------------------

TEST_CASE("an optimizer's states follow parameters whose dtype or device changes between steps", "[optim]") {
  struct Change {
    DType from, to;
  };
  const Change changes[] = {{kFloat32, kFloat64}, {kFloat64, kFloat32}, {kFloat32, kFloat16}, {kBFloat16, kFloat64}};
  for (const Maker& maker : makers(0.01))
    for (const bool rows : {false, true})
      for (const auto [from, to] : changes) {
        if (rows ? !maker.takes_rows : !maker.takes_dense) continue;
        INFO(maker.name << (rows ? " of rows, " : ", ") << from << " to " << to);
        Table net(rows), other(rows);
        net.to(from), net.to(kCPU);
        const auto optimizer = maker.make(net.parameters(), false);
        for (int step = 0; step < 3; ++step) net.set_grads(step), optimizer->step();
        // What goes on from the same numbers, of the new dtype from the start.
        net.to(to), net.to(default_device());
        other.to(to), other.load_state_dict(net.state_dict());
        const auto expected = maker.make(other.parameters(), false);
        expected->load_state_dict(converted(optimizer->state_dict(), is_half(to) ? kFloat32 : to));
        for (int step = 3; step < 6; ++step) {
          net.set_grads(step), optimizer->step();
          other.set_grads(step), expected->step();
        }
        CHECK(equal(net.table.weight, other.table.weight));
        const StateDict states = optimizer->state_dict(), expected_states = expected->state_dict();
        REQUIRE(states.size() == expected_states.size());
        for (size_t i = 0; i < states.size(); ++i) {
          INFO(states[i].first);
          CHECK(states[i].second.dtype() == expected_states[i].second.dtype());
          CHECK(equal(states[i].second, expected_states[i].second));
        }
      }
}

TEST_CASE("an optimizer loads states after its parameters' dtype has changed", "[optim]") {
  nn::Linear net(8, 8);
  optim::Adam adam(net.parameters());
  const auto step = [&] {
    adam.zero_grad();
    sum(square(net(ones({1, 8}, {.dtype = net.weight.dtype()})))).backward();
    adam.step();
  };
  step();
  net.to(kFloat64);
  adam.load_state_dict(adam.state_dict());
  CHECK(adam.state_dict()["state.0.exp_avg"].dtype() == kFloat64);
  step();
  CHECK(all(isfinite(net.weight)).item<bool>());
}

TEST_CASE("L-BFGS goes on when its parameters' dtype changes between steps", "[optim]") {
  manual_seed(3);
  const Tensor x = randn({20, 3}, {.dtype = kFloat64}), y = sin(x * 2);
  const auto closure = [&](nn::Linear& net, optim::LBFGS& lbfgs) {
    return [&] {
      lbfgs.zero_grad();
      const Tensor loss = mse_loss(net(x.to(net.weight.dtype())), y.to(net.weight.dtype()));
      loss.backward();
      return loss;
    };
  };
  nn::Linear net(3, 3), other(3, 3);
  optim::LBFGS lbfgs(net.parameters(), {.max_iter = 3, .strong_wolfe = true});
  lbfgs.step(closure(net, lbfgs));
  net.to(kFloat64), other.to(kFloat64), other.load_state_dict(net.state_dict());
  optim::LBFGS expected(other.parameters(), {.max_iter = 3, .strong_wolfe = true});
  expected.load_state_dict(converted(lbfgs.state_dict(), kFloat64));
  for (int i = 0; i < 2; ++i) lbfgs.step(closure(net, lbfgs)), expected.step(closure(other, expected));
  CHECK(equal(net.weight, other.weight));
  CHECK(lbfgs.state_dict()["state.0.y"].dtype() == kFloat64);
}

TEST_CASE("averages follow parameters whose dtype or device changes", "[optim]") {
  const double fine = 1 + 1e-12;  // which float32 does not have
  nn::Linear net(1, 1, {.bias = false});
  net.to(kCPU);
  optim::ExponentialMovingAverage ema(net.parameters(), 0.75);
  optim::StochasticWeightAverage swa(net.parameters());
  no_grad([&] { net.weight.fill_(2); });
  ema.update(), swa.update();
  net.to(kFloat64), net.to(default_device());
  no_grad([&] { net.weight.fill_(fine); });
  SECTION("and are updated") {
    ema.update(), swa.update();
    CHECK(ema.averages()[0].item<double>() == 2 + 0.25 * (fine - 2));
    CHECK(swa.averages()[0].item<double>() == 2 + 0.5 * (fine - 2));
    CHECK(swa.averages()[0].dtype() == kFloat64);
    CHECK(swa.averages()[0].device() == net.weight.device());
  }
  SECTION("and are tried on") {
    {
      const auto applied = swa.apply();
      CHECK(net.weight.item<double>() == 2);
    }
    CHECK(net.weight.item<double>() == fine);
  }
  SECTION("and are loaded") {
    StateDict dict = converted(swa.state_dict(), kFloat64);
    dict[1].second.fill_(fine);
    swa.load_state_dict(dict);
    CHECK(swa.averages()[0].item<double>() == fine);
  }
}

TEST_CASE("GradScaler goes on when the parameters' dtype changes between steps", "[optim][amp]") {
  nn::Linear net(2, 2), plain(2, 2);
  plain.load_state_dict(net.state_dict());
  optim::Adam scaled(net.parameters()), adam(plain.parameters());
  amp::GradScaler scaler({.init_scale = 1024});
  for (const DType dtype : {kFloat32, kFloat64, kFloat32}) {
    net.to(dtype), plain.to(dtype);
    scaled.zero_grad(), adam.zero_grad();
    const Tensor x = ones({1, 2}, {.dtype = dtype});
    scaler.scale(sum(square(net(x)))).backward();
    sum(square(plain(x))).backward();
    CHECK(scaler.step(scaled));
    scaler.update();
    adam.step();
    CHECK(equal(net.weight, plain.weight));
  }
}

// ---- infinite parameters --------------------------------------------------------------------------------------------

TEST_CASE("infinite parameters stay infinite where there is no weight decay", "[optim]") {
  for (const Maker& maker : makers(0))
    for (const bool rows : {false, true})
      for (const DType dtype : {kFloat64, kFloat32, kFloat16}) {
        if (rows ? !maker.takes_rows : !maker.takes_dense) continue;
        INFO(maker.name << (rows ? " of rows, " : ", ") << dtype);
        const Tensor start = tensor({{-kInfinity, 1., 2.}, {kInfinity, 3., -1.}}).to(dtype);
        Tensor p = start.clone().requires_grad_(), finite = where(isinf(start), 0, start).requires_grad_();
        const auto optimizer = maker.make({p}, false), expected = maker.make({finite}, false);
        const Tensor ids = tensor({0, 1});
        const Tensor pull = tensor({{0., 0.5, -0.5}, {0., 0.25, 1.}}).to(dtype);  // none on what is infinite
        for (int step = 0; step < 3; ++step)
          for (const auto& [parameter, own] : {std::pair{p, &optimizer}, std::pair{finite, &expected}}) {
            (*own)->zero_grad();
            (rows ? embedding(parameter, ids, true) : parameter * 1).backward(pull);
            (*own)->step();
          }
        CHECK(p[0][0].item<double>() == -kInfinity);
        CHECK(p[1][0].item<double>() == kInfinity);
        CHECK(equal(p.narrow(1, 1, 2), finite.narrow(1, 1, 2)));
      }
}

TEST_CASE("averages of infinite parameters are infinite", "[optim]") {
  const Tensor p = tensor({-kInfinity, kInfinity, 1.}).requires_grad_();
  optim::ExponentialMovingAverage ema({p}, 0.5);
  optim::StochasticWeightAverage swa({p});
  const auto check = [&](const std::vector<double>& expected) {
    ema.update(), swa.update();
    CHECK(ema.averages()[0].to_vector<double>() == expected);
    CHECK(swa.averages()[0].to_vector<double>() == expected);
  };
  for (int i = 0; i < 3; ++i) check({-kInfinity, kInfinity, 1});
  no_grad([&] { Tensor(p).fill_(1); });
  check({-kInfinity, kInfinity, 1});  // part of it is infinite for ever
  no_grad([&] { Tensor(p).fill_(kInfinity); });
  ema.update();
  CHECK(std::isnan(ema.averages()[0][0].item<double>()));
  CHECK(ema.averages()[0][2].item<double>() == kInfinity);
}

TEST_CASE("a CRF with forbidden transitions trains under Adam", "[optim][nn]") {
  manual_seed(1);
  nn::CRF crf(3);
  no_grad([&] { crf.transitions[0][2].fill_(-kInfinity); });
  const Tensor emissions = randn({4, 3}), tags = tensor({0, 1, 2, 1});
  optim::Adam adam(crf.parameters(), {.lr = 0.1});
  double first = 0, last = 0;
  for (int step = 0; step < 20; ++step) {
    adam.zero_grad();
    const Tensor loss = -crf(emissions, tags);
    loss.backward();
    adam.step();
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  CHECK(last < 0.5 * first);
  CHECK(crf.transitions[0][2].item<double>() == -kInfinity);
  CHECK(sum(isnan(crf.transitions)).item<int>() == 0);
}

// ---- maximize -------------------------------------------------------------------------------------------------------

TEST_CASE("to maximize is to minimize the negative", "[optim]") {
  for (const Maker& maker : makers(0.01))
    for (const bool rows : {false, true}) {
      if (rows ? !maker.takes_rows : !maker.takes_dense) continue;
      INFO(maker.name << (rows ? " of rows" : ""));
      manual_seed(6);
      const Tensor start = randn({4, 3});
      Tensor up = start.clone().requires_grad_(), down = start.clone().requires_grad_();
      const auto rises = maker.make({up}, true), falls = maker.make({down}, false);
      for (int step = 0; step < 4; ++step) {
        const Tensor ids = tensor({0, 2, step % 4}), pull = randn({3, 3});
        rises->zero_grad(), falls->zero_grad();
        embedding(up, ids, rows).backward(pull);
        embedding(down, ids, rows).backward(-pull);
        rises->step(), falls->step();
      }
      CHECK(equal(up, down));
      CHECK_FALSE(equal(up, start));
    }
}

TEST_CASE("maximize is saved, and a state dict without it loads", "[optim]") {
  const Tensor p = ones({1}, {.requires_grad = true});
  optim::Adam adam({p}, {.maximize = true}), other({p});
  StateDict dict = adam.state_dict();
  other.load_state_dict(dict);
  CHECK(other.options().maximize);
  std::erase_if(dict, [](const auto& entry) { return entry.first == "param_groups.0.maximize"; });
  optim::Adam down({p}), up({p}, {.maximize = true});
  down.load_state_dict(dict), up.load_state_dict(dict);
  CHECK_FALSE(down.options().maximize);
  CHECK(up.options().maximize);
  std::erase_if(dict, [](const auto& entry) { return entry.first == "param_groups.0.amsgrad"; });
  CHECK_THROWS_WITH(down.load_state_dict(dict), Catch::Contains("missing: param_groups.0.amsgrad"));
}

}  // namespace reel
