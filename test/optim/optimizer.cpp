#include "reel/optim.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <optional>

#include "reel/autograd.h"
#include "reel/nn.h"
#include "reel/random.h"

using namespace reel;
using Catch::Matchers::Contains;

namespace {

// sin(start), sin(start + 1), …
std::vector<double> ramp(int64_t n, double start) {
  std::vector<double> values(n);
  for (int64_t i = 0; i < n; ++i) values[i] = std::sin(start + static_cast<double>(i));
  return values;
}

Tensor parameter(const std::vector<double>& values, DType dtype = kFloat64) {
  return tensor(values, {.dtype = dtype}).requires_grad_();
}

void check_close(const Tensor& actual, const std::vector<double>& expected, double tolerance = 1e-12) {
  const auto values = actual.to_vector<double>();
  REQUIRE(values.size() == expected.size());
  for (size_t i = 0; i < values.size(); ++i) CHECK(values[i] == Approx(expected[i]).margin(tolerance));
}

// The rule for one number: p, its gradient, the step from 1, and two numbers of state.
using Rule = std::function<void(double& p, double g, int t, double& s, double& v)>;

// Steps the optimizer and the rule side by side; returns the last values.
void check_steps(optim::Optimizer& optimizer, Tensor p, double tolerance, const Rule& rule,
                 const std::vector<double>& pytorch) {
  std::vector<double> expected = p.to_vector<double>(), s(expected.size()), v(expected.size());
  for (int t = 1; t <= 5; ++t) {
    const auto gradient = ramp(p.numel(), 10. * (t - 1));
    p.set_grad(tensor(gradient, {.dtype = p.dtype()}));
    optimizer.step();
    for (size_t i = 0; i < expected.size(); ++i) rule(expected[i], gradient[i], t, s[i], v[i]);
    check_close(p, expected, tolerance);
    check_close(p.grad(), gradient, tolerance);
  }
  for (size_t i = 0; i < pytorch.size(); ++i) CHECK(p[i].item<double>() == Approx(pytorch[i]).margin(tolerance));
}

}  // namespace

