#pragma once
#include "reel/ops/common.h"

/// Reductions over ragged rows.
namespace reel {}  // namespace reel
