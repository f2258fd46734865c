#include "reel/nn/transformer.h"

namespace reel::nn {}  // namespace reel::nn
