#include <catch2/catch.hpp>

#include "reel/nn/padding.h"

namespace reel {}  // namespace reel
