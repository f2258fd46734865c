#include <catch2/catch.hpp>

#include "reel/nn/rnn.h"

namespace reel {}  // namespace reel
