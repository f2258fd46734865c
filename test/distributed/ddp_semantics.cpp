// Where ranks could come to train different models without anybody noticing.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>

#include "lib/base/sanitizers.h"
#include "test/distributed/models.h"

using namespace reel;
using namespace reel::distributed;
using namespace reel::distributed::test;
using Catch::Contains;

namespace {

/// Whether all ranks have ended with an Error whose message has all of these in it.
template <class Outcomes>
void check_all(const Outcomes& outcomes, const std::vector<std::string>& parts) {
  for (const auto& outcome : outcomes) {
    CAPTURE(outcome.message());
    CHECK(outcome.error);
    for (const std::string& part : parts) CHECK_THAT(outcome.message(), Contains(part));
  }
}

}  // namespace

TEST_CASE("a walk that reaches only what was frozen is refused", "[ddp]") {
  const auto outcomes = try_ranks(2, [](int rank) {
    Two net;
    net.a.requires_grad_(false);
    DistributedDataParallel ddp(net);
    sum(net.b).backward();
    net.a.requires_grad_(true);
    net.b.requires_grad_(false);
    sum(net.a * (rank + 1)).backward();
    return 0;
  });
  check_all(outcomes, {"was frozen"});
}

TEST_CASE("a parameter that is replaced or added after the first step is noticed", "[ddp]") {
  for (const bool added : {false, true}) {
    CAPTURE(added);
    const auto outcomes = try_ranks(2, [&](int rank) {
      Two net;
      std::optional<nn::Linear> head;
      DistributedDataParallel ddp(net);
      for (int step = 0; step < 3; ++step) (sum(net.a) + sum(net.b)).backward();
      if (added)
        head.emplace(net, "head", 2, 2);
      else
        net.a = ones({2}) * 3;
      (sum(net.a * (rank + 1)) + sum(net.b)).backward();
      return 0;
    });
    check_all(outcomes, {added ? "head.weight" : "a", "after the module"});
  }
}

TEST_CASE("a buffer that is replaced is rank 0's as well", "[ddp]") {
  struct Net : nn::Module {
    nn::Parameter a{*this, "a", ones({2})};
    nn::Buffer mask{*this, "mask", zeros({2})}, count{*this, "count", zeros({}, {.dtype = kInt64})};
  };
  for (const Tensors& seen : on_ranks(2, [](int rank) {
         Net net;
         DistributedDataParallel ddp(net);
         sum(net.a).backward();
         net.mask = full({2}, rank + 3.0);
         net.count.add_(rank + 7);
         sum(net.a).backward();
         return copies({net.mask, net.count});
       })) {
    CHECK(equal(seen[0], full({2}, 3.0)));
    CHECK(seen[1].item<int64_t>() == 7);
  }
}

TEST_CASE("training goes on alike after join(), whatever the optimizer remembers", "[ddp]") {
  const auto results = on_ranks(3, [](int rank) {
    manual_seed(1);
    Mlp net;
    DistributedDataParallel ddp(net);
    optim::Adam adam(net.parameters(), {.lr = 0.0625});
    for (int epoch = 0; epoch < 3; ++epoch) {
      const auto guard = ddp.join(adam);
      for (int step = 0; step < 2 + 2 * rank; ++step) {
        adam.zero_grad();
        net.loss(10 * epoch + 3 * step + rank).backward();
        adam.step();
      }
    }
    Tensors all = copies(net.parameters());
    for (const auto& [name, value] : adam.state_dict()) all.push_back(value.clone());
    return all;
  });
  for (const Tensors& all : results) CHECK(same(all, results[0]));
}

TEST_CASE("weights that drift apart are noticed", "[ddp]") {
  const std::vector<std::string> ways{"no_sync on one rank", "other rate",         "no step",
                                      "set by hand",         "reduce on one rank", "join"};
  for (const std::string& way : ways) {
    CAPTURE(way);
    const auto outcomes = try_ranks(3, [&](int rank) {
      manual_seed(1);
      Mlp net;
      DistributedDataParallel ddp(net);
      const bool odd = rank == 1;
      optim::SGD sgd(net.parameters(), {.lr = odd && way == "other rate" ? 0.5 : 0.25, .momentum = 0.5});
      std::optional<DistributedDataParallel::Join> join;
      for (int step = 0; step < 40; ++step) {
        sgd.zero_grad();
        {
          std::optional<DistributedDataParallel::NoSync> guard;
          if (odd && step == 3 && way == "no_sync on one rank") guard.emplace(ddp);
          net.loss(3 * step + rank).backward();
        }
        if (odd && step == 3 && way == "reduce on one rank") ddp.reduce();
        if (!odd || way != "no step" || step != 3) sgd.step();
        if (odd && step == 3 && way == "set by hand") {
          const NoGrad guard;
          Tensor(net.b.bias).fill_(1);
        }
        if (way == "join" && odd && step == 10) {
          const auto guard = ddp.join();
        }
        if (way == "join" && !odd && step == 12) {
          const auto guard = ddp.join();
        }
      }
      return 0;
    });
    check_all(outcomes, {"rank 1", "differ"});
  }
}

