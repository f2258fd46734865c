// DistributedDataParallel with everything else that trains: shared and frozen parameters, hooks, checkpoints, scalers,
// buffers, several wrapped modules.
#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "reel/distributed/collectives.h"
#include "test/distributed/models.h"

using namespace reel;
using namespace reel::distributed;
using namespace reel::distributed::test;
using Catch::Contains;

namespace {

struct Shared : nn::Module {
  nn::Linear in{*this, "in", 4, 4}, out{*this, "out", 4, 4};
  nn::Linear frozen{*this, "frozen", 4, 4};
  Shared() {
    out.weight = in.weight;
    frozen.requires_grad_(false);
  }
  Tensor forward(const Tensor& x) const { return out(tanh(frozen(in(x)))); }
};

Tensor batch(int rank, int columns = 4) {
  manual_seed(50 + static_cast<uint64_t>(rank));
  return randn({3, columns});
}

// The mean of what each rank's own gradients would be.
template <class Make, class Loss>
Tensors mean_grads(int world, Make make, Loss loss) {
  Tensors sums;
  for (int rank = 0; rank < world; ++rank) {
    manual_seed(1);
    auto model = make();
    loss(*model, rank).backward();
    const Tensors own = grads(*model);
    if (sums.empty()) {
      sums = own;
      continue;
    }
    for (size_t i = 0; i < own.size(); ++i)
      if (own[i].defined()) sums[i] = sums[i].defined() ? sums[i] + own[i] : own[i];
  }
  for (Tensor& sum : sums)
    if (sum.defined()) sum = sum / world;
  return sums;
}

}  // namespace

TEST_CASE("shared and frozen parameters", "[ddp]") {
  const auto loss = [](Shared& net, int rank) { return reel::mean(square(net.forward(batch(rank)))); };
  const Tensors expected = mean_grads(
      2, [] { return std::make_unique<Shared>(); }, loss);
  for (const Tensors& g : on_ranks(2, [&](int rank) {
         manual_seed(1 + static_cast<uint64_t>(rank));
         Shared net;
         DistributedDataParallel ddp(net);
         loss(net, rank).backward();
         return grads(net);
       }))
    CHECK(same(g, expected));
  // A frozen one that is set free would not be reduced.
  const auto outcomes = try_ranks(2, [&](int rank) {
    Shared net;
    DistributedDataParallel ddp(net);
    net.frozen.requires_grad_(true);
    loss(net, rank).backward();
    return 0;
  });
  for (const auto& outcome : outcomes) CHECK_THAT(outcome.message(), Contains("was frozen"));
}

TEST_CASE("hooks run once, and what they change is what is reduced", "[ddp]") {
  const auto results = on_ranks(2, [](int rank) {
    Mlp net;
    DistributedDataParallel ddp(net);
    int before = 0, after = 0;
    std::vector<Tensor> seen;
    net.a.bias.register_hook([&](const Tensor& g) {
      ++before;
      return full(g.shape(), rank == 0 ? 1.0 : 3.0);
    });
    net.b.bias.register_post_accumulate_grad_hook([&](const Tensor& p) {
      ++after;
      p.grad().fill_(rank == 0 ? 10.0 : 20.0);
    });
    for (int step = 0; step < 3; ++step) {
      net.zero_grad();
      net.loss(rank).backward();
    }
    seen = {net.a.bias.grad(), net.b.bias.grad(), tensor({before, after})};
    return copies(seen);
  });
  for (const Tensors& seen : results) {
    CHECK(equal(seen[0], full({8}, 2.0)));
    CHECK(equal(seen[1], full({3}, 15.0)));
    CHECK(equal(seen[2], tensor({3, 3})));
  }
}

