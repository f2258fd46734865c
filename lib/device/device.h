#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "reel/base/detail/no_suspend_guard.h"
#include "reel/memory.h"
#include "reel/types.h"

// All that is ever needed of a device beside its kernels: memory, streams, events and captured graphs. There is one
// DeviceRuntime for the CPU (lib/device/device.cpp) and one for all GPUs (cuda/), whose devices have numbers. The
// public functions and classes of reel/cuda.h forward to the latter.
namespace reel {

struct KernelTable;  // lib/device/kernels/table.h

/// A queue of a device's work, which is done in order.
class DeviceStream {
 public:
  virtual ~DeviceStream() = default;
  virtual int device() const = 0;  ///< Its device's number.
  virtual void synchronize() = 0;  ///< Blocks until its work is done; throws what that reported.
  virtual bool query() = 0;        ///< Is all of its work done?
  virtual void* native() = 0;      ///< The cudaStream_t; nullptr for the CPU.
};

/// A point in a stream's work. One that was never recorded counts as done.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  virtual void record(DeviceStream& stream) = 0;  ///< Everything queued on the stream by now comes before it.
  virtual void wait(DeviceStream& stream) = 0;    ///< What is queued on the stream from now on comes after it.
  virtual void synchronize() = 0;                 ///< Blocks until it is done; throws what the work before it reported.
  virtual bool query() = 0;                       ///< Is it done?
  virtual double elapsed_time(const DeviceEvent& end) = 0;  ///< In milliseconds.
};

/// Work that was captured, to be queued as a whole.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  virtual void replay() = 0;        ///< Queues the work on the current stream of its device.
  virtual size_t size() const = 0;  ///< Of how many kernels, copies and fills it is made.
};

/// Of all devices of one kind. Functions that take a device throw reel::Error if there is none of that number.
class DeviceRuntime {
 public:
  virtual int device_count() = 0;
  virtual std::string device_name(int device) = 0;
  /// The device of functions that are not given one: see cuda::current_device.
  virtual int current_device() = 0;
  /// The kernels, which work on the device: it becomes the calling thread's current one.
  virtual const KernelTable& kernels(int device) = 0;
  /// Blocks until all work is done; throws what that reported.
  virtual void synchronize(int device) = 0;
  /// Whether ops of the calling thread that synchronize throw instead.
  virtual void forbid_synchronization(bool forbid) = 0;

  // ---- memory
  /// Memory for a storage, for work on the device's current stream, and the handle by which it is released.
  virtual void* allocate(int device, size_t bytes, void** block) = 0;
  /// The calling thread's current device stays what it is.
  virtual void release(void* block, size_t bytes) = 0;
  /// Keeps a block from being used again before the stream has done what it has been given by then.
  virtual void record_stream(void* block, DeviceStream& stream) = 0;
  virtual MemoryStats memory_stats(int device) = 0;
  virtual void reset_peak_memory_stats(int device) = 0;
  virtual void empty_cache(int device) = 0;
  // Memory of the host that the device copies from asynchronously.
  virtual void* allocate_pinned(size_t bytes) = 0;
  virtual void release_pinned(void* data) = 0;
  virtual bool is_pinned(const void* data) = 0;
  /// Queues a copy from the device to pinned memory on the device's current stream. It is there when an event that is
  /// recorded afterwards is done; until then the memory is not used again, even if it is released.
  virtual void download(int device, const void* from, void* to, size_t bytes) = 0;
  /// Queues a copy from pinned memory to the device likewise. The memory must not change before the copy is made.
  virtual void upload(int device, const void* from, void* to, size_t bytes) = 0;

  // ---- streams, events and graphs
  virtual std::shared_ptr<DeviceStream> new_stream(int device) = 0;
  virtual std::shared_ptr<DeviceStream> current_stream(int device) = 0;
  /// Orders what the device's current stream is given from now on after what `last` has been given so far (nullptr:
  /// nothing). Returns the current stream, which lives as long as the process.
  virtual DeviceStream* follow(DeviceStream* last, int device) = 0;
  /// Orders the current stream after the stream that a block of memory was allocated on, unless the block belongs to a
  /// captured graph.
  virtual void follow_block(void* block, int device) = 0;
  /// Makes the stream the calling thread's current one of its device, and `current` its current_device (-1: the default
  /// one). Returns the `current` before.
  virtual int set_current_stream(DeviceStream& stream, int current) = 0;
  virtual std::unique_ptr<DeviceEvent> new_event(bool timing) = 0;
  /// Records what `work` does on the device, without doing it.
  virtual std::unique_ptr<DeviceGraph> capture(const std::function<void()>& work, int device) = 0;

