// Calls of OpenBLAS and oneDNN pass a gate each, which a fork and the end of the process close.
#include "lib/cpu/library_call.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "lib/base/fork_lock.h"
#include "lib/base/lazy.h"

namespace reel::cpu {
namespace {

using Clock = std::chrono::steady_clock;

/// A Gate counts the calls that are on their way, and keeps others out while the process forks or once it ends.
class Gate {
 public:
  enum class State { kOpen, kHeld, kEnded };

  /// Waits while the gate is held, and returns false once it has ended.
  bool enter() {
    while (true) {
      inside_.fetch_add(1);
      const State state = state_.load();
      if (state == State::kOpen) [[likely]]
        return true;
      leave();
      if (state == State::kEnded) return false;
      std::this_thread::sleep_for(kPause);
    }
  }
  void leave() { inside_.fetch_sub(1); }

  // A ForkLock calls these three.
  void lock() { close(State::kHeld); }
  void unlock() {
    State held = State::kHeld;
    state_.compare_exchange_strong(held, State::kOpen);
  }
  void renew() {
    inside_ = 0;  // the threads that were inside are not in the child
    unlock();
  }
  void end() { close(State::kEnded); }

 private:
  static constexpr auto kPause = std::chrono::microseconds(20);
  /// A decomposition may take longer; a call of a thread that has been stopped, or that exits from within, never ends.
  static constexpr auto kPatience = std::chrono::seconds(1);

  void close(State state) {
    State open = State::kOpen;
    if (state == State::kHeld)
      state_.compare_exchange_strong(open, state);
    else
      state_ = state;
    const auto end = Clock::now() + kPatience;
    while (inside_.load() && Clock::now() < end) std::this_thread::sleep_for(kPause);
  }

  std::atomic<int> inside_{0};
  std::atomic<State> state_{State::kOpen};
};

constinit Gate openblas, onednn;
ForkLock openblas_lock(ForkLock::Order::kLibraries, openblas), onednn_lock(ForkLock::Order::kLibraries, onednn);

// OpenBLAS frees its memory when it is unloaded, after all static objects and before the process is gone. Nobody waits
// any more for the threads that are left.
constinit thread_local bool ends_process = false;
[[gnu::destructor(101)]] void end_openblas() {
  ends_process = true;
  openblas.end();
}

// These two calls of OpenMP act on the calling thread only. They are looked up in whichever runtime oneDNN has loaded
// (GNU's in Debian, LLVM's or Intel's elsewhere), since linking with another would set the threads of that one. A
// oneDNN without OpenMP has none, and nothing to be set.
struct OpenMp {
  int (*max_threads)() = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
  void (*set_num_threads)(int) = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  bool found() const { return max_threads && set_num_threads; }
};
const OpenMp& openmp() {
  static constinit Lazy<OpenMp> functions;
  return functions.get();
}

}  // namespace

OpenblasCall::OpenblasCall() {
  if (openblas.enter()) [[likely]]
    return;
  while (!ends_process) ::pause();
}
OpenblasCall::~OpenblasCall() { openblas.leave(); }

OnednnCall::OnednnCall() : entered_(onednn.enter()) {
  if (entered_ && openmp().found()) threads_before_ = openmp().max_threads();
  if (threads_before_ > 1) openmp().set_num_threads(1);
}
OnednnCall::~OnednnCall() {
  if (threads_before_ > 1) openmp().set_num_threads(threads_before_);
  if (entered_) onednn.leave();
}

// Handlers run in the reverse order of their registration, and static objects are destroyed by such handlers.
void OnednnCall::outlive_what_it_made() {
  constexpr int kMaxHandlers = 1000;  // of each some bytes stay; by then oneDNN has made what it makes
  static constinit std::atomic<int> handlers = 0;
  if (handlers.load(std::memory_order_relaxed) < kMaxHandlers && handlers.fetch_add(1) < kMaxHandlers)
    std::atexit([] { onednn.end(); });
}

}  // namespace reel::cpu
