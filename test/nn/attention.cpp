#include <catch2/catch.hpp>

#include "reel/nn/attention.h"

namespace reel {}  // namespace reel
