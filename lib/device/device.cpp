#include "lib/device/device.h"

#include <atomic>
#include <chrono>
#include <cstring>

#include "lib/base/lazy.h"
#include "lib/device/allocator.h"
#include "lib/device/kernels/table.h"
#include "lib/device/pending_uploads.h"
#include "lib/device/profiler.h"

namespace reel {

constinit thread_local GraphCapture* current_capture = nullptr;
constinit thread_local detail::Flush detail::flush_pending = nullptr;

uint64_t GraphCapture::next_id() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

void undo_if_capture_fails(std::function<void()> undo) {
  struct Undo final : GraphHook {
    const std::function<void()> call;
    explicit Undo(std::function<void()> f) : call(std::move(f)) {}
    void capture_failed() override { call(); }
  };
  current_capture->add_hook(std::make_unique<Undo>(std::move(undo)));
}

DeviceStreamGuard::DeviceStreamGuard(DeviceRuntime& runtime, std::shared_ptr<DeviceStream> stream)
    : runtime_(runtime), before_(runtime.current_stream(stream->device())), now_(std::move(stream)) {
  REEL_CHECK(!capturing(), "cuda::StreamGuard: what a cuda::Graph captures is work of one stream");
  device_before_ = runtime.set_current_stream(*now_, now_->device());
}
// Not in the header: reel::distributed, which uses it, cannot see the state of the thread that `apart_` restores.
DeviceStreamGuard::~DeviceStreamGuard() { runtime_.set_current_stream(*before_, device_before_); }

// ---- the CPU --------------------------------------------------------------------------------------------------------

namespace {

/// The CPU has one stream, whose work is done when the call that queues it returns.
class CpuStream final : public DeviceStream {
 public:
  int device() const override { return 0; }
  void synchronize() override {}
  bool query() override { return true; }
  void* native() override { return nullptr; }
};

class CpuEvent final : public DeviceEvent {
 public:
  void record(DeviceStream&) override { time_ = std::chrono::steady_clock::now(); }
  void wait(DeviceStream&) override {}
  void synchronize() override {}
  bool query() override { return true; }
  double elapsed_time(const DeviceEvent& end) override {
    return std::chrono::duration<double, std::milli>(static_cast<const CpuEvent&>(end).time_ - time_).count();
  }

 private:
  std::chrono::steady_clock::time_point time_;
};

class CpuRuntime final : public DeviceRuntime {
 public:
  int device_count() override { return 1; }
  std::string device_name(int) override { return "CPU"; }
  int current_device() override { return 0; }
  const KernelTable& kernels(int) override { return kernels_on(kCPU); }
  void synchronize(int) override {}
  void forbid_synchronization(bool) override {}

  void* allocate(int, size_t bytes, void** block) override { return *block = allocate_cpu(bytes); }
  void release(void* block, size_t bytes) override { release_cpu(block, bytes); }
  void record_stream(void*, DeviceStream&) override {}
  MemoryStats memory_stats(int) override { return reel::memory_stats(); }
  void reset_peak_memory_stats(int) override { reel::reset_peak_memory_stats(); }
  void empty_cache(int) override { reel::empty_cache(); }
  void* allocate_pinned(size_t) override { detail::fail("pin_memory: the CPU copies from any memory"); }
  void release_pinned(void*) override {}
  bool is_pinned(const void*) override { return false; }
  void download(int, const void* from, void* to, size_t bytes) override { std::memcpy(to, from, bytes); }
  void upload(int, const void* from, void* to, size_t bytes) override { std::memcpy(to, from, bytes); }

  std::shared_ptr<DeviceStream> new_stream(int device) override { return current_stream(device); }
  std::shared_ptr<DeviceStream> current_stream(int) override {
    static constinit Lazy<std::shared_ptr<CpuStream>> only;
    return only.get([] { return std::make_shared<CpuStream>(); });
  }
  DeviceStream* follow(DeviceStream*, int) override { return current_stream(0).get(); }
  void follow_block(void*, int) override {}
  int set_current_stream(DeviceStream&, int) override { return -1; }
  std::unique_ptr<DeviceEvent> new_event(bool) override { return std::make_unique<CpuEvent>(); }
  std::unique_ptr<DeviceGraph> capture(const std::function<void()>&, int) override {
    detail::fail("a graph: work of the CPU cannot be captured");
  }
};

}  // namespace

// ---- by device ------------------------------------------------------------------------------------------------------

DeviceRuntime& runtime(Device device) {
  static constinit CpuRuntime cpu;
  if (device.type == DeviceType::kCPU) return cpu;
  DeviceRuntime* const cuda = cuda_runtime();
  REEL_CHECK(cuda, "this build of reel has no CUDA backend");
  return *cuda;
}

constinit std::atomic<GpuStandIns> gpu_stand_ins = nullptr;

const KernelTable& device_kernels(Device device) {
  const KernelTable& table = runtime(device).kernels(device.index);
  const GpuStandIns stand_ins = gpu_stand_ins.load(std::memory_order_acquire);
  return stand_ins ? stand_ins(table) : table;
}

constinit thread_local Device where_by_default = kCPU;
Device default_device() { return where_by_default; }
void set_default_device(Device device) {
  kernels_on(device);  // an Error if there is none
  where_by_default = device;
}

}  // namespace reel
