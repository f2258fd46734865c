#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <iostream>

#include "reel/cuda.h"
#include "reel/tensor.h"
#include "test/support/catch.h"
#include "test/support/op_table.h"

namespace simt {
[[gnu::weak]] extern unsigned long long launches();  // of a simulated GPU, if this program has one
}

static reel::Device where = reel::kCPU;
reel::Device reel::test_device() { return where; }

// REEL_TEST_DEVICE=cuda (or cuda:1, …) runs the tests with tensors that are made on the GPU, cuda-inputs those of the
// op table with inputs there, cpu on the CPU. Unless it is set, that is where tests run, but with a simulated GPU
// there. Without a GPU they are skipped (exit code 77), unless REEL_REQUIRE_CUDA=1.
int main(int argc, char** argv) {
  // Tests of ranks, which run beside this, say how soon something must be noticed.
  [[maybe_unused]] const int priority = ::nice(10);
  const char* device = std::getenv("REEL_TEST_DEVICE");
  if (!device || !*device) device = simt::launches ? "cuda" : "cpu";
  if (std::strcmp(device, "cpu")) {
    const char* required = std::getenv("REEL_REQUIRE_CUDA");
    if (!reel::cuda::is_available() && !(required && !std::strcmp(required, "1"))) {
      std::cout << "skipped: there is no GPU that CUDA can use\n";
      return 77;
    }
    where = reel::kCUDA;
    if (std::strcmp(device, "cuda-inputs")) where = reel::Device::from_string(device);
    if (where.index >= reel::cuda::device_count()) {
      std::cout << "skipped: there is no " << where << "\n";
      return 77;
    }
    if (std::strcmp(device, "cuda-inputs")) reel::set_default_device(where);
  }
  return reel::run_tests(argc, argv);
}
