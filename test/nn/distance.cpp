#include <catch2/catch.hpp>

#include "reel/nn/distance.h"

namespace reel {}  // namespace reel
