#include <sys/resource.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <fstream>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/sanitizers.h"
#include "lib/device/block_pool.h"
#include "reel/reel.h"

namespace reel {
namespace {

constexpr size_t kMiB = 1 << 20;

/// What the process has of the machine's memory, in MiB.
[[maybe_unused]] double resident_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("VmRSS:", 0) == 0) return std::stod(line.substr(6)) / 1024;
  return 0;
}

/// Compares the most that `work` adds to it with the most that it has in use; work calls its argument at times.
template <class Work>
void check_overhead(const Work& work) {
  empty_cache();
  const double before = resident_mib();
  const int64_t in_use_before = memory_stats().in_use;
  reset_peak_memory_stats();
  double most = 0;
  work([&] { most = std::max(most, resident_mib() - before); });
  const double in_use = static_cast<double>(memory_stats().peak_in_use - in_use_before) / kMiB;
  INFO(most << " MiB resident for " << in_use << " in use");
  CHECK(most <= 1.5 * in_use);
}

}  // namespace

// ---- what is cached -------------------------------------------------------------------------------------------------

#if !defined(REEL_ADDRESS_SANITIZER) && !defined(REEL_THREAD_SANITIZER)  // which have memory of their own
TEST_CASE("one tensor after the other, each a little larger, takes no more memory than the largest", "[cpu]") {
  check_overhead([](const auto& measure) {
    for (double bytes = kMiB; bytes < 300e6; bytes *= 1.03) {
      const Tensor x = zeros({static_cast<int64_t>(bytes / 4)}, {.dtype = kFloat32});
      measure();
    }
    measure();
  });
}

TEST_CASE("attention over sequences of random lengths takes no more memory than the longest", "[cpu]") {
  manual_seed(1);
  const auto attend = [](int64_t length) {
    const Tensor q = randn({length, 64}).to(kFloat32).requires_grad_();
    sum(mm(softmax(mm(q, q.t()), 1), q)).backward();
  };
  attend(1600);  // what multiplies matrices keeps code and memory of its own from then on
  check_overhead([&](const auto& measure) {
    for (int i = 0; i < 40; ++i) {
      attend(200 + randint(1400, {}).item<int64_t>());
      measure();
    }
  });
}

TEST_CASE("tensors of many medium sizes in turn take no more memory than the most at a time", "[cpu]") {
  check_overhead([](const auto& measure) {
    for (int64_t bytes = 40 << 10; bytes < 1 << 20; bytes += 8 << 10) {
      std::vector<Tensor> some;
      for (int i = 0; i < 100; ++i) some.push_back(ones({bytes / 4}, {.dtype = kFloat32}));
      measure();
    }
  });
}
#endif

TEST_CASE("a loop that asks for the same again gets the same memory", "[cpu]") {
  const auto round = [] {
    std::vector<const void*> places;
    std::vector<Tensor> held;
    for (const int64_t size : {3 << 20, 300 << 10, 9 << 20, 1 << 20, 70 << 10}) {
      held.push_back(empty({size / 4}, {.dtype = kFloat32}));
      places.push_back(held.back().data<float>());
    }
    return places;
  };
  round();
  const auto first = round();
  const MemoryStats before = memory_stats();
  for (int i = 0; i < 100; ++i) CHECK(round() == first);
  CHECK(memory_stats().cached == before.cached);
}

TEST_CASE("blocks that other threads have freed make room for other sizes", "[threads][cpu]") {
  empty_cache();
  const auto held = [] { return memory_stats().in_use + memory_stats().cached; };
  const int64_t before = held();
  int64_t most = 0;
  for (int64_t size = 100'000; size < 1'000'000; size += 20'000) {
    std::vector<Tensor> made;
    for (int i = 0; i < 40; ++i) made.push_back(ones({size / 4}, {.dtype = kFloat32}));
    std::thread([&] { made.clear(); }).join();
    most = std::max(most, held() - before);
  }
  CHECK(most < 60'000'000);  // 40 MB at a time
}

