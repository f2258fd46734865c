#include <catch2/catch.hpp>

#include "reel/nn/conv.h"

namespace reel {}  // namespace reel
