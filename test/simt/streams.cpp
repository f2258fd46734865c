// Streams, events and graphs.
//
// A stream runs its tasks only when it is synchronized, so that a read without synchronization gets old data. It runs
// them in their order; which tasks of other streams run in between, where no event orders them, depends on the seed.
#include "streams.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

#include "simt.h"

namespace simt {
namespace {

constexpr size_t kMaxTasks = 4096;  // that are pending: a real stream takes about 1000 before launches block the host

/// All streams ever made, since events may refer to destroyed ones. The first are the devices' default streams.
std::vector<std::unique_ptr<Stream>>& streams() {
  static auto& all = *new std::vector<std::unique_ptr<Stream>>;
  if (all.empty())
    for (int device = 0; device < device_count(); ++device) {
      all.push_back(std::make_unique<Stream>());
      all.back()->device = device;
      all.back()->legacy = true;
    }
  return all;
}
std::vector<std::unique_ptr<Capture>>& captures() {
  static auto& all = *new std::vector<std::unique_ptr<Capture>>;
  return all;
}
std::set<cudaEvent_t>& events() {
  static auto& all = *new std::set<cudaEvent_t>;
  return all;
}

// ---- work -----------------------------------------------------------------------------------------------------------

bool blocked(const Stream& stream) {
  const Stream::Task& first = stream.tasks.front();
  return first.gate ? !first.gate->open() : first.other && first.other->done < first.until;
}
bool can_work(const Stream& stream) { return !stream.tasks.empty() && !blocked(stream); }

/// Runs a stream's first task.
void step(Stream& stream) {
  const Work work = std::move(stream.tasks.front().work);
  stream.tasks.pop_front();
  if (work) {
    reopen(only(stream.device));
    work();
  }
  ++stream.done;
}

/// Runs some work of streams that are not being synchronized.
void wander() {
  if (seed() == 1) {
    for (bool any = true; any;) {
      any = false;
      for (size_t i = streams().size(); i-- > 0;)
        for (Stream& stream = *streams()[i]; can_work(stream); any = true) step(stream);
    }
  } else if (seed() > 1) {
    while (draw(2) == 0) {
      Stream& stream = *streams()[draw(static_cast<unsigned>(streams().size()))];
      if (can_work(stream)) step(stream);
    }
  }
}

/// The stream or, if it is blocked by another one, the stream at the end of that chain; nullptr if that is blocked by
/// what another thread has to do, or by a circle, which only that can end.
Stream* worker_for(Stream& stream) {
  Stream* worker = &stream;
  for (size_t steps = 0; worker && !worker->tasks.empty() && blocked(*worker); ++steps) {
    const Stream::Task& first = worker->tasks.front();
    worker = first.gate ? first.gate->needs() : first.other;
    if (steps > streams().size()) return nullptr;
  }
  return worker && !worker->tasks.empty() ? worker : nullptr;
}

/// Runs a little work, so that a program that polls terminates.
void nudge(Stream& stream) {
  const Open open(only(stream.device));
  wander();
  if (stream.tasks.empty()) return;
  if (Stream* const worker = worker_for(stream)) step(*worker);
}

void add(Stream& stream, Stream::Task task) {
  stream.tasks.push_back(std::move(task));
  ++stream.issued;
}
void add_wait(Stream& stream, Stream& other, uint64_t until) {
  if (other.done < until) add(stream, {nullptr, &other, until});
}

/// Implicit synchronization between the default stream and those that were made without cudaStreamNonBlocking.
void add_implicit_waits(Stream& stream) {
  Stream& legacy = *streams()[static_cast<size_t>(stream.device)];
  if (stream.flags & cudaStreamNonBlocking) return;
  if (&stream != &legacy) return add_wait(stream, legacy, legacy.issued);
  for (const auto& other : streams())
    if (!(other->flags & cudaStreamNonBlocking) && other->device == stream.device && other.get() != &legacy)
      add_wait(legacy, *other, other->issued);
}

// ---- captures -------------------------------------------------------------------------------------------------------

/// The captures that forbid unsafe calls to the calling thread: in mode Global its own and all Global ones, in mode
/// ThreadLocal its own.
thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

void invalidate(Capture& capture) { capture.invalid = true; }
/// Those of a device's streams. False if there are none.
bool break_captures(int device) {
  bool any = false;
  for (const auto& capture : captures())
    if (capture->origin->device == device) any = capture->invalid = true;
  return any;
}

Capture* find_capture(unsigned long long id) {
  for (const auto& capture : captures())
    if (capture->id == id) return capture.get();
  return nullptr;
}

/// Whether all nodes of `tips` come before or are those of `frontier`.
bool joined(const CUgraph_st& graph, const std::vector<size_t>& tips, const std::vector<size_t>& frontier) {
  std::vector<bool> seen(graph.nodes.size());
  std::vector<size_t> left = frontier;
  while (!left.empty()) {
    const size_t node = left.back();
    left.pop_back();
    if (seen[node]) continue;
    seen[node] = true;
    left.insert(left.end(), graph.nodes[node].after.begin(), graph.nodes[node].after.end());
  }
  return std::all_of(tips.begin(), tips.end(), [&](size_t node) { return seen[node]; });
}

cudaError_t end(Stream& origin, cudaGraph_t* graph) {
  Capture* const capture = origin.capture;
  if (!capture) return cudaErrorIllegalState;
  if (capture->origin != &origin) {
    invalidate(*capture);
    return cudaErrorStreamCaptureUnmatched;
  }
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id())
    return cudaErrorStreamCaptureWrongThread;
  cudaError_t status = capture->invalid ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
  for (const auto& stream : streams()) {
    if (stream->capture != capture) continue;
    if (status == cudaSuccess && !joined(*capture->graph, stream->frontier, origin.frontier))
      status = cudaErrorStreamCaptureUnjoined;
    stream->capture = nullptr;
  }
  if (status == cudaSuccess) *graph = capture->graph.release();
  std::erase_if(captures(), [&](const auto& one) { return one.get() == capture; });
  return status;
}

/// The numbers of a graph's nodes in an order that it allows.
std::vector<size_t> order_of(const CUgraph_st& graph) {
  std::vector<size_t> order(graph.nodes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (seed() == 0) return order;
  order.clear();
  std::vector<size_t> missing(graph.nodes.size()), ready;
  std::vector<std::vector<size_t>> followers(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    missing[i] = graph.nodes[i].after.size();
    for (const size_t before : graph.nodes[i].after) followers[before].push_back(i);
    if (missing[i] == 0) ready.push_back(i);
  }
  while (!ready.empty()) {
    if (seed() > 1) std::swap(ready.back(), ready[draw(static_cast<unsigned>(ready.size()))]);
    order.push_back(ready.back());
    ready.pop_back();
    for (const size_t follower : followers[order.back()])
      if (--missing[follower] == 0) ready.push_back(follower);
  }
  return order;
}

/// Each node is a task of its own, so that work of other streams may come in between. A launch of an executable graph
/// comes after its last one, on whatever stream that was.
cudaError_t replay(CUgraphExec_st& executable, Stream& stream) {
  const std::shared_ptr<const CUgraph_st> graph = executable.graph;
  const std::vector<size_t> order = order_of(*graph);
  if (stream.capture)  // a child graph
    return issue(stream, [graph, order] {
      for (const size_t node : order) graph->nodes[node].work();
    });
  if (executable.stream) add_wait(stream, *executable.stream, executable.ticket);
  for (const size_t node : order)
    if (const cudaError_t status = issue(
            stream, [graph, node] { graph->nodes[node].work(); }, graph->nodes[node].activity);
        status != cudaSuccess)
      return status;
  executable.stream = &stream, executable.ticket = stream.issued;
  return cudaSuccess;
}

}  // namespace

State& state() {
  static State& instance = *new State;
  return instance;
}

Stream* find_stream(cudaStream_t stream) {
  if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread)
    return streams()[static_cast<size_t>(current_device)].get();
  for (const auto& one : streams())
    if (one.get() == stream) return one->destroyed ? nullptr : stream;
  return nullptr;
}

