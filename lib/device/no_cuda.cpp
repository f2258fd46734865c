#include "lib/device/device.h"

// Takes the place of cuda/ in a build without CUDA.
namespace reel {

DeviceRuntime* cuda_runtime() { return nullptr; }

}  // namespace reel
