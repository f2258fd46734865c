#include <algorithm>
#include <cstring>
#include <exception>

#include "cuda/device.h"

namespace reel::cuda {

// ---- arguments that vary --------------------------------------------------------------------------------------------

namespace {

constexpr size_t kArguments = size_t{256} << 10, kChunk = 2048;
struct Chunk {
  unsigned char bytes[kChunk];
};
__global__ void write_kernel(Chunk chunk, unsigned char* to, int count) {
  for (int i = threadIdx.x; i < count; i += blockDim.x) to[i] = chunk.bytes[i];
}

/// Writes the arguments to GPU memory by kernels that get them as parameters: asynchronous, without a host buffer that
/// would have to stay unchanged.
void write_arguments(const Capture& capture) {
  for (size_t at = 0; at < capture.arguments.size(); at += kChunk) {
    const size_t count = std::min(kChunk, capture.arguments.size() - at);
    Chunk chunk;
    std::memcpy(chunk.bytes, capture.arguments.data() + at, count);
    launch(write_kernel, 1, kThreads, 0, chunk, static_cast<unsigned char*>(capture.block->data) + at,
           static_cast<int>(count));
  }
}

}  // namespace

const void* replay_param_address(const void* value, size_t bytes) {
  if (Capture* refreshed = current.refreshed) {
    REEL_CHECK(refreshed->next < refreshed->places.size() && refreshed->places[refreshed->next].second == bytes,
               "cuda::Graph: what was captured is not what is replayed; has an optimizer in it got other parameters?");
    std::memcpy(refreshed->arguments.data() + refreshed->places[refreshed->next++].first, value, bytes);
    return nullptr;
  }
  Capture* capture = current.capture;
  if (!capture) return nullptr;
  if (!capture->block) allocate(kArguments, &capture->block);
  const size_t at = (capture->arguments.size() + 15) / 16 * 16;
  REEL_CHECK(at + bytes <= kArguments, "cuda::Graph: too many arguments that vary");
  capture->arguments.resize(at + bytes);
  std::memcpy(capture->arguments.data() + at, value, bytes);
  capture->places.emplace_back(at, bytes);
  return static_cast<char*>(capture->block->data) + at;
}

bool capturing() { return current.capture != nullptr; }
void before_replay(std::function<void()> again) { current.capture->again.push_back(std::move(again)); }

// ---- graphs ---------------------------------------------------------------------------------------------------------

struct Graph::Impl {
  DeviceState& state;
  Capture capture;
  cudaGraphExec_t graph = nullptr;
  size_t size = 0;
  Stream::Impl* last = nullptr;  // where it was replayed

  explicit Impl(DeviceState& on) : state(on) {
    capture.pool = new MemoryPool(state.main);
    capture.pool->of_graph = true;
  }
  ~Impl() {
    const DeviceGuard guard(state.index);
    if (graph) cudaGraphExecDestroy(graph);
    for (MemoryBlock* block : capture.held) {
      for (Stream::Impl* user : users()) record_stream(block, *user);
      release(block);
    }
    if (capture.block) release(capture.block);
    abandon(capture.pool);
  }
  std::vector<Stream::Impl*> users() const {
    std::lock_guard lock(state.mutex);
    return capture.pool->users;
  }

  /// Captures on a stream that is used for captures only, so that an invalidated capture leaves other work intact.
  void record(const std::function<void()>& work) {
    const Stream stream(take_stream(state, true));
    const StreamGuard guard(stream);
    const std::shared_lock lock(state.captures);
    const cudaStream_t queue = cuda::stream();
    CUDA_CHECK(cudaStreamBeginCapture(queue, cudaStreamCaptureModeThreadLocal));
    current.capture = &capture;
    std::exception_ptr error;
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
    current.capture = nullptr;
    cudaGraph_t recorded = nullptr;
    cudaError_t status = cudaStreamEndCapture(queue, &recorded);
    if (status == cudaSuccess && !error) status = cudaGraphGetNodes(recorded, nullptr, &size);
    if (status == cudaSuccess && !error) status = cudaGraphInstantiate(&graph, recorded, 0);
    if (recorded) cudaGraphDestroy(recorded);
    if (!error) return check(status, "the end of cuda::Graph::capture");
    cudaGetLastError();
    std::rethrow_exception(error);
  }

  void refresh() {
    struct Refreshing {
      explicit Refreshing(Capture* capture) { current.refreshed = capture, refreshing = true, capture->next = 0; }
      ~Refreshing() { current.refreshed = nullptr, refreshing = false; }
    };
    const Refreshing guard(&capture);
    for (const auto& again : capture.again) again();
    REEL_CHECK(capture.next == capture.places.size(),
               "cuda::Graph::replay: fewer arguments than were captured; has an optimizer in it lost parameters?");
  }
};

Graph::Graph() = default;
Graph::~Graph() = default;

void Graph::capture(const std::function<void()>& work, int device) {
  REEL_CHECK(!current.capture, "cuda::Graph::capture: a graph is being captured already");
  impl_.reset();
  DeviceState& state = state_of(device);
  const DeviceGuard guard(device);
  auto impl = std::make_unique<Impl>(state);
  impl->record(work);
  impl_ = std::move(impl);
}

void Graph::replay() {
  REEL_CHECK(impl_, "cuda::Graph::replay: nothing has been captured");
  REEL_CHECK(!current.capture, "cuda::Graph::replay: another graph is being captured");
  Impl& graph = *impl_;
  const DeviceGuard guard(graph.state.index);
  Stream::Impl& here = current_stream(graph.state.index);
  const bool first = !graph.last;
  if (graph.last != &here) {
    if (!first) check(order(*graph.last, here), "cuda::Graph::replay on another stream");
    std::lock_guard lock(graph.state.mutex);
    add_user(graph.capture.pool->users, here);
    graph.last = &here;
  }
  if (!graph.capture.again.empty()) {
    if (!first) graph.refresh();  // the first has what the capture has drawn
    write_arguments(graph.capture);
  }
  CUDA_CHECK(cudaGraphLaunch(graph.graph, here.stream));
}

size_t Graph::size() const { return impl_ ? impl_->size : 0; }

}  // namespace reel::cuda
