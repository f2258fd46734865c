#include "reel/nn/parametrize.h"

namespace reel::nn {}  // namespace reel::nn
