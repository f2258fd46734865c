// The guard that keeps calls of a fiber out of batches.
#pragma once
#include "reel/version.h"

#pragma GCC visibility push(default)
namespace reel::batching::internal {

class BatchScheduler;  // see reel/detail/batching.h

/// While a NoBatchingGuard lives, calls of the running fiber do not wait for others: the fiber is in the middle of
/// something that belongs to the thread, or of a call that has found no others. Guards nest.
class NoBatchingGuard {
 public:
  explicit NoBatchingGuard(bool active = true);
  ~NoBatchingGuard();
  NoBatchingGuard(const NoBatchingGuard&) = delete;
  NoBatchingGuard& operator=(const NoBatchingGuard&) = delete;

 private:
  BatchScheduler* const before_;
};

}  // namespace reel::batching::internal
#pragma GCC visibility pop
