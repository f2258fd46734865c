#pragma once
#include <cstdint>

#pragma GCC visibility push(default)
namespace reel {

/// What the caching CPU allocator holds, in bytes, over all threads. Blocks are counted in full, up to a quarter more
/// than the request.
struct MemoryStats {
  int64_t in_use = 0;       ///< Allocated at the moment.
  int64_t peak_in_use = 0;  ///< The sum of each thread's peak since its start or reset_peak_memory_stats().
  int64_t cached = 0;       ///< Free, kept for reuse.
};
MemoryStats memory_stats();      ///< Of the whole process.
void reset_peak_memory_stats();  ///< Sets peak_in_use to in_use.
/// Returns cached blocks of more than 32 KiB to the system: those that the calling thread freed, and those that
/// other threads had too many of. Smaller ones are parts of slabs, which stay.
void empty_cache();

}  // namespace reel
#pragma GCC visibility pop
