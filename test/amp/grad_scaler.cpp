#include "reel/amp/grad_scaler.h"

#include <limits>
#include <set>

#include "reel/amp.h"
#include "reel/autograd.h"
#include "reel/cuda.h"
#include "reel/io.h"
#include "reel/ops.h"
#include "reel/optim.h"
#include "reel/random.h"
#include "test/support/pch.h"

namespace reel {
namespace {

using Catch::Contains;

constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();

/// A parameter whose gradient will be the scale times g.
void backward_with(amp::GradScaler& scaler, const Tensor& p, const Tensor& g) { scaler.scale(sum(p * g)).backward(); }

}  // namespace

TEST_CASE("the scale goes where PyTorch's goes, over a script of infinities", "[amp]") {
  // torch.amp.GradScaler("cpu", 1024, 3, 0.25, 2) of PyTorch 2.15 with SGD(lr=0.1) for p, of gradient (0.5, 0.25), and
  // for q, of gradient 1. In step A the gradient of p[1] is infinite, in B that of q is NaN; in U p's is infinite, and
  // its optimizer is only unscaled; i ends with update(100).
  struct Step {
    char what;
    double scale;
    int64_t tracker;
    float p0, p1, q;
  };
  const Step script[] = {
      {'o', 1024.0, 1, 0.949999988079071F, -2.0250000953674316F, 0.4000000059604645F},
      {'o', 3072.0, 0, 0.8999999761581421F, -2.0500001907348633F, 0.30000001192092896F},
      {'A', 768.0, 0, 0.8999999761581421F, -2.0500001907348633F, 0.20000001788139343F},
      {'o', 768.0, 1, 0.8499999642372131F, -2.075000286102295F, 0.10000001639127731F},
      {'B', 192.0, 0, 0.7999999523162842F, -2.1000003814697266F, 0.10000001639127731F},
      {'o', 192.0, 1, 0.7499999403953552F, -2.125000476837158F, 1.4901161193847656e-08F},
      {'o', 576.0, 0, 0.6999999284744263F, -2.15000057220459F, -0.09999998658895493F},
      {'o', 576.0, 1, 0.6499999165534973F, -2.1750006675720215F, -0.19999998807907104F},
      {'A', 144.0, 0, 0.6499999165534973F, -2.1750006675720215F, -0.29999998211860657F},
      {'B', 36.0, 0, 0.5999999046325684F, -2.200000762939453F, -0.29999998211860657F},
      {'o', 36.0, 1, 0.5499998927116394F, -2.2250008583068848F, -0.3999999761581421F},
      {'i', 100.0, 1, 0.49999988079071045F, -2.2500009536743164F, -0.4999999701976776F},
      {'o', 300.0, 0, 0.4499998688697815F, -2.275001049041748F, -0.5999999642372131F},
      {'o', 300.0, 1, 0.39999985694885254F, -2.3000011444091797F, -0.699999988079071F},
      {'o', 900.0, 0, 0.3499998450279236F, -2.3250012397766113F, -0.800000011920929F},
      {'o', 900.0, 1, 0.29999983310699463F, -2.350001335144043F, -0.9000000357627869F},
      {'U', 225.0, 0, 0.29999983310699463F, -2.350001335144043F, -1.0F},
      {'o', 225.0, 1, 0.24999983608722687F, -2.3750014305114746F, -1.100000023841858F},
      {'o', 675.0, 0, 0.1999998390674591F, -2.4000015258789062F, -1.2000000476837158F},
  };
  const Tensor p = tensor({1.0, -2.0}).requires_grad_(), q = tensor({0.5}).requires_grad_();
  optim::SGD a({p}, {.lr = 0.1}), b({q}, {.lr = 0.1});
  amp::GradScaler scaler({.init_scale = 1024, .growth_factor = 3, .backoff_factor = 0.25, .growth_interval = 2});
  for (const Step& step : script) {
    INFO(&step - script << ": " << step.what);
    a.zero_grad(), b.zero_grad();
    const bool bad_a = step.what == 'A' || step.what == 'U', bad_b = step.what == 'B';
    const std::vector<Tensor> losses{sum(p * tensor({0.5, bad_a ? kInfinity : 0.25})),
                                     sum(q * tensor({bad_b ? kNaN : 1.0}))};
    for (const Tensor& loss : scaler.scale(losses)) loss.backward();
    if (step.what == 'U')
      scaler.unscale_(a);
    else
      CHECK(scaler.step(a) == !bad_a);
    CHECK(scaler.step(b) == !bad_b);
    step.what == 'i' ? scaler.update(100) : scaler.update();
    CHECK(scaler.get_scale() == step.scale);
    CHECK(scaler.state_dict()["_growth_tracker"].item<int64_t>() == step.tracker);
    CHECK(p.to_vector<float>() == std::vector{step.p0, step.p1});
    CHECK(q.item<float>() == step.q);
  }
  // It does not grow beyond float32 (PyTorch's tracker starts again all the same).
  amp::GradScaler large({.init_scale = 0x1p127, .growth_interval = 1});
  a.zero_grad();
  backward_with(large, p, full({2}, 1e-30));
  large.step(a);
  large.update();
  CHECK(large.get_scale() == 0x1p127);
  CHECK(large.state_dict()["_growth_tracker"].item<int64_t>() == 0);
}

TEST_CASE("unscale_ finds what is not finite wherever it is, and divides the rest exactly", "[amp]") {
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16})
    for (const int64_t n : {0, 1, 3, 17, 1000, 5000}) {
      INFO(dtype << " [" << n << "]");
      const Tensor p = zeros({n}, {.dtype = dtype}).requires_grad_(), other = zeros({3}).requires_grad_();
      optim::SGD sgd({p, other}, {.lr = 1});
      amp::GradScaler scaler({.init_scale = 256});
      scaler.scale(ones({}));
      const auto run = [&](const Tensor& g) {
        Tensor(p).set_grad(g.to(dtype)), Tensor(other).set_grad(full({3}, 512.0));
        scaler.unscale_(sgd);
        const bool stepped = scaler.step(sgd);
        scaler.update(256);
        return stepped;
      };
      const Tensor g = remainder(arange(n), 100).to(kFloat32);
      CHECK(run(g * 256));
      CHECK(equal(p.grad().to(kFloat32), g));
      CHECK(equal(other.grad(), full({3}, 2.0)));
      CHECK(p.grad().dtype() == dtype);
      for (const double bad : {kInfinity, -kInfinity, kNaN})
        for (const int64_t at : std::set<int64_t>{0, n / 2, n - 1}) {
          if (at < 0 || at >= n) continue;
          const Tensor wrong = g.clone();
          wrong.select(0, at).fill_(bad);
          CHECK_FALSE(run(wrong));
        }
      CHECK(run(full({n}, dtype == kFloat64 ? 1e300 : 3e38, {.dtype = kFloat64})));  // finite
    }

  // A view's gradient, one that repeats an element, and more of them than a launch takes.
  std::vector<Tensor> many;
  for (int i = 0; i < 150; ++i) many.push_back(zeros({2, 3}).requires_grad_());
  optim::SGD sgd(many, {.lr = 1});
  amp::GradScaler scaler({.init_scale = 4});
  const auto fill = [&](double last) {
    scaler.scale(ones({}));
    for (size_t i = 0; i < many.size(); ++i) many[i].set_grad(full({2, 3}, 8.0));
    many[1].set_grad((arange(6).to(kFloat32) * 4).view({3, 2}).t());
    many[2].set_grad(full({1, 1}, 16.0).expand({2, 3}));
    many[149].set_grad(full({2, 3}, last));
  };
  fill(12);
  CHECK(scaler.step(sgd));
  CHECK(equal(many[0].grad(), full({2, 3}, 2.0)));
  CHECK(equal(many[1].grad(), arange(6).to(kFloat32).view({3, 2}).t()));
  CHECK(equal(many[2].grad(), full({2, 3}, 4.0)));
  CHECK(equal(many[149].grad(), full({2, 3}, 3.0)));
  scaler.update();
  fill(kNaN);
  CHECK_FALSE(scaler.step(sgd));
}

