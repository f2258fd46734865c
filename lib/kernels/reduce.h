#pragma once

namespace reel {

enum class ReduceOp { kSum, kProd, kMax, kMin, kAny, kAll, kMean };

}  // namespace reel
