#pragma once
#include <cuda_runtime.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "device.h"

// The types behind cudaStream_t, cudaEvent_t, cudaGraph_t and cudaGraphExec_t.

struct CUgraph_st {
  struct Node {
    std::function<void()> work;
    std::vector<size_t> after;  // other nodes
    simt::Activity activity = {};
  };
  std::vector<Node> nodes;
  std::vector<std::shared_ptr<simt::MemoryBlock>> blocks;  // allocated during the capture
};

struct CUgraphExec_st {
  std::shared_ptr<const CUgraph_st> graph;
  cudaStream_t stream = nullptr;  // of its last launch, which ends after `ticket` tasks
  uint64_t ticket = 0;
};

namespace simt {

using Work = std::function<void()>;
using Clock = std::chrono::steady_clock;

/// A capture: launches into its streams become nodes of its graph.
struct Capture {
  cudaStream_t origin;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  unsigned long long id;
  bool invalid = false;
  std::unique_ptr<CUgraph_st> graph = std::make_unique<CUgraph_st>();
};

/// What a stream waits for that is more than another stream's work: a collective of several ranks. A host that
/// synchronizes with the stream blocks until it is open, while other threads go on.
class Gate {
 public:
  virtual ~Gate() = default;
  virtual bool open() = 0;
  /// A stream whose first task is needed before it can open; nullptr if another thread has to do something.
  virtual cudaStream_t needs() = 0;
};

}  // namespace simt

/// Runs its tasks when it is synchronized.
struct CUstream_st {
  struct Task {
    simt::Work work;
    cudaStream_t other = nullptr;  // instead of work: blocks until `until` tasks of another stream are done
    uint64_t until = 0;
    std::shared_ptr<simt::Gate> gate = nullptr;  // instead of work: blocks until it is open
  };
  int device = 0;
  bool legacy = false;  // the device's default stream
  unsigned flags = 0;
  int priority = 0;
  bool destroyed = false;
  std::deque<Task> tasks;
  uint64_t issued = 0, done = 0;
  simt::Capture* capture = nullptr;
  std::vector<size_t> frontier;  // the nodes that the next one depends on
};

struct CUevent_st {
  int device = 0;
  unsigned flags = 0;
  cudaStream_t stream = nullptr;  // where it was recorded, after `ticket` tasks
  uint64_t ticket = 0;
  std::shared_ptr<simt::Clock::time_point> time;
  unsigned long long capture = 0;  // in which it was recorded, or 0
  std::vector<size_t> frontier;
};

namespace simt {

using Stream = CUstream_st;

/// The stream of a handle, null if there is none. A null handle is the current device's default stream.
Stream* find_stream(cudaStream_t stream);
/// Appends a task to a stream or, during a capture, a node to its graph.
cudaError_t issue(Stream& stream, Work work, const Activity& activity = {});
/// Appends a gate.
void add_gate(Stream& stream, std::shared_ptr<Gate> gate);
/// Says that a gate may have opened, or what it needs may have come.
void notify_gates();
/// Runs all tasks that the stream has.
void finish(Stream& stream);
void finish_all(Devices devices = kAllDevices);
/// Runs its tasks until `ticket` of them have run since it was made.
void reach(Stream& stream, uint64_t ticket);

// Calls that are forbidden during a capture invalidate it.
cudaError_t refuse_if_captured(Stream& stream);
/// For unsafe calls, unless the capture's mode allows them.
cudaError_t refuse_while_capturing();

/// Called after each synchronization with the host.
void give_back_unused();

// Common to all functions of the runtime: they are serialized, fail within host functions of a stream, and record
// errors.
struct State {
  std::recursive_mutex mutex;
  std::condition_variable_any changed;  // of gates
  bool in_host_function = false;
  int depth = 0;  // of calls that call others
  unsigned long long calls = 0, launches = 0;
};
State& state();
inline thread_local cudaError_t last_error = cudaSuccess;
inline thread_local int current_device = 0;
/// With SIMT_ONLY=1 all devices but number 1 belong to other processes: a call with one of them current, on which CUDA
/// would create a context and take memory, aborts.
void check_current();

template <class F>
cudaError_t call(const F& function) {
  check_current();
  const std::lock_guard lock(state().mutex);
  state().calls += state().depth++ == 0;
  const cudaError_t status = state().in_host_function ? cudaErrorNotPermitted : function();
  --state().depth;
  if (status != cudaSuccess) last_error = status;
  return status;
}
template <class F>
cudaError_t call_on(cudaStream_t stream, const F& function) {
  return call([&] {
    Stream* const found = find_stream(stream);
    return found ? function(*found) : cudaErrorInvalidResourceHandle;
  });
}

}  // namespace simt