TEST_CASE("optimizers follow their formulas step by step, and arrive where PyTorch's do") {
  const DType dtype = GENERATE(kFloat64, kFloat32);
  const double tolerance = dtype == kFloat64 ? 1e-12 : 1e-5;
  const Tensor p = parameter(ramp(3, 1), dtype), q = parameter(ramp(37, 1), dtype);
  SECTION("SGD") {
    const Rule rule = [](double& p, double g, int, double&, double&) { p -= 0.1 * g; };
    const optim::SGDOptions options{.lr = 0.1};
    optim::SGD sgd({p}, options), many({q}, options);
    check_steps(sgd, p, tolerance, rule, {0.828870417185422, 0.8977498165591343, 0.14124217477377723});
    check_steps(many, q, tolerance, rule, {});
  }
  SECTION("SGD with momentum") {
    const Rule rule = [](double& p, double g, int t, double& b, double&) {
      g += 0.01 * p;
      b = t == 1 ? g : 0.9 * b + 0.7 * g;
      p -= 0.1 * b;
    };
    const optim::SGDOptions options{.lr = 0.1, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.01};
    optim::SGD sgd({p}, options), many({q}, options);
    check_steps(sgd, p, tolerance, rule, {0.8696184687421333, 0.7027995872654664, -0.11016999361671669});
    check_steps(many, q, tolerance, rule, {});
  }
  SECTION("SGD with Nesterov momentum") {
    const Rule rule = [](double& p, double g, int t, double& b, double&) {
      g += 0.01 * p;
      b = t == 1 ? g : 0.9 * b + g;
      p -= 0.1 * (g + 0.9 * b);
    };
    const optim::SGDOptions options{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true};
    optim::SGD sgd({p}, options), many({q}, options);
    check_steps(sgd, p, tolerance, rule, {0.861846102703157, 0.7627383800084663, -0.03762749171774984});
    check_steps(many, q, tolerance, rule, {});
  }
  SECTION("Adagrad") {
    const Rule rule = [](double& p, double g, int t, double& s, double&) {
      g += 0.01 * p;
      s = (t == 1 ? 0.5 : s) + g * g;
      p -= 0.1 / (1 + (t - 1) * 0.2) * g / (std::sqrt(s) + 1e-10);
    };
    const optim::AdagradOptions options{
        .lr = 0.1, .lr_decay = 0.2, .weight_decay = 0.01, .initial_accumulator_value = 0.5};
    optim::Adagrad adagrad({p}, options), many({q}, options);
    check_steps(adagrad, p, tolerance, rule, {0.8535826381477631, 0.8715157562731699, 0.10342006516902946});
    check_steps(many, q, tolerance, rule, {});
  }
  SECTION("Adam") {
    const Rule rule = [](double& p, double g, int t, double& m, double& v) {
      g += 0.01 * p;
      m = 0.8 * m + 0.2 * g;
      v = 0.95 * v + 0.05 * g * g;
      p -= 0.1 * (m / (1 - std::pow(0.8, t))) / (std::sqrt(v / (1 - std::pow(0.95, t))) + 1e-8);
    };
    const optim::AdamOptions options{.lr = 0.1, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.01};
    optim::Adam adam({p}, options), many({q}, options);
    check_steps(adam, p, tolerance, rule, {0.8007542125272443, 0.8010055244432015, -0.004925571704102943});
    check_steps(many, q, tolerance, rule, {});
  }
  SECTION("AdamW") {
    const Rule rule = [](double& p, double g, int t, double& m, double& v) {
      p *= 1 - 0.1 * 0.1;
      m = 0.9 * m + 0.1 * g;
      v = 0.999 * v + 0.001 * g * g;
      p -= 0.1 * (m / (1 - std::pow(0.9, t))) / (std::sqrt(v / (1 - std::pow(0.999, t))) + 1e-8);
    };
    const optim::AdamWOptions options{.lr = 0.1, .weight_decay = 0.1};
    optim::AdamW adam({p}, options), many({q}, options);
    check_steps(adam, p, tolerance, rule, {0.8649150569855171, 0.7523803075533009, -0.02490921372664301});
    check_steps(many, q, tolerance, rule, {});
  }
}

TEST_CASE("groups have options of their own, and parameters without a gradient stay") {
  Tensor a = parameter({1}), b = parameter({1}), c = parameter({1});
  optim::SGD sgd({a}, {.lr = 0.1});
  sgd.add_param_group({b, c}, {.lr = 0.5});
  a.set_grad(tensor({1.}, {.dtype = kFloat64}));
  b.set_grad(tensor({1.}, {.dtype = kFloat64}));
  sgd.step();
  check_close(a, {0.9});
  check_close(b, {0.5});
  check_close(c, {1});
  sgd.set_lr(1, 1);
  sgd.options(0).weight_decay = 1;
  CHECK(sgd.lr(1) == 1);
  sgd.step();
  check_close(a, {0.9 - 0.1 * 1.9});
  check_close(b, {-0.5});
  sgd.zero_grad(false);
  check_close(a.grad(), {0});
  CHECK_FALSE(c.grad().defined());
  sgd.zero_grad();
  CHECK_FALSE(a.grad().defined());
}

