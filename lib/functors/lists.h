#pragma once
#include "lib/functors/pointwise.h"
#include "lib/functors/update.h"

namespace reel::functors {

/// All lists of functors, by the names that for_each_kernel (lib/device/kernels/table.h) has for them.
struct Lists {
  using Unary = UnaryList;
  using Binary = BinaryList;
  using Ternary = TernaryList;
  using Bit = BitList;
  using Compare = CompareList;
  using Update = UpdateList;
};

}  // namespace reel::functors
