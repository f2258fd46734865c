#pragma once
#include <cstdint>

namespace reel {

/// That a kernel which looks up by ids checks them on the way, as check_bounds does by itself: ids outside of [0, size)
/// are reported in op's name, by a GPU at the next synchronization.
struct IdCheck {
  const char* op;
  int64_t ignored = -1;  // a negative id that is none, where the kernel takes such ones
  int64_t bad = 0;       // the result: an id out of range
};

}  // namespace reel
