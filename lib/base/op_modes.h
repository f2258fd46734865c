// This file has the modes of a thread, which change what its ops do.
#pragma once
#include <cstdint>
#include <utility>

#include "reel/base/detail/no_suspend_guard.h"
#include "reel/types.h"

namespace reel {

/// The modes that ops of a thread run in. All of them are bits of one byte, so that an op tests those that it has to do
/// with by one load and one branch.
struct OpModes {
  enum Mode : uint8_t {
    kAutocast = 1,  ///< Ops choose the dtypes that they compute in: see reel/amp/autocast.h.
    kBatching = 2,  ///< Calls may wait for those of other examples in batching::map.
    kTracing = 4,   ///< Ops are written down: see op_trace.h.
    kReporting = 8  ///< Calls that do not wait are counted for the report of batching::map.
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

/// This says how calls of the running fiber wait.
extern constinit thread_local detail::FiberWaits fiber_waits;
/// Sets how calls of the running fiber wait from now on, and returns how they did before.
inline detail::FiberWaits exchange_fiber_waits(detail::FiberWaits next) {
  op_modes.set(OpModes::kBatching, next.scheduler != nullptr);
  op_modes.set(OpModes::kReporting, next.reports);
  return std::exchange(fiber_waits, next);
}

/// True while this thread makes one call of those of several fibers.
extern constinit thread_local bool in_joined_call;
/// NotJoinable is thrown in a joined call by what has to see each fiber's call: each is then made by itself. It is not
/// a std::exception, since programs catch those.
struct NotJoinable {};

/// Returns whether ops choose the dtypes that they compute in.
inline bool is_autocast_enabled() { return op_modes.has(OpModes::kAutocast); }

/// Returns whether ops are written down: then a write to memory has to be an op of its own, and what ops do must not
/// depend on values.
inline bool is_tracing() { return op_modes.has(OpModes::kTracing); }

}  // namespace reel
