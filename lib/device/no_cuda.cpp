#include "lib/device/device.h"
#include "lib/device/profiler.h"

// Takes the place of cuda/ in a build without CUDA.
namespace reel {

DeviceRuntime* cuda_runtime() { return nullptr; }
DeviceProfiler* cuda_profiler() { return nullptr; }

}  // namespace reel
