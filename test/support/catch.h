#pragma once

namespace reel {

/// Runs the test cases that the arguments name, as Catch's own main() does; returns the exit status.
int run_tests(int argc, char** argv);

}  // namespace reel