TEST_CASE("checkpoints, and gradients that are clipped", "[ddp]") {
  struct Deep : nn::Module {
    nn::Linear a{*this, "a", 4, 4}, b{*this, "b", 4, 4};
    Tensor loss(int rank) const {
      const auto f = [this](const std::vector<Tensor>& x) { return std::vector{tanh(b(tanh(a(x[0]))))}; };
      const Tensor x = checkpoint(f, {batch(rank)})[0];
      return reel::mean(square(checkpoint(f, {x})[0])) * 100;
    }
  };
  const auto loss = [](Deep& net, int rank) { return net.loss(rank); };
  Tensors expected = mean_grads(
      2, [] { return std::make_unique<Deep>(); }, loss);
  Tensor squares = 0.0;
  for (const Tensor& g : expected) squares = squares + sum(square(g));
  const double norm = std::sqrt(squares.item<double>());
  for (const Tensors& g : on_ranks(2, [&](int rank) {
         manual_seed(1);
         Deep net;
         DistributedDataParallel ddp(net);
         net.loss(rank).backward();
         Tensors all = grads(net);
         all.push_back(optim::clip_grad_norm(net.parameters(), 0.5));
         return all;
       })) {
    for (size_t i = 0; i < expected.size(); ++i) CHECK(allclose(g[i], expected[i], 1e-6, 1e-7));
    CHECK(g.back().item<double>() == Approx(norm));
  }
}

TEST_CASE("two wrapped modules: a generator and its adversary", "[ddp]") {
  struct Gan {
    nn::Sequential make{nn::Linear(2, 6), nn::Tanh(), nn::Linear(6, 2)};
    nn::Sequential judge{nn::Linear(2, 6), nn::Tanh(), nn::Linear(6, 1)};
  };
  // One iteration of both; `settle` is called after each walk of a reference.
  const auto fake = [](Gan& gan, int step, int rank) {
    manual_seed(static_cast<uint64_t>(10 + step * 2 + rank));
    return gan.make(randn({4, 2}));
  };
  const auto judge_loss = [&](Gan& gan, int step, int rank) {
    const Tensor made = fake(gan, step, rank).detach();
    return reel::mean(square(gan.judge(made))) + reel::mean(square(gan.judge(made * 0 + 1) - 1));
  };
  const auto make_loss = [&](Gan& gan, int step, int rank) {
    return reel::mean(square(gan.judge(fake(gan, step, rank)) - 1));
  };
  constexpr int kSteps = 6;
  manual_seed(1);
  Gan gan;
  optim::SGD of_make(gan.make.parameters(), {.lr = 0.125}), of_judge(gan.judge.parameters(), {.lr = 0.125});
  for (int step = 0; step < kSteps; ++step) {
    of_judge.zero_grad();
    for (int r = 0; r < 2; ++r) {
      judge_loss(gan, step, r).backward();
      grads(gan.judge);
    }
    for (const Tensor& p : gan.judge.parameters()) p.grad().div_(2);
    of_judge.step();
    of_make.zero_grad();
    for (int r = 0; r < 2; ++r) {
      make_loss(gan, step, r).backward();
      grads(gan.make);
    }
    for (const Tensor& p : gan.make.parameters()) p.grad().div_(2);
    of_make.step();
  }
  Tensors reference = copies(gan.make.parameters());
  for (const Tensor& p : copies(gan.judge.parameters())) reference.push_back(p);
  for (const Tensors& w : on_ranks(2, [&](int rank) {
         manual_seed(1);
         Gan net;
         DistributedDataParallel ddp_make(net.make), ddp_judge(net.judge, {.bucket_bytes = 16});
         optim::SGD sgd_make(net.make.parameters(), {.lr = 0.125}), sgd_judge(net.judge.parameters(), {.lr = 0.125});
         for (int step = 0; step < kSteps; ++step) {
           sgd_judge.zero_grad();
           judge_loss(net, step, rank).backward();
           sgd_judge.step();
           sgd_make.zero_grad();
           make_loss(net, step, rank).backward();  // reduces the judge's, too, to no purpose
           sgd_make.step();
         }
         Tensors all = copies(net.make.parameters());
         for (const Tensor& p : copies(net.judge.parameters())) all.push_back(p);
         return all;
       }))
    CHECK(same(w, reference));
}

