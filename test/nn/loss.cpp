#include <catch2/catch.hpp>

#include "reel/nn/loss.h"

namespace reel {}  // namespace reel
