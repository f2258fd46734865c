#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "cuda/pending_uploads.h"
#include "cuda/runtime.h"
#include "lib/device/device.h"

// State of each device, stream, thread and captured graph, shared by runtime.cu, memory.cu, pinned.cu and graph.cu.
//
// Locks are taken in this order: DeviceState::captures, DeviceState::mutex, DeviceState::events_mutex.
namespace reel::cuda {

inline constexpr int kMaxDevices = 16;

// ---- memory ---------------------------------------------------------------------------------------------------------

inline constexpr int kClasses = 4 + (64 - 10) * 4;  // of all sizes of blocks, four to a doubling (memory.cu)

struct CudaStream;
struct DeviceState;

/// The free memory blocks of a stream or of a captured graph. A block goes back to the pool that it came from.
struct MemoryPool {
  CudaStream* stream;
  MemoryBlock* free[kClasses] = {};
  char* slab = nullptr;
  size_t slab_left = 0;
  // Of a graph: replays use the same addresses, so its memory goes back to the driver only when the graph is destroyed
  // (abandoned) and all tensors in it are released (live is 0).
  bool of_graph = false, abandoned = false;
  int64_t live = 0;
  std::vector<void*> from_driver;
  std::vector<CudaStream*> users;  // streams that replayed it or used its blocks

  explicit MemoryPool(CudaStream* on) : stream(on) {}
};

struct MemoryBlock {
  void* data = nullptr;
  size_t bytes = 0;
  int size_class = -1;  // -1: allocated from the driver by itself
  MemoryPool* pool = nullptr;
  std::vector<CudaStream*> users;  // other streams that use it: its reuse is ordered after their work
  MemoryBlock* next = nullptr;
};

/// Adds a stream unless it is in the list already.
void add_user(std::vector<CudaStream*>& users, CudaStream& stream);
void record_stream(MemoryBlock* block, CudaStream& stream);
/// The graph of this pool is destroyed: its memory is freed as soon as the last of its blocks is released.
void abandon(MemoryPool* pool);

// ---- devices, streams, threads --------------------------------------------------------------------------------------

struct CudaStream final : DeviceStream {
  DeviceState& state;
  MemoryPool* const pool;
  const bool for_captures;           // used for captures only
  std::weak_ptr<CudaStream> holder;  // the handles that refer to it; empty for a device's main stream
  PendingUploads uploads{*this};

  CudaStream(DeviceState& on, bool for_captures);
  int device() const override;
  void synchronize() override;
  bool query() override;
  void* native() override {
    exposed_ = true;
    return handle();
  }
  /// Returns the CUDA stream for work that comes after all that it has been given, pending uploads included.
  cudaStream_t handle() {
    check(uploads.flush(), "a launch of small copies to the GPU");
    return stream_;
  }
  /// Does the same where an Error has no place to go.
  cudaStream_t try_handle() noexcept {
    uploads.flush();
    return stream_;
  }
  /// Returns it while uploads may be pending.
  cudaStream_t raw() const { return stream_; }
  /// Returns whether a program has got the handle. It may use it without our knowing, so no uploads are left pending.
  bool is_exposed() const { return exposed_; }

 private:
  cudaStream_t stream_ = nullptr;
  std::atomic<bool> exposed_ = false;
};

/// Never destroyed: tensors in static storage are released after other static objects are destroyed.
struct DeviceState {
  int index;
  cudaMemPool_t memory;
  CudaStream* main;
  IndexError* index_error;
  size_t max_shared_memory;
  /// Held shared during a capture and exclusively by cudaDeviceSynchronize, which would invalidate the capture.
  std::shared_mutex captures;
  std::mutex mutex;                  // guards the following members and the pools
  std::vector<CudaStream*> streams;  // all but those for captures
  std::vector<CudaStream*> idle[2];  // without a holder, for reuse; [1]: those for captures
  bool opened_to[kMaxDevices] = {};  // devices for which peer access to its memory was set up
  MemoryBlock* spare = nullptr;
  int64_t in_use = 0, peak = 0;
  int64_t kept = 0, most_kept = 0;  // bytes of large blocks in free lists
  std::mutex events_mutex;          // guards events
  std::vector<cudaEvent_t> events;
};
DeviceState& state_of(int index);
CudaStream& current_stream(int device);
void check_device(int index);
/// An idle stream, or a new one.
std::shared_ptr<CudaStream> take_stream(DeviceState& state, bool for_captures);

/// An event of a device, which must be the current one; it can be recorded on that device's streams only. nullptr if
/// CUDA cannot create one, which the recording reports.
cudaEvent_t take_event(DeviceState& state);
void return_event(DeviceState& state, cudaEvent_t event);
/// Orders work: what is launched on `after` from here on runs after what `before` has been given so far. The streams
/// may be of two devices.
cudaError_t order(CudaStream& before, CudaStream& after);

/// A captured graph's memory and the kernel arguments that change from replay to replay.
struct Capture final : GraphCapture {
  MemoryPool* pool;
  std::vector<MemoryBlock*>
      held;                      // blocks of other pools that were released during the capture: the graph may use them
  MemoryBlock* block = nullptr;  // the memory of the arguments
  std::vector<unsigned char> arguments;
  std::vector<std::pair<size_t, size_t>> places;  // offset and size of each argument, in the order of the capture
  std::vector<std::function<void()>> again;       // recompute the arguments, in the same order
  size_t next = 0;                                // the next of `places` to be renewed
  std::vector<std::unique_ptr<GraphHook>> hooks;
  CudaStream* around = nullptr;  // which was current before the capture

