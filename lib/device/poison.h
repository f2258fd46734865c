#pragma once
#include "lib/base/sanitizers.h"

// The address sanitizer sees only allocations of the system. To have it report accesses beyond a tensor, or to a freed
// one, the unused rest of a block and free blocks (but for their links) are poisoned.
#if defined(REEL_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(begin, bytes) static_cast<void>(0)
#define ASAN_UNPOISON_MEMORY_REGION(begin, bytes) static_cast<void>(0)
#endif
