#pragma once
#include "reel/ops/common.h"

/// Linear algebra.
namespace reel {}  // namespace reel
