#pragma once
#include "reel/ops/common.h"

/// Convolutions and sliding windows.
namespace reel {}  // namespace reel