Tracer* tracer = nullptr;
Blocking::Blocking(const char* function) : function_(function), begin_(tracer ? tracer->time() : 0) {}
Blocking::~Blocking() {
  if (tracer && begin_) tracer->blocked(function_, begin_);
}

cudaError_t issue(Stream& stream, Work work, const Activity& activity) {
  if (Capture* const capture = stream.capture) {
    if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
    capture->graph->nodes.push_back({std::move(work), stream.frontier, activity});
    stream.frontier = {capture->graph->nodes.size() - 1};
    return cudaSuccess;
  }
  if (stream.legacy && break_captures(stream.device)) return cudaErrorStreamCaptureImplicit;
  add_implicit_waits(stream);
  if (tracer && activity.kind) work = tracer->queued(activity, &stream, std::move(work));
  add(stream, {std::move(work)});
  if (stream.tasks.size() > kMaxTasks) finish(stream);
  if (seed() > 1 && draw(16) == 0) {
    const Open open(only(stream.device));
    wander();
  }
  return cudaSuccess;
}

void reach(Stream& stream, uint64_t ticket) {
  if (stream.done >= ticket) return;
  {
    std::optional<Open> open(only(stream.device));
    for (wander(); stream.done < ticket; wander()) {
      if (Stream* const worker = worker_for(stream)) {
        step(*worker);
        continue;
      }
      open.reset();  // other threads have theirs meanwhile
      state().changed.wait(state().mutex);
      open.emplace(only(stream.device));
    }
    check_borders();
  }
  give_back_unused();
}