 protected:
  ~DeviceRuntime() = default;  // not virtual: they are in static storage and never destroyed
};

#pragma GCC visibility push(default)
/// The runtime of a device; reel::Error if this build has none.
DeviceRuntime& runtime(Device device);
#pragma GCC visibility pop
/// That of the GPUs, nullptr in a build without CUDA (lib/device/no_cuda.cpp).
DeviceRuntime* cuda_runtime();

#pragma GCC visibility push(default)
/// Makes a stream the calling thread's current one of its device, and its device the current one, until the guard is
/// destroyed.
class DeviceStreamGuard {
 public:
  DeviceStreamGuard(DeviceRuntime& runtime, std::shared_ptr<DeviceStream> stream);
  ~DeviceStreamGuard();
  DeviceStreamGuard(const DeviceStreamGuard&) = delete;
  DeviceStreamGuard& operator=(const DeviceStreamGuard&) = delete;

 private:
  const detail::NoSuspendGuard no_suspend_;  // the stream is the thread's
  DeviceRuntime& runtime_;
  const std::shared_ptr<DeviceStream> before_, now_;
  int device_before_;
};
#pragma GCC visibility pop

/// default_device() of the calling thread.
extern constinit thread_local Device where_by_default;

// ---- captures -------------------------------------------------------------------------------------------------------

/// A GraphHook does on the host what a captured graph cannot do.
class GraphHook {
 public:
  virtual ~GraphHook() = default;
  // Both run on the stream that was current before the capture.
  virtual void captured() {}        ///< Is called when the capture has ended without an error.
  virtual void capture_failed() {}  ///< Is called when it has ended with one: none of the work will be done.
  virtual void before_replay() {}   ///< Is called before the graph is launched; may run ops on the current stream.
  virtual void after_replay() {}    ///< Is called after it has been launched.
};

/// A capture in progress.
class GraphCapture {
 public:
  const uint64_t id = next_id();  ///< Differs between captures, and is never 0.
  /// What has to be called again before each replay of the graph: it calls the same kernels with the same tensors in
  /// the same order, with new numbers among their arguments; their launches do nothing.
  virtual void before_replay(std::function<void()> again) = 0;
  /// Adds a hook. Its before_replay() runs before what before_replay() registers here, and in the first replay, too.
  virtual void add_hook(std::unique_ptr<GraphHook> hook) = 0;
  /// Runs `work` at once and without capturing it, on the stream that was current before the capture. All replays come
  /// after it.
  virtual void run_outside(const std::function<void()>& work) = 0;

 protected:
  ~GraphCapture() = default;

 private:
  static uint64_t next_id();
};
/// That of the calling thread; nullptr outside of captures.
#pragma GCC visibility push(default)
extern constinit thread_local GraphCapture* current_capture;
#pragma GCC visibility pop
/// Is the calling thread capturing a graph?
inline bool capturing() { return current_capture != nullptr; }

/// Calls `undo` if the calling thread's capture ends with an error: for what the host has counted already.
void undo_if_capture_fails(std::function<void()> undo);

/// A LastStream is the stream of a GPU that was the last to use what ops of several streams share without the program's
/// knowing, a leaf's gradient, say, so that the program cannot order them by events.
class LastStream {
 public:
  /// Orders the current stream of `device` after the last one, and makes it the last one. True if that was another one:
  /// then the shared memory has to be recorded (record_current_stream). Does nothing on the CPU or in a capture, whose
  /// work runs later.
  bool follow(Device device) {
    if (device.type == DeviceType::kCPU || capturing()) return false;
    DeviceStream* const before = stream_;
    stream_ = runtime(device).follow(before, device.index);
    return before && before != stream_;
  }

 private:
  DeviceStream* stream_ = nullptr;
};

}  // namespace reel
