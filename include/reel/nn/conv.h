#pragma once
#include "reel/nn/module.h"

/// Convolutions.
namespace reel::nn {}  // namespace reel::nn
