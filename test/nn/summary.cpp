#include <catch2/catch.hpp>

#include "reel/nn/summary.h"

namespace reel {}  // namespace reel