TEST_CASE("hooks that differ, and one that reduces nothing, are noticed", "[ddp]") {
  const CommHook none = [](ProcessGroup&, GradBucket) { return [] {}; };
  for (const bool differ : {true, false}) {
    const auto outcomes = try_ranks(2, [&](int rank) {
      manual_seed(1);
      Mlp net;
      DistributedDataParallel ddp(net, {.hook = !differ ? none : rank == 0 ? hooks::bf16() : hooks::fp16()});
      optim::SGD sgd(net.parameters(), {.lr = 0.25});
      for (int step = 0; step < 10; ++step) {
        sgd.zero_grad();
        net.loss(2 * step + rank).backward();
        sgd.step();
      }
      return 0;
    });
    check_all(outcomes, {differ ? "bfloat16" : "weights differ"});
    for (const auto& outcome : outcomes) CHECK(outcome.kind() == distributed::Error::kMismatch);
  }
}

TEST_CASE("weights that differ on purpose", "[ddp]") {
  // Each rank's gradient is taken where its own would lead.
  const auto results = on_ranks(2, [](int rank) {
    manual_seed(1);
    Mlp net;
    DistributedDataParallel ddp(net, {.check_weights = false});
    optim::SGD sgd(net.parameters(), {.lr = 0.25});
    for (int step = 0; step < 5; ++step) {
      const Tensors before = copies(net.parameters());
      const auto set = [&](double by) {
        const NoGrad guard;
        for (size_t i = 0; i < before.size(); ++i) net.parameters()[i].copy_(before[i] + by);
      };
      sgd.zero_grad();
      set(0.1 * rank);
      net.loss(step).backward();
      set(0);
      sgd.step();
    }
    return copies(net.parameters());
  });
  CHECK(same(results[0], results[1]));
}

TEST_CASE("wrapped modules may share what is frozen, but nothing that is trained", "[ddp]") {
  struct Parent : nn::Module {
    nn::Linear child{*this, "child", 2, 2}, other{*this, "other", 2, 2};
  };
  struct Second : nn::Module {
    nn::Linear child{*this, "child", 2, 2};
  };
  for (const bool frozen : {false, true}) {
    const auto outcomes = try_ranks(2, [&](int rank) {
      Parent net;
      if (frozen) net.child.requires_grad_(false);
      DistributedDataParallel ddp(net);
      Second second;
      second.child.weight = net.child.weight;
      DistributedDataParallel of_second(second);
      const Tensor x = ones({1, 2}) * (rank + 1);
      for (int step = 0; step < 2; ++step) {
        net.zero_grad(), second.zero_grad();
        sum(net.other(net.child(x)) + second.child(x)).backward();
      }
      return copies({net.other.bias.grad(), second.child.bias.grad()});
    });
    for (const auto& outcome : outcomes) {
      CAPTURE(frozen, outcome.message());
      if (!frozen) {
        CHECK_THAT(outcome.message(), Contains("another one"));
      } else {
        REQUIRE(outcome.value);
        for (const Tensor& g : *outcome.value) CHECK(equal(g, full({2}, 1.0)));
      }
    }
  }
}

