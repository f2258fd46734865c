#include "reel/threads.h"
#include "lib/base/lazy.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cfenv>
#include <charconv>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <iterator>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

#include "reel/error.h"

namespace reel {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds, std::chrono::microseconds, std::chrono::milliseconds;

// How long a thread polls before it sleeps. The next op usually comes within that time, and waking a thread takes about
// as long.
constexpr auto kPolling = microseconds(50);
// A helper that the caller has waited for, and that has not run for so long, has lost its core.
constexpr auto kStall = microseconds(500);
constexpr Clock::duration kMinRest = milliseconds(32), kMaxRest = milliseconds(512);
// Helpers that lose more time than their credit must rest. Half of what they gain is added to it: both may wait for
// memory, and then less is gained than the parts say.
constexpr nanoseconds kMaxCredit = milliseconds(16);
// How long a thread that was seen with a large op of its own counts as busy.
constexpr auto kCrowdMemory = milliseconds(20);
constexpr int kMaxHelpers = 1023;

void relax() {
#ifdef __x86_64__
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

/// Polls until ready() or until kPolling has passed, and returns whether it is ready.
template <class Ready>
bool poll(const Ready& ready) {
  const auto end = Clock::now() + kPolling;
  while (true) {
    for (int i = 0; i < 32; ++i) {
      if (ready()) return true;
      relax();
    }
    if (Clock::now() > end) return ready();
  }
}

using Word = std::atomic<int32_t>;
static_assert(sizeof(Word) == 4 && Word::is_always_lock_free);

/// Sleeps while `word` is `value`, at most for `most` if that is not 0; may return sooner.
void futex_wait(Word& word, int32_t value, nanoseconds most = {}) {
  const timespec limit{.tv_sec = 0, .tv_nsec = most.count()};
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, most.count() ? &limit : nullptr, nullptr, 0);
}
void futex_wake(Word& word, int threads) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, threads, nullptr, nullptr, 0);
}

// ---- how many threads -----------------------------------------------------------------------------------------------

/// The beginning of a small file, "" if there is none. It allocates nothing, since a failure would be bad_alloc.
struct FileStart {
  char text[64] = "";
  explicit FileStart(const char* path) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    const ssize_t bytes = read(file, text, sizeof text - 1);
    text[std::max<ssize_t>(bytes, 0)] = 0;
    close(file);
  }
};

/// The processors that the process may run on: its first thread's, since others may be bound to one.
bool get_affinity(cpu_set_t& allowed) { return sched_getaffinity(getpid(), sizeof allowed, &allowed) == 0; }

/// The physical cores among these, and no more than the process's control group has time for.
int available_cores() {
  int cores = static_cast<int>(std::thread::hardware_concurrency());
  if (cpu_set_t allowed, counted; get_affinity(allowed)) {
    CPU_ZERO(&counted);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &allowed)) continue;
      char path[96];
      std::snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
      const FileStart siblings(path);  // 0-1 or 0,32: the first of them stands for the core
      int first = cpu;
      std::from_chars(siblings.text, std::end(siblings.text), first);
      if (first >= 0 && first < CPU_SETSIZE) CPU_SET(first, &counted);
    }
    cores = CPU_COUNT(&counted);
  }
  const FileStart limit("/sys/fs/cgroup/cpu.max");  // "max 100000" or "150000 100000"
  if (long quota = 0, period = 0; std::sscanf(limit.text, "%ld %ld", &quota, &period) == 2 && period > 0)
    cores = static_cast<int>(std::min<long>(cores, (quota + period / 2) / period));
  return std::max(cores, 1);
}

/// Moves the calling thread to another processor if it runs on this one. A thread that wakes while all processors are
/// busy is put on that of the thread that wakes it, where the two would take turns, even if what keeps another one busy
/// would yield.
void leave_cpu(int cpu) {
  if (sched_getcpu() != cpu || cpu < 0) return;
  cpu_set_t others;
  if (!get_affinity(others)) return;
  CPU_CLR(cpu, &others);
  if (CPU_COUNT(&others)) sched_setaffinity(0, sizeof others, &others);
}

