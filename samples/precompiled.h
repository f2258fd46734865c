#pragma once
// The headers that take longest to compile, for precompilation. Samples include what they need themselves.
#include <CLI/CLI.hpp>

#include "reel/reel.h"