void add_gate(Stream& stream, std::shared_ptr<Gate> gate) { add(stream, {nullptr, nullptr, 0, std::move(gate)}); }
void notify_gates() { state().changed.notify_all(); }

void finish(Stream& stream) { reach(stream, stream.issued); }
void finish_all(Devices devices) {
  for (const auto& stream : streams())
    if (devices & only(stream->device)) finish(*stream);
  check_freed();
}

cudaError_t refuse_if_captured(Stream& stream) {
  if (!stream.capture) return cudaSuccess;
  invalidate(*stream.capture);
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t refuse_while_capturing() {
  cudaError_t status = cudaSuccess;
  if (thread_mode == cudaStreamCaptureModeRelaxed) return status;
  for (const auto& capture : captures()) {
    const bool own = capture->thread == std::this_thread::get_id();
    if (own ? capture->mode == cudaStreamCaptureModeRelaxed
            : capture->mode != cudaStreamCaptureModeGlobal || thread_mode != cudaStreamCaptureModeGlobal)
      continue;
    invalidate(*capture);
    status = cudaErrorStreamCaptureUnsupported;
  }
  return status;
}

cudaError_t enqueue(cudaStream_t stream, Work work, const void* kernel, const char* name) {
  return call_on(stream, [&](Stream& found) {
    return found.device == current_device ? issue(found, std::move(work), {Activity::kKernel, kernel, name})
                                          : cudaErrorInvalidResourceHandle;
  });
}

void check_current() {
  static const int only = [] {
    const char* const text = std::getenv("SIMT_ONLY");
    return text ? std::atoi(text) : -1;
  }();
  if (only >= 0 && current_device != only) die("device %d is touched, and is another process's", current_device);
}

namespace {

template <class F>
cudaError_t call_for(cudaEvent_t event, const F& function) {
  return call([&] { return events().count(event) ? function() : cudaErrorInvalidResourceHandle; });
}

/// For the host: an event that was recorded in a capture is never reached.
cudaError_t check_waitable(CUevent_st& event) {
  if (Capture* const capture = event.capture ? find_capture(event.capture) : nullptr) invalidate(*capture);
  return event.capture ? cudaErrorCapturedEvent : refuse_while_capturing();
}

cudaError_t wait_in_capture(Stream& stream, CUevent_st& event) {
  Capture* const capture = find_capture(event.capture);
  if (!capture) return event.capture ? cudaErrorCapturedEvent : cudaErrorStreamCaptureIsolation;
  if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
  if (stream.capture && stream.capture != capture) {
    invalidate(*stream.capture), invalidate(*capture);
    return cudaErrorStreamCaptureMerge;
  }
  if (!stream.capture) stream.frontier.clear();
  stream.capture = capture;
  for (const size_t node : event.frontier)
    if (std::find(stream.frontier.begin(), stream.frontier.end(), node) == stream.frontier.end())
      stream.frontier.push_back(node);
  return cudaSuccess;
}

}  // namespace
}  // namespace simt

