#pragma once
#include "reel/nn/module.h"

/// Activations.
namespace reel::nn {}  // namespace reel::nn
