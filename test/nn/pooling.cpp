#include <catch2/catch.hpp>

#include "reel/nn/pooling.h"

namespace reel {}  // namespace reel