int initial_threads() {
  const char* const given = std::getenv("REEL_NUM_THREADS");
  if (!given || !*given) return available_cores();
  int threads = 0;
  const auto [end, error] = std::from_chars(given, given + std::strlen(given), threads);
  REEL_CHECK(error == std::errc() && !*end && threads >= 1, "REEL_NUM_THREADS=", given,
             ": expected a number of threads from 1 on");
  return threads;
}

std::atomic<int>& threads_per_op() {
  static constinit Lazy<std::atomic<int>> threads;
  return threads.get(initial_threads);
}

// ---- the pool -------------------------------------------------------------------------------------------------------

/// How the calling thread rounds, and what it makes of subnormal numbers. Each thread has its own; the bits of a result
/// must not depend on which computes a part.
class FloatMode {
 public:
#ifdef __x86_64__
  FloatMode() : mode_(__builtin_ia32_stmxcsr()) {}
  void apply() const { __builtin_ia32_ldmxcsr(mode_); }

 private:
  unsigned mode_;
#else
  FloatMode() { std::fegetenv(&mode_); }
  void apply() const { std::fesetenv(&mode_); }

 private:
  std::fenv_t mode_;
#endif
};

constinit thread_local int calls = 0;  // of run_chunks that this thread is in

/// One op's parts. Threads take the next one until there is none.
struct Job {
  const detail::ChunkFunction call;
  const void* const f;
  const int64_t size, chunk, parts;
  const FloatMode mode;
  const int cpu = sched_getcpu();  // the caller's
  std::atomic<int64_t> next{0};
  std::atomic<int> seats{0};  // for helpers
  std::mutex failure;         // guards the two below
  std::exception_ptr error;
  int64_t failed;  // the first part that has thrown

  Job(detail::ChunkFunction call_, const void* f_, int64_t size_, int64_t chunk_)
      : call(call_), f(f_), size(size_), chunk(chunk_), parts((size_ - 1) / chunk_ + 1), failed(parts) {}

  /// Computes parts until all have been taken, and returns how many.
  int64_t work() {
    for (int64_t taken = 0;; ++taken) {
      const int64_t part = next.fetch_add(1, std::memory_order_relaxed);
      if (part >= parts) return taken;
      try {
        call(f, part * chunk, std::min(size, (part + 1) * chunk));
      } catch (...) {
        const std::lock_guard lock(failure);
        if (part < failed) failed = part, error = std::current_exception();
        next.store(parts, std::memory_order_relaxed);
      }
    }
  }
};

/// Helping threads, which wait for a job, and the one caller whose job they do. Nothing destroys it, since helpers run
/// until the process ends.
///
/// A helper counts itself in `inside` before it looks at `job`, and the caller takes its job away before it waits for
/// `inside` to become 0. So a helper has either been counted or finds no job, and one that does not get to run before
/// that delays nobody.
struct Pool {
  alignas(64) Word jobs{0};  // so far; helpers sleep on it
  Word asleep{0};            // helpers
  std::atomic<Job*> job{nullptr};
  alignas(64) Word inside{0};  // helpers; the caller sleeps on it
  std::atomic<bool> caller_sleeps{false};
  alignas(64) std::atomic<int> callers{0};      // threads within run_chunks
  std::atomic<bool> taken{false};               // by one of them, which alone uses what follows
  int helpers = 0;                              // that have been started
  std::array<clockid_t, kMaxHelpers> clocks{};  // of what each has run
  int crowd = 1;                                // callers within kCrowdMemory
  Clock::time_point crowd_until{}, rests_until{};
  Clock::duration rest = kMinRest;
  nanoseconds credit{};  // at most kMaxCredit

  void help() {
    calls = 1;  // all that it does is part of a job
    // What started it may be bound to a processor.
    if (cpu_set_t allowed; get_affinity(allowed)) sched_setaffinity(0, sizeof allowed, &allowed);
    int32_t seen = 0;
    while (true) {
      if (!poll([&] { return jobs.load(std::memory_order_relaxed) != seen; })) {
        asleep.fetch_add(1);
        while (jobs.load() == seen) futex_wait(jobs, seen);
        asleep.fetch_sub(1);
      }
      seen = jobs.load();
      inside.fetch_add(1);
      if (Job* const mine = job.load(); mine && mine->seats.fetch_sub(1) > 0) {
        mine->mode.apply();
        leave_cpu(mine->cpu);
        mine->work();
      }
      if (inside.fetch_sub(1) == 1 && caller_sleeps.load()) futex_wake(inside, 1);
    }
  }

