#pragma once
#include "reel/nn/module.h"

/// Tables of layers.
namespace reel::nn {}  // namespace reel::nn
