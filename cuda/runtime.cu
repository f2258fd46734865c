#include "cuda/runtime.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>

#include "cuda/device.h"
#include "lib/base/per_thread.h"

namespace reel::cuda {

// ---- errors ---------------------------------------------------------------------------------------------------------

namespace {
/// After these errors the CUDA context is unusable: every further call fails with them.
bool is_sticky(cudaError_t status) {
  switch (status) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable: return true;
    default: return false;
  }
}
}  // namespace

void fail(cudaError_t status, const char* call) {
  cudaGetLastError();  // an error that is not sticky is over now
  reel::detail::fail(call, ": ", cudaGetErrorName(status), ", ", cudaGetErrorString(status),
                     is_sticky(status) ? ". Every further CUDA call of this process fails with it. It may come from "
                                         "work that was queued earlier: CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer "
                                         "show which"
                                       : "");
}

namespace {
std::atomic<unsigned long long> fallback_count = 0;
}  // namespace
unsigned long long fallbacks() { return fallback_count; }
void note_fallback(const std::string& what) {
  constexpr unsigned kMost = 10;
  const char* const wish = std::getenv("REEL_CUDA_FALLBACK");
  REEL_CHECK(!wish || std::string_view(wish) != "error", what, ", and REEL_CUDA_FALLBACK=error forbids the slower way");
  const auto before = fallback_count++;
  if (before < kMost)
    std::fprintf(stderr, "reel: %s: computed in a slower way%s\n", what.c_str(),
                 before + 1 == kMost ? "; no more of this is reported" : "");
}

// ---- devices --------------------------------------------------------------------------------------------------------

int CudaRuntime::device_count() {
  static const int count = [] {
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess) {
      cudaGetLastError();
      return 0;
    }
    return std::min(n, kMaxDevices);
  }();
  return count;
}

void check_device(int index) {
  const int count = backend.device_count();
  REEL_CHECK(count > 0, "cuda: this machine has no GPU that CUDA can use");
  REEL_CHECK(index >= 0 && index < count, "cuda:", index, " was asked for, but there are ", count, " devices");
}

thread_local constinit Current current;

namespace {

DeviceState* make_state(int index) {
  const DeviceGuard guard(index);
  CUDA_CHECK(cudaSetDevice(index));  // which may be refused: another process may have the device for itself
  auto state = std::make_unique<DeviceState>();
  state->index = index;
  int pools = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, index));
  REEL_CHECK(pools, "cuda:", index,
             " has no memory pools (cudaDevAttrMemoryPoolsSupported), which reel's tensors come ",
             "from; some virtual GPUs have them only with unified memory switched on");
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, index};
  CUDA_CHECK(cudaMemPoolCreate(&state->memory, &properties));
  uint64_t keep = UINT64_MAX;  // the pool gives nothing back by itself
  CUDA_CHECK(cudaMemPoolSetAttribute(state->memory, cudaMemPoolAttrReleaseThreshold, &keep));
  int most = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, index));
  state->max_shared_memory = static_cast<size_t>(most);
  size_t free = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  state->most_kept = static_cast<int64_t>(total / 4);
  void* memory = nullptr;
  CUDA_CHECK(cudaHostAlloc(&memory, sizeof(IndexError), cudaHostAllocPortable | cudaHostAllocMapped));
  state->index_error = new (memory) IndexError{};
  state->main = new CudaStream(*state, false);
  return state.release();
}

std::atomic<DeviceState*> states[kMaxDevices];

}  // namespace

DeviceState& state_of(int index) {
  if (index >= 0 && index < kMaxDevices)
    if (DeviceState* state = states[index].load(std::memory_order_acquire)) return *state;
  check_device(index);
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  if (!states[index].load(std::memory_order_relaxed)) states[index].store(make_state(index), std::memory_order_release);
  return *states[index].load(std::memory_order_relaxed);
}

bool in_use(int device) { return states[device].load(std::memory_order_acquire); }

int any_device() {
  if (current.device >= 0) return current.device;
  const int device = backend.current_device();
  for (int i = 0; i < kMaxDevices && !in_use(device); ++i)
    if (in_use(i)) return i;
  return device;
}

size_t max_shared_memory() { return state_of(std::max(current.device, 0)).max_shared_memory; }

namespace {
/// The kernels that have been loaded on a device, or have opted in to its most shared memory: a hash table, which a
/// thread has for itself and clears when it is half full.
class KernelSet {
 public:
  bool has(const void* kernel) const {
    for (size_t i = place_of(kernel); places_[i]; i = (i + 1) % kPlaces)
      if (places_[i] == kernel) return true;
    return false;
  }
  void add(const void* kernel) {
    if (++count_ > kPlaces / 2) *this = {}, count_ = 1;
    size_t i = place_of(kernel);
    while (places_[i]) i = (i + 1) % kPlaces;
    places_[i] = kernel;
  }

