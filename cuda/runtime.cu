#include "cuda/runtime.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>

#include "cuda/device.h"

namespace reel::cuda {

// ---- errors ---------------------------------------------------------------------------------------------------------

namespace {
/// After these nothing works in this process any more.
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

// ---- devices --------------------------------------------------------------------------------------------------------

int device_count() {
  static const int count = [] {
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess) {
      cudaGetLastError();
      return 0;
    }
    return std::min(n, kMostDevices);
  }();
  return count;
}

void check_device(int index) {
  REEL_CHECK(device_count() > 0, "cuda: this machine has no GPU that CUDA can use");
  REEL_CHECK(index >= 0 && index < device_count(), "cuda:", index, " was asked for, but there are ", device_count(),
             " devices");
}

thread_local constinit Current current;

namespace {

DeviceState* make_state(int index) {
  CUDA_CHECK(cudaSetDevice(index));
  auto* state = new DeviceState{};
  state->index = index;
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, index};
  CUDA_CHECK(cudaMemPoolCreate(&state->memory, &properties));
  uint64_t keep = UINT64_MAX;  // the pool gives nothing back by itself
  CUDA_CHECK(cudaMemPoolSetAttribute(state->memory, cudaMemPoolAttrReleaseThreshold, &keep));
  state->main = new Stream::Impl(*state);
  if (current.device >= 0) CUDA_CHECK(cudaSetDevice(current.device));
  return state;
}

std::atomic<DeviceState*> states[kMostDevices];

}  // namespace

DeviceState& state_of(int index) {
  if (DeviceState* state = states[index].load(std::memory_order_acquire)) return *state;
  check_device(index);
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  if (!states[index].load(std::memory_order_relaxed)) states[index].store(make_state(index), std::memory_order_release);
  return *states[index].load(std::memory_order_relaxed);
}

Stream::Impl::Impl(DeviceState& on) : state(on), pool(new Pool(this)) {
  CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
}

Stream::Impl& current_stream(int device) {
  if (!current.streams[device]) [[unlikely]]
    current.streams[device] = state_of(device).main;
  return *current.streams[device];
}

void use(Device device) {
  if (current.device == device.index) [[likely]]
    return;
  check_device(device.index);
  CUDA_CHECK(cudaSetDevice(device.index));
  current.device = device.index;
}

cudaStream_t stream() { return current_stream(std::max(current.device, 0)).stream; }

// ---- waiting --------------------------------------------------------------------------------------------------------

IndexError* index_error() {
  static IndexError* const place = [] {
    void* memory = nullptr;
    CUDA_CHECK(cudaHostAlloc(&memory, sizeof(IndexError), cudaHostAllocPortable | cudaHostAllocMapped));
    return new (memory) IndexError{};
  }();
  return place;
}

namespace {
void throw_reported() {
  IndexError& error = *index_error();
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
             ": waits for the GPU, so it cannot be captured in a cuda::Graph");
  REEL_CHECK(!current.waits_forbidden, what, ": waits for the GPU, which cuda::forbid_waits forbids");
}

void wait_for_gpu(const char* what) {
  check_wait(what);
  CUDA_CHECK(cudaStreamSynchronize(stream()));
  throw_reported();
}

void forbid_waits(bool on) { current.waits_forbidden = on; }

void synchronize(int device) {
  check_device(device);
  use({DeviceType::kCUDA, static_cast<int8_t>(device)});
  CUDA_CHECK(cudaDeviceSynchronize());
  throw_reported();
}

std::string device_name(int device) {
  check_device(device);
  cudaDeviceProp properties;
  CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  return properties.name;
}

// ---- streams and events ---------------------------------------------------------------------------------------------

namespace {
// A stream that nobody holds waits for its next holder, since blocks of its pool may still be in use.
std::shared_ptr<Stream::Impl> shared(Stream::Impl* impl) {
  if (impl == impl->state.main) return {impl, [](Stream::Impl*) {}};
  return {impl, [](Stream::Impl* idle) {
            std::lock_guard lock(idle->state.mutex);
            idle->holder.reset();
            idle->state.idle.push_back(idle);
          }};
}
}  // namespace

Stream::Stream(int device) {
  DeviceState& state = state_of(device);
  use({DeviceType::kCUDA, static_cast<int8_t>(device)});
  Impl* impl = nullptr;
  {
    std::lock_guard lock(state.mutex);
    if (!state.idle.empty()) {
      impl = state.idle.back();
      state.idle.pop_back();
    }
  }
  impl_ = shared(impl ? impl : new Impl(state));
  impl_->holder = impl_;
}
Stream Stream::current(int device) {
  check_device(device);
  Impl& impl = current_stream(device);
  if (auto held = impl.holder.lock()) return Stream(held);
  return Stream(shared(impl.state.main));
}
int Stream::device() const { return impl_->state.index; }
void Stream::synchronize() const {
  CUDA_CHECK(cudaStreamSynchronize(impl_->stream));
  throw_reported();
}
bool Stream::query() const {
  const cudaError_t status = cudaStreamQuery(impl_->stream);
  if (status == cudaErrorNotReady) return cudaGetLastError(), false;
  return check(status, "cudaStreamQuery"), true;
}
void* Stream::native() const { return impl_->stream; }

StreamGuard::StreamGuard(const Stream& stream) : before_(Stream::current(stream.device()).impl_), now_(stream.impl_) {
  current.streams[stream.device()] = now_.get();
}
StreamGuard::~StreamGuard() { current.streams[before_->state.index] = before_.get(); }

struct Event::Impl {
  cudaEvent_t event = nullptr;
  explicit Impl(bool timing) {
    CUDA_CHECK(cudaEventCreateWithFlags(&event, timing ? cudaEventDefault : cudaEventDisableTiming));
  }
  ~Impl() { cudaEventDestroy(event); }
};
Event::Event(bool timing) {
  check_device(0);
  impl_ = std::make_shared<Impl>(timing);
}
void Event::record(const Stream& stream) {
  CUDA_CHECK(cudaEventRecord(impl_->event, static_cast<cudaStream_t>(stream.native())));
}
void Event::record() { CUDA_CHECK(cudaEventRecord(impl_->event, stream())); }
void Event::wait(const Stream& stream) const {
  CUDA_CHECK(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream.native()), impl_->event, 0));
}
void Event::synchronize() const {
  CUDA_CHECK(cudaEventSynchronize(impl_->event));
  throw_reported();
}
bool Event::query() const {
  const cudaError_t status = cudaEventQuery(impl_->event);
  if (status == cudaErrorNotReady) return cudaGetLastError(), false;
  return check(status, "cudaEventQuery"), true;
}
double Event::elapsed_since(const Event& start) const {
  float milliseconds = 0;
  CUDA_CHECK(cudaEventElapsedTime(&milliseconds, start.impl_->event, impl_->event));
  return milliseconds;
}

}  // namespace reel::cuda
