#include "reel/nn/vision.h"

namespace reel::nn {}  // namespace reel::nn
