#include "reel/nn/pooling.h"

namespace reel::nn {}  // namespace reel::nn
