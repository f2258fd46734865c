#pragma once
#include "reel/ops.h"
#include "reel/random.h"
#include "test/support/op_table.h"

// What the families' tables (ops/*.cpp) are written with.
namespace reel {

namespace ref = reference;
using ref::along, ref::build, ref::fold, ref::Index, ref::Line, ref::with;
using In = const Tensors&;
using Ref = const Arrays&;

inline const Traits
    // What integers give: integers again, float32, int64.
    kArithmetic{.integers = true},
    kOfFloats{.integers = true, .integers_give = Result::kFloat},
    kSums{.integers = true, .bools = true, .integers_give = Result::kInt64},
    // Sums of products whose terms cancel.
    kProduct{.tolerance = 8},
    // Elements only change places, or are compared, or found.
    kMoves{.integers = true, .bools = true},
    kCompares{.integers = true,
              .bools = true,
              .integers_give = Result::kBool,
              .floats_give = Result::kBool,
              .differentiable = false},
    kFinds{.integers = true, .integers_give = Result::kInt64, .floats_give = Result::kInt64, .differentiable = false};

inline const Shape kCube{2, 3, 4}, kMatrix{3, 4}, kVector{6}, kNumber{};

}  // namespace reel
