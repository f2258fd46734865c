#include "reel/nn/distance.h"

namespace reel::nn {}  // namespace reel::nn