  /// Starts helpers until there are so many. Those that cannot be started are done without.
  void start(int wanted);

  /// How long helpers have run, in all.
  nanoseconds helpers_time() const {
    nanoseconds sum{};
    for (int i = 0; i < helpers; ++i) {
      timespec time{};
      clock_gettime(clocks[static_cast<size_t>(i)], &time);
      sum += std::chrono::seconds(time.tv_sec) + nanoseconds(time.tv_nsec);
    }
    return sum;
  }

  /// Waits until no helper is inside, for about `most` if that is not 0, and returns whether none is.
  bool wait(nanoseconds most = {}) {
    const auto end = Clock::now() + most;
    caller_sleeps.store(true);
    int count;
    while ((count = inside.load()) && !(most.count() && Clock::now() >= end)) futex_wait(inside, count, most);
    caller_sleeps.store(false);
    return !count;
  }

  void run(Job& mine, int threads) {
    const auto now = Clock::now();
    if (now < rests_until) return;
    if (const int count = callers.load(std::memory_order_relaxed); count >= crowd || now > crowd_until)
      crowd = count, crowd_until = now + kCrowdMemory;
    const int wanted = static_cast<int>(std::min<int64_t>({threads - crowd, mine.parts - 1, kMaxHelpers}));
    if (wanted < 1) return;
    if (helpers < wanted) start(wanted);
    mine.seats.store(wanted, std::memory_order_relaxed);
    job.store(&mine);
    jobs.fetch_add(1);
    if (asleep.load() > 0) futex_wake(jobs, wanted);
    const int64_t own = mine.work();
    if (own) {  // alone it would have taken parts / own times as long
      const double gained = static_cast<double>((Clock::now() - now).count()) * static_cast<double>(mine.parts - own) /
                            static_cast<double>(own);
      const double sum = static_cast<double>(credit.count()) + gained / 2;
      credit = nanoseconds(static_cast<int64_t>(std::min<double>(sum, kMaxCredit.count())));
      if (credit == kMaxCredit) rest = kMinRest;
    }
    job.store(nullptr);
    if (!poll([&] { return inside.load() == 0; }) && !wait(kStall)) wait_long();
  }

  void wait_long() {
    const auto begun = Clock::now();
    const nanoseconds before = helpers_time();
    wait();
    const auto now = Clock::now();
    const nanoseconds lost = now - begun - (helpers_time() - before);
    if (lost < kStall) return;  // a long part
    credit -= lost;
    if (credit >= nanoseconds(0)) return;
    credit = {};
    rests_until = now + rest;
    rest = std::min(2 * rest, kMaxRest);
  }
};

constinit Pool pool;

void Pool::start(int wanted) {
  static constinit Lazy<int> at_fork;
  const int failed =
      at_fork.get([] { return pthread_atfork(nullptr, nullptr, [] { new (&pool) Pool; }); });  // a child has no helpers
  if (failed) return;
  try {
    for (; helpers < wanted; ++helpers) {
      std::thread helper([] { pool.help(); });
      pthread_setname_np(helper.native_handle(), "reel");
      pthread_getcpuclockid(helper.native_handle(), &clocks[static_cast<size_t>(helpers)]);
      helper.detach();
    }
  } catch (const std::system_error&) {
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace

void set_num_threads(int threads) {
  REEL_CHECK(threads >= 1, "set_num_threads: ", threads, " threads");
  threads_per_op().store(threads, std::memory_order_relaxed);
}

int num_threads() { return threads_per_op().load(std::memory_order_relaxed); }

void detail::run_chunks(int64_t size, int64_t chunk, ChunkFunction call, const void* f) {
  REEL_CHECK(chunk > 0, "parallel_for: parts of ", chunk);
  const int threads = num_threads();
  Job job(call, f, size, chunk);
  if (calls++ == 0 && threads > 1) {
    pool.callers.fetch_add(1, std::memory_order_relaxed);
    if (!pool.taken.exchange(true, std::memory_order_acquire)) {
      pool.run(job, threads);
      pool.taken.store(false, std::memory_order_release);
    }
    job.work();  // what is left
    pool.callers.fetch_sub(1, std::memory_order_relaxed);
  } else {
    job.work();
  }
  --calls;
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace reel
