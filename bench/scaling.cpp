// --scaling: what more threads would gain. One thread does all parts of every parallel_for and times each of them; so
// many threads, each of which takes the next part when it is free, would have taken as long as is printed. The rest of
// an iteration is serial, which bounds the gain (Amdahl 1967). That memory and the clock are shared, and that a thread
// takes a few µs to begin, is not in these figures.
#include "bench/scaling.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "reel/threads.h"

// The linker's --wrap leads all calls of reel::detail::run_chunks here.
extern "C" {
void __real__ZN4reel6detail10run_chunksEllPFvPKvllES2_(int64_t, int64_t, reel::detail::ChunkFunction, const void*);
void __wrap__ZN4reel6detail10run_chunksEllPFvPKvllES2_(int64_t, int64_t, reel::detail::ChunkFunction, const void*);
}

namespace bench::scaling {
namespace {

using Clock = std::chrono::steady_clock;
double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

constexpr int kThreads[] = {1, 2, 4, 8, 16};
constexpr size_t kCounts = std::size(kThreads);

bool active = false, started = false;
thread_local bool within = false;  // a part
Clock::time_point last;
struct Totals {
  double time = 0, ops[kCounts] = {};  // of iterations, and of their large ops on so many threads
  int64_t iterations = 0, jobs = 0, parts = 0;
} totals;
int64_t jobs_before = 0;  // the iteration that runs

void count_op(const std::vector<double>& parts) {
  ++totals.jobs, totals.parts += static_cast<int64_t>(parts.size());
  for (size_t i = 0; i < kCounts; ++i) {
    std::vector<double> busy(static_cast<size_t>(kThreads[i]));
    for (const double part : parts) *std::min_element(busy.begin(), busy.end()) += part;
    totals.ops[i] += *std::max_element(busy.begin(), busy.end());
  }
}

}  // namespace

void start() { active = true; }

void mark() {
  const auto now = Clock::now();
  if (!started)
    totals = {}, started = true;       // without the warming up
  else if (totals.jobs > jobs_before)  // not what is measured beside reel
    totals.time += seconds(now - last), ++totals.iterations;
  jobs_before = totals.jobs;
  last = Clock::now();
}

void print(const char* workload) {
  const Totals& t = totals;
  if (t.iterations == 0) return;
  const auto n = static_cast<double>(t.iterations), serial = t.time - t.ops[0];
  std::printf("%s: %.3f ms, %.1f large ops of %.1f parts; serial %.0f %%, so at most %.1f times as fast\n", workload,
              t.time / n * 1e3, static_cast<double>(t.jobs) / n,
              static_cast<double>(t.parts) / std::max(1.0, static_cast<double>(t.jobs)), 100 * serial / t.time,
              t.time / serial);
  for (size_t i = 1; i < kCounts; ++i)
    std::printf("  %2d threads: %.2f times as fast; they are busy for %.0f %% of the large ops' time\n", kThreads[i],
                t.time / (serial + t.ops[i]), 100 * t.ops[0] / (kThreads[i] * t.ops[i]));
  std::fflush(stdout);
}

}  // namespace bench::scaling

void __wrap__ZN4reel6detail10run_chunksEllPFvPKvllES2_(int64_t size, int64_t chunk, reel::detail::ChunkFunction call,
                                                       const void* f) {
  using namespace bench::scaling;
  if (!active || within) return __real__ZN4reel6detail10run_chunksEllPFvPKvllES2_(size, chunk, call, f);
  within = true;
  std::vector<double> parts;
  const auto begun = Clock::now();
  auto before = begun;
  for (int64_t i = 0; i < size; i += chunk) {
    call(f, i, std::min(size, i + chunk));
    const auto now = Clock::now();
    parts.push_back(seconds(now - before));
    before = now;
  }
  within = false;
  count_op(parts);
  last += Clock::now() - before;  // the counting itself
}
