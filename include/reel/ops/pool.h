#pragma once
#include "reel/ops/common.h"

/// Pooling.
namespace reel {}  // namespace reel
