#include <catch2/catch.hpp>

#include "reel/nn/activation.h"

namespace reel {}  // namespace reel
