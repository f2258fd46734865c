#pragma once
#include "reel/ops/common.h"

/// Normalisation.
namespace reel {}  // namespace reel
