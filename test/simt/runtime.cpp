// The CUDA runtime's functions: streams that work as late as they may, events, graphs, memory.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "device.h"
#include "simt.h"

namespace {

using simt::Block;
using Work = std::function<void()>;
using Clock = std::chrono::steady_clock;

constexpr size_t kMostPending = size_t(256) << 20;  // bytes whose free waits for a stream, before it runs anyway

/// One function at a time, and one kernel.
std::recursive_mutex mutex;
thread_local cudaError_t last_error = cudaSuccess;
bool in_host_function = false;

}  // namespace

// ---- streams --------------------------------------------------------------------------------------------------------

struct Capture;

struct CUstream_st {
  struct Task {
    Work work;                     // or
    CUstream_st* other = nullptr;  // … waits until
    uint64_t until = 0;            // … so many of its tasks are done
  };
  unsigned flags = 0;
  int priority = 0;
  bool destroyed = false;
  std::deque<Task> tasks;
  uint64_t issued = 0, done = 0;
  Capture* capture = nullptr;
  std::vector<size_t> frontier;  // the nodes which the next captured one comes after
};

struct CUgraph_st {
  struct Node {
    Work work;
    std::vector<size_t> after;
  };
  std::vector<Node> nodes;
  std::vector<std::shared_ptr<Block>> blocks;  // allocated while it was captured
};
struct CUgraphExec_st {
  std::shared_ptr<const CUgraph_st> graph;
};

struct Capture {
  CUstream_st* origin;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  unsigned long long id;
  bool invalid = false;
  std::unique_ptr<CUgraph_st> graph = std::make_unique<CUgraph_st>();
  std::set<CUstream_st*> streams;
};

struct CUevent_st {
  unsigned flags = 0;
  CUstream_st* stream = nullptr;  // null: never recorded
  uint64_t ticket = 0;
  std::shared_ptr<Clock::time_point> time = std::make_shared<Clock::time_point>();
  Capture* capture = nullptr;  // recorded in one
  unsigned long long capture_id = 0;
  std::vector<size_t> frontier;
};

namespace {

using Stream = CUstream_st;

/// All that ever were: events may know those that were destroyed. The first is the default stream.
std::vector<std::unique_ptr<Stream>>& streams() {
  static auto& all = *new std::vector<std::unique_ptr<Stream>>;
  if (all.empty()) all.push_back(std::make_unique<Stream>());
  return all;
}
std::vector<std::unique_ptr<Capture>>& captures() {
  static auto& all = *new std::vector<std::unique_ptr<Capture>>;
  return all;
}

/// The stream, or null if it is not one.
Stream* known(cudaStream_t stream) {
  if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread) return streams()[0].get();
  for (const auto& one : streams())
    if (one.get() == stream) return one->destroyed ? nullptr : stream;
  return nullptr;
}

bool blocked(const Stream& stream) {
  const auto& first = stream.tasks.front();
  return first.other && first.other->done < first.until;
}

/// Does the first task of a stream that is not blocked.
void step(Stream& stream) {
  const Work work = std::move(stream.tasks.front().work);
  stream.tasks.pop_front();
  if (work) work();
  ++stream.done;
}

/// Works on streams that nobody waits for, as real ones may.
void wander() {
  if (simt::seed() == 1) {
    for (bool any = true; any;) {
      any = false;
      for (auto i = streams().size(); i-- > 0;)
        for (Stream& stream = *streams()[i]; !stream.tasks.empty() && !blocked(stream); any = true) step(stream);
    }
  } else if (simt::seed() > 1) {
    while (simt::draw(2) == 0) {
      Stream& stream = *streams()[simt::draw(unsigned(streams().size()))];
      if (!stream.tasks.empty() && !blocked(stream)) step(stream);
    }
  }
}

/// Works until so many tasks of the stream are done.
void reach(Stream& stream, uint64_t ticket) {
  if (stream.done >= ticket) return;
  const simt::Open open;
  while (stream.done < ticket) {
    wander();
    if (stream.done >= ticket) break;
    Stream* next = &stream;
    while (blocked(*next)) next = next->tasks.front().other;
    step(*next);
  }
  simt::check_borders();
}
void finish(Stream& stream) { reach(stream, stream.issued); }
void finish_all() {
  for (const auto& stream : streams()) finish(*stream);
}

void invalidate(Capture& capture) { capture.invalid = true; }

