#include "reel/detail/point.h"

#include "lib/core/fibers.h"

namespace reel::batching::internal {

Meeting* meeting() { return current_meeting && current_meeting->has_others() ? current_meeting : nullptr; }

}  // namespace reel::batching::internal