TEST_CASE("a scaler sees an infinity of one rank on all of them", "[ddp]") {
  const auto results = on_ranks(2, [](int rank) {
    manual_seed(1);
    Mlp net;
    DistributedDataParallel ddp(net);
    optim::SGD sgd(net.parameters(), {.lr = 0.5});
    amp::GradScaler scaler({.init_scale = 8, .growth_interval = 2});
    Tensors seen;
    for (int step = 0; step < 5; ++step) {
      sgd.zero_grad();
      Tensor loss = net.loss(step * 2 + rank);
      if (step == 2 && rank == 1) loss = loss * std::numeric_limits<double>::infinity();
      scaler.scale(loss).backward();
      const bool taken = scaler.step(sgd);
      scaler.update();
      seen.push_back(tensor({taken ? 1.0 : 0.0, scaler.get_scale()}));
    }
    for (const Tensor& p : copies(net.parameters())) seen.push_back(p);
    return seen;
  });
  CHECK(same(results[0], results[1]));
  CHECK(equal(results[0][2], tensor({0.0, 8.0})));
  CHECK(equal(results[0][3], tensor({1.0, 8.0})));
}

TEST_CASE("buffers are rank 0's after each reduction", "[ddp]") {
  struct Net : nn::Module {
    nn::Linear fc{*this, "fc", 4, 3};
    nn::BatchNorm1d norm{*this, "norm", 3};
    nn::Buffer constant{*this, "constant", zeros({4})};
    Tensor loss(int rank) const { return reel::mean(square(norm(fc(batch(rank))) - 1)); }
  };
  for (const bool broadcast : {true, false}) {
    const auto results = on_ranks(2, [&](int rank) {
      manual_seed(1 + static_cast<uint64_t>(rank));
      Net net;
      net.constant.fill_(rank + 1);
      DistributedDataParallel ddp(net, {.broadcast_buffers = broadcast});
      for (int step = 0; step < 3; ++step) net.loss(rank).backward();
      Tensors seen = copies(net.buffers());
      net.constant.fill_(rank + 5);
      net.loss(rank).backward();
      seen.push_back(net.constant.clone());
      return seen;
    });
    const auto running_mean = [&](size_t r) { return results[r][0]; };
    CHECK(equal(running_mean(0), running_mean(1)) == broadcast);
    CHECK(same(results[0], results[1]) == broadcast);
    CHECK(results[1].back()[0].item<float>() == (broadcast ? 5 : 6));
  }
}

TEST_CASE("parameters of several dtypes, and compressed gradients", "[ddp]") {
  struct Mixed : nn::Module {
    nn::Parameter half{*this, "half", ones({5}).to(kBFloat16)}, single{*this, "single", ones({7})},
        wide{*this, "wide", ones({3}).to(kFloat64)}, half2{*this, "half2", ones({2, 3}).to(kFloat16)},
        empty{*this, "empty", zeros({0, 4})}, scalar{*this, "scalar", full({}, 2.0)};
    Tensor loss(int rank) const {
      const auto part = [&](const Tensor& p) { return sum(p * (rank + 1)).to(kFloat64); };
      return part(half) + part(single) + part(wide) + part(half2) + part(empty) + part(scalar);
    }
  };
  for (const auto& [name, hook] :
       std::map<std::string, CommHook>{{"none", {}}, {"bf16", hooks::bf16()}, {"fp16", hooks::fp16()}}) {
    CAPTURE(name);
    for (const Tensors& g : on_ranks(2, [&, &hook = hook](int rank) {
           Mixed net;
           DistributedDataParallel ddp(net, {.hook = hook});
           for (int step = 0; step < 2; ++step) {
             net.zero_grad();
             net.loss(rank).backward();
           }
           return grads(net);
         }))
      for (const Tensor& grad : g) CHECK(equal(grad, full(grad.shape(), 1.5, {.dtype = grad.dtype()})));
  }
  // bfloat16 rounds; what the hook returns is what counts.
  for (const Tensors& g : on_ranks(2, [&](int rank) {
         Mixed net;
         DistributedDataParallel ddp(net, {.hook = hooks::bf16()});
         sum(net.single * (rank == 0 ? 1.001 : 1)).backward();
         return grads(net);
       })) {
    CHECK(equal(g[1], full({7}, 1.0)));
    CHECK(!g[0].defined());
  }
  const auto own = [](ProcessGroup& group, GradBucket bucket) -> std::function<void()> {
    return [work = group.all_reduce(bucket.flat), flat = bucket.flat]() mutable {
      work.wait();
      flat.mul_(10);
    };
  };
  for (const Tensors& g : on_ranks(2, [&](int rank) {
         Mixed net;
         DistributedDataParallel ddp(net, {.bucket_bytes = 1, .hook = own});
         sum(net.single * (rank + 1)).backward();
         return grads(net);
       }))
    CHECK(equal(g[1], full({7}, 15.0)));
}

