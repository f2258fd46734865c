#include "test/fuzz/targets.h"

// Compiled once for each target.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const FuzzTarget& target = fuzz_target(REEL_FUZZ_TARGET);
  feed(target, {data, size});
  return 0;
}
