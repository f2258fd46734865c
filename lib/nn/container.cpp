#include "reel/nn/container.h"

namespace reel::nn {}  // namespace reel::nn
