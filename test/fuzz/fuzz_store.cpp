#include "test/fuzz/store_target.h"

// The store's server, for libFuzzer.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  feed_store({data, size});
  return 0;
}
