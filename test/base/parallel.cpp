// The pool of threads; run under the thread sanitizer, too.
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cfenv>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <mutex>
#include <new>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "reel/reel.h"
#include "test/support/pch.h"

using namespace reel;
using Catch::Matchers::Contains;

namespace {

/// set_num_threads() for a scope.
struct Threads {
  const int before = num_threads();
  explicit Threads(int threads) { set_num_threads(threads); }
  ~Threads() { set_num_threads(before); }
};

/// The parts that f is called with, in order.
std::set<std::pair<int64_t, int64_t>> parts_of(int64_t size, int64_t grain) {
  std::mutex mutex;
  std::set<std::pair<int64_t, int64_t>> parts;
  parallel_for(size, grain, [&](int64_t begin, int64_t end) {
    const std::lock_guard lock(mutex);
    CHECK(parts.emplace(begin, end).second);
  });
  return parts;
}

}  // namespace

TEST_CASE("the initial number of threads", "[cpu]") {
  static_cast<void>(ones({2}) + 1);  // the first op, which a malformed REEL_NUM_THREADS fails
  CHECK(num_threads() >= 1);
  if (const char* expected = std::getenv("REEL_TEST_THREADS")) CHECK(num_threads() == std::atoi(expected));
  CHECK_THROWS_WITH(set_num_threads(0), Contains("set_num_threads: 0 threads"));
}

TEST_CASE("parallel_for makes the same parts for any number of threads", "[threads][cpu]") {
  for (const int threads : {1, 2, 3, 8}) {
    const Threads scope(threads);
    CHECK(parts_of(0, 4).empty());
    CHECK(parts_of(4, 4) == std::set<std::pair<int64_t, int64_t>>{{0, 4}});
    CHECK(parts_of(10, 4) == std::set<std::pair<int64_t, int64_t>>{{0, 4}, {4, 8}, {8, 10}});
    CHECK(parts_of(1000, 1).size() == 1000);
  }
  CHECK_THROWS_WITH(parallel_for(3, 0, [](int64_t, int64_t) {}), Contains("parallel_for: parts of 0"));
}

TEST_CASE("several threads do the parts", "[threads][cpu]") {
  const Threads scope(3);
  // Each part waits for the others, which only threads of their own can do.
  std::atomic<int> arrived{0};
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  parallel_for(3, 1, [&](int64_t, int64_t) {
    ++arrived;
    while (arrived < 3 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  });
  CHECK(arrived == 3);
}

TEST_CASE("parallel_for within a part and from several threads", "[threads][cpu]") {
  const Threads scope(4);
  std::vector<std::thread> callers;
  std::vector<int64_t> sums(6);
  for (int64_t& sum : sums)
    callers.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        std::atomic<int64_t> total{0};
        parallel_for(16, 1, [&](int64_t begin, int64_t) {
          const auto me = std::this_thread::get_id();
          parallel_for(8, 1, [&](int64_t inner, int64_t) {
            if (std::this_thread::get_id() == me) total += begin * inner;
          });
        });
        sum += total;
      }
    });
  for (std::thread& caller : callers) caller.join();
  for (const int64_t sum : sums) CHECK(sum == 200 * 120 * 28);
}

TEST_CASE("all parts round as the caller does", "[threads][cpu]") {
  const Threads scope(3);
  /// How many of three parts that run at once round upwards.
  const auto upwards = [] {
    for (int tries = 0;; ++tries) {  // after tests that keep all cores busy, helpers rest for half a second
      std::atomic<int> arrived{0}, count{0};
      std::atomic<bool> at_once{true};
      const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
      parallel_for(3, 1, [&](int64_t, int64_t) {
        volatile float one = 1, tiny = 1e-10f;
        count += one + tiny > 1;
        ++arrived;
        while (arrived < 3 && at_once) {
          if (std::chrono::steady_clock::now() > end) at_once = false;
          std::this_thread::yield();
        }
      });
      if (!at_once && tries < 100) continue;
      CHECK(at_once);
      return count.load();
    }
  };
  CHECK(upwards() == 0);
  std::fesetround(FE_UPWARD);
  const int rounded = upwards();
  std::fesetround(FE_TONEAREST);
  CHECK(rounded == 3);
  CHECK(upwards() == 0);
}

TEST_CASE("an exception of a part reaches the caller", "[threads][cpu]") {
  for (const int threads : {1, 3}) {
    const Threads scope(threads);
    for (int i = 0; i < 50; ++i) {
      std::atomic<int> running{0};
      const auto failing = [&](int64_t begin, int64_t) {
        ++running;
        if (begin == 0) --running, throw std::runtime_error("part 0");
        std::this_thread::yield();
        --running;
      };
      CHECK_THROWS_WITH(parallel_for(40, 1, failing), "part 0");
      CHECK(running == 0);
    }
    int64_t after = 0;
    parallel_for(1, 4, [&](int64_t, int64_t end) { after = end; });
    CHECK(after == 1);
  }
}

TEST_CASE("an Error and a failed allocation of a part reach the caller", "[threads][cpu]") {
  const Threads scope(3);
  const auto fail = [](int64_t begin, int64_t) { REEL_CHECK(begin < 5, "part ", begin); };
  CHECK_THROWS_AS(parallel_for(40, 1, fail), Error);
  CHECK_THROWS_WITH(parallel_for(40, 1, fail), Contains("part 5"));  // the first, whichever comes last
  CHECK_THROWS_AS(parallel_for(40, 1, [](int64_t, int64_t) { throw std::bad_alloc(); }), std::bad_alloc);
  CHECK(parts_of(40, 1).size() == 40);
}