// ---- the runtime's functions ----------------------------------------------------------------------------------------

using namespace simt;

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return call([&] {
    streams().push_back(std::make_unique<Stream>());
    *stream = streams().back().get();
    (*stream)->device = current_device;
    (*stream)->flags = flags;
    (*stream)->priority = std::clamp(priority, -5, 0);
    return cudaSuccess;
  });
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return call_on(stream, [&](Stream& found) { return *priority = found.priority, cudaSuccess; });
}
cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  return call_on(stream, [&](Stream& found) { return *flags = found.flags, cudaSuccess; });
}

/// Its pending tasks still run.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return call_on(stream, [&](Stream& found) {
    if (found.legacy) return cudaErrorInvalidResourceHandle;
    if (found.capture) invalidate(*found.capture);
    found.destroyed = true;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return call_on(stream, [&](Stream& found) {
    const Blocking blocking("cudaStreamSynchronize");
    cudaError_t status = refuse_if_captured(found);
    if (status == cudaSuccess) status = refuse_while_capturing();
    if (status == cudaSuccess) finish(found);
    return status;
  });
}
cudaError_t cudaDeviceSynchronize() {
  return call([&] {
    const Blocking blocking("cudaDeviceSynchronize");
    if (break_captures(current_device)) return cudaErrorStreamCaptureUnsupported;
    finish_all(only(current_device));
    return cudaSuccess;
  });
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return call_on(stream, [&](Stream& found) {
    cudaError_t status = refuse_if_captured(found);
    if (status == cudaSuccess) status = refuse_while_capturing();
    if (status != cudaSuccess || found.tasks.empty()) return status;
    nudge(found);
    return cudaErrorNotReady;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  const auto work = [=] {
    const Open closed(0);
    state().in_host_function = true;
    function(data);
    state().in_host_function = false;
  };
  return call_on(stream, [&](Stream& found) {
    return found.device == current_device ? issue(found, work) : cudaErrorInvalidResourceHandle;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return call([&] {
    *event = new CUevent_st;
    (*event)->device = current_device;
    (*event)->flags = flags;
    events().insert(*event);
    return cudaSuccess;
  });
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call_for(event, [&] {
    events().erase(event);
    delete event;
    return cudaSuccess;
  });
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return call_for(event, [&] {
    Stream* const found = find_stream(stream);
    if (!found || found->device != event->device) return cudaErrorInvalidResourceHandle;
    event->capture = 0;
    if (found->capture) {
      if (found->capture->invalid) return cudaErrorStreamCaptureInvalidated;
      event->capture = found->capture->id;
      event->frontier = found->frontier;
      return cudaSuccess;
    }
    event->time = std::make_shared<Clock::time_point>();
    const cudaError_t status = issue(*found, [time = event->time] { *time = Clock::now(); });
    event->stream = found;
    event->ticket = found->issued;
    return status;
  });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, 0);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return call_for(event, [&] {
    Stream* const found = find_stream(stream);
    if (!found) return cudaErrorInvalidResourceHandle;
    if (event->capture || (found->capture && event->stream)) {
      const cudaError_t status = wait_in_capture(*found, *event);
      if (status != cudaSuccess && found->capture) invalidate(*found->capture);
      return status;
    }
    if (event->stream) add_wait(*found, *event->stream, event->ticket);
    return cudaSuccess;
  });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call_for(event, [&] {
    const Blocking blocking("cudaEventSynchronize");
    const cudaError_t status = check_waitable(*event);
    if (status == cudaSuccess && event->stream) reach(*event->stream, event->ticket);
    return status;
  });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call_for(event, [&] {
    const cudaError_t status = check_waitable(*event);
    if (status != cudaSuccess || !event->stream || event->stream->done >= event->ticket) return status;
    nudge(*event->stream);
    return cudaErrorNotReady;
  });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return call_for(start, [&] {
    if (events().count(end) && start->device != end->device) return cudaErrorInvalidResourceHandle;
    for (const cudaEvent_t event : {start, end}) {
      if (!events().count(event) || !event->stream || event->capture || (event->flags & cudaEventDisableTiming))
        return cudaErrorInvalidResourceHandle;
      if (event->stream->done < event->ticket) return cudaErrorNotReady;
    }
    *milliseconds = std::chrono::duration<float, std::milli>(*end->time - *start->time).count();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return call_on(stream, [&](Stream& found) {
    if (found.legacy) return cudaErrorStreamCaptureUnsupported;
    if (found.capture) return cudaErrorIllegalState;
    static unsigned long long last_id = 0;
    captures().push_back(std::make_unique<Capture>(Capture{&found, mode, std::this_thread::get_id(), ++last_id}));
    found.capture = captures().back().get();
    found.frontier.clear();
    return cudaSuccess;
  });
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  return call_on(stream, [&](Stream& found) { return end(found, graph); });
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, size_t* dependency_count) {
  return call_on(stream, [&](Stream& found) {
    if (found.legacy && break_captures(found.device)) return cudaErrorStreamCaptureImplicit;
    const Capture* const capture = found.capture;
    *status = !capture           ? cudaStreamCaptureStatusNone
              : capture->invalid ? cudaStreamCaptureStatusInvalidated
                                 : cudaStreamCaptureStatusActive;
    if (id) *id = capture ? capture->id : 0;
    if (graph) *graph = capture ? capture->graph.get() : nullptr;
    if (dependencies) *dependencies = nullptr;  // nodes have no handles here
    if (edges) *edges = nullptr;
    if (dependency_count) *dependency_count = 0;
    return cudaSuccess;
  });
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return cudaStreamGetCaptureInfo(stream, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, thread_mode);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  return call([&] {
    *executable = new CUgraphExec_st{.graph = std::make_shared<const CUgraph_st>(*graph)};
    return cudaSuccess;
  });
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return call_on(stream, [&](Stream& found) {
    return found.device == current_device ? replay(*executable, found) : cudaErrorInvalidResourceHandle;
  });
}
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t executable, cudaGraph_t graph, cudaGraphExecUpdateResultInfo* result) {
  return call([&] {
    const auto& nodes = executable->graph->nodes;
    const bool same = std::equal(nodes.begin(), nodes.end(), graph->nodes.begin(), graph->nodes.end(),
                                 [](const auto& a, const auto& b) { return a.after == b.after; });
    if (same) executable->graph = std::make_shared<const CUgraph_st>(*graph);
    *result = {};
    result->result = same ? cudaGraphExecUpdateSuccess : cudaGraphExecUpdateErrorTopologyChanged;
    return same ? cudaSuccess : cudaErrorGraphExecUpdateFailure;
  });
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  if (nodes) return cudaErrorNotSupported;
  *count = graph->nodes.size();
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return call([&] { return delete graph, cudaSuccess; });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return call([&] { return delete executable, cudaSuccess; });
}

}  // extern "C"
