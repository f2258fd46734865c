#include "reel/optim/lr_scheduler.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <memory>

#include "reel/autograd.h"
#include "reel/io.h"
#include "reel/ops.h"
#include "reel/optim.h"
#include "reel/testing.h"
#include "test/support/load.h"

namespace reel {

using namespace optim;
using Catch::Contains;

namespace {
struct Setup {
  Tensor p = zeros({1}, {.requires_grad = true});
  SGD sgd{{p}, {.lr = 0.1, .momentum = 0.9}};
  std::vector<std::unique_ptr<LRScheduler>> parts;
  std::unique_ptr<LRScheduler> schedule;

  template <class Schedule, class... Args>
  void part(Args&&... args) {
    parts.push_back(std::make_unique<Schedule>(sgd, std::forward<Args>(args)...));
  }
  template <class Schedule, class... Args>
  void make(Args&&... args) {
    schedule = std::make_unique<Schedule>(sgd, std::forward<Args>(args)...);
  }
};
const struct {
  const char* name;
  std::function<void(Setup&)> make;
} kSchedules[] = {
    {"step", [](Setup& s) { s.make<StepLR>(StepLROptions{.step_size = 7, .gamma = 0.5}); }},
    {"multi_step",
     [](Setup& s) {
       s.make<MultiStepLR>(MultiStepLROptions{.milestones = {3, 10, 10, 30}});
     }},
    {"exponential", [](Setup& s) { s.make<ExponentialLR>(0.9); }},
    {"constant", [](Setup& s) { s.make<ConstantLR>(ConstantLROptions{.factor = 0.25, .total_iters = 8}); }},
    {"linear",
     [](Setup& s) { s.make<LinearLR>(LinearLROptions{.start_factor = 0.1, .end_factor = 0.8, .total_iters = 12}); }},
    {"polynomial", [](Setup& s) { s.make<PolynomialLR>(PolynomialLROptions{.total_iters = 30, .power = 2}); }},
    {"cosine", [](Setup& s) { s.make<CosineAnnealingLR>(CosineAnnealingLROptions{.T_max = 12, .eta_min = 0.01}); }},
    {"cosine_restarts",
     [](Setup& s) {
       s.make<CosineAnnealingWarmRestarts>(CosineAnnealingWarmRestartsOptions{.T_0 = 5, .T_mult = 2, .eta_min = 0.001});
     }},
    {"one_cycle", [](Setup& s) { s.make<OneCycleLR>(OneCycleLROptions{.max_lr = 0.5, .total_steps = 40}); }},
    {"one_cycle_three",
     [](Setup& s) {
       s.make<OneCycleLR>(
           OneCycleLROptions{.max_lr = 0.5, .total_steps = 40, .anneal_strategy = optim::kLinear, .three_phase = true});
     }},
    {"cyclic",
     [](Setup& s) {
       s.make<CyclicLR>(CyclicLROptions{.base_lr = 0.01, .max_lr = 0.2, .step_size_up = 6, .step_size_down = 3});
     }},
    {"cyclic2",
     [](Setup& s) {
       s.make<CyclicLR>(CyclicLROptions{.base_lr = 0.01, .max_lr = 0.2, .step_size_up = 4, .mode = kTriangular2});
     }},
    {"cyclic_exp",
     [](Setup& s) {
       s.make<CyclicLR>(
           CyclicLROptions{.base_lr = 0.01, .max_lr = 0.2, .step_size_up = 4, .mode = kExpRange, .gamma = 0.95});
     }},
    {"lambda", [](Setup& s) { s.make<LambdaLR>([](int64_t e) { return 1. / static_cast<double>(1 + e); }); }},
    {"multiplicative",
     [](Setup& s) { s.make<MultiplicativeLR>([](int64_t e) { return 1 - 0.5 / static_cast<double>(1 + e); }); }},
    {"chained",
     [](Setup& s) {
       s.part<ConstantLR>(ConstantLROptions{.factor = 0.1, .total_iters = 5});
       s.part<ExponentialLR>(0.95);
       s.make<ChainedScheduler>(std::vector{s.parts[0].get(), s.parts[1].get()});
     }},
    {"sequential",
     [](Setup& s) {
       s.part<LinearLR>(LinearLROptions{.start_factor = 0.1, .total_iters = 5});
       s.part<CosineAnnealingLR>(CosineAnnealingLROptions{.T_max = 20});
       s.part<ExponentialLR>(0.9);
       s.make<SequentialLR>(std::vector{s.parts[0].get(), s.parts[1].get(), s.parts[2].get()},
                            std::vector<int64_t>{5, 25});
     }},
    {"swa", [](Setup& s) { s.make<SWALR>(SWALROptions{.swa_lr = 0.5}); }},
};
}  // namespace

TEST_CASE("every schedule has PyTorch's rates, also when it is resumed", "[optim]") {
  const StateDict figures = load_reference("optim.safetensors");
  for (const auto& row : kSchedules) DYNAMIC_SECTION(row.name) {
      const Tensor expected = *find(figures, std::string("schedule.") + row.name);
      auto setup = std::make_unique<Setup>();
      row.make(*setup);
      for (int64_t epoch = 0; epoch < 40; ++epoch) {
        if (epoch) setup->schedule->step();
        INFO("epoch " << epoch);
        CHECK(setup->schedule->last_lr()[0] == Approx(expected[epoch][0].item<double>()).epsilon(1e-9).margin(1e-15));
        CHECK(setup->sgd.momentum() == Approx(expected[epoch][1].item<double>()).epsilon(1e-9));
        if (epoch != 13) continue;
        auto resumed = std::make_unique<Setup>();
        row.make(*resumed);
        resumed->sgd.load_state_dict(setup->sgd.state_dict());
        resumed->schedule->load_state_dict(setup->schedule->state_dict());
        setup = std::move(resumed);
      }
    }
}

TEST_CASE("MultiplicativeLR and SWALR go on from the rate that another schedule has left", "[optim]") {
  const auto check = [](Setup& s, const std::vector<double>& rates) {
    for (size_t epoch = 0; epoch < rates.size(); ++epoch) {
      if (epoch) s.schedule->step();
      INFO("epoch " << epoch);
      CHECK(s.sgd.lr() == Approx(rates[epoch]).epsilon(1e-12));
    }
  };
  // As PyTorch's step to epoch 0 has it: times factor(0) at once.
  Setup constant;
  constant.part<ConstantLR>(ConstantLROptions{.factor = 0.1, .total_iters = 3});
  constant.part<MultiplicativeLR>([](int64_t) { return 0.9; });
  constant.make<SequentialLR>(std::vector{constant.parts[0].get(), constant.parts[1].get()}, std::vector<int64_t>{4});
  check(constant, {0.01, 0.01, 0.01, 0.1, 0.09, 0.081, 0.0729});
  Setup warming;  // that has not arrived when it ends
  warming.part<LinearLR>(LinearLROptions{.start_factor = 0.1, .total_iters = 10});
  warming.part<MultiplicativeLR>([](int64_t e) { return 1 / static_cast<double>(2 + e); });
  warming.make<SequentialLR>(std::vector{warming.parts[0].get(), warming.parts[1].get()}, std::vector<int64_t>{2});
  check(warming, {0.01, 0.019, 0.019 / 2, 0.019 / 6, 0.019 / 24});
  SGD sgd({zeros({1}).requires_grad_()}, {.lr = 0.1});  // schedules as references
  LinearLR up(sgd, {.start_factor = 0.5, .total_iters = 1});
  ExponentialLR down(sgd, 0.5);
  SequentialLR both(sgd, {up, down}, {2});
  std::vector<double> seen;
  for (int i = 0; i < 4; ++i) seen.push_back(sgd.lr()), both.step();
  CHECK(seen == std::vector{0.05, 0.1, 0.1, 0.05});
  CHECK_THROWS_WITH((LinearLR{sgd, {.total_iters = 0}}), Contains("total_iters = 0, expected at least 1"));
  Setup averaged;
  averaged.part<ExponentialLR>(0.5);
  averaged.part<SWALR>(SWALROptions{.swa_lr = 0.005, .anneal_epochs = 2, .anneal_strategy = Anneal::kLinear});
  averaged.make<SequentialLR>(std::vector{averaged.parts[0].get(), averaged.parts[1].get()}, std::vector<int64_t>{2});
  check(averaged, {0.1, 0.05, 0.05, 0.0275, 0.005, 0.005});
}

TEST_CASE("ReduceLROnPlateau reduces when PyTorch's does", "[optim]") {
  const StateDict figures = load_reference("optim.safetensors");
  const bool max = GENERATE(false, true);
  const Tensor expected = *find(figures, max ? "schedule.plateau_max" : "schedule.plateau");
  Tensor p = zeros({1}, {.requires_grad = true});
  SGD sgd({p}, {.lr = 0.1});
  const ReduceLROnPlateauOptions options = max ? ReduceLROnPlateauOptions{.mode = optim::kMax,
                                                                          .factor = 0.5,
                                                                          .patience = 1,
                                                                          .threshold = 0.1,
                                                                          .threshold_rel = false,
                                                                          .cooldown = 2,
                                                                          .min_lr = 0.02}
                                               : ReduceLROnPlateauOptions{.patience = 2};
  ReduceLROnPlateau schedule(sgd, options);
  for (int64_t epoch = 0; epoch < 40; ++epoch) {
    schedule.step(std::sin(static_cast<double>(epoch)) / static_cast<double>(1 + epoch));
    INFO("epoch " << epoch);
    CHECK(sgd.lr() == Approx(expected[epoch].item<double>()));
    if (epoch == 10) {
      const StateDict dict = schedule.state_dict();
      schedule.restart();
      schedule.load_state_dict(dict);
    }
  }
  CHECK_THROWS_WITH(static_cast<LRScheduler&>(schedule).step(), "ReduceLROnPlateau: step() needs the metric");
}

TEST_CASE("schedules refuse what makes no sense", "[optim]") {
  Setup s;
  CHECK_THROWS_WITH(StepLR(s.sgd, {.step_size = 0}), "StepLR: step_size = 0");
  CHECK_THROWS_WITH(LinearLR(s.sgd, {.start_factor = 0}), "LinearLR: start_factor = 0 is not in (0, 1]");
  CHECK_THROWS_WITH(SequentialLR(s.sgd, {}, {}), "ChainedScheduler: no schedulers");
  CHECK_THROWS_WITH(StepLR(s.sgd, {.step_size = 1}).load_state_dict({{"last_epoch", ones({2})}}),
                    Contains("shape of last_epoch: expected [], given is [2]") && Contains("missing: base_lrs"));
}

TEST_CASE("OneCycleLR takes as many steps as it has, the last one too", "[optim]") {
  const auto check = [](const OneCycleLROptions& options, const std::vector<double>& rates) {
    Setup s;
    OneCycleLR cycle(s.sgd, options);
    for (size_t epoch = 0; epoch < rates.size(); ++epoch) {
      INFO("epoch " << epoch);
      CHECK(s.sgd.lr() == Approx(rates[epoch]).epsilon(1e-9));
      CHECK(s.sgd.momentum() <= 0.95);
      if (epoch + 1 < rates.size()) cycle.step();
    }
    CHECK_THROWS_WITH(cycle.step(), "OneCycleLR: step 6 of 5");
  };
  check({.max_lr = 0.5, .total_steps = 5},
        {0.02, 0.47524231600673683, 0.30563101096814466, 0.09412917302511849, 2e-6, 0.09412917302511843});
  // PyTorch's last one is below zero.
  check({.max_lr = 0.5, .total_steps = 5, .pct_start = 0.4, .anneal_strategy = optim::kLinear},
        {0.02, 0.5, 0.333334, 0.166668, 2e-6, 2e-6});
}

TEST_CASE("OneCycleLR without room for its way up starts at the top", "[optim]") {
  Setup s;
  OneCycleLR cycle(s.sgd, {.max_lr = 0.5, .total_steps = 10, .pct_start = 0.1});
  CHECK(s.sgd.lr() == 0.5);
  CHECK(s.sgd.momentum() == 0.85);
  for (int step = 1; step <= 9; ++step) cycle.step();
  CHECK(s.sgd.lr() == Approx(2e-6));
}

TEST_CASE("a chain of schedules that cannot be loaded stays as it was", "[optim]") {
  Setup s;
  s.part<ExponentialLR>(0.5);
  s.part<ExponentialLR>(0.5);
  ChainedScheduler chain(s.sgd, {s.parts[0].get(), s.parts[1].get()});
  const StateDict start = chain.state_dict();
  chain.step();
  StateDict wrong;
  for (const auto& [name, tensor] : start)
    if (name != "1.last_epoch") wrong.emplace_back(name, tensor);
  CHECK_THROWS_WITH(chain.load_state_dict(wrong), Contains("missing: last_epoch"));
  CHECK(chain.last_epoch() == 1);
  CHECK(s.parts[0]->last_epoch() == 1);
  chain.load_state_dict(start);
  CHECK(s.parts[1]->last_epoch() == 0);
}

TEST_CASE("weight averages are means and can be tried on", "[optim]") {
  Tensor p = tensor({1., 2.}, {.dtype = kFloat64}).requires_grad_();
  ExponentialMovingAverage ema({p}, 0.75);
  StochasticWeightAverage swa({p});
  for (int step = 0; step < 3; ++step) {
    ema.update(), swa.update();
    NoGrad guard;
    p.add_(1);
  }
  // Of 1, 2, 3: the first is copied.
  CHECK(swa.averages()[0].to_vector<double>() == std::vector<double>{2, 3});
  CHECK(ema.averages()[0].to_vector<double>() == std::vector<double>{1 + 0.25 + 0.25 * 1.75, 2 + 0.25 + 0.25 * 1.75});
  {
    const auto applied = swa.apply();
    CHECK(p.to_vector<double>() == std::vector<double>{2, 3});
  }
  CHECK(p.to_vector<double>() == std::vector<double>{4, 5});

  ExponentialMovingAverage resumed({p}, 0.75);
  resumed.load_state_dict(ema.state_dict());
  CHECK(resumed.num_updates() == 3);
  ema.update(), resumed.update();
  CHECK(equal(ema.averages()[0], resumed.averages()[0]));
  CHECK_THROWS_WITH(resumed.load_state_dict({{"num_updates", ones({})}}),
                    "WeightAverage::load_state_dict: 0 averages for 1 parameters");
  swa.copy_to_parameters();
  CHECK(p.to_vector<double>() == std::vector<double>{2, 3});
}

TEST_CASE("a line to a rate of zero stays there") {
  optim::SGD sgd({zeros({1}, {.requires_grad = true})}, {.lr = 0.1});
  optim::LinearLR line(sgd, {.start_factor = 1, .end_factor = 0, .total_iters = 2});
  for (int i = 0; i < 5; ++i) line.step();
  CHECK(sgd.lr() == 0);
  CHECK_THROWS_WITH(optim::LinearLR(sgd, {.end_factor = -1}), "LinearLR: end_factor = -1 is not in [0, 1]");
}

TEST_CASE("a schedule that fails leaves the optimizer as it was") {
  const Tensor weight = zeros({1}, {.requires_grad = true});
  optim::Adagrad adagrad({weight}, {.lr = 0.1});
  CHECK_THROWS_WITH(optim::CyclicLR(adagrad, {.base_lr = 0.5, .max_lr = 1}), Catch::Contains("momentum"));
  CHECK_THROWS_WITH(optim::OneCycleLR(adagrad, {.max_lr = 1, .total_steps = 3}), Catch::Contains("momentum"));
  CHECK(adagrad.lr() == 0.1);
  optim::SGD sgd({weight}, {.lr = 0.1, .momentum = 0.9});
  optim::OneCycleLR once(sgd, {.max_lr = 1, .total_steps = 2});
  once.step(), once.step();
  CHECK_THROWS(once.step());
  CHECK(once.last_epoch() == 2);
  optim::StepLR own(sgd, {.step_size = 1});
  CHECK_THROWS_WITH(optim::ChainedScheduler(adagrad, {&own}), "ChainedScheduler: scheduler 0 is another optimizer's");
}

TEST_CASE("a group that is not there is an error") {
  optim::SGD sgd({zeros({1}, {.requires_grad = true})}, {.lr = 0.1});
  CHECK_THROWS_WITH(sgd.options(1), "Optimizer: no group 1, there are 1");
  CHECK_THROWS_WITH(sgd.lr(-1), "Optimizer: no group -1, there are 1");
  CHECK_THROWS_AS(sgd.set_momentum(2, 0.5), Error);
}

TEST_CASE("L-BFGS without a closure leaves no state") {
  const Tensor weight = zeros({1}, {.requires_grad = true});
  sum(weight).backward();
  optim::LBFGS lbfgs({weight});
  optim::Optimizer& optimizer = lbfgs;
  CHECK_THROWS_WITH(optimizer.step(), Catch::Contains("needs a closure"));
  CHECK_FALSE(lbfgs.state_dict().contains("state.0.step"));
}

TEST_CASE("clip_grad_value clamps each element", "[optim]") {
  Tensor p = zeros({3}, {.requires_grad = true});
  p.set_grad(tensor({-3., 0.5, 7.}));
  clip_grad_value(std::vector{p}, 1);
  CHECK(p.grad().to_vector<float>() == std::vector<float>{-1, 0.5, 1});
  CHECK_THROWS_WITH(clip_grad_value(std::vector{p}, -1), "clip_grad_value: clip_value must not be negative, got -1");
}

}  // namespace reel
