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
  Capture* capture = ongoing_capture();
  if (!capture) return nullptr;
  if (!capture->block) allocate(kArguments, &capture->block);
  const size_t at = (capture->arguments.size() + 15) / 16 * 16;
  REEL_CHECK(at + bytes <= kArguments, "cuda::Graph: too many arguments that vary");
  capture->arguments.resize(at + bytes);
  std::memcpy(capture->arguments.data() + at, value, bytes);
  capture->places.emplace_back(at, bytes);
  return static_cast<char*>(capture->block->data) + at;
}

void Capture::run_outside(const std::function<void()>& work) {
  struct Outside {
    GraphCapture* const capture = std::exchange(current_capture, nullptr);
    CudaStream*& stream;
    CudaStream* const captured;
    const RelaxedCaptureGuard relaxed;
    explicit Outside(CudaStream& around)
        : stream(current.streams[around.state.index]), captured(std::exchange(stream, &around)) {}
    ~Outside() { current_capture = capture, stream = captured; }
  };
  const Outside guard(*around);
  work();
}

// ---- graphs ---------------------------------------------------------------------------------------------------------

namespace {

struct CudaGraph final : DeviceGraph {
  DeviceState& state;
  Capture capture;
  cudaGraphExec_t graph = nullptr;
  size_t nodes = 0;
  CudaStream* last = nullptr;  // where it was replayed; before that the stream around the capture
  bool replayed = false;

  explicit CudaGraph(DeviceState& on) : state(on) {
    capture.pool = new MemoryPool(state.main);
    capture.pool->of_graph = true;
  }
  ~CudaGraph() override {
    const DeviceGuard guard(state.index);
    if (graph) cudaGraphExecDestroy(graph);
    for (MemoryBlock* block : capture.held) {
      for (CudaStream* user : users()) record_stream(block, *user);
      release(block);
    }
    if (capture.block) release(capture.block);
    abandon(capture.pool);
  }
  std::vector<CudaStream*> users() const {
    std::lock_guard lock(state.mutex);
    return capture.pool->users;
  }

  /// Captures on a stream that is used for captures only, so that an invalidated capture leaves other work intact.
  void record(const std::function<void()>& work) {
    last = capture.around = &current_stream(state.index);
    const DeviceStreamGuard guard(backend, take_stream(state, true));
    const std::shared_lock lock(state.captures);
    const cudaStream_t queue = cuda::stream();
    CUDA_CHECK(cudaStreamBeginCapture(queue, cudaStreamCaptureModeThreadLocal));
    current_capture = &capture;
    std::exception_ptr error;
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
    current_capture = nullptr;
    cudaGraph_t recorded = nullptr;
    cudaError_t status = cudaStreamEndCapture(queue, &recorded);
    if (status == cudaSuccess && !error) status = cudaGraphGetNodes(recorded, nullptr, &nodes);
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

  void replay() override;
  size_t size() const override { return nodes; }
};

void CudaGraph::replay() {
  REEL_CHECK(!capturing(), "cuda::Graph::replay: another graph is being captured");
  const DeviceGuard guard(state.index);
  CudaStream& here = current_stream(state.index);
  const bool first = !replayed;
  if (first || last != &here) {
    if (last != &here) check(order(*last, here), "cuda::Graph::replay on another stream");
    std::lock_guard lock(state.mutex);
    add_user(capture.pool->users, here);
    last = &here;
  }
  for (const auto& hook : capture.hooks) hook->before_replay();
  if (!capture.again.empty()) {
    if (!first) refresh();  // the first has what the capture has drawn
    write_arguments(capture);
  }
  CUDA_CHECK(cudaGraphLaunch(graph, here.handle()));
  replayed = true;
  for (const auto& hook : capture.hooks) hook->after_replay();
}

}  // namespace

std::unique_ptr<DeviceGraph> CudaRuntime::capture(const std::function<void()>& work, int device) {
  DeviceState& state = state_of(device);
  const DeviceGuard guard(device);
  auto graph = std::make_unique<CudaGraph>(state);
  auto& hooks = graph->capture.hooks;
  try {
    graph->record(work);
  } catch (...) {
    for (auto hook = hooks.rbegin(); hook != hooks.rend(); ++hook) (*hook)->capture_failed();
    throw;
  }
  for (const auto& hook : hooks) hook->captured();
  return graph;
}

}  // namespace reel::cuda
