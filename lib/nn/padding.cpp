#include "reel/nn/padding.h"

namespace reel::nn {}  // namespace reel::nn