TEST_CASE("parameters are stepped together, each as it would be alone") {
  // More than are taken at once, of several types, the states of some of them younger.
  const DType dtypes[] = {kFloat32, kFloat32, kFloat64, kBFloat16};
  std::vector<Tensor> together, alone;
  for (int i = 0; i < 150; ++i) {
    const std::vector<double> values = ramp(i % 9 == 0 ? 0 : i % 40, i);
    const DType dtype = dtypes[i / 5 % 4];
    together.push_back(parameter(values, dtype)), alone.push_back(parameter(values, dtype));
  }
  const auto give = [&](int step) {
    for (size_t i = 0; i < together.size(); ++i)
      for (Tensor p : {together[i], alone[i]})
        if (i % 10 == 3 && step == 0)
          p.set_grad({});
        else
          p.set_grad(tensor(ramp(p.numel(), 10 * step + 1), {.dtype = p.dtype()}));
  };
  const auto compare = [&](auto make) {
    auto all = make(together);
    std::vector<std::unique_ptr<optim::Optimizer>> each;
    for (const Tensor& p : alone) each.push_back(make({p}));
    for (int step = 0; step < 3; ++step) {
      give(step);
      all->step();
      for (const auto& one : each) one->step();
    }
    for (size_t i = 0; i < together.size(); ++i) CHECK(equal(together[i], alone[i]));
  };
  compare([](std::vector<Tensor> p) {
    return std::make_unique<optim::SGD>(std::move(p), optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.3});
  });
  compare([](std::vector<Tensor> p) {
    return std::make_unique<optim::AdamW>(std::move(p), optim::AdamWOptions{.lr = 0.1, .weight_decay = 0.1});
  });
}

TEST_CASE("parameters that share memory take their steps one after the other") {
  Tensor whole = zeros({100000}).requires_grad_();
  Tensor again = whole.detach().requires_grad_(), part = whole.detach().narrow(0, 50000, 2).requires_grad_();
  optim::SGD sgd({whole, again, part}, optim::SGDOptions{.lr = 1});
  for (int i = 0; i < 20; ++i) {
    no_grad([&] { whole.detach().zero_(); });
    whole.set_grad(ones({100000})), again.set_grad(ones({100000})), part.set_grad(ones({2}));
    sgd.step();
    CHECK(whole.min().item<float>() == -3);
    CHECK(whole.max().item<float>() == -2);
    CHECK(whole.sum().item<double>() == -200002);
  }
  const Tensor g = ones({8});
  whole.set_grad({}), again.set_grad({}), part.set_grad({});
  Tensor a = zeros({4}).requires_grad_(), b = zeros({4}).requires_grad_();
  a.set_grad(g.narrow(0, 0, 4)), b.set_grad(g.narrow(0, 2, 4));
  CHECK_THROWS_WITH(optim::clip_grad_norm(std::vector{a, b}, 1), Contains("share memory"));
}

TEST_CASE("parameters that cannot be trained are refused") {
  const Tensor p = parameter({1});
  CHECK_THROWS_WITH(optim::SGD(std::vector<Tensor>{}), Contains("without parameters"));
  CHECK_THROWS_WITH(optim::SGD({Tensor()}), Contains("parameter 0 is undefined"));
  CHECK_THROWS_WITH(optim::SGD({p * 2}), Contains("no leaf"));
  CHECK_THROWS_WITH(optim::SGD({ones({1}, {.dtype = kInt64})}), Contains("int64"));
  CHECK_THROWS_WITH(optim::SGD({p, p}), Contains("twice"));
  optim::Adam adam({p});
  CHECK_THROWS_WITH(adam.add_param_group({parameter({2}), p}, {}), Contains("another group"));
  CHECK(adam.num_groups() == 1);
  CHECK_THROWS_WITH(optim::SGD({p}, {.lr = -1}), Contains("lr = -1"));
  CHECK_THROWS_AS(optim::Adam({p}, {.beta1 = 1}), Error);
  CHECK_THROWS_AS(optim::SGD({p}, {.nesterov = true}), Error);
}

TEST_CASE("an optimizer takes frozen parameters and trains them when they are freed") {
  nn::Sequential net{nn::Linear(2, 3), relu, nn::Linear(3, 1)};
  net[0].requires_grad_(false);
  optim::Adam adam(net.parameters(), {.lr = 0.1});
  const Tensor frozen = net[0].as_ref<nn::Linear>().weight, before = frozen.clone();
  const auto step = [&] {
    adam.zero_grad();
    sum(net(ones({1, 2}))).backward();
    adam.step();
  };
  step();
  CHECK(equal(frozen, before));
  CHECK_FALSE(adam.state_dict().contains("state.0.step"));
  CHECK(adam.state_dict().contains("state.3.step"));
  net[0].requires_grad_();
  nn::init::ones_(frozen);
  step();
  CHECK(adam.state_dict().contains("state.0.step"));
}

