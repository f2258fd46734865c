// This file has flush_pending_uploads(), which a thread calls at the end of what lets small copies to GPUs wait.
#pragma once
#include <utility>

namespace reel {
namespace detail {
using Flush = void (*)();
/// Launches the copies that the calling thread has left pending; nullptr if it has left none.
extern constinit thread_local Flush flush_pending;
}  // namespace detail

/// Launches the small copies to GPUs that the calling thread has made in a batching::map, and which have waited for
/// others. Whatever uses the same stream does that as well: this is for programs that call CUDA themselves. If it fails
/// they stay, and the next op that uses the stream throws.
inline void flush_pending_uploads() noexcept {
  if (const auto flush = std::exchange(detail::flush_pending, nullptr)) flush();
}

}  // namespace reel
