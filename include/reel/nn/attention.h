#pragma once
#include "reel/nn/module.h"

/// Attention.
namespace reel::nn {}  // namespace reel::nn
