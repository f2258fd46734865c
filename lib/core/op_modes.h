// This file has the modes of a thread, which change what its ops do.
#pragma once
#include <cstdint>
#include <utility>

#include "reel/detail/no_batching_guard.h"
#include "reel/types.h"

namespace reel {

/// The modes that ops of a thread run in. All of them are bits of one byte, so that an op tests those that it has to do
/// with by one load and one branch.
struct OpModes {
  enum Mode : uint8_t {
    kAutocast = 1,  ///< Ops choose the dtypes that they compute in: see reel/amp/autocast.h.
    kBatching = 2,  ///< Calls may wait for those of other examples in batching::map.
    kTracing = 4    ///< Ops are written down: see op_trace.h.
  };
  uint8_t active = 0;
  DType autocast = kFloat32;  ///< The half type of products; kFloat32 without autocast.

  bool has(Mode mode) const { return active & mode; }
  void set(Mode mode, bool on) { active = static_cast<uint8_t>(on ? active | mode : active & ~mode); }
  void set_autocast(DType type) {
    autocast = type;
    set(kAutocast, type != kFloat32);
  }
};
extern constinit thread_local OpModes op_modes;

/// The scheduler with which calls of the running fiber wait for others, in batching::map; nullptr where they do not.
extern constinit thread_local batching::internal::BatchScheduler* current_scheduler;
/// Makes another scheduler the current one, or none, and returns the one before.
inline batching::internal::BatchScheduler* exchange_scheduler(batching::internal::BatchScheduler* scheduler) {
  op_modes.set(OpModes::kBatching, scheduler != nullptr);
  return std::exchange(current_scheduler, scheduler);
}

/// Returns whether ops are written down: then a write to memory has to be an op of its own, and what ops do must not
/// depend on values.
inline bool is_tracing() { return op_modes.has(OpModes::kTracing); }

}  // namespace reel
