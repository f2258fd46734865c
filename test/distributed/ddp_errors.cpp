// What DistributedDataParallel refuses, and what the other ranks hear when one fails.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "test/distributed/models.h"

using namespace reel;
using namespace reel::distributed;
using namespace reel::distributed::test;
using Catch::Contains;

namespace {

/// The message of what f throws, "" if it throws nothing.
template <class F>
std::string message_of(F f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return {};
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

TEST_CASE("modules that differ between ranks are refused with the first difference", "[ddp]") {
  struct Net : nn::Module {
    std::vector<nn::Parameter> list;
    void add(const std::string& name, const Tensor& t) { list.emplace_back(*this, name, t); }
  };
  const auto with = [](const std::string& what, int rank) {
    auto net = std::make_unique<Net>();
    net->list.reserve(4);
    const bool odd = rank == 1;
    net->add("first", ones({2}));
    net->add(odd && what == "path" ? "other" : "second", ones({3, odd && what == "shape" ? 5 : 4}));
    net->add("third", odd && what == "dtype" ? ones({2}).to(kFloat64) : ones({2}));
    if (!odd || what != "count") net->add("fourth", ones({2}));
    if (odd && what == "frozen") net->list[0].requires_grad_(false);
    return net;
  };
  const std::vector<std::pair<std::string, std::pair<std::string, std::string>>> expected{
      {"path", {"parameter second, float32 [3, 4]", "parameter other, float32 [3, 4]"}},
      {"shape", {"parameter second, float32 [3, 4]", "parameter second, float32 [3, 5]"}},
      {"dtype", {"parameter third, float32 [2]", "parameter third, float64 [2]"}},
      {"count", {"parameter fourth, float32 [2]", "nothing more"}},
      {"frozen", {"parameter first, float32 [2]", "parameter first, float32 [2], frozen"}},
      {"options", {"bucket_bytes 4194304", "bucket_bytes 77"}},
  };
  for (const auto& [what, lines] : expected) {
    CAPTURE(what);
    const auto outcomes = try_ranks(3, [&, &name = what](int rank) {
      const auto net = with(name, rank);
      DistributedDataParallelOptions options;
      if (name == "options" && rank == 1) options.bucket_bytes = 77;
      DistributedDataParallel ddp(*net, options);
      return 0;
    });
    for (const auto& outcome : outcomes) {
      CHECK(outcome.kind() == distributed::Error::kMismatch);
      CHECK_THAT(outcome.message(), Contains("rank 0 has " + lines.first) && Contains("rank 1 has " + lines.second) &&
                                        !Contains("rank 2"));
    }
  }
}

TEST_CASE("what cannot be reduced is refused before anything is sent", "[ddp]") {
  const auto results = on_ranks(2, [](int rank) {
    Two net;
    DistributedDataParallel ddp(net);
    std::vector<std::string> seen;
    seen.push_back(message_of([&] { sum(net.a).backward({}, {.create_graph = true}); }));
    // Moved and converted modules.
    const Tensor loss = sum(net.a * (rank + 1) + sum(net.b));
    net.to(kFloat64);
    seen.push_back(message_of([&] { sum(net.a).backward(); }));
    net.to(kFloat32);
    seen.push_back(message_of([&] { ddp.reduce(); }));
    seen.push_back(message_of([&] { DistributedDataParallel again(net); }));
    // Training goes on.
    net.zero_grad();
    sum(net.a * (rank + 1)).backward();
    seen.push_back(net.a.grad().to_string());
    return seen;
  });
  for (const auto& seen : results) {
    CHECK_THAT(seen[0], Contains("create_graph") && Contains("no_sync()"));
    CHECK_THAT(seen[1], Contains("parameter a was float32 [2]") && Contains("is float64 [2]"));
    CHECK(seen[2].empty());
    CHECK_THAT(seen[3], Contains("another one"));
    CHECK(seen[4] == full({2}, 1.5).to_string());
  }
  for (const int world : {1, 2}) {
    const auto outcomes = try_ranks(world, [](int) {
      Two net;
      net.requires_grad_(false);
      DistributedDataParallel ddp(net);
      return 0;
    });
    for (const auto& outcome : outcomes) CHECK_THAT(outcome.message(), Contains("no parameter"));
  }
}

TEST_CASE("a walk within the walk must not touch what has been sent", "[ddp]") {
  for (const auto& [sent, unsynced] : {std::pair(false, false), {true, false}, {false, true}, {true, true}}) {
    CAPTURE(sent, unsynced);
    const auto outcomes = try_ranks(2, [&, sent = sent, unsynced = unsynced](int rank) {
      Two net;
      DistributedDataParallel ddp(net, {.bucket_bytes = 1, .first_bucket_bytes = 1});
      ddp.reduce();  // so that the next round sends while it walks
      bool nested = false;
      // The hook of y's gradient runs before a's is final, and after b's has been sent as unreached.
      Tensor y = net.a * 1;
      y.register_hook([&](const Tensor& g) {
        const EnableGrad recording;
        std::optional<DistributedDataParallel::NoSync> guard;
        if (unsynced) guard.emplace(ddp);
        if (!std::exchange(nested, true)) sum((sent ? net.b : net.a) * (rank + 1)).backward();
        return g;
      });
      sum(y).backward();
      return copies({net.a.grad()})[0];
    });
    for (const auto& outcome : outcomes) {
      if (sent) {
        CHECK_THAT(outcome.message(), Contains("parameter b") && Contains("no_sync()"));
      } else {
        CAPTURE(outcome.message());
        REQUIRE(outcome.value);
        CHECK(equal(*outcome.value, full({2}, 2.5)));
      }
    }
  }
}

TEST_CASE("two walks at once are refused, and the first goes on", "[ddp]") {
  const auto results = on_ranks(2, [](int rank) {
    Two net;
    DistributedDataParallel ddp(net);
    std::string other;
    net.a.register_hook([&](const Tensor& g) {
      std::thread([&] { other = message_of([&] { sum(net.b).backward(); }); }).join();
      return g * (rank + 1);
    });
    sum(net.a).backward();
    return std::pair(other, net.a.grad().clone());
  });
  for (const auto& [other, grad] : results) {
    CHECK_THAT(other, Contains("two reductions at once") && Contains("reduce()"));
    CHECK(equal(grad, full({2}, 1.5)));
  }
}

TEST_CASE("an exception in the walk of one rank ends the others", "[ddp]") {
  const auto start = std::chrono::steady_clock::now();
  for (const int failing : {0, 2}) {
    const auto outcomes = try_ranks(3, [&](int rank) {
      Mlp net;
      DistributedDataParallel ddp(net);
      for (int step = 1; step <= 5; ++step) {
        Tensor loss = net.loss(rank);
        if (rank == failing && step == 3)
          loss.register_hook([](const Tensor&) -> Tensor { throw std::runtime_error("the disk is full"); });
        try {
          loss.backward();
        } catch (const std::runtime_error& e) {
          if (std::string(e.what()) != "the disk is full") throw;  // and the loop goes on
        }
      }
      return 0;
    });
    for (const auto& outcome : outcomes) {
      CHECK(outcome.kind() == distributed::Error::kAborted);
      CHECK_THAT(outcome.message(),
                 Contains("rank " + std::to_string(failing)) && Contains("the disk is full") && Contains("step 3"));
    }
  }
  CHECK(seconds_since(start) < 4);
}

TEST_CASE("a step that one rank has left out is noticed", "[ddp]") {
  const auto outcomes = try_ranks(2, [](int rank) {
    Two net;
    DistributedDataParallel ddp(net);
    for (int step = 1; step <= 3; ++step) {
      // What is refused on one rank only.
      if (rank == 1 && step == 2) message_of([&] { sum(net.a).backward({}, {.create_graph = true}); });
      sum(net.a).backward();
    }
    return 0;
  });
  for (const auto& outcome : outcomes) {
    CHECK(outcome.kind() == distributed::Error::kMismatch);
    CHECK_THAT(outcome.message(), Contains("rank 0 at 2") && Contains("rank 1 at 3"));
  }
}

TEST_CASE("a rank that leaves early is named, with the remedy", "[ddp]") {
  for (const int leaving : {0, 1}) {
    const auto start = std::chrono::steady_clock::now();
    const auto outcomes = try_ranks(3,
                                    [&](int rank) {
                                      Mlp net;
                                      DistributedDataParallel ddp(net);
                                      for (int step = 1; step <= (rank == leaving ? 6 : 7); ++step)
                                        net.loss(rank).backward();
                                      return 0;
                                    },
                                    {.heartbeat = Milliseconds(200)});
    for (int rank = 0; rank < 3; ++rank) {
      const auto& outcome = outcomes[static_cast<size_t>(rank)];
      if (rank == leaving) continue;
      CAPTURE(rank, leaving, outcome.message());
      CHECK(outcome.kind() == distributed::Error::kPeerLost);
      CHECK_THAT(outcome.message(),
                 Contains("rank " + std::to_string(leaving) + " left") && Contains("step 7 of") && Contains("join()"));
    }
    CHECK(seconds_since(start) < 2);
  }
}

TEST_CASE("an exception in a loop within join() ends the others", "[ddp]") {
  const auto outcomes = try_ranks(2, [](int rank) {
    Mlp net;
    DistributedDataParallel ddp(net);
    try {
      const auto guard = ddp.join();
      for (int step = 1; step <= 4; ++step) {
        if (rank == 1 && step == 3) throw std::runtime_error("bad example");
        net.loss(rank).backward();
      }
    } catch (const std::runtime_error& e) {
      if (std::string(e.what()) != "bad example") throw;
      net.loss(rank).backward();
    }
    return 0;
  });
  for (const auto& outcome : outcomes) {
    CHECK(outcome.kind() == distributed::Error::kAborted);
    CHECK_THAT(outcome.message(), Contains("rank 1") && Contains("join()"));
  }
}

TEST_CASE("a static graph is checked", "[ddp]") {
  const auto run = [](int first, int second) {
    return try_ranks(2, [=](int rank) {
      Two net;
      DistributedDataParallel ddp(net, {.static_graph = true});
      for (const int kind : {first, second}) {
        if (kind == 0)
          sum(net.a).backward();
        else if (kind == 1)
          (sum(net.a) + sum(net.b)).backward();
        else
          (rank == 0 ? sum(net.a) : sum(net.b)).backward();
      }
      return 0;
    });
  };
  for (const auto& outcome : run(0, 0)) CHECK(outcome.message().empty());
  for (const auto& outcome : run(1, 1)) CHECK(outcome.message().empty());
  for (const auto& outcome : run(0, 1)) CHECK_THAT(outcome.message(), Contains("static_graph") && Contains("b"));
  for (const auto& outcome : run(2, 2)) {
    CHECK(outcome.kind() == distributed::Error::kMismatch);
    CHECK_THAT(outcome.message(), Contains("parameter a was used by 1 of 2 ranks"));
  }
}

TEST_CASE("a hook that throws ends the job", "[ddp]") {
  const auto outcomes = try_ranks(2, [](int rank) {
    Two net;
    const CommHook bad = [rank](ProcessGroup& group, GradBucket bucket) -> std::function<void()> {
      if (rank == 1) throw std::runtime_error("no codec");
      return [work = group.all_reduce(bucket.flat)] { work.wait(); };
    };
    DistributedDataParallel ddp(net, {.hook = bad});
    sum(net.a).backward();
    return 0;
  });
  CHECK_THAT(outcomes[0].message(), Contains("no codec") && Contains("rank 1"));
  CHECK_THAT(outcomes[1].message(), Contains("no codec"));
}
