#include "reel/detail/point.h"

#include "lib/core/fibers.h"

namespace reel::batching::internal {

Meeting* meeting() { return current_meeting && current_meeting->has_others() ? current_meeting : nullptr; }

Alone::Alone(bool alone) : before_(current_meeting) {
  if (alone) exchange_meeting(nullptr);
}
Alone::~Alone() { exchange_meeting(before_); }

}  // namespace reel::batching::internal
