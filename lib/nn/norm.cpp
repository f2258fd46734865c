#include "reel/nn/norm.h"

namespace reel::nn {}  // namespace reel::nn
