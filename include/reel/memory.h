#pragma once
#include <cstdint>

#include "reel/version.h"

#pragma GCC visibility push(default)
/// Statistics of the caching CPU allocator.
namespace reel {

/// What the caching CPU allocator holds, in bytes, over all threads. Whole blocks are counted, which are up to a
/// quarter larger than requested.
struct MemoryStats {
  int64_t in_use = 0;       ///< Allocated and not freed.
  int64_t peak_in_use = 0;  ///< The sum of the threads' own peaks, an upper bound of the process's.
  int64_t cached = 0;       ///< Free, kept for reuse.
};
MemoryStats memory_stats();      ///< Of the whole process.
void reset_peak_memory_stats();  ///< Restarts peak_in_use at in_use; otherwise it counts from the program's start.
/// Returns cached blocks of more than 32 KiB to the system, but for 2 MiB of a size that another thread may keep. It
/// is not needed: they are limited to a quarter of the recent peak in use. Smaller ones are parts of slabs, which stay.
void empty_cache();

}  // namespace reel
#pragma GCC visibility pop
