#include "reel/nn/activation.h"

namespace reel::nn {}  // namespace reel::nn
