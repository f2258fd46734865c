#pragma once
#include "reel/nn/module.h"

/// Padding layers.
namespace reel::nn {}  // namespace reel::nn
