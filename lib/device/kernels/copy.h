#pragma once
#include <cstdint>

#include "reel/types.h"

namespace reel {

/// Rows of bytes that go from one place to another or, where the two types differ, one row of elements that is
/// converted: a float32 to a half type or back. The types are the same in all copies of a call.
struct BlockCopy {
  const void* from;
  void* to;
  int64_t rows, bytes;         // of a row of `from`
  int64_t from_step, to_step;  // bytes from row to row
  DType from_type, to_type;
  // Elements of that type to add to those of `from`, which then are one row of a floating-point type; nullptr for none.
  const void* addend = nullptr;
};
/// That of all elements, in memory order: both views are contiguous.
inline BlockCopy whole_copy(const void* from, DType from_type, void* to, DType to_type, int64_t numel) {
  return {from, to, 1, numel * size_of(from_type), 0, 0, from_type, to_type};
}

}  // namespace reel
