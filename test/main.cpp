#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "reel/cuda.h"
#include "reel/tensor.h"

// REEL_TEST_DEVICE=cuda runs the tests with tensors that are made on the GPU. Without one they are skipped (exit code
// 77), unless REEL_REQUIRE_CUDA=1.
int main(int argc, char** argv) {
  const char* device = std::getenv("REEL_TEST_DEVICE");
  if (device && !std::strcmp(device, "cuda")) {
    const char* required = std::getenv("REEL_REQUIRE_CUDA");
    if (!reel::cuda::is_available() && !(required && !std::strcmp(required, "1"))) {
      std::cout << "skipped: there is no GPU that CUDA can use\n";
      return 77;
    }
    reel::set_default_device(reel::kCUDA);
  }
  return Catch::Session().run(argc, argv);
}