TEST_CASE("row-sparse gradients are scaled as rows", "[amp]") {
  manual_seed(8);
  const Tensor table = randn({10, 4}).requires_grad_(), ids = tensor({1, 3, 1});
  optim::SparseAdam adam({table}, {.lr = 0.1});
  amp::GradScaler scaler;
  scaler.scale(sum(embedding(table, ids, true) * 3)).backward();
  REQUIRE(table.sparse_grad());
  scaler.unscale_(adam);
  REQUIRE(table.sparse_grad());
  CHECK(equal(table.sparse_grad()->values, tensor({6.0, 3.0}).unsqueeze(1).expand({2, 4})));
  const Tensor before = table.detach().clone();
  CHECK(scaler.step(adam));
  scaler.update();
  CHECK_FALSE(equal(table, before));
  CHECK(equal(table[0], before[0]));
  adam.zero_grad();
  const Tensor now = table.detach().clone();
  scaler.scale(sum(embedding(table, ids, true) * kInfinity)).backward();
  CHECK_FALSE(scaler.step(adam));
  CHECK(equal(table, now));
  scaler.update();
  CHECK(scaler.get_scale() == 32768);
}

TEST_CASE("a step that is left out leaves the optimizer alone", "[amp]") {
  const Tensor p = ones({3}).requires_grad_();
  optim::Adam adam({p}, {.lr = 0.1});
  amp::GradScaler scaler;
  backward_with(scaler, p, full({3}, kInfinity));
  CHECK_FALSE(scaler.step(adam));
  scaler.update();
  CHECK_FALSE(adam.state_dict().contains("state.0.step"));
  CHECK(equal(p, ones({3})));
}

