#pragma once
#include "reel/nn/module.h"

/// Transformers.
namespace reel::nn {}  // namespace reel::nn
