#include <catch2/catch.hpp>

#include "reel/nn/transformer.h"

namespace reel {}  // namespace reel
