#pragma once

namespace reel {

enum class SegmentOp { kSum, kMean, kMax, kMin };

}  // namespace reel
