// These functions let pointwise kernels take operands whose order in memory is not that of the result.
#pragma once
#include "lib/cpu/parts.h"

namespace reel::cpu::REEL_ISA {

/// A Walk says how the dimensions of pointwise views are walked.
struct Walk {
  bool reorders = false;  // the result is not row-major: its dimensions are sorted by their strides
  int transposed = -1;    // the dimension in which an operand lies as the result does in its last one
  explicit operator bool() const { return reorders || transposed >= 0; }
};
/// Returns how views are walked, of which the first is the result. The Walk is false where rows of all of them are
/// adjacent elements or repeat one.
Walk walk_of(const View* const* views, int count);

/// Calls f(views) with the dimensions of the views sorted by the strides of the first one.
void call_reordered(const View* const* views, int count, PartFunction call, const void* f);

/// Calls f(parts) so that rows of all parts are adjacent elements: with reordered views, or with square tiles, in which
/// transposed operands are copies. Elements are of 4 or 8 bytes.
void call_in_tiles(const View* const* views, int count, const Walk& walk, PartFunction call, const void* f);

}  // namespace reel::cpu::REEL_ISA
