#pragma once

namespace reel {

enum class ScatterOp { kReplace, kAdd, kMul, kMax, kMin };

}  // namespace reel
