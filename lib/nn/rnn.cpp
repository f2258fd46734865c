#include "reel/nn/rnn.h"

namespace reel::nn {}  // namespace reel::nn
