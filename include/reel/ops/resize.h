#pragma once
#include "reel/ops/common.h"

/// Resizing and resampling of images.
namespace reel {}  // namespace reel