/// For what must not be called while a graph is captured.
cudaError_t refuse_while_capturing() {
  cudaError_t status = cudaSuccess;
  for (const auto& capture : captures()) {
    if (capture->mode == cudaStreamCaptureModeRelaxed) continue;
    if (capture->mode == cudaStreamCaptureModeThreadLocal && capture->thread != std::this_thread::get_id()) continue;
    invalidate(*capture);
    status = cudaErrorStreamCaptureUnsupported;
  }
  return status;
}
/// … whoever captures.
cudaError_t refuse_while_any_captures() {
  for (const auto& capture : captures()) invalidate(*capture);
  return captures().empty() ? cudaSuccess : cudaErrorStreamCaptureUnsupported;
}
cudaError_t refuse_if_captured(Stream& stream) {
  if (!stream.capture) return cudaSuccess;
  invalidate(*stream.capture);
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t issue(Stream& stream, Work work) {
  if (Capture* const capture = stream.capture) {
    if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
    auto& nodes = capture->graph->nodes;
    nodes.push_back({std::move(work), stream.frontier});
    stream.frontier = {nodes.size() - 1};
    return cudaSuccess;
  }
  Stream* const legacy = streams()[0].get();
  if (&stream == legacy) {
    if (!captures().empty()) {
      refuse_while_any_captures();
      return cudaErrorStreamCaptureImplicit;
    }
    for (const auto& other : streams())
      if (!(other->flags & cudaStreamNonBlocking) && other.get() != legacy && other->done < other->issued)
        stream.tasks.push_back({nullptr, other.get(), other->issued}), ++stream.issued;
  } else if (!(stream.flags & cudaStreamNonBlocking) && legacy->done < legacy->issued) {
    stream.tasks.push_back({nullptr, legacy, legacy->issued}), ++stream.issued;
  }
  stream.tasks.push_back({std::move(work)});
  ++stream.issued;
  if (simt::seed() > 1 && simt::draw(16) == 0) {
    const simt::Open open;
    wander();
  }
  return cudaSuccess;
}

// ---- calls ----------------------------------------------------------------------------------------------------------

/// Every function's frame.
template <class F>
cudaError_t call(F&& function) {
  const std::lock_guard lock(mutex);
  const cudaError_t status = in_host_function ? cudaErrorNotPermitted : function();
  if (status != cudaSuccess) last_error = status;
  return status;
}
template <class F>
cudaError_t call_on(cudaStream_t stream, F&& function) {
  return call([&] {
    Stream* const found = known(stream);
    return found ? function(*found) : cudaErrorInvalidResourceHandle;
  });
}

}  // namespace

namespace simt {

cudaError_t enqueue(cudaStream_t stream, Work work) {
  return call_on(stream, [&](Stream& found) { return issue(found, std::move(work)); });
}

cudaError_t check_launch(const void*, dim3 grid, dim3 block, size_t shared) {
  return call([&] {
    const bool fits = block.x > 0 && block.y > 0 && block.z > 0 && block.x <= 1024 && block.y <= 1024 &&
                      block.z <= 64 && uint64_t(block.x) * block.y * block.z <= 1024 && grid.x > 0 && grid.y > 0 &&
                      grid.z > 0 && grid.x <= 2147483647u && grid.y <= 65535 && grid.z <= 65535;
    if (!fits) return cudaErrorInvalidConfiguration;
    return shared > 232448 ? cudaErrorInvalidValue : cudaSuccess;
  });
}

}  // namespace simt

namespace {

// ---- memory ---------------------------------------------------------------------------------------------------------

std::map<char*, size_t>& pinned() {
  static auto& all = *new std::map<char*, size_t>;
  return all;
}
bool is_pinned(const void* address) {
  auto after = pinned().upper_bound(static_cast<char*>(const_cast<void*>(address)));
  if (after == pinned().begin()) return false;
  const auto [start, size] = *std::prev(after);
  return size_t(static_cast<const char*>(address) - start) < size;
}

size_t pending_free = 0;

cudaError_t allocate(void** address, size_t size, Stream& stream) {
  *address = nullptr;
  if (size == 0) return cudaSuccess;
  Block* block = simt::allocate(size);
  if (!block) return cudaErrorMemoryAllocation;
  *address = block->data;
  return issue(stream, [block] { simt::prepare(block); });
}

cudaError_t release(void* address, Stream& stream) {
  if (!address) return cudaSuccess;
  Block* const block = simt::find_block(address);
  if (!block || block->data != address || block->freed) return cudaErrorInvalidValue;
  block->freed = true;
  pending_free += block->size;
  const cudaError_t status = issue(stream, [block] {
    pending_free -= block->size;
    simt::retire(block);
  });
  if (pending_free > kMostPending) finish(stream);
  return status;
}

/// Whether a copy of `bytes` bytes may touch what lies there.
bool usable(const void* address, size_t bytes) {
  if (!simt::is_device(address)) return true;
  const Block* const block = simt::find_block(address, bytes);
  return block && !block->freed;
}

cudaError_t copy(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                 cudaMemcpyKind kind, Stream& stream) {
  if (width == 0 || height == 0) return cudaSuccess;
  if (width > to_pitch || width > from_pitch) return cudaErrorInvalidPitchValue;
  const bool to_device = simt::is_device(to), from_device = simt::is_device(from);
  const cudaMemcpyKind actual = to_device     ? from_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice
                                : from_device ? cudaMemcpyDeviceToHost
                                              : cudaMemcpyHostToHost;
  if (kind != cudaMemcpyDefault && kind != actual) return cudaErrorInvalidValue;
  if (!usable(to, to_pitch * (height - 1) + width) || !usable(from, from_pitch * (height - 1) + width))
    return cudaErrorInvalidValue;
  const auto move = [=](const void* source, size_t pitch) {
    for (size_t row = 0; row < height; ++row)
      std::memcpy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(source) + row * pitch, width);
  };
  const bool pageable = (!to_device && !is_pinned(to)) || (!from_device && !is_pinned(from));
  if (pageable) {
    const cudaError_t status = refuse_if_captured(stream);
    if (status != cudaSuccess) return status;
  }
  if (!from_device && !is_pinned(from)) {  // what the host has there now
    std::vector<char> rows(width * height);
    for (size_t row = 0; row < height; ++row)
      std::memcpy(rows.data() + row * width, static_cast<const char*>(from) + row * from_pitch, width);
    return issue(stream, [=, rows = std::move(rows)] { move(rows.data(), width); });
  }
  const cudaError_t status = issue(stream, [=] { move(from, from_pitch); });
  if (status == cudaSuccess && pageable) finish(stream);
  return status;
}

}  // namespace