TEST_CASE("halves and doubles train alike on five ranks that end at different times", "[ddp]") {
  struct Mixed : nn::Module {
    nn::Parameter half{*this, "half", ones({5}).to(kFloat16)}, brain{*this, "brain", ones({3}).to(kBFloat16)},
        wide{*this, "wide", ones({4}).to(kFloat64)}, none{*this, "none", zeros({0})}, one{*this, "one", full({}, 2.0)};
    nn::Buffer seen{*this, "seen", zeros({}, {.dtype = kInt64})};
    Tensor loss(int i) {
      seen.add_(1);
      const double k = 0.1 * (i % 7 + 1);
      const auto part = [&](const Tensor& p) { return sum(square(p.to(kFloat64)) * k); };
      return part(half) + part(brain) + part(wide) + part(one) + part(none);
    }
  };
  const auto results = on_ranks(5, [](int rank) {
    Mixed net;
    DistributedDataParallel ddp(net, {.bucket_bytes = 16, .first_bucket_bytes = 16});
    optim::AdamW adam(net.parameters(), {.lr = 0.03});
    for (int epoch = 0; epoch < 3; ++epoch) {
      const auto guard = ddp.join(adam);
      for (int step = 0; step < (rank + 2 * epoch) % 5; ++step) {
        adam.zero_grad();
        net.loss(7 * epoch + 5 * step + rank).backward();
        adam.step();
      }
    }
    Tensors all = copies(net.parameters());
    all.push_back(net.seen.clone());
    return all;
  });
  for (const Tensors& all : results) CHECK(same(all, results[0]));
  CHECK(!equal(results[0][0], ones({5}).to(kFloat16)));
}

TEST_CASE("an example that fails in forward() makes a rank end early", "[ddp]") {
  const auto outcomes = try_ranks(2, [](int rank) {
    Mlp net;
    DistributedDataParallel ddp(net);
    for (int step = 1; step <= 5; ++step) {
      if (rank == 1 && step == 2) continue;  // what a catch would do
      net.loss(rank).backward();
    }
    return 0;
  });
  CHECK(outcomes[1].value);
  CHECK(outcomes[0].kind() == distributed::Error::kPeerLost);
  CHECK_THAT(outcomes[0].message(), Contains("rank 1 left") && Contains("step 5") && Contains("join()"));
}

TEST_CASE("the first parameter that differs is named", "[ddp]") {
  struct Many : nn::Module {
    std::vector<nn::Parameter> list;
    Many() {
      list.reserve(300);
      for (int i = 0; i < 300; ++i) list.emplace_back(*this, "p" + std::to_string(i), ones({1 + i % 7}));
    }
  };
  const auto outcomes = try_ranks(3, [](int rank) {
    Many net;
    DistributedDataParallel ddp(net);
    for (int step = 0; step < 100; ++step) {
      if (rank == 2 && step == 5) {
        const NoGrad guard;
        for (const size_t i : {217, 229}) Tensor(net.list[i]).fill_(5);
      }
      sum(net.list[0]).backward();
    }
    return 0;
  });
  check_all(outcomes, {"rank 2", "p217", "differ"});
}

TEST_CASE("a parameter that is frozen on one rank gets what the others have", "[ddp]") {
  const auto results = on_ranks(2, [](int rank) {
    Two net;
    DistributedDataParallel ddp(net);
    optim::SGD sgd(net.parameters(), {.lr = 1});
    Tensors seen;
    for (int step = 0; step < 3; ++step) {
      net.b.requires_grad_(rank == 0 || step == 0);
      sgd.zero_grad();
      (sum(net.a) + sum(net.b)).backward();
      seen.push_back(net.b.grad().clone());
    }
    return seen;
  });
  for (const Tensors& seen : results) {
    CHECK(equal(seen[0], full({3}, 1.0)));
    CHECK(equal(seen[1], full({3}, 0.5)));
    CHECK(equal(seen[2], full({3}, 0.5)));
  }
}

TEST_CASE("a wrapper that is refused takes nothing from the one that is there", "[ddp]") {
  for (const Tensor& g : on_ranks(2, [](int rank) {
         Two net;
         DistributedDataParallel ddp(net);
         {
           const auto guard = ddp.no_sync();
           sum(net.a * (rank + 1)).backward();
         }
         try {
           DistributedDataParallel again(net);
         } catch (const reel::Error&) {
         }
         ddp.reduce();
         return net.a.grad().clone();
       }))
    CHECK(equal(g, full({2}, 1.5)));
}

TEST_CASE("gradients that were there before the module was wrapped are reduced, too", "[ddp]") {
  for (const Tensors& g : on_ranks(2, [](int rank) {
         Two net;
         sum(net.a * (rank + 1)).backward();
         DistributedDataParallel ddp(net);
         sum(net.b).backward();
         return grads(net);
       })) {
    CHECK(equal(g[0], full({2}, 1.5)));
    CHECK(equal(g[1], full({3}, 1.0)));
  }
}

TEST_CASE("a module that is frozen on one rank only is refused on all", "[ddp]") {
  const auto outcomes = try_ranks(3, [](int rank) {
    Two net;
    if (rank == 1) net.requires_grad_(false);
    DistributedDataParallel ddp(net);
    return 0;
  });
  check_all(outcomes, {"rank 1 has parameter a", "frozen"});
}

