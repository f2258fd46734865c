#pragma once
#include "reel/nn/module.h"

/// Parameters that are computed from others.
namespace reel::nn {}  // namespace reel::nn
