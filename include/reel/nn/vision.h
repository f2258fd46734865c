#pragma once
#include "reel/nn/module.h"

/// Layers that rearrange images.
namespace reel::nn {}  // namespace reel::nn