TEST_CASE("a closure is evaluated alike on all ranks", "[ddp]") {
  const auto results = on_ranks(2, [](int rank) {
    manual_seed(1);
    Mlp net;
    DistributedDataParallel ddp(net);
    optim::LBFGS lbfgs(net.parameters(), {.lr = 0.5, .max_iter = 4});
    for (int step = 0; step < 3; ++step)
      lbfgs.step([&] {
        net.zero_grad();
        const Tensor loss = net.loss(rank);
        {
          const auto guard = ddp.no_sync();
          loss.backward();
        }
        ddp.reduce();
        return distributed::mean(loss);
      });
    return copies(net.parameters());
  });
  CHECK(same(results[0], results[1]));
}

TEST_CASE("a world of one computes as without", "[ddp]") {
  const auto train = [](bool wrap) {
    manual_seed(1);
    Mlp net;
    std::optional<DistributedDataParallel> ddp;
    if (wrap) ddp.emplace(net);
    for (int step = 0; step < 3; ++step) net.loss(step).backward();
    if (wrap) {
      const auto guard = ddp->no_sync();
      ddp->reduce();
    } else {
      for (const Tensor& p : net.parameters()) p.grad();
    }
    return grads(net);
  };
  CHECK(same(on_ranks(1, [&](int) { return train(true); })[0], train(false)));
}

TEST_CASE("the profiler shows when buckets were ready, launched and done", "[ddp]") {
  profile::start();
  on_ranks(2, [](int rank) {
    Mlp net;
    DistributedDataParallel ddp(net, {.bucket_bytes = 64, .first_bucket_bytes = 64});
    for (int step = 0; step < 2; ++step) net.loss(rank).backward();
    return 0;
  });
  const profile::Report report = profile::stop();
  std::map<std::string, int> events;
  for (const profile::Event& e : report.events) {
    if (e.kind != profile::Kind::kCommunication) continue;
    CHECK(e.end >= e.begin);
    ++events[e.name.substr(0, e.name.find(" ("))];
  }
  CHECK(events["bucket 0"] == 8);  // ready to launched, launched to done
  CHECK(events["bucket 1"] == 8);
  CHECK(events["rank 0 came last"] + events["rank 1 came last"] == 2);
}

TEST_CASE("a gradient that somebody holds stays what it was, or follows where it is added to", "[ddp]") {
  for (const bool kept : on_ranks(2, [&](int rank) {
         manual_seed(1);
         nn::Linear net(4, 4);
         DistributedDataParallel ddp(net);
         const auto walk = [&](int seed) { reel::mean(square(net(batch(seed + rank)))).backward(); };
         walk(0);
         bool good = true;
         for (int step = 1; step < 4; ++step) {
           net.zero_grad();
           walk(10 * step);
           const Tensor held = net.weight.grad(), value = held.clone();
           net.zero_grad();
           walk(100 * step);
           good = good && same({held}, {value}) && !same({net.weight.grad()}, {value});
           const Tensor other = net.weight.grad(), before = other.clone();
           walk(1000 * step);  // adds to it
           good = good && same({other}, {net.weight.grad()}) && !same({other}, {before});
         }
         return good;
       }))
    CHECK(kept);
}
