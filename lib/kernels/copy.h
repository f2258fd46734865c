#pragma once
#include <cstdint>

namespace reel {

/// Rows of bytes that go from one place to another.
struct BlockCopy {
  const void* from;
  void* to;
  int64_t rows, bytes;         // of a row
  int64_t from_step, to_step;  // bytes from row to row
};

}  // namespace reel
