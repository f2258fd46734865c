#include "lib/batching/thread_state.h"

#include "lib/autograd/tape.h"
#include "lib/autograd/trace.h"
#include "lib/device/device.h"
#include "lib/tensor/watch.h"

namespace reel::batching {

void ThreadStateSnapshot::save() {
  grad_mode_ = grad_mode, anomaly_ = anomaly, watching_ = watching;
  autocast_ = op_modes.autocast, casts_ = parameter_casts, device_ = where_by_default;
  if (profile::running()) [[unlikely]]
    profile::pause_events(events_);
}

void ThreadStateSnapshot::restore() {
  grad_mode = grad_mode_, anomaly = anomaly_, watching = watching_;
  op_modes.set_autocast(autocast_), parameter_casts = casts_, where_by_default = device_;
  if (!events_.events.empty()) [[unlikely]]
    profile::resume_events(events_);
}

void ThreadStateSnapshot::begin() {
  grad_mode_ = grad_mode, anomaly_ = anomaly, watching_ = watching;
  autocast_ = op_modes.autocast, casts_ = parameter_casts, device_ = where_by_default;
}

uint64_t current_modes() {
  return uint64_t{grad_mode} | uint64_t{anomaly} << 1 | uint64_t{watching} << 2 |
         static_cast<uint64_t>(op_modes.autocast) << 8 | static_cast<uint64_t>(where_by_default.type) << 16 |
         static_cast<uint64_t>(static_cast<uint8_t>(where_by_default.index)) << 24;
}

}  // namespace reel::batching