TEST_CASE("wrapping a module draws no random numbers", "[ddp]") {
  for (const bool differs : on_ranks(2, [](int rank) {
         Mlp net;
         manual_seed(1 + static_cast<uint64_t>(rank));
         const Tensor first = rand({8}), second = rand({8});
         manual_seed(1 + static_cast<uint64_t>(rank));
         rand({8});
         DistributedDataParallel ddp(net);
         net.zero_grad();
         ddp.reduce();
         return !equal(rand({8}), second);
       }))
    CHECK(!differs);
}

TEST_CASE("a wrapper goes and another one comes", "[ddp]") {
  const auto results = on_ranks(2, [](int rank) {
    manual_seed(1);
    Mlp net;
    optim::Adam adam(net.parameters(), {.lr = 0.0625});
    for (int round = 0; round < 4; ++round) {
      if (round == 2) {  // without any
        adam.zero_grad();
        net.loss(5).backward();
        adam.step();
        continue;
      }
      DistributedDataParallel ddp(net, {.bucket_bytes = size_t{64} << (4 * round)});
      for (int step = 0; step < 3; ++step) {
        adam.zero_grad();
        net.loss(6 * round + 2 * step + rank).backward();
        adam.step();
      }
    }
    return copies(net.parameters());
  });
  CHECK(same(results[0], results[1]));
}

TEST_CASE("gradients that are filled with zeros are as good as none", "[ddp]") {
  const auto train = [](int rank, bool none) {
    manual_seed(1);
    Mlp net;
    DistributedDataParallel ddp(net);
    optim::SGD sgd(net.parameters(), {.lr = 0.25, .momentum = 0.5});
    for (int step = 0; step < 4; ++step) {
      sgd.zero_grad(none);
      const Tensor loss = net.loss(2 * step + rank), other = net.loss(100 + 2 * step + rank);
      loss.backward({}, {.retain_graph = true});
      other.backward();
      loss.backward();  // adds to the mean
      sgd.step();
    }
    return copies(net.parameters());
  };
  const auto none = on_ranks(2, [&](int rank) { return train(rank, true); });
  const auto zeros = on_ranks(2, [&](int rank) { return train(rank, false); });
  CHECK(same(none[0], none[1]));
  CHECK(same(none[0], zeros[0]));
  CHECK(same(none[0], zeros[1]));
}

TEST_CASE("a NaN of one rank is everybody's", "[ddp]") {
  const auto results = on_ranks(3, [](int rank) {
    manual_seed(1);
    Mlp net;
    DistributedDataParallel ddp(net);
    optim::SGD sgd(net.parameters(), {.lr = 0.25});
    for (int step = 0; step < 4; ++step) {
      sgd.zero_grad();
      Tensor loss = net.loss(step);
      if (rank == 2 && step == 1) loss = loss * std::nan("");
      loss.backward();
      sgd.step();
    }
    return net.b.bias.clone();
  });
  for (const Tensor& bias : results) CHECK(std::isnan(bias[0].item<float>()));
}

TEST_CASE("ten thousand small parameters", "[ddp]") {
#ifdef REEL_THREAD_SANITIZER
  constexpr int kParameters = 1000;  // registering them compares all their names
#else
  constexpr int kParameters = 10000;
#endif
  struct Many : nn::Module {
    std::vector<nn::Parameter> list;
    Many() {
      list.reserve(kParameters);
      for (int i = 0; i < kParameters; ++i) list.emplace_back(*this, "p" + std::to_string(i), ones({4}));
    }
    Tensor loss() const { return sum(stack(std::vector<Tensor>(list.begin(), list.end()))); }
  };
  using Clock = std::chrono::steady_clock;
  const auto seconds = [](auto f) {
    const auto start = Clock::now();
    f();
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const auto results = on_ranks(2, [&](int) {
    Many net;
    std::vector<double> times;
    const auto step = [&] {
      net.zero_grad();
      net.loss().backward();
    };
    step();
    times.push_back(seconds(step));
    DistributedDataParallel ddp(net);
    times.push_back(seconds(step));
    times.push_back(1e9);
    for (int i = 0; i < 3; ++i) times.back() = std::min(times.back(), seconds(step));
    return times;
  });
  const auto& times = results[0];
  INFO(kParameters << " parameters, seconds a step: alone " << times[0] << ", the first wrapped " << times[1]
                   << ", then " << times[2]);
  CHECK(times[1] < 3);
}
