#pragma once
#include "reel/ops/common.h"

/// Losses over many classes: sampled, adaptive and hierarchical softmax.
namespace reel {}  // namespace reel
