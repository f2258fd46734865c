#pragma once
#include "reel/nn/module.h"

/// Containers of modules.
namespace reel::nn {}  // namespace reel::nn
