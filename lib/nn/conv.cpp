#include "reel/nn/conv.h"

namespace reel::nn {}  // namespace reel::nn
