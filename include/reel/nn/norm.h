#pragma once
#include "reel/nn/module.h"

/// Normalisation layers.
namespace reel::nn {}  // namespace reel::nn
