#include "lib/kernels/table.h"

namespace reel {
namespace {
thread_local Device where_by_default = kCPU;
}

Device default_device() { return where_by_default; }
void set_default_device(Device device) {
  kernels_on(device);  // an Error if there is none
  where_by_default = device;
}

}  // namespace reel
