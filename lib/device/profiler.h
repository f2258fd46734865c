#pragma once
// DeviceProfiler: what lib/tensor/profile.cpp asks the profiler of a kind of devices.
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace reel {

struct KernelTable;

/// What a device did, or a wait of the host for it. Times are in nanoseconds of std::chrono::steady_clock.
struct DeviceActivity {
  enum class Kind : uint8_t { kKernel, kCopy, kFill, kWait };  // as profile::GpuEvent::Kind
  Kind kind;
  const char* name;    ///< Lasts as long as the process.
  uint64_t event = 0;  ///< What push_event() was given last on the thread that launched it; 0 if nothing was.
  int device = -1, stream = -1;
  int64_t begin, end, bytes = 0;
};

class DeviceProfiler {
 public:
  /// Has the process used one of the devices by now?
  virtual bool in_use() = 0;
  /// Begins to record. Returns an empty string, or why nothing will be recorded.
  virtual std::string start() = 0;
  ///@{
  /// What the calling thread launches in between belongs to `event`.
  virtual void push_event(uint64_t event) = 0;
  virtual void pop_event() = 0;
  ///@}
  /// Waits for the devices and returns what was recorded since start(). *note becomes what the user should know, if
  /// anything.
  virtual std::vector<DeviceActivity> stop(std::string* note) = 0;

 protected:
  ~DeviceProfiler() = default;  // not virtual: it is in static storage and never destroyed
};
/// That of the GPUs, nullptr in a build without CUDA (lib/device/no_cuda.cpp) or CUPTI.
DeviceProfiler* cuda_profiler();

/// While lib/tensor/profile.cpp records, returns the table that takes the place of a GPU's; otherwise nullptr.
using GpuStandIns = const KernelTable& (*)(const KernelTable& real);
extern constinit std::atomic<GpuStandIns> gpu_stand_ins;

}  // namespace reel
