#pragma once
#include <cuda_runtime.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "device.h"

// Streams, events and graphs as the runtime's functions know them.

struct CUgraph_st {
  struct Node {
    std::function<void()> work;
    std::vector<size_t> after;  // other nodes
  };
  std::vector<Node> nodes;
  std::vector<std::shared_ptr<simt::Block>> blocks;  // memory that was asked for while it was captured
};

struct CUgraphExec_st {
  std::shared_ptr<const CUgraph_st> graph;
};

namespace simt {

using Work = std::function<void()>;
using Clock = std::chrono::steady_clock;

/// What is launched into streams that capture becomes a graph.
struct Capture {
  cudaStream_t origin;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  unsigned long long id;
  bool invalid = false;
  std::unique_ptr<CUgraph_st> graph = std::make_unique<CUgraph_st>();
};

}  // namespace simt

/// Works on its tasks when somebody waits for them.
struct CUstream_st {
  struct Task {
    simt::Work work;
    cudaStream_t other = nullptr;  // or it waits until so many tasks of another stream are done
    uint64_t until = 0;
  };
  int device = 0;
  bool legacy = false;  // the device's default stream
  unsigned flags = 0;
  int priority = 0;
  bool destroyed = false;
  std::deque<Task> tasks;
  uint64_t issued = 0, done = 0;
  simt::Capture* capture = nullptr;
  std::vector<size_t> frontier;  // the nodes of the graph which the next one comes after
};

struct CUevent_st {
  int device = 0;
  unsigned flags = 0;
  cudaStream_t stream = nullptr;  // where it was recorded, and after how many tasks
  uint64_t ticket = 0;
  std::shared_ptr<simt::Clock::time_point> time;
  unsigned long long capture = 0;  // in which it was recorded, or 0
  std::vector<size_t> frontier;
};

namespace simt {

using Stream = CUstream_st;

/// Null if there is none such. Null itself is the current device's default stream.
Stream* find_stream(cudaStream_t stream);
/// Adds to a stream's tasks or, while it captures, to its graph.
cudaError_t issue(Stream& stream, Work work);
/// Works until all tasks that the stream has now are done.
void finish(Stream& stream);
void finish_all(Devices devices = kAllDevices);
/// … until it has done `ticket` tasks since it was made.
void reach(Stream& stream, uint64_t ticket);

// What must not be called while a graph is captured breaks the capture.
cudaError_t refuse_if_captured(Stream& stream);
/// For what is unsafe unless the capture's mode says otherwise.
cudaError_t refuse_while_capturing();

/// Called whenever the host has waited.
void give_back_unused();

// The frame of all functions: one at a time, none from a function of the host in a stream, and errors are remembered.
struct State {
  std::recursive_mutex mutex;
  bool in_host_function = false;
};
State& state();
inline thread_local cudaError_t last_error = cudaSuccess;
inline thread_local int current_device = 0;
/// With SIMT_ONLY=1 all devices but number 1 are those of other processes: a call with one of them current, on which
/// CUDA would now take memory, ends the program.
void check_current();

template <class F>
cudaError_t call(const F& function) {
  check_current();
  const std::lock_guard lock(state().mutex);
  const cudaError_t status = state().in_host_function ? cudaErrorNotPermitted : function();
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
