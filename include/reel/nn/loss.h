#pragma once
#include "reel/nn/module.h"

/// Losses as modules.
namespace reel::nn {}  // namespace reel::nn
