#include "reel/nn/summary.h"

namespace reel::nn {}  // namespace reel::nn
