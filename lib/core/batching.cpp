// This file has the state of a thread by which ops and layers find the scheduler of a batching::map.
#include "reel/detail/batching.h"

#include <utility>

#include "lib/core/op_modes.h"

namespace reel::batching::internal {
namespace {
constinit thread_local bool makes_group = false;
}  // namespace

BatchScheduler* scheduler() {
  return current_scheduler && current_scheduler->has_others() ? current_scheduler : nullptr;
}

bool in_group() { return makes_group; }
bool exchange_in_group(bool now) { return std::exchange(makes_group, now); }

}  // namespace reel::batching::internal