TEST_CASE("a loss of a half type has room for its scale", "[amp]") {
  amp::GradScaler scaler;
  const Tensor loss = ones({}, {.dtype = kFloat16}).requires_grad_();
  CHECK(scaler.scale(loss).dtype() == kFloat32);
  CHECK(scaler.scale(loss).item<float>() == 65536);
  CHECK(scaler.scale(ones({2}, {.dtype = kFloat16})).dtype() == kFloat16);
  CHECK(scaler.scale(ones({}, {.dtype = kFloat64})).dtype() == kFloat64);
}

TEST_CASE("GradScaler's calls have an order", "[amp]") {
  const Tensor p = ones({3}).requires_grad_(), q = ones({2}).requires_grad_();
  Tensor half = ones({2}, {.dtype = kFloat16}).requires_grad_();
  optim::SGD sgd({p}, {.lr = 0.1}), other({q}, {.lr = 0.1}), wrong({half}, {.lr = 0.1});
  amp::GradScaler scaler;
  CHECK_THROWS_WITH(scaler.scale(Tensor()), "GradScaler::scale: undefined tensor");
  CHECK_THROWS_WITH(scaler.step(sgd), "GradScaler::step: scale() has not been called");
  CHECK_THROWS_WITH(scaler.unscale_(sgd), "GradScaler::unscale_: scale() has not been called");
  CHECK_THROWS_WITH(scaler.update(), "GradScaler::update: scale() has not been called");
  backward_with(scaler, p, full({3}, 1.0));
  CHECK_THROWS_WITH(scaler.update(), Contains("no optimizer was stepped or unscaled"));
  CHECK_THROWS_WITH(scaler.update(-1), Contains("a scale of -1"));
  CHECK_THROWS_WITH(scaler.step(other), Contains("none of the optimizer's parameters has a gradient"));
  half.set_grad(ones({2}, {.dtype = kFloat16}));
  CHECK_THROWS_WITH(scaler.unscale_(wrong), Contains("has a gradient of float16"));
  scaler.unscale_(sgd);
  CHECK_THROWS_WITH(scaler.unscale_(sgd), Contains("has been called for this optimizer since the last update()"));
  CHECK(equal(p.grad(), ones({3})));
  CHECK(scaler.step(sgd));
  CHECK_THROWS_WITH(scaler.step(sgd), Contains("has been called for this optimizer since the last update()"));
  CHECK_THROWS_WITH(scaler.unscale_(sgd), "GradScaler::unscale_: called after step()");
  scaler.update();
  CHECK_THROWS_WITH(amp::GradScaler({.growth_factor = 1}), Contains("growth_factor = 1, not more than 1"));
  CHECK_THROWS_WITH(amp::GradScaler({.backoff_factor = 1}), Contains("backoff_factor = 1"));
  CHECK_THROWS_WITH(amp::GradScaler({.growth_interval = 0}), Contains("growth_interval = 0"));
  CHECK_THROWS_WITH(amp::GradScaler({.init_scale = 1e39}), Contains("init_scale"));
  CHECK_THROWS_WITH(scaler.set_growth_factor(0.5), Contains("growth_factor = 0.5"));
  CHECK(scaler.options().growth_factor == 2);
  scaler.set_backoff_factor(0.25);
  CHECK(scaler.options().backoff_factor == 0.25);
}