// ---- the runtime's functions ----------------------------------------------------------------------------------------

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int device) {
  return call([&] { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; });
}
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }

cudaError_t cudaMalloc(void** address, size_t size) {
  return call([&] {
    const cudaError_t status = refuse_while_capturing();
    if (status != cudaSuccess) return status;
    *address = nullptr;
    if (size == 0) return cudaSuccess;
    Block* const block = simt::allocate(size);
    if (!block) return cudaErrorMemoryAllocation;
    const simt::Open open;
    simt::prepare(block);
    *address = block->data;
    return cudaSuccess;
  });
}
cudaError_t cudaFree(void* address) {
  return call([&] {
    const cudaError_t status = refuse_while_capturing();
    if (status != cudaSuccess || !address) return status;
    finish_all();
    Block* const block = simt::find_block(address);
    if (!block || block->data != address || block->freed) return cudaErrorInvalidValue;
    const simt::Open open;
    simt::retire(block);
    return cudaSuccess;
  });
}
cudaError_t cudaMallocAsync(void** address, size_t size, cudaStream_t stream) {
  return call_on(stream, [&](Stream& found) { return allocate(address, size, found); });
}
cudaError_t cudaFreeAsync(void* address, cudaStream_t stream) {
  return call_on(stream, [&](Stream& found) { return release(address, found); });
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return call([&] {
    *total = simt::usage().limit;
    *free = *total - simt::usage().used;
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return call_on(stream, [&](Stream& found) { return copy(to, bytes, from, bytes, bytes, 1, kind, found); });
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return call_on(nullptr, [&](Stream& legacy) {
    cudaError_t status = copy(to, bytes, from, bytes, bytes, 1, kind, legacy);
    if (status == cudaSuccess) finish(legacy);
    return status;
  });
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  return call_on(stream,
                 [&](Stream& found) { return copy(to, to_pitch, from, from_pitch, width, height, kind, found); });
}
cudaError_t cudaMemsetAsync(void* address, int value, size_t bytes, cudaStream_t stream) {
  return call_on(stream, [&](Stream& found) {
    if (!simt::is_device(address) && bytes > 0 && !is_pinned(address)) return cudaErrorInvalidValue;
    if (!usable(address, bytes)) return cudaErrorInvalidValue;
    return issue(found, [=] { std::memset(address, value, bytes); });
  });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return call([&] {
    streams().push_back(std::make_unique<Stream>());
    *stream = streams().back().get();
    (*stream)->flags = flags;
    (*stream)->priority = priority;
    return cudaSuccess;
  });
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return call_on(stream, [&](Stream& found) { return found.destroyed = true, cudaSuccess; });
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return call_on(stream, [&](Stream& found) {
    const cudaError_t status = refuse_if_captured(found);
    if (status == cudaSuccess) finish(found);
    return status;
  });
}
cudaError_t cudaDeviceSynchronize() {
  return call([&] {
    const cudaError_t status = refuse_while_any_captures();
    if (status == cudaSuccess) finish_all();
    return status;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = new CUevent_st;
  (*event)->flags = flags;
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call_on(stream, [&](Stream& found) {
    event->time = std::make_shared<Clock::time_point>();
    const cudaError_t status = issue(found, [time = event->time] { *time = Clock::now(); });
    event->stream = &found;
    event->ticket = found.issued;
    event->capture = found.capture;
    event->frontier = found.frontier;
    return status;
  });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return call_on(stream, [&](Stream& found) {
    if (event->capture) {
      found.capture = event->capture;
      found.capture->streams.insert(&found);
      found.frontier.insert(found.frontier.end(), event->frontier.begin(), event->frontier.end());
    } else if (event->stream) {
      found.tasks.push_back({nullptr, event->stream, event->ticket});
      ++found.issued;
    }
    return cudaSuccess;
  });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call([&] {
    if (event->stream) reach(*event->stream, event->ticket);
    return cudaSuccess;
  });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call([&] { return event->stream && event->stream->done < event->ticket ? cudaErrorNotReady : cudaSuccess; });
}

const char* cudaGetErrorName(cudaError_t status) { return status == cudaSuccess ? "cudaSuccess" : "cudaError"; }
const char* cudaGetErrorString(cudaError_t status) { return status == cudaSuccess ? "no error" : "an error"; }

}  // extern "C"
