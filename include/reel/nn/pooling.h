#pragma once
#include "reel/nn/module.h"

/// Pooling layers.
namespace reel::nn {}  // namespace reel::nn
