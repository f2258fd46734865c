// Children that are forked while other threads of the process are in the middle of something.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "lib/base/sanitizers.h"
#include "reel/reel.h"
#include "test/support/pch.h"
#include "test/support/threads.h"

using namespace reel;

namespace {

// What takes locks of the library, of OpenBLAS and of oneDNN.
void allocate() {
  Tensor large = empty({600000}), medium = empty({20000}), small = empty({10});
  memory_stats();
}
void record() {
  Tensor w = ones({10}).requires_grad_();
  (w * w).sum().backward();
  w.set_grad(ones({10}));
  live_nodes();
}
void defer(Tensor& shared) {
  linear(ones({2, 20}), shared).sum().backward();
  shared.grad();
}
void multiply() { mm(ones({300, 300}), ones({300, 300})); }
void convolve(int64_t size) { conv2d(ones({1, 3, size, 16}), ones({8, 3, 3, 3})); }
void decompose() { linalg::svd(ones({12, 12}) + eye(12)); }

/// Forks so often, and returns how many children have failed, or have not ended in time.
int count_failures(int forks, const std::function<void(int)>& child) {
  constexpr int kAtOnce = 4;
  int failures = 0;
  for (int i = 0; i < forks + kAtOnce; ++i) {
    if (i >= kAtOnce) {
      int status = 0;
      ::wait(&status);
      failures += status != 0;
    }
    if (i >= forks || failures > 2) continue;
    if (::fork() == 0) {
      std::signal(SIGALRM, SIG_DFL);
      ::alarm(kSanitized ? 120 : 30);
      child(i);
      ::_exit(0);
    }
  }
  return failures;
}

}  // namespace

TEST_CASE("a child that is forked while other threads use the library can use all of it", "[cpu]") {
  if (kSanitized) return;  // the sanitizer of clang 14 does not hold its own locks while the process forks
  const Threads two(2);
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  const auto keep_doing = [&](auto f) {
    threads.emplace_back([&stop, f]() mutable {
      for (int64_t i = 0; !stop; ++i) {
        f(i);
        std::this_thread::sleep_for(std::chrono::microseconds(100));  // the children need processors, too
      }
    });
  };
  Tensor shared = ones({30, 20}).requires_grad_();
  keep_doing([](int64_t) { allocate(); });
  keep_doing([](int64_t) { allocate(); });
  keep_doing([](int64_t) { record(); });
  keep_doing([&](int64_t) { defer(shared); });
  keep_doing([](int64_t) { multiply(); });
  keep_doing([](int64_t i) { convolve(16 + i % 300), decompose(); });
  keep_doing([](int64_t) { std::thread(record).join(); });
  const char* const given = std::getenv("REEL_TEST_FORKS");
  const int forks = given ? std::atoi(given) : 120;  // nightly 1000
  const int failures = count_failures(forks, [&](int i) {
    allocate(), record();
    if (i % 10 == 0) defer(shared);
    if (i % 10 == 1) multiply();
    if (i % 10 == 2) convolve(16);
    if (i % 10 == 3) decompose();
    if (i % 10 == 4) std::thread(allocate).join();
    if (i % 10 == 5) profile::start(), allocate(), profile::stop();
    if (i % 10 == 6) data::DataLoader(std::vector{1, 2, 3}, {.workers = 1}).begin();
  });
  stop = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == 0);
}

TEST_CASE("a child of a child, and a child forked by a helper, can use the library", "[cpu]") {
  const Threads two(2);
  multiply(), convolve(16);
  CHECK(count_failures(1, [](int) {
          multiply();
          if (count_failures(3, [](int) { multiply(), convolve(20), record(); })) ::_exit(1);
        }) == 0);
  std::atomic<int> failures = 0;
  parallel_for(4, 1, [&](int64_t, int64_t) { failures += count_failures(1, [](int) { allocate(), record(); }); });
  CHECK(failures == 0);
}

TEST_CASE("a forked child does without the threads of its parent", "[cpu]") {
  if (kSanitized) return;  // for the same reason: a thread of the child may wait for a lock of the sanitizer
  const Threads one(1);
  // A thread that has memory, has recorded an op and is in the middle of its life.
  std::atomic<bool> stop = false;
  std::atomic<int> ready = 0;
  std::vector<std::thread> threads;
  profile::start();
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      const Tensor x = ones({300}) * 2;
      ++ready;
      while (!stop) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  while (ready < 4) std::this_thread::yield();
  const Tensor own = ones({10}) + 1;
  std::vector<int> numbers(1000, 1);
  data::DataLoader loader(numbers, {.workers = 2});
  auto batch = loader.begin();
  const int failures = count_failures(1, [&](int) {
    // Threads of the child take the memory of those that are gone.
    const int64_t in_use = memory_stats().in_use;
    for (int i = 0; i < 8; ++i) std::thread([] {}).join();
    if (memory_stats().in_use != in_use) ::_exit(1);
    std::vector<std::thread> others;
    for (int i = 0; i < 8; ++i) others.emplace_back([] { std::vector<Tensor>(300, ones({300})), allocate(); });
    for (std::thread& other : others) other.join();
    // Of the parent's threads only that which has forked.
    const profile::Report report = profile::stop();
    if (std::ranges::count(report.events, 0, &profile::Event::thread) == 0) ::_exit(2);
    for (const profile::Event& event : report.events)
      if (event.thread > 8) ::_exit(2);
    try {
      while (true) ++batch;
    } catch (const Error& error) {
      if (!std::strstr(error.what(), "DataLoader: the process has been forked")) ::_exit(3);
    }
    { const auto end_of_loop = std::move(batch); }
    for ([[maybe_unused]] const auto& x : data::DataLoader(std::vector{1, 2, 3}, {.workers = 1})) allocate();
  });
  stop = true;
  for (std::thread& thread : threads) thread.join();
  profile::stop();
  CHECK(failures == 0);
}
