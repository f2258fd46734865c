#include "reel/nn/loss.h"

namespace reel::nn {}  // namespace reel::nn
