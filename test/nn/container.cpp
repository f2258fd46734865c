#include <catch2/catch.hpp>

#include "reel/nn/container.h"

namespace reel {}  // namespace reel
