#include <algorithm>
#include <cstring>

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

/// Brings the arguments to the GPU, as arguments of kernels: nobody waits, and the next ones may be computed at once.
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

const void* place_of_varying(const void* value, size_t bytes) {
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
  Stream stream;
  Capture capture;
  cudaGraphExec_t graph = nullptr;
  size_t size = 0;
  bool replayed = false;

  explicit Impl(int device) : stream(device) {
    capture.pool = new Pool(stream.impl_.get());
    capture.pool->of_graph = true;
  }
  ~Impl() {
    if (graph) cudaGraphExecDestroy(graph);
    for (Block* block : capture.held) {
      for (const cudaStream_t user : capture.pool->users) record_stream(block, user);
      release(block);
    }
    if (capture.block) release(capture.block);
    abandon(capture.pool);
  }

  void record(const std::function<void()>& work) {
    const StreamGuard guard(stream);
    const cudaStream_t queue = cuda::stream();
    CUDA_CHECK(cudaStreamBeginCapture(queue, cudaStreamCaptureModeThreadLocal));
    current.capture = &capture;
    cudaGraph_t recorded = nullptr;
    try {
      work();
    } catch (...) {
      current.capture = nullptr;
      cudaStreamEndCapture(queue, &recorded);
      if (recorded) cudaGraphDestroy(recorded);
      cudaGetLastError();
      throw;
    }
    current.capture = nullptr;
    CUDA_CHECK(cudaStreamEndCapture(queue, &recorded));
    const cudaError_t counted = cudaGraphGetNodes(recorded, nullptr, &size);
    const cudaError_t status = cudaGraphInstantiate(&graph, recorded, 0);
    cudaGraphDestroy(recorded);
    check(counted, "cudaGraphGetNodes");
    check(status, "cudaGraphInstantiate");
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

void Graph::capture(const std::function<void()>& work) {
  REEL_CHECK(!current.capture, "cuda::Graph::capture: a graph is being captured already");
  impl_.reset();
  const int device = std::max(current.device, 0);
  auto impl = std::make_unique<Impl>(device);
  Event before;  // what has been queued comes before what will be
  before.record();
  before.wait(impl->stream);
  impl->record(work);
  impl_ = std::move(impl);
}

void Graph::replay() {
  REEL_CHECK(impl_, "cuda::Graph::replay: nothing has been captured");
  REEL_CHECK(!current.capture, "cuda::Graph::replay: another graph is being captured");
  if (!impl_->capture.again.empty()) {
    if (std::exchange(impl_->replayed, true)) impl_->refresh();  // the first has what the capture has drawn
    write_arguments(impl_->capture);
  }
  const cudaStream_t here = stream();
  CUDA_CHECK(cudaGraphLaunch(impl_->graph, here));
  auto& users = impl_->capture.pool->users;
  if (std::find(users.begin(), users.end(), here) == users.end()) users.push_back(here);
}

size_t Graph::size() const { return impl_ ? impl_->size : 0; }

}  // namespace reel::cuda
