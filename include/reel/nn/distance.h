#pragma once
#include "reel/nn/module.h"

/// Distances and similarities.
namespace reel::nn {}  // namespace reel::nn