TEST_CASE("row-sparse gradients change their rows as dense ones do, and no others") {
  const auto make = GENERATE(0, 1, 2, 3);
  const auto optimizer = [&](std::vector<Tensor> p) -> std::unique_ptr<optim::Optimizer> {
    switch (make) {
      case 0: return std::make_unique<optim::SGD>(p, optim::SGDOptions{.lr = 0.1});
      case 1: return std::make_unique<optim::Adagrad>(p, optim::AdagradOptions{.lr = 0.1});
      case 2: return std::make_unique<optim::Adam>(p, optim::AdamOptions{.lr = 0.1});
      default: return std::make_unique<optim::SGD>(p, optim::SGDOptions{.lr = 0.1, .momentum = 0.9});
    }
  };
  nn::Embedding sparse(6, 5, {.sparse = true}), dense(6, 5);
  dense.load_state_dict(sparse.state_dict());
  const auto first = optimizer(sparse.parameters()), second = optimizer(dense.parameters());
  const Tensor untouched = sparse.weight[5].detach().clone();
  // The same rows at each step, so that Adam's untouched moments (which decay when dense) make no difference.
  const Tensor ids = tensor({4, 1, 4, 0});
  for (int step = 0; step < 3; ++step) {
    for (const auto& [table, opt] : {std::pair{&sparse, first.get()}, std::pair{&dense, second.get()}}) {
      opt->zero_grad();
      sum(square((*table)(ids))).backward();
      if (table == &sparse) CHECK(table->weight.sparse_grad());
      opt->step();
    }
    CHECK(amax(abs(sparse.weight - dense.weight)).item<double>() < 1e-6);
  }
  CHECK(equal(sparse.weight[5], untouched));
  CHECK_FALSE(equal(sparse.weight[4], untouched));
}

TEST_CASE("with rows, weight decay and Adam's moments concern the touched rows only") {
  nn::Embedding table(3, 2, {.sparse = true});
  table.to(kFloat64);
  {
    NoGrad guard;
    table.weight.fill_(1);
  }
  optim::SGD sgd({table.weight}, {.lr = 0.1, .weight_decay = 0.5});
  sum(table(tensor({1}))).backward();
  sgd.step();
  check_close(table.weight, {1, 1, 1 - 0.1 * 1.5, 1 - 0.1 * 1.5, 1, 1});

  {
    NoGrad guard;
    table.weight.fill_(1);
  }
  optim::Adam adam({table.weight}, {.lr = 0.1});
  for (const int id : {0, 1, 1}) {
    adam.zero_grad();
    sum(table(tensor({id}))).backward();
    adam.step();
  }
  const StateDict dict = adam.state_dict();
  const double once = 0.1, twice = 0.9 * 0.1 + 0.1;
  check_close(*find(dict, "state.0.exp_avg"), {once, once, twice, twice, 0, 0});
  check_close(table.weight[2], {1, 1});
}

TEST_CASE("half-precision and strided parameters are trained like any other") {
  const auto train = [](Tensor p) {
    optim::Adam adam({p.requires_grad_()}, {.lr = 0.1});
    for (int t = 0; t < 3; ++t) {
      adam.zero_grad();
      sum(square(p - 1)).backward();
      adam.step();
    }
    return std::pair(p, find(adam.state_dict(), "state.0.exp_avg")->dtype());
  };
  const Tensor start = tensor({{0.5, 2.0, -1.0}, {3.0, 0.25, 4.0}});
  const Tensor expected = train(start.clone()).first;
  for (const DType type : {kFloat16, kBFloat16}) {
    const auto [half, moment] = train(start.to(type));
    CHECK(half.dtype() == type);
    CHECK(moment == kFloat32);
    check_close(half, expected.to_vector<double>(), 0.03);
  }
  const Tensor strided = train(start.t().contiguous().t()).first;
  CHECK_FALSE(strided.is_contiguous());
  check_close(strided, expected.to_vector<double>(), 1e-6);
}

