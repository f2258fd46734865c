#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "reel/memory.h"
#include "reel/types.h"

#pragma GCC visibility push(default)
namespace reel {
class DeviceEvent;
class DeviceGraph;
class DeviceStream;
class DeviceStreamGuard;
class Tensor;
}  // namespace reel

/// NVIDIA GPUs: which there are, their memory, and the order in which they work.
///
/// An op on a CUDA tensor only queues its work on the calling thread's current stream and returns. What needs a value
/// on the host synchronizes, that is, it blocks until the work before it is done: item(), printing, to(kCPU), nonzero()
/// and other results whose shape depends on values. A copy from the host to a GPU returns when it has read its source;
/// from pinned memory, beyond 16 MiB, it synchronizes for that. CopyOptions::non_blocking copies do not wait, in either
/// direction. An index that turns out to be out of range on the GPU is reported
/// by the next synchronization, in the name of the op that it was passed to.
///
/// Every op works on the device of its tensors, which may be of several GPUs; to() and copy_() copy them from one to
/// another without synchronizing. An op makes its device the thread's current one and does not restore the one before:
/// a program that calls CUDA itself calls cudaSetDevice first, and restores the device afterwards.
namespace reel::cuda {

/// The device of functions that are not given one: that of the calling thread's innermost StreamGuard, else its default
/// device (set_default_device) if that is a GPU, else 0. Not that of cudaGetDevice.
int current_device();
/// How many GPUs this process can use: 0 where the build has no CUDA, the machine no driver or no GPU.
int device_count();
/// Whether there is a GPU that this process can use.
inline bool is_available() { return device_count() > 0; }
/// "NVIDIA H100 80GB HBM3". All functions that take a device throw reel::Error if there is none of that number.
std::string device_name(int device = current_device());

/// Blocks until all that this process has queued on the device is done; throws the errors that the work reported. While
/// another thread captures a Graph there, it blocks until that has ended, too.
void synchronize(int device = current_device());

// ---- memory ---------------------------------------------------------------------------------------------------------

/// What the caching allocator of a device holds.
MemoryStats memory_stats(int device = current_device());
void reset_peak_memory_stats(int device = current_device());  ///< Sets peak_in_use to in_use.
/// Synchronizes, and returns cached memory to the driver, pinned memory too. Small blocks are parts of
/// slabs, which stay.
void empty_cache(int device = current_device());

// ---- streams and events ---------------------------------------------------------------------------------------------

/// A queue of work; a handle. Work of one stream is done in order, that of two streams in any. All threads start with
/// the device's one default stream as their current one.
class Stream {
 public:
  /// A new stream of the device.
  explicit Stream(int device = current_device());
  static Stream current(int device = current_device());  ///< The calling thread's.
  int device() const;                                    ///< Its device's number.
  void synchronize() const;                              ///< Blocks until its work is done; throws what that reported.
  bool query() const;                                    ///< Is all of its work done?
  void* native() const;                                  ///< The cudaStream_t.
  bool operator==(const Stream&) const = default;        ///< The same queue.

 private:
  friend class Event;
  friend class StreamGuard;
  friend class reel::Tensor;
  explicit Stream(std::shared_ptr<DeviceStream> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<DeviceStream> impl_;
};

/// Makes a stream the calling thread's current one of its device until the guard is destroyed. An op is queued on the
/// device of its tensors: one on another device is queued on that device's current stream.
///
/// What the stream reads must have been written: Event::wait on it first. A tensor made on one stream and used on
/// another needs Tensor::record_stream, so that its memory is not reused too early, unless its last handle is destroyed
/// while the other stream is current.
///
/// Gradients of leaves are ordered by themselves: backward passes on several streams, of several threads even, may end
/// at one leaf, and grad() is ordered after them on the stream that is current when it is called. A backward pass runs
/// on the current stream of the thread that calls it, after what the stream of the forward pass has been given by then.
class StreamGuard {
 public:
  /// Makes it current.
  explicit StreamGuard(const Stream& stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  std::unique_ptr<DeviceStreamGuard> impl_;
};

/// A point in a stream's work. Streams of other devices may be ordered after it, too. An event that was never
/// recorded counts as done.
class Event {
 public:
  /// Only events made with `timing` measure time.
  explicit Event(bool timing = false);
  void record(const Stream& stream);      ///< Everything queued on the stream by now comes before the event.
  void record();                          ///< On the current stream of the current device.
  void wait(const Stream& stream) const;  ///< What is queued on the stream from now on comes after the event.
  void synchronize() const;               ///< Blocks the host until the event is done.
  bool query() const;                     ///< Is it done?
  /// Milliseconds from this event to `end`; both are done, on one device.
  double elapsed_time(const Event& end) const;

 private:
  std::shared_ptr<DeviceEvent> impl_;
};

// ---- graphs ---------------------------------------------------------------------------------------------------------

/// A piece of work, such as a whole training iteration, that is recorded once and then started as one: the host's part
/// of it takes microseconds, however many ops there are.
///
///     cuda::Graph graph;
///     graph.capture([&] {
///       adam.zero_grad();
///       loss = cross_entropy(net.forward(x), y);
///       loss.backward();
///       adam.step();
///     });
///     for (…) {
///       x.copy_(images), y.copy_(labels);   // new values in the tensors that were captured
///       graph.replay();                     // loss has a new value
///     }
///
/// Shapes are those of the capture. Whatever the work reads from outside must stay where it is: change tensors in
/// place (a copy from pinned memory reads that anew in each replay, which does not wait for it), and keep optimizers
/// that take a step in it alive. Random numbers, learning rates and step counts are new in every replay (the first has
/// those of the capture, so that all goes on as it would have without); other numbers that the host computes are those
/// of the capture. Run the work once or more before you capture it, on the same thread, so that optimizers have made
/// their states and libraries their plans.
///
/// Gradients of leaves may come from other passes than those of the graph: a replay uses the gradient that a leaf has
/// by then (zeros, if it has none), and adds to it, and the leaf has afterwards what the work has left. But where the
/// leaf has had no gradient during the capture, or the work begins with zero_grad(), each replay makes a new one.
///
/// Replays come one after the other, on whatever streams: one on another stream than the last also comes after all that
/// was queued on that by then, such as what reads the last results. The results stay in the graph's own memory; work
/// that uses them on other streams than that of the replay must be ordered by Events.
class Graph {
 public:
  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  /// Records what `work` does on a device, all of it on one stream; nothing of it is done yet. Throws reel::Error if it
  /// works on another device or, in the name of the op, if it synchronizes or does something else that cannot be
  /// recorded; then the graph is empty as before.
  void capture(const std::function<void()>& work, int device = current_device());
  /// Queues the work on the current stream of the graph's device.
  void replay();
  /// How many kernels, copies and fills the work is made of: what a change to a model saves, say.
  size_t size() const;

 private:
  std::unique_ptr<DeviceGraph> impl_;
};

// ---- debugging ------------------------------------------------------------------------------------------------------

/// What an op does that synchronizes with the GPU: it blocks (kDefault), or throws reel::Error with its name (kError),
/// to find synchronizations in a training loop.
enum class SyncDebugMode { kDefault, kError };
void set_sync_debug_mode(SyncDebugMode mode);  ///< For the calling thread.

}  // namespace reel::cuda
#pragma GCC visibility pop