TEST_CASE("threads that end leave the pool as it was", "[threads][cpu]") {
  for (int i = 0; i < 30; ++i) {
    const Threads scope(1 + i % 5);
    std::thread([] { CHECK(parts_of(64, 1).size() == 64); }).join();
  }
}

TEST_CASE("helpers sleep when there is nothing to do", "[threads][cpu]") {
  const Threads scope(4);
  parallel_for(64, 1, [](int64_t, int64_t) {});
  // OpenBLAS starts a thread of its own when it is told to use none, and that one polls for about 70 ms.
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const std::clock_t before = std::clock();  // of all threads
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  CHECK(std::clock() - before < CLOCKS_PER_SEC / 20);
}

TEST_CASE("helpers leave the caller's processor to it", "[threads][cpu]") {
  cpu_set_t allowed;
  REQUIRE(sched_getaffinity(getpid(), sizeof allowed, &allowed) == 0);
  if (CPU_COUNT(&allowed) < 2) return;
  const Threads scope(2);
  const auto bind = [](int cpu) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  };
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
  // All others are busy with what yields, so a helper that wakes is put on the caller's.
  std::atomic<bool> done{false};
  std::vector<std::thread> spinning;
  for (size_t i = 1; i < cpus.size(); ++i)
    spinning.emplace_back([&, i] {
      bind(cpus[i]);
      setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 19);
      while (!done) {
      }
    });
  int helped = 0, beside = 0;
  std::thread([&] {
    bind(cpus[0]);
    const auto me = std::this_thread::get_id();
    for (int i = 0; i < 200; ++i) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));  // the helper sleeps, too
      parallel_for(8, 1, [&](int64_t, int64_t) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(100);
        while (std::chrono::steady_clock::now() < end) {
        }
        if (std::this_thread::get_id() != me) ++helped, beside += sched_getcpu() == cpus[0];
      });
    }
  }).join();
  done = true;
  for (std::thread& thread : spinning) thread.join();
  CAPTURE(helped);
  CHECK(beside == 0);
}

TEST_CASE("products and convolutions are the same bits for any number of threads", "[threads][cpu]") {
  manual_seed(3);
  const auto product = [](Shape a, Shape b, bool transpose = false) {
    const Tensor x = randn(a).requires_grad_(), y = randn(b).requires_grad_();
    return [=] {
      const Tensor z = matmul(x, transpose ? y.transpose(-1, -2) : y);
      sum(z * z).backward();
      const std::vector<Tensor> found{z.detach(), x.grad().clone(), y.grad().clone()};
      for (Tensor t : {x, y}) t.set_grad({});
      return found;
    };
  };
  const auto convolution = [](Shape a, Shape b, int64_t groups = 1) {
    const Tensor x = randn(a).requires_grad_(), y = randn(b).requires_grad_(), bias = randn({b[0]}).requires_grad_();
    return [=] {
      const Tensor z = conv2d(x, y, bias, {.padding = 1, .groups = groups});
      sum(z * z).backward();
      const std::vector<Tensor> found{z.detach(), x.grad().clone(), y.grad().clone(), bias.grad().clone()};
      for (Tensor t : {x, y, bias}) t.set_grad({});
      return found;
    };
  };
  const std::vector<std::pair<const char*, std::function<std::vector<Tensor>()>>> cases{
      {"square", product({600, 500}, {500, 700})},
      {"transposed", product({1030, 300}, {517, 300}, true)},
      {"batch", product({24, 65, 90}, {24, 90, 70})},
      {"few of a batch", product({3, 400, 200}, {3, 200, 400})},
      {"few rows", product({5, 1100}, {1100, 1300})},
      {"few rows, transposed", product({2, 1100}, {1300, 1100}, true)},
      {"a vector", product({1500, 1001}, {1001, 1})},
      {"images", convolution({50, 6, 15, 14}, {20, 6, 3, 3})},
      {"one image", convolution({1, 64, 40, 40}, {96, 64, 3, 3})},
      {"small images of many channels", convolution({9, 128, 6, 6}, {128, 128, 3, 3})},
      {"groups", convolution({7, 48, 20, 20}, {48, 16, 3, 3}, 3)},
      {"each channel", convolution({7, 64, 28, 28}, {64, 1, 3, 3}, 64)},
  };
  for (const auto& [what, f] : cases) {
    std::vector<Tensor> expected;
    for (const int threads : {1, 2, 3, 8}) {
      INFO(what << " with " << threads << " threads");
      const Threads scope(threads);
      const std::vector<Tensor> found = f();
      if (threads == 1) expected = found;
      for (size_t i = 0; i < found.size(); ++i) CHECK(found[i].to_vector<float>() == expected[i].to_vector<float>());
    }
  }
}

TEST_CASE("a forked process starts helpers of its own", "[threads][cpu]") {
  const Threads scope(3);
  CHECK(parts_of(100, 1).size() == 100);
  const pid_t child = fork();
  if (child == 0) {
    std::atomic<int> parts{0};
    parallel_for(100, 1, [&](int64_t, int64_t) { ++parts; });
    _exit(parts == 100 ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(parts_of(100, 1).size() == 100);
}
