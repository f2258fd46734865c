// DistributedDataParallel on ranks that are processes, over Gloo.
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>
#include <iterator>

#include "test/distributed/models.h"
#include "test/distributed/processes.h"

using namespace reel;
using namespace reel::distributed;
using namespace reel::distributed::test;
using ranks::expect;

namespace {

using Clock = std::chrono::steady_clock;

template <class Model, class Optimizer>
void train_like_alone(const char* what, DistributedDataParallelOptions options = {}) {
  const int world = world_size();
  const Tensors weights = on_rank<Model, Optimizer>(rank(), world, options);
  const Tensors reference = alone<Model, Optimizer>(world);
  for (size_t i = 0; i < weights.size(); ++i)
    expect(world == 2 ? equal(weights[i], reference[i]) : allclose(weights[i], reference[i], 1e-4, 1e-6), what,
           ": parameter ", i, " differs from one process");
  // The same bits on all ranks.
  for (const Tensor& w : weights) {
    const Tensor all = empty([&] {
      std::vector<int64_t> shape{world};
      for (const int64_t n : w.shape()) shape.push_back(n);
      return Shape(std::span<const int64_t>(shape));
    }());
    default_group().all_gather(all, w).wait();
    for (int r = 0; r < world; ++r) expect(equal(all[r], w), what, ": rank ", r, " has other bits");
  }
}

void train() {
  train_like_alone<Mlp, optim::Adam>("mlp");
  train_like_alone<Mlp, optim::Adam>("mlp in small buckets", {.bucket_bytes = 64, .first_bucket_bytes = 1});
  train_like_alone<Recurrent, optim::Adam>("recurrent", {.bucket_bytes = 256, .first_bucket_bytes = 64});
  train_like_alone<Tree, optim::SGD>("tree");
  // Different numbers of examples.
  Mlp net;
  DistributedDataParallel ddp(net);
  {
    const auto guard = ddp.join();
    for (int step = 0; step < 3 * rank(); ++step) net.loss(step).backward();
  }
  net.zero_grad();
  net.loss(rank()).backward();
  expect(net.a.weight.grad().defined(), "training does not go on after join()");
}

/// Trains until the Error that must come, and holds the group for a while.
void train_until_lost(int lost) {
  Mlp net;
  DistributedDataParallel ddp(net, {.bucket_bytes = 64, .first_bucket_bytes = 64});
  try {
    for (int step = 1;; ++step) {
      Tensor loss = net.loss(rank());
      if (rank() == lost && step == 3)
        loss.register_hook([](const Tensor& g) {
          ranks::say("dying");
          kill(getpid(), SIGKILL);
          return g;
        });
      loss.backward();
    }
  } catch (const distributed::Error& error) {
    expect(error.kind == distributed::Error::kPeerLost, "the Error is of kind ", error.kind, ": ", error.what());
    expect(error.ranks == std::vector<int>{lost}, error.what());
    expect(std::string(error.what()).find("step") != std::string::npos, error.what());
    ranks::say("lost");
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    bool again = false;
    try {
      net.loss(0).backward();
    } catch (const distributed::Error& later) {
      again = later.ranks == error.ranks;
    }
    expect(again, "a later backward() does not throw the same");
  }
}

}  // namespace

TEST_CASE("a rank that trains", "[.rank]") {
  ranks::run_rank([](int) { train(); });
}
TEST_CASE("processes train as one does", "[ddp][gloo]") {
  for (const int world : {2, 3}) ranks::Processes(world, "a rank that trains").succeed();
}

TEST_CASE("a rank with other instructions", "[.rank]") {
  const std::string kinds = std::getenv("TEST_KINDS");  // of the ranks' processors
  setenv("REEL_CPU", std::getenv("TEST_RANK")[0] == '0' ? "avx2" : kinds.c_str(), 1);
  ranks::run_rank([](int) {
    manual_seed(1);
    Mlp net;
    DistributedDataParallel ddp(net, {.bucket_bytes = 64});
    optim::Adam adam(net.parameters(), {.lr = 0.01});
    for (int step = 0; step < 50; ++step) {
      adam.zero_grad();
      net.loss(2 * step + rank()).backward();
      adam.step();
    }
  });
}
#ifdef REEL_OPTIMIZED_KERNELS  // others may be missing, or round as the baseline ones do
TEST_CASE("processors that round alike train together, others are told", "[ddp][gloo]") {
  const auto has = [](const char* flag) {
    std::ifstream info("/proc/cpuinfo");
    const std::string text((std::istreambuf_iterator<char>(info)), {});
    return text.find(flag) != std::string::npos;
  };
  if (!has(" avx2") || !has(" fma")) {
    WARN("skipped: this machine does not have AVX2");
    return;
  }
  if (has(" avx512vl"))
    ranks::Processes(2, "a rank with other instructions", {.variables = {"TEST_KINDS=avx512"}}).succeed();
  ranks::Processes job(2, "a rank with other instructions", {.variables = {"TEST_KINDS=baseline"}});
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(job.wait(rank) == 3);
    CHECK_THAT(job.output(rank), Catch::Contains("of rank 1 is not that of rank 0") && Catch::Contains("REEL_CPU"));
  }
}
#endif

TEST_CASE("a rank that is killed while it trains", "[.rank]") {
  ranks::run_rank([](int) { train_until_lost(std::atoi(std::getenv("TEST_LOST"))); });
}
TEST_CASE("a process that is killed in backward() is named to the others", "[ddp][gloo]") {
  for (const int lost : {0, 2}) {
    ranks::Processes job(3, "a rank that is killed while it trains",
                         {.variables = {"TEST_LOST=" + std::to_string(lost)}, .heartbeat = std::chrono::seconds(2)});
    job.wait_for(lost, "dying");
    const auto start = Clock::now();
    CHECK(job.wait(lost) == 128 + SIGKILL);
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == lost) continue;
      job.wait_for(rank, "lost");
      CHECK(Clock::now() - start < std::chrono::seconds(3));
    }
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == lost) continue;
      CAPTURE(job.output(rank));
      CHECK(job.wait(rank) == 0);
    }
  }
}
