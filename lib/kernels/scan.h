#pragma once

namespace reel {

enum class ScanOp { kSum, kProd, kLogSumExp };

}  // namespace reel