TEST_CASE("a GradScaler that is not enabled does nothing but step", "[amp]") {
  const Tensor p = ones({2}).requires_grad_();
  optim::SGD sgd({p}, {.lr = 1});
  amp::GradScaler scaler({.enabled = false});
  const Tensor loss = sum(p);
  CHECK(scaler.scale(loss).is_same(loss));
  loss.backward();
  scaler.unscale_(sgd);
  CHECK(scaler.step(sgd));
  scaler.update();
  CHECK(equal(p, zeros({2})));
  CHECK(scaler.get_scale() == 1);
  CHECK(scaler.state_dict().empty());
  scaler.load_state_dict({});
  CHECK_FALSE(scaler.is_enabled());
}

TEST_CASE("a GradScaler is saved and goes on", "[amp]") {
  const Tensor p = ones({2}).requires_grad_();
  optim::SGD sgd({p}, {.lr = 0.1});
  amp::GradScaler scaler({.init_scale = 64, .growth_factor = 4, .backoff_factor = 0.125, .growth_interval = 3});
  const auto iterate = [&](amp::GradScaler& s, double g) {
    sgd.zero_grad();
    backward_with(s, p, full({2}, g));
    s.step(sgd);
    s.update();
  };
  iterate(scaler, kInfinity), iterate(scaler, 1), iterate(scaler, 1);
  amp::GradScaler loaded;
  loaded.load_state_dict(scaler.state_dict());
  CHECK(loaded.get_scale() == 8);
  for (amp::GradScaler* s : {&scaler, &loaded}) {
    iterate(*s, 1);
    CHECK(s->get_scale() == 32);
    iterate(*s, kNaN);
    CHECK(s->get_scale() == 4);
  }
  StateDict dict = scaler.state_dict();
  CHECK_THROWS_WITH(loaded.load_state_dict({}), Contains("the dict is empty"));
  dict.erase(dict.begin());
  dict.emplace_back("what", ones({}));
  CHECK_THROWS_WITH(loaded.load_state_dict(dict), Contains("missing: scale") && Contains("unexpected: what"));
  dict = scaler.state_dict();
  dict[3].second = full({}, 2.5);
  CHECK_THROWS_WITH(loaded.load_state_dict(dict), Contains("growth_interval = 2.5"));
  dict = scaler.state_dict();
  dict[0].second = ones({2});
  CHECK_THROWS_WITH(loaded.load_state_dict(dict), Contains("shape of scale: [2]"));
  CHECK(loaded.get_scale() == 4);
  io::Checkpoint().add("scaler", scaler);  // compiles
}

TEST_CASE("on a GPU only GradScaler's step waits", "[amp]") {
  if (default_device() == kCPU) return;
  const Tensor p = ones({2}).requires_grad_();
  optim::SGD sgd({p}, {.lr = 0.1});
  amp::GradScaler scaler;
  struct NoWaits {
    NoWaits() { cuda::set_sync_debug_mode(cuda::SyncDebugMode::kError); }
    ~NoWaits() { cuda::set_sync_debug_mode(cuda::SyncDebugMode::kDefault); }
  };
  const Tensor x = randn({3, 2}), g = ones({2});
  const Tensor w = randn({2, 2}).requires_grad_();
  sum(amp::autocast([&] { return matmul(x, w); }));  // the memory is there
  {
    NoWaits guard;
    const Tensor loss = amp::autocast(kFloat16, [&] { return sum(matmul(x, w)); });
    scaler.scale(loss).backward();
    backward_with(scaler, p, g);
    scaler.unscale_(sgd);
  }
  {
    NoWaits guard;
    CHECK_THROWS_AS(scaler.step(sgd), Error);
  }
  CHECK(scaler.step(sgd));
  NoWaits guard;
  scaler.update();
}

}  // namespace reel