TEST_CASE("row-sparse gradients of half types change their rows as dense ones do") {
  for (const DType type : {kFloat16, kBFloat16}) {
    const Tensor start = randn({6, 5}).to(type);
    const auto train = [&](bool sparse) {
      const Tensor table = start.clone().requires_grad_();
      optim::Adagrad adagrad({table}, {.lr = 0.1});
      for (int t = 0; t < 3; ++t) {
        adagrad.zero_grad();
        sum(square(embedding(table, tensor({4, 1, 4, t}), sparse))).backward();
        adagrad.step();
      }
      return std::pair(table.detach(), *find(adagrad.state_dict(), "state.0.sum"));
    };
    const auto [rows, state] = train(true);
    const auto [dense, dense_state] = train(false);
    CHECK(equal(rows, dense));
    CHECK(equal(state, dense_state));
    CHECK(equal(rows[5], start[5]));
    CHECK_FALSE(equal(rows[4], start[4]));
  }
}

TEST_CASE("an optimizer goes on from its state dict") {
  const auto gradient = [](Tensor p, int t) { p.set_grad(tensor(ramp(3, t), {.dtype = kFloat64})); };
  Tensor a = parameter(ramp(3, 1)), unused = parameter({1});
  optim::Adam adam({a, unused}, {.lr = 0.1});
  for (int t = 0; t < 3; ++t) gradient(a, t), adam.step();
  StateDict dict;
  for (const auto& [name, tensor] : adam.state_dict()) dict.emplace_back(name, tensor.clone());

  Tensor b = parameter(a.to_vector<double>()), unused_too = parameter({1});
  optim::Adam resumed({b, unused_too}, {.lr = 7});
  resumed.load_state_dict(dict);
  CHECK(resumed.lr() == 0.1);
  for (int t = 3; t < 6; ++t) gradient(a, t), adam.step(), gradient(b, t), resumed.step();
  CHECK(equal(a, b));

  optim::Adam other({parameter({1, 2}), parameter({1})}, {.lr = 7});
  CHECK_THROWS_WITH(other.load_state_dict(dict), Contains("shape of state.0.exp_avg: expected [2], given is [3]"));
  CHECK(other.lr() == 7);
  optim::SGD sgd({parameter(ramp(3, 1))});
  CHECK_THROWS_WITH(sgd.load_state_dict(dict),
                    Contains("missing: param_groups.0.momentum") && Contains("unexpected: state.0.exp_avg"));
}

TEST_CASE("the state of an optimizer of fewer parameters, or more, is refused") {
  Tensor a = parameter(ramp(3, 1)), b = parameter(ramp(2, 1));
  optim::SGD one({a}, {.lr = 0.1}), two({a, b}, {.lr = 7});
  CHECK_THROWS_WITH(two.load_state_dict(one.state_dict()),
                    Contains("param_groups.0: it has 2 parameters, given is the state of 1"));
  CHECK(two.lr() == 7);
  CHECK_THROWS_WITH(one.load_state_dict(two.state_dict()), Contains("it has 1 parameters, given is the state of 2"));
  StateDict old = one.state_dict();  // as it was saved before their number was
  CHECK(old.erase("param_groups.0.params") == 1);
  one.set_lr(5);
  one.load_state_dict(old);
  CHECK(one.lr() == 0.1);
}

