// Catch itself, compiled once for all programs of tests.
#define CATCH_CONFIG_RUNNER
#include "test/support/catch.h"

#include <catch2/catch.hpp>

int reel::run_tests(int argc, char** argv) { return Catch::Session().run(argc, argv); }
