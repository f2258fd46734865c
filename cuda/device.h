#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda/runtime.h"
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
  std::vector<cudaStream_t> users;  // where it was replayed

  explicit Pool(Stream::Impl* on) : stream(on) {}
};

struct Block {
  void* data = nullptr;
  size_t bytes = 0;
  int size_class = -1;  // or straight from the driver
  Pool* pool = nullptr;
  std::vector<cudaStream_t> users;  // other streams that it must wait for before it is used again
  Block* next = nullptr;
};

/// The graph is gone, and its memory when the last block is.
void abandon(Pool* pool);

// ---- devices, streams, threads --------------------------------------------------------------------------------------

struct Stream::Impl {
  struct DeviceState& state;
  Pool* const pool;
  cudaStream_t stream = nullptr;
  std::weak_ptr<Impl> holder;  // of a stream that a user made

  explicit Impl(DeviceState& on);
};

/// Never destroyed: tensors in static storage are released after everything else.
struct DeviceState {
  int index;
  cudaMemPool_t memory;
  Stream::Impl* main;
  std::mutex mutex;  // of all that follows, and of the pools
  std::vector<Stream::Impl*> idle;
  std::vector<cudaEvent_t> events;
  Block* spare = nullptr;
  int64_t in_use = 0, peak = 0;
};
DeviceState& state_of(int index);
Stream::Impl& current_stream(int device);
void check_device(int index);

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
  int device = -1;
  Stream::Impl* streams[kMostDevices] = {};
  bool waits_forbidden = false;
  Capture* capture = nullptr;    // being recorded
  Capture* refreshed = nullptr;  // whose arguments are being renewed
};
extern thread_local constinit Current current;

}  // namespace reel::cuda