TEST_CASE("a thread that frees what another allocates does not keep it", "[threads][cpu]") {
  constexpr int kTensors = 30'000, kAlive = 16;
  const auto held = [] { return memory_stats().in_use + memory_stats().cached; };
  const int64_t before = held();
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Tensor> queue;
  std::thread consumer([&] {
    for (int i = 0; i < kTensors; ++i) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return !queue.empty(); });
      const Tensor freed = std::move(queue.front());
      queue.pop_front();
      changed.notify_one();
    }
  });
  std::mt19937 random(1);
  for (int i = 0; i < kTensors; ++i) {
    Tensor x = empty({static_cast<int64_t>(1 + random() % 4000)});
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return queue.size() < kAlive; });
    queue.push_back(std::move(x));
    changed.notify_one();
  }
  consumer.join();
  // 130 KB are in use at a time. Two batches of 1 MiB of each size would be 50 MB.
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  CHECK(held() - before < 8'000'000 + usage.ru_maxrss * 1024 / 4);
}

TEST_CASE("threads that have ended leave their memory to the next", "[threads][cpu]") {
  const auto held = [] { return memory_stats().in_use + memory_stats().cached; };
  const auto work = [] { std::thread([] { ones({10, 10}).requires_grad_(); }).join(); };
  work();
  const int64_t before = held();
  for (int i = 0; i < 300; ++i) work();
  CHECK(held() - before < 1'000'000);
}

// ---- the pool -------------------------------------------------------------------------------------------------------

TEST_CASE("blocks of a pool do not overlap, and their pages go back", "[cpu]") {
  BlockPool pool;
  std::mt19937 random(1);
  struct Given {
    unsigned char* data;
    size_t bytes;
    unsigned char value;
    bool intact() const {
      return std::all_of(data, data + bytes, [&](unsigned char c) { return c == value; });
    }
  };
  std::vector<Given> given;
  size_t live = 0, peak = 0, worst = 0;
  bool intact = true;
  for (int i = 0; i < 4000; ++i) {
    if (given.size() < 30 && random() % 2) {
      const size_t bytes = 20'000 + random() % (random() % 8 ? 100'000 : 4'000'000);
      auto* const data = static_cast<unsigned char*>(pool.allocate(bytes));
      REQUIRE(data);
      REQUIRE(reinterpret_cast<uintptr_t>(data) % BlockPool::kPage == BlockPool::kOverhead);
      const auto value = static_cast<unsigned char>(random());
      std::memset(data, value, bytes);
      given.push_back({data, bytes, value});
      peak = std::max(peak, live += bytes);
    } else if (!given.empty()) {
      std::swap(given[random() % given.size()], given.back());
      intact = intact && given.back().intact();
      pool.release(given.back().data);
      live -= given.back().bytes;
      given.pop_back();
    }
    worst = std::max(worst, pool.resident());
  }
  CHECK(intact);
  CHECK(worst <= peak + peak / 4 + 20 * kMiB);
  pool.trim();
  CHECK(pool.resident() < live + (given.size() + 1) * 3 * 4096);
  for (const Given& block : given) CHECK(block.intact());
  for (const Given& block : given) pool.release(block.data);
  pool.trim();
  CHECK(pool.resident() == 0);
}

TEST_CASE("blocks of a pool that are neighbours become one", "[cpu]") {
  BlockPool pool;
  std::vector<void*> parts;
  for (int i = 0; i < 8; ++i) parts.push_back(pool.allocate(2 * kMiB));
  const size_t resident = pool.resident();
  for (const int i : {1, 3, 5, 0, 2, 6, 7, 4}) pool.release(parts[i]);
  void* const whole = pool.allocate(16 * kMiB);
  CHECK(whole == parts[0]);
  CHECK(pool.resident() == resident);
  pool.release(whole);
}

TEST_CASE("a pool gives back what it has not needed for a while", "[cpu]") {
  BlockPool pool(std::chrono::milliseconds(5));
  pool.release(pool.allocate(100 * kMiB));
  const auto pass = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(6));
    for (int i = 0; i < 32; ++i) pool.release(pool.allocate(kMiB));  // it looks at the clock in every 64th call
  };
  CHECK(pool.resident() >= 100 * kMiB);
  pass();  // the peak's own period ends
  CHECK(pool.resident() >= 100 * kMiB);
  pass();
  CHECK(pool.resident() <= 20 * kMiB);
}

TEST_CASE("a pool says when there is no memory", "[cpu]") {
  BlockPool pool;
  void* const kept = pool.allocate(kMiB);
  CHECK_FALSE(pool.allocate(size_t{1} << 46));
  void* const again = pool.allocate(kMiB);
  CHECK(again);
  pool.release(kept), pool.release(again);
}

}  // namespace reel
