#include "reel/threads.h"

#include <atomic>

#include "reel/error.h"

namespace reel {
namespace {
std::atomic<int> threads_per_op{1};
}

void set_num_threads(int threads) {
  REEL_CHECK(threads >= 1, "set_num_threads: ", threads, " threads");
  threads_per_op.store(threads, std::memory_order_relaxed);
}

int num_threads() { return threads_per_op.load(std::memory_order_relaxed); }

}  // namespace reel