TEST_CASE("a damaged state of an optimizer is refused and changes nothing") {
  Tensor p = parameter(ramp(3, 1));
  p.set_grad(tensor(ramp(3, 2), {.dtype = kFloat64}));
  const auto check = [&](auto optimizer, const std::string& name, std::optional<double> value, const std::string& why) {
    INFO(name);
    optimizer.step();
    StateDict dict;
    bool found = false;
    for (const auto& [key, tensor] : optimizer.state_dict()) {
      found |= key == name;
      if (key != name)
        dict.emplace_back(key, tensor.clone());
      else if (value)
        dict.emplace_back(key, full({}, *value, {.dtype = kFloat64}));
    }
    CHECK(found);
    optimizer.step();
    optimizer.set_lr(0.25);
    CHECK_THROWS_WITH(optimizer.load_state_dict(dict), Contains(why));
    CHECK(optimizer.lr() == 0.25);
    CHECK(optimizer.state_dict()["state.0.step"].template item<int>() == 2);
  };
  using namespace optim;
  check(Adam({p}), "state.0.exp_avg", {}, "missing: state.0.exp_avg");
  check(Adam({p}), "state.0.step", {}, "unexpected: state.0.exp_avg");
  check(Adam({p}), "state.0.step", -3, "state.0.step = -3");
  check(NAdam({p}), "state.0.mu_product", {}, "missing: state.0.mu_product");
  check(RMSprop({p}, {.momentum = 0.9}), "state.0.square_avg", {}, "missing: state.0.square_avg");
  check(Adam({p}), "param_groups.0.lr", -1, "param_groups.0: Optimizer: lr = -1");
  check(Adam({p}), "param_groups.0.beta2", 2, "param_groups.0: Optimizer: beta2 = 2");
  check(SGD({p}), "param_groups.0.weight_decay", std::nan(""), "weight_decay = ");
  check(SGD({p}), "param_groups.0.nesterov", 1, "Nesterov momentum needs a momentum");
}

TEST_CASE("clip_grad_norm scales all gradients together, row-sparse ones too") {
  Tensor a = parameter({0, 0}), none = parameter({0});
  nn::Embedding table(5, 2, {.sparse = true});
  table.to(kFloat64);
  const std::vector<Tensor> parameters{a, none, table.weight};
  const auto reset = [&] {
    table.zero_grad();
    a.set_grad(tensor({3., -4.}, {.dtype = kFloat64}));
    sum(table(tensor({2})) * tensor({12., 0.}, {.dtype = kFloat64})).backward();
  };
  reset();
  CHECK(optim::clip_grad_norm(parameters, 100).item<double>() == Approx(13));
  check_close(a.grad(), {3, -4});
  CHECK(optim::clip_grad_norm(parameters, 1.3).item<double>() == Approx(13));
  check_close(a.grad(), {0.3, -0.4}, 1e-6);
  REQUIRE(table.weight.sparse_grad());
  check_close(table.weight.sparse_grad()->values, {1.2, 0}, 1e-6);
  reset();
  CHECK(optim::clip_grad_norm(parameters, 6, std::numeric_limits<double>::infinity()).item<double>() == Approx(12));
  check_close(a.grad(), {1.5, -2}, 1e-6);
  reset();
  CHECK(optim::clip_grad_norm(parameters, 1e9, 1).item<double>() == Approx(19));
  CHECK(optim::clip_grad_norm(std::vector{none}, 1).item<double>() == 0);
  CHECK_THROWS_AS(optim::clip_grad_norm(parameters, 1, 0), Error);
  reset();
  CHECK(optim::clip_grad_norm(std::vector<Tensor>{a, table.weight, a}, 1.3).item<double>() == Approx(13));
  check_close(a.grad(), {0.3, -0.4}, 1e-6);
}

TEST_CASE("clip_grad_norm changes gradients in place") {
  Tensor a = parameter({0, 0, 0, 0}), b = zeros({2, 2}).requires_grad_();
  a.set_grad(tensor({3., 0., 0., 0.}, {.dtype = kFloat64}));
  b.set_grad(tensor({{0.f, 4.f}, {0.f, 0.f}}).t());
  const Tensor of_a = a.grad(), of_b = b.grad();
  CHECK(optim::clip_grad_norm(std::vector{a, b}, 1).item<double>() == Approx(5));
  check_close(of_a, {0.6, 0, 0, 0}, 1e-6);
  check_close(of_b.flatten(), {0, 0, 0.8, 0}, 1e-6);
}