 private:
  static constexpr size_t kPlaces = 512;
  static size_t place_of(const void* kernel) {
    return (reinterpret_cast<uintptr_t>(kernel) * 0x9e3779b97f4a7c15u) >> 55;
  }
  const void* places_[kPlaces] = {};
  size_t count_ = 0;
};
}  // namespace

void prepare_kernel(const void* kernel, bool large) {
  struct Sets {
    std::unique_ptr<KernelSet> of_device[kMaxDevices][2];
  };
  static constinit thread_local PerThread<Sets> sets;
  auto& known = sets->of_device[std::max(current.device, 0)][large];
  if (!known) known = std::make_unique<KernelSet>();
  if (known->has(kernel)) return;
  const RelaxedCaptureGuard guard(capturing());
  cudaFuncAttributes now;
  CUDA_CHECK(cudaFuncGetAttributes(&now, kernel));  // loads it
  const int most = static_cast<int>(max_shared_memory() - now.sharedSizeBytes);
  if (large && now.maxDynamicSharedSizeBytes < most)
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most));
  known->add(kernel);
}

/// Its device is current.
CudaStream::CudaStream(DeviceState& on, bool captures) : state(on), pool(new MemoryPool(this)), for_captures(captures) {
  CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  std::lock_guard lock(state.mutex);
  if (!captures) state.streams.push_back(this);
}

CudaStream& current_stream(int device) {
  if (!current.streams[device]) [[unlikely]]
    current.streams[device] = state_of(device).main;
  return *current.streams[device];
}

void use(Device device) {
  if (current.device == device.index) [[likely]]
    return;
  check_device(device.index);
  REEL_CHECK(!capturing(), "cuda::Graph: the work of cuda:", current.device, " is captured, and this is on ", device,
             "; capture(work, device) says which one is meant");
  CUDA_CHECK(cudaSetDevice(device.index));
  current.device = device.index;
}

int CudaRuntime::current_device() {
  if (current.guarded >= 0) return current.guarded;
  const Device device = default_device();
  return device.type == DeviceType::kCUDA ? device.index : 0;
}

cudaStream_t stream() { return current_stream(std::max(current.device, 0)).handle(); }

// ---- waiting --------------------------------------------------------------------------------------------------------

IndexError* index_error() { return state_of(std::max(current.device, 0)).index_error; }

namespace {
void throw_reported(const DeviceState& state) {
  IndexError& error = *state.index_error;
  const std::atomic_ref flag(error.flag);
  if (flag.load(std::memory_order_acquire) != 2) [[likely]]
    return;
  const IndexError copy = error;
  unsigned whole = 2;
  if (!flag.compare_exchange_strong(whole, 0)) return;  // another thread reports it
  reel::detail::fail(copy.op, ": index ", copy.value, " is out of range [", copy.low, ", ", copy.high,
                     "), as the GPU found when it came to it");
}
}  // namespace

void check_wait(const char* what) {
  cudaStreamCaptureStatus status;
  CUDA_CHECK(cudaStreamIsCapturing(stream(), &status));
  REEL_CHECK(status == cudaStreamCaptureStatusNone, what,
             ": synchronizes with the GPU, so it cannot be captured in a cuda::Graph");
  REEL_CHECK(!current.synchronization_forbidden, what,
             ": synchronizes with the GPU, which cuda::SyncDebugMode::kError forbids");
}

void wait_for_gpu(const char* what) {
  check_wait(what);
  CUDA_CHECK(cudaStreamSynchronize(stream()));
  throw_reported(state_of(std::max(current.device, 0)));
}

void CudaRuntime::synchronize(int device) {
  REEL_CHECK(!capturing(), "cuda::synchronize: cannot be captured in a cuda::Graph");
  DeviceState& state = state_of(device);
  const DeviceGuard guard(device);
  {
    const std::unique_lock lock(state.captures);  // it would break the capture
    {
      const std::lock_guard streams_lock(state.mutex);
      for (CudaStream* stream : state.streams) stream->handle();
    }
    CUDA_CHECK(cudaDeviceSynchronize());
  }
  throw_reported(state);
}

std::string CudaRuntime::device_name(int device) {
  check_device(device);
  cudaDeviceProp properties;
  CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  return properties.name;
}

// ---- streams and events ---------------------------------------------------------------------------------------------

namespace {
// A stream that nobody holds waits for its next holder, since blocks of its pool may still be in use.
std::shared_ptr<CudaStream> shared(CudaStream* impl) {
  if (impl == impl->state.main) return {impl, [](CudaStream*) {}};
  return {impl, [](CudaStream* idle) {
            std::lock_guard lock(idle->state.mutex);
            idle->holder.reset();
            idle->state.idle[idle->for_captures].push_back(idle);
          }};
}
}  // namespace

std::shared_ptr<CudaStream> take_stream(DeviceState& state, bool for_captures) {
  const DeviceGuard guard(state.index);
  CudaStream* impl = nullptr;
  {
    std::lock_guard lock(state.mutex);
    auto& idle = state.idle[for_captures];
    if (!idle.empty()) {
      impl = idle.back();
      idle.pop_back();
    }
  }
  auto held = shared(impl ? impl : new CudaStream(state, for_captures));
  held->holder = held;
  return held;
}

