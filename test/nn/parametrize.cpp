#include <catch2/catch.hpp>

#include "reel/nn/parametrize.h"

namespace reel {}  // namespace reel
