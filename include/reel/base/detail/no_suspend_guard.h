// This file has the guard under which the running fiber is not suspended.
#pragma once
#include "reel/version.h"

#pragma GCC visibility push(default)
namespace reel::detail {

/// FiberWaits says how calls of the running fiber wait for those of others.
struct FiberWaits {
  void* scheduler = nullptr;  ///< The scheduler that suspends the fiber, of a type of its own; nullptr: no call waits.
  bool reports = false;       ///< The scheduler counts the calls that do not wait, too.
};

/// While a NoSuspendGuard lives, calls of the running fiber do not wait for others: the fiber is in the middle of
/// something that belongs to the thread, or of a call that has found no others. Guards nest.
class NoSuspendGuard {
 public:
  explicit NoSuspendGuard(bool active = true);
  ~NoSuspendGuard();
  NoSuspendGuard(const NoSuspendGuard&) = delete;
  NoSuspendGuard& operator=(const NoSuspendGuard&) = delete;

 private:
  const FiberWaits before_;
};

}  // namespace reel::detail
#pragma GCC visibility pop
