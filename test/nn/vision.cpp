#include <catch2/catch.hpp>

#include "reel/nn/vision.h"

namespace reel {}  // namespace reel
