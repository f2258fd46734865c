#pragma once
#include "reel/ops/common.h"

/// Padding.
namespace reel {}  // namespace reel