TEST_CASE("clip_grad_norm takes gradients of all types and layouts, and more than a launch does") {
  for (const double p : {1.0, 2.0, 3.0, std::numeric_limits<double>::infinity()}) {
    CAPTURE(p);
    manual_seed(5);
    std::vector<Tensor> parameters, grads;
    const auto add = [&](const Tensor& grad) {
      parameters.push_back(zeros(grad.shape(), {.dtype = grad.dtype()}).requires_grad_());
      parameters.back().set_grad(grad);
      grads.push_back(grad.to(kFloat64));
    };
    for (int i = 0; i < 70; ++i) add(randn({i % 7}));
    add(randn({20000}));
    add(randn({5, 3}).t());
    add(randn({1, 3}).expand({4, 3}));
    for (const DType half : {kBFloat16, kFloat16}) add(randn({9}).to(half)), add(randn({3, 4}).to(half).t());
    const auto expected = [&] {
      std::vector<Tensor> flat;
      for (const Tensor& g : grads) flat.push_back(g.flatten());
      return norm(cat(flat), p).item<double>();
    }();
    const Tensor found = optim::clip_grad_norm(parameters, 0.5, p);
    CHECK(found.dtype() == kFloat32);
    CHECK(found.shape() == Shape{});
    CHECK(found.device() == default_device());
    CHECK_FALSE(found.requires_grad());
    CHECK(found.item<double>() == Approx(expected).epsilon(1e-5));
    for (size_t i = 0; i < grads.size(); ++i) {
      const Tensor grad = parameters[i].grad();
      CHECK(grad.dtype() == parameters[i].dtype());
      CHECK(allclose(grad.to(kFloat64), grads[i] * (0.5 / (expected + 1e-6)), is_half(grad.dtype()) ? 1e-2 : 1e-5));
    }
  }
}

TEST_CASE("clip_grad_norm of what is not finite does what PyTorch's does") {
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::nan("");
  Tensor a = parameter({0, 0}), b = parameter({0});
  for (const double p : {2.0, infinity}) {
    a.set_grad(tensor({1., nan}, {.dtype = kFloat64})), b.set_grad(tensor({1.}, {.dtype = kFloat64}));
    CHECK(std::isnan(optim::clip_grad_norm(std::vector{a, b}, 1, p).item<double>()));
    CHECK(std::isnan(b.grad().item<double>()));
    a.set_grad(tensor({3., -infinity}, {.dtype = kFloat64})), b.set_grad(tensor({1.}, {.dtype = kFloat64}));
    CHECK(optim::clip_grad_norm(std::vector{b, a}, 1, p).item<double>() == infinity);
    CHECK(b.grad().item<double>() == 0);
    CHECK(std::isnan(a.grad().to_vector<double>()[1]));
  }
  CHECK(optim::clip_grad_norm({}, 1).item<double>() == 0);
}

TEST_CASE("a small network learns exclusive or") {
  manual_seed(1);
  nn::Sequential net{std::make_unique<nn::Linear>(2, 8), reel::tanh, std::make_unique<nn::Linear>(8, 2)};
  optim::Adam adam(net.parameters(), {.lr = 0.05});
  const Tensor x = tensor({{0., 0.}, {0., 1.}, {1., 0.}, {1., 1.}}), y = tensor({0, 1, 1, 0});
  double loss = 0;
  for (int step = 0; step < 200; ++step) {
    const Tensor l = nn::cross_entropy(net(x), y);
    adam.zero_grad();
    l.backward();
    adam.step();
    loss = l.item<double>();
  }
  CHECK(loss < 0.01);
}