std::shared_ptr<DeviceStream> CudaRuntime::current_stream(int device) {
  check_device(device);
  CudaStream& stream = cuda::current_stream(device);
  if (auto held = stream.holder.lock()) return held;
  return shared(stream.state.main);
}
DeviceStream* CudaRuntime::follow(DeviceStream* last, int device) {
  CudaStream& now = cuda::current_stream(device);
  if (last && last != &now) check(order(static_cast<CudaStream&>(*last), now), "an event between two streams");
  return &now;
}
void CudaRuntime::follow_block(void* block, int device) {
  const MemoryPool& pool = *static_cast<MemoryBlock*>(block)->pool;
  if (!pool.of_graph) follow(pool.stream, device);
}
int CudaRuntime::set_current_stream(DeviceStream& stream, int device) {
  auto& made_current = static_cast<CudaStream&>(stream);
  current.streams[made_current.state.index] = &made_current;
  return std::exchange(current.guarded, device);
}

int CudaStream::device() const { return state.index; }
void CudaStream::synchronize() {
  const DeviceGuard guard(state.index);
  CUDA_CHECK(cudaStreamSynchronize(handle()));
  throw_reported(state);
}
bool CudaStream::query() {
  const DeviceGuard guard(state.index);
  const cudaError_t status = cudaStreamQuery(handle());
  if (status == cudaErrorNotReady) return cudaGetLastError(), false;
  return check(status, "cudaStreamQuery"), true;
}

cudaEvent_t take_event(DeviceState& state) {
  {
    std::lock_guard lock(state.events_mutex);
    if (!state.events.empty()) {
      const cudaEvent_t event = state.events.back();
      state.events.pop_back();
      return event;
    }
  }
  cudaEvent_t event = nullptr;
  cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  return event;
}
void return_event(DeviceState& state, cudaEvent_t event) {
  std::lock_guard lock(state.events_mutex);
  if (event) state.events.push_back(event);
}
cudaError_t order(CudaStream& before, CudaStream& after) {
  const DeviceGuard guard(before.state.index);
  for (CudaStream* stream : {&before, &after})
    if (const cudaError_t status = stream->uploads.flush(); status != cudaSuccess) return status;
  const cudaEvent_t event = take_event(before.state);
  cudaError_t status = cudaEventRecord(event, before.raw());
  if (status == cudaSuccess) status = cudaStreamWaitEvent(after.raw(), event, 0);
  return_event(before.state, event);
  return status;
}

namespace {

/// The CUDA event is created when it is recorded, and its device with that.
struct CudaEvent final : DeviceEvent {
  const bool timing;
  cudaEvent_t event = nullptr;
  int device = -1;

  explicit CudaEvent(bool with_timing) : timing(with_timing) {}
  ~CudaEvent() override { destroy(); }
  void destroy() {
    if (!event) return;
    const DeviceGuard guard(device);
    cudaEventDestroy(std::exchange(event, nullptr));
  }
  void record(DeviceStream& stream) override {
    if (device != stream.device()) destroy();
    device = stream.device();
    const DeviceGuard guard(device);
    if (!event) CUDA_CHECK(cudaEventCreateWithFlags(&event, timing ? cudaEventDefault : cudaEventDisableTiming));
    CUDA_CHECK(cudaEventRecord(event, static_cast<CudaStream&>(stream).handle()));
  }
  void wait(DeviceStream& stream) override {
    if (!event) return;
    const DeviceGuard guard(stream.device());
    CUDA_CHECK(cudaStreamWaitEvent(static_cast<CudaStream&>(stream).handle(), event, 0));
  }
  void synchronize() override {
    if (!event) return;
    const DeviceGuard guard(device);
    CUDA_CHECK(cudaEventSynchronize(event));
    throw_reported(state_of(device));
  }
  bool query() override {
    if (!event) return true;
    const DeviceGuard guard(device);
    const cudaError_t status = cudaEventQuery(event);
    if (status == cudaErrorNotReady) return cudaGetLastError(), false;
    return check(status, "cudaEventQuery"), true;
  }
  double elapsed_time(const DeviceEvent& to) override {
    const auto& end = static_cast<const CudaEvent&>(to);
    REEL_CHECK(event && end.event && end.device == device,
               "Event::elapsed_time: both events have to be recorded on streams of one device");
    const DeviceGuard guard(device);
    float milliseconds = 0;
    CUDA_CHECK(cudaEventElapsedTime(&milliseconds, event, end.event));
    return milliseconds;
  }
};

}  // namespace

std::unique_ptr<DeviceEvent> CudaRuntime::new_event(bool timing) {
  check_device(0);
  return std::make_unique<CudaEvent>(timing);
}

}  // namespace reel::cuda
