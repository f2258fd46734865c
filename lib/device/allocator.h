#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "reel/types.h"

namespace reel {

// The caching CPU allocator. Blocks are 64-byte aligned and up to 1 MiB come in size classes, four to a doubling. Each
// thread keeps free blocks of these in lists of its own, so that taking and giving back touches no lock and no other
// thread; only when a list overflows or runs dry do blocks go to or come from where all threads share them: those of up
// to 32 KiB, cut from slabs, in batches to a depot, larger ones to a BlockPool, from which tensors above 1 MiB come.

/// At least `bytes` bytes. Throws reel::Error when the system has none left, even after emptying the cache.
void* allocate_cpu(size_t bytes);
/// Gives back what allocate_cpu(bytes) returned, on any thread.
void release_cpu(void* block, size_t bytes);
/// "1.5 MiB"
std::string human_size(double bytes);
/// "; the largest holders: 1.5 GiB (float32 [1000, …]), …", of a device.
std::string largest_holders(Device device);
/// What the calling thread has taken less what it has given back.
int64_t thread_memory_in_use();

}  // namespace reel