  void before_replay(std::function<void()> call) override { again.push_back(std::move(call)); }
  void add_hook(std::unique_ptr<GraphHook> hook) override { hooks.push_back(std::move(hook)); }
  void run_outside(const std::function<void()>& work) override;
};

struct Current {
  int device = -1;   // -1: none was set by this thread
  int guarded = -1;  // the device of the innermost DeviceStreamGuard
  CudaStream* streams[kMaxDevices] = {};
  bool synchronization_forbidden = false;
  Capture* refreshed = nullptr;  // whose arguments are being renewed
};
extern thread_local constinit Current current;
/// What the calling thread captures; nullptr outside of captures.
inline Capture* ongoing_capture() { return static_cast<Capture*>(current_capture); }

/// Sets the calling thread's current device, and restores it in the end. For runtime functions only: kernels rely on
/// the device that kernels_on() has set. A thread that had no device keeps this one, since restoring CUDA's default,
/// device 0, could create a context (and take memory) on a GPU that the process does not use.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) : before_(current.device) { change_to(device); }
  ~DeviceGuard() {
    if (before_ >= 0) change_to(before_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  static void change_to(int device) {  // cannot fail once there is a DeviceState
    if (current.device != device && cudaSetDevice(device) == cudaSuccess) current.device = device;
  }
  int before_;
};
/// Has this process used the device?
bool in_use(int device);
/// A device for calls that need some current device: one that is in use already, if there is one.
int any_device();

// ---- what the library calls -----------------------------------------------------------------------------------------

class CudaRuntime final : public DeviceRuntime {
 public:
  int device_count() override;
  std::string device_name(int device) override;
  int current_device() override;
  const KernelTable& kernels(int device) override;
  void synchronize(int device) override;
  void forbid_synchronization(bool forbid) override { current.synchronization_forbidden = forbid; }

  void* allocate(int device, size_t bytes, void** block) override;
  void release(void* block, size_t) override { cuda::release(static_cast<MemoryBlock*>(block)); }
  void record_stream(void* block, DeviceStream& stream) override {
    cuda::record_stream(static_cast<MemoryBlock*>(block), static_cast<CudaStream&>(stream));
  }
  MemoryStats memory_stats(int device) override;
  void reset_peak_memory_stats(int device) override;
  void empty_cache(int device) override;
  void* allocate_pinned(size_t bytes) override { return cuda::allocate_pinned(bytes); }
  void release_pinned(void* data) override { cuda::release_pinned(data); }
  bool is_pinned(const void* data) override { return cuda::is_pinned(data); }
  void download(int device, const void* from, void* to, size_t bytes) override;
  void upload(int device, const void* from, void* to, size_t bytes) override;

  std::shared_ptr<DeviceStream> new_stream(int device) override { return take_stream(state_of(device), false); }
  std::shared_ptr<DeviceStream> current_stream(int device) override;
  DeviceStream* follow(DeviceStream* last, int device) override;
  void follow_block(void* block, int device) override;
  int set_current_stream(DeviceStream& stream, int device) override;
  std::unique_ptr<DeviceEvent> new_event(bool timing) override;
  std::unique_ptr<DeviceGraph> capture(const std::function<void()>& work, int device) override;
};
extern constinit CudaRuntime backend;

}  // namespace reel::cuda
