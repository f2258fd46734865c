// Tests of the shim's graphs.
#include <cuda_runtime.h>

#include <vector>

#include "check.h"

using namespace checks;

namespace {

void graphs_replay() {
  const cudaStream_t stream = make_stream(), side = make_stream();
  float *const in = make<float>(100, stream), *const out = make<float>(100, stream);
  cudaEvent_t fork, join;
  SUCCEED(cudaEventCreate(&fork));
  SUCCEED(cudaEventCreate(&join));
  float* const pinned = make_pinned<float>(1);
  pinned[0] = 10;
  SUCCEED(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  cudaStreamCaptureStatus status;
  SUCCEED(cudaStreamIsCapturing(stream, &status));
  EXPECT(status == cudaStreamCaptureStatusActive);
  launch(set, 1, 128, 0, stream, out, 100, 1.f);
  float* const temporary = make<float>(100, stream);
  SUCCEED(cudaEventRecord(fork, stream));
  SUCCEED(cudaStreamWaitEvent(side, fork, 0));
  launch(set, 1, 128, 0, side, temporary, 100, 5.f);
  SUCCEED(cudaMemcpyAsync(temporary, pinned, 4, cudaMemcpyHostToDevice, side));
  SUCCEED(cudaEventRecord(join, side));
  EXPECT(cudaEventQuery(nullptr) == cudaErrorInvalidResourceHandle);
  launch(add, 1, 128, 0, stream, out, static_cast<const float*>(in), 100);
  SUCCEED(cudaStreamWaitEvent(stream, join, 0));
  launch(add, 1, 128, 0, stream, out, static_cast<const float*>(temporary), 100);
  SUCCEED(cudaFreeAsync(temporary, stream));
  cudaGraph_t graph;
  SUCCEED(cudaStreamEndCapture(stream, &graph));
  size_t nodes;
  SUCCEED(cudaGraphGetNodes(graph, nullptr, &nodes));
  EXPECT(nodes == 7);
  cudaGraphExec_t executable;
  SUCCEED(cudaGraphInstantiate(&executable, graph, 0));
  SUCCEED(cudaGraphDestroy(graph));
  for (int i = 0; i < 3; ++i) {
    upload(in, std::vector<float>(100, float(i)), stream);
    pinned[0] = float(20 + i);
    SUCCEED(cudaGraphLaunch(executable, stream));
    const auto result = values(out, 100, stream);
    EXPECT(result[0] == float(21 + 2 * i) && result[1] == float(6 + i) && result[99] == float(6 + i));
  }
  SUCCEED(cudaGraphLaunch(executable, stream));
  SUCCEED(cudaGraphExecDestroy(executable));  // while it runs
  SUCCEED(cudaStreamSynchronize(stream));
}

/// data = 1, then data += data.
cudaGraphExec_t capture_doubling(float* data, cudaStream_t stream) {
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  SUCCEED(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  launch(set, 1, 32, 0, stream, data, 10, 1.f);
  launch(add, 1, 32, 0, stream, data, static_cast<const float*>(data), 10);
  SUCCEED(cudaStreamEndCapture(stream, &graph));
  SUCCEED(cudaGraphInstantiate(&executable, graph, 0));
  SUCCEED(cudaGraphDestroy(graph));
  return executable;
}

void launches_of_a_graph_are_in_order() {
  const cudaStream_t first = make_stream(), second = make_stream();
  float* const data = make<float>(10, first);
  const cudaGraphExec_t graph = capture_doubling(data, first);
  SUCCEED(cudaStreamSynchronize(first));
  for (int i = 0; i < 10; ++i) {
    SUCCEED(cudaGraphLaunch(graph, first));
    SUCCEED(cudaGraphLaunch(graph, second));  // no event: CUDA orders them
    EXPECT(values(data, 10, second)[0] == 2);
  }
}

void other_work_goes_on_within_a_graph() {
  const cudaStream_t first = make_stream(), second = make_stream();
  float* const data = make<float>(10, first);
  const cudaGraphExec_t graph = capture_doubling(data, first);
  SUCCEED(cudaStreamSynchronize(first));
  for (int i = 0; i < 20; ++i) {
    SUCCEED(cudaGraphLaunch(graph, first));
    const float seen = values(data, 10, second)[0];
    EXPECT(i == 0 || seen == 2);  // 1 where it looks between the graph's nodes
    SUCCEED(cudaStreamSynchronize(first));
  }
}

}  // namespace

const std::vector<Test> checks::graph_tests = {
    {"graphs replay", graphs_replay},
    {"launches of a graph are in order", launches_of_a_graph_are_in_order},
    {"a missing event while a graph runs", other_work_goes_on_within_a_graph, Test::kIsCaught}};
