#pragma once
#include "reel/ops/common.h"

/// Attention.
namespace reel {}  // namespace reel
