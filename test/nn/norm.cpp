#include <catch2/catch.hpp>

#include "reel/nn/norm.h"

namespace reel {}  // namespace reel
