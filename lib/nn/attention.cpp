#include "reel/nn/attention.h"

namespace reel::nn {}  // namespace reel::nn
