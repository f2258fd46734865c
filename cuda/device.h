#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "cuda/runtime.h"
#include "lib/device.h"
#include "reel/cuda.h"

// What there is once for each device, stream, thread and captured graph: runtime.cu, memory.cu and graph.cu share it.
namespace reel::cuda {

inline constexpr int kMostDevices = 16;

// ---- memory ---------------------------------------------------------------------------------------------------------

inline constexpr int kClasses = 160;

/// Free blocks, of a stream or of a graph that was captured.
struct Pool {
  Stream::Impl* stream;
  Block* free[kClasses] = {};
  char* slab = nullptr;
  size_t slab_left = 0;
  // Of a graph, whose memory stays in place until nobody has a block of it any more:
  bool of_graph = false, abandoned = false;
  int64_t live = 0;
  std::vector<void*> from_driver;
  std::vector<Stream::Impl*> users;  // where it was replayed, or its blocks were used

  explicit Pool(Stream::Impl* on) : stream(on) {}
};

struct Block {
  void* data = nullptr;
  size_t bytes = 0;
  int size_class = -1;  // or straight from the driver
  Pool* pool = nullptr;
  std::vector<Stream::Impl*> users;  // other streams that it must wait for before it is used again
  Block* next = nullptr;
};

/// Adds a stream to those that are there already.
void add_user(std::vector<Stream::Impl*>& users, Stream::Impl& stream);
void record_stream(Block* block, Stream::Impl& stream);
/// The graph is gone, and its memory when the last block is.
void abandon(Pool* pool);

// ---- devices, streams, threads --------------------------------------------------------------------------------------

struct Stream::Impl {
  struct DeviceState& state;
  Pool* const pool;
  cudaStream_t stream = nullptr;
  const bool for_captures;     // and nothing else
  std::weak_ptr<Impl> holder;  // of a stream that a user made

  Impl(DeviceState& on, bool for_captures);
};

/// Never destroyed: tensors in static storage are released after everything else.
struct DeviceState {
  int index;
  cudaMemPool_t memory;
  Stream::Impl* main;
  IndexError* index_error;
  size_t most_shared;
  /// Shared by who captures: until then nobody may wait for the device as a whole.
  std::shared_mutex captures;
  std::mutex mutex;                    // of all that follows, and of the pools
  std::vector<Stream::Impl*> streams;  // but for those for captures
  std::vector<Stream::Impl*> idle[2];  // nobody holds them; [1]: those for captures
  bool opened_to[kMostDevices] = {};   // other devices that may write into its memory, if they can
  Block* spare = nullptr;
  int64_t in_use = 0, peak = 0;
  std::mutex events_mutex;  // the last that is locked
  std::vector<cudaEvent_t> events;
};
DeviceState& state_of(int index);
Stream::Impl& current_stream(int device);
void check_device(int index);
/// A stream that nobody else holds.
std::shared_ptr<Stream::Impl> take_stream(DeviceState& state, bool for_captures);

/// An event belongs to a device, which has to be current, and can be recorded on its streams only. nullptr if there is
/// none to be had: recording that is an error.
cudaEvent_t take_event(DeviceState& state);
void return_event(DeviceState& state, cudaEvent_t event);
/// What `after` is given from now on comes after what `before` has been given by now. They may be of two devices.
cudaError_t order(Stream::Impl& before, Stream::Impl& after);

/// What is captured, and how the kernels whose arguments change get new ones before a replay.
struct Capture {
  Pool* pool;
  std::vector<Block*> held;  // blocks of other pools that were released meanwhile: the graph may read them
  Block* block = nullptr;    // the memory of the arguments
  std::vector<unsigned char> arguments;
  std::vector<std::pair<size_t, size_t>> places;  // offset and size of each
  std::vector<std::function<void()>> again;
  size_t next = 0;  // place
};

struct Current {
  int device = -1;   // none was chosen yet
  int guarded = -1;  // that of the innermost StreamGuard
  Stream::Impl* streams[kMostDevices] = {};
  bool waits_forbidden = false;
  Capture* capture = nullptr;    // being recorded
  Capture* refreshed = nullptr;  // whose arguments are being renewed
};
extern thread_local constinit Current current;

/// Makes a device the calling thread's current one for as long as this lives: for what is no op on that device, since
/// those may rely on the device which backend() has made current. A thread that had none keeps it: its first device
/// must not be one that this process does not use, on which CUDA would then take memory.
class OnDevice {
 public:
  explicit OnDevice(int device) : before_(current.device) { change_to(device); }
  ~OnDevice() {
    if (before_ >= 0) change_to(before_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  static void change_to(int device) {  // cannot fail once there is a DeviceState
    if (current.device != device && cudaSetDevice(device) == cudaSuccess) current.device = device;
  }
  int before_;
};
/// While one lives the thread may call what a capture would refuse.
class Relaxed {
 public:
  Relaxed() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~Relaxed() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// A device for calls that need any: one that is in use, if there is one.
int any_device();

}  // namespace reel::cuda
