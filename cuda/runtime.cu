#include "cuda/runtime.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <mutex>
#include <new>
#include <vector>

#include "cuda/stream.h"
#include "lib/core/allocator.h"

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

namespace {

void check_device(int index) {
  REEL_CHECK(device_count() > 0, "cuda: this machine has no GPU that CUDA can use");
  REEL_CHECK(index >= 0 && index < device_count(), "cuda:", index, " was asked for, but there are ", device_count(),
             " devices");
}

// Blocks of up to 1 MiB are cut from slabs and kept in free lists, by stream and size; four sizes to a doubling. Larger
// ones come from the driver's pool, which can give one's memory to another of a different size.
constexpr size_t kSmall = size_t{1} << 20, kSlab = size_t{8} << 20, kGrain = 256;
constexpr int kClasses = 40;

int class_of(size_t bytes) {
  if (bytes <= 4 * kGrain) return bytes ? static_cast<int>((bytes - 1) / kGrain) : 0;
  const int log = std::bit_width(bytes - 1) - 1;
  return 4 + (log - 10) * 4 + static_cast<int>(((bytes - 1) >> (log - 2)) & 3);
}
size_t bytes_of(int size_class) {
  if (size_class < 4) return (size_class + 1) * kGrain;
  const int log = 10 + (size_class - 4) / 4, quarter = (size_class - 4) % 4;
  return (size_t{1} << log) + static_cast<size_t>(quarter + 1) * (size_t{1} << (log - 2));
}

/// REEL_CUDA_CACHE=0 takes every block from the driver, so that tools see each of them.
bool caching() {
  static const bool on = [] {
    const char* wish = std::getenv("REEL_CUDA_CACHE");
    return !wish || std::string_view(wish) != "0";
  }();
  return on;
}

}  // namespace

struct Block {
  void* data = nullptr;
  size_t bytes = 0;
  int size_class = -1;  // or straight from the driver
  Stream::Impl* owner = nullptr;
  std::vector<cudaStream_t> users;  // other streams that it must wait for before it is used again
  Block* next = nullptr;
};

/// The free blocks of a stream.
struct Pool {
  Block* free[kClasses] = {};
  char* slab = nullptr;
  size_t slab_left = 0;
};

/// What there is once for each device. Never destroyed: tensors in static storage are released after everything else.
struct DeviceState {
  int index;
  cudaMemPool_t memory;
  Stream::Impl* main;
  std::mutex mutex;  // of all that follows, and of the streams' pools
  std::vector<Stream::Impl*> idle;
  std::vector<cudaEvent_t> events;
  Block* spare = nullptr;
  int64_t in_use = 0, peak = 0;
};

namespace {

struct Current {
  int device = -1;
  Stream::Impl* streams[kMostDevices] = {};
  bool waits_forbidden = false;
};
thread_local Current current;

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
DeviceState& state_of(int index) {
  if (DeviceState* state = states[index].load(std::memory_order_acquire)) return *state;
  check_device(index);
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  if (!states[index].load(std::memory_order_relaxed)) states[index].store(make_state(index), std::memory_order_release);
  return *states[index].load(std::memory_order_relaxed);
}

}  // namespace

Stream::Impl::Impl(DeviceState& on) : state(on), pool(new Pool) {
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
  if (!std::atomic_ref(error.flag).load(std::memory_order_acquire)) [[likely]]
    return;
  const IndexError copy = error;
  error = {};
  reel::detail::fail(copy.op, ": index ", copy.value, " is out of range [", copy.low, ", ", copy.high,
                     "), as the GPU found when it came to it");
}
}  // namespace

void wait_for_gpu(const char* what) {
  const cudaStream_t queue = stream();
  cudaStreamCaptureStatus status;
  CUDA_CHECK(cudaStreamIsCapturing(queue, &status));
  REEL_CHECK(status == cudaStreamCaptureStatusNone, what,
             ": waits for the GPU, so it cannot be captured in a cuda::Graph");
  REEL_CHECK(!current.waits_forbidden, what, ": waits for the GPU, which cuda::forbid_waits forbids");
  CUDA_CHECK(cudaStreamSynchronize(queue));
  throw_reported();
}

void forbid_waits(bool on) { current.waits_forbidden = on; }

void synchronize(int device) {
  check_device(device);
  use({DeviceType::kCUDA, static_cast<int8_t>(device)});
  CUDA_CHECK(cudaDeviceSynchronize());
  throw_reported();
}

// ---- memory ---------------------------------------------------------------------------------------------------------

namespace {

void* from_driver(Stream::Impl& owner, size_t bytes) {
  DeviceState& state = owner.state;
  void* data = nullptr;
  cudaError_t status = cudaMallocFromPoolAsync(&data, bytes, state.memory, owner.stream);
  if (status == cudaErrorMemoryAllocation) {  // what was freed but not yet reached may be enough
    cudaGetLastError();
    if (cudaDeviceSynchronize() == cudaSuccess && cudaMemPoolTrimTo(state.memory, 0) == cudaSuccess)
      status = cudaMallocFromPoolAsync(&data, bytes, state.memory, owner.stream);
  }
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    const auto size = [](auto n) { return human_size(static_cast<double>(n)); };
    reel::detail::fail("out of memory on cuda:", state.index, ": ", bytes, " bytes (", size(bytes),
                       ") could not be allocated; tensors have ", size(state.in_use), ", ", size(free), " of ",
                       size(total), " are free",
                       largest_holders({DeviceType::kCUDA, static_cast<int8_t>(state.index)}));
  }
  check(status, "cudaMallocFromPoolAsync");
  return data;
}

void count(DeviceState& state, int64_t bytes) {
  state.in_use += bytes;
  state.peak = std::max(state.peak, state.in_use);
}

Block* new_block(DeviceState& state) {
  if (!state.spare) return new Block;
  Block* block = std::exchange(state.spare, state.spare->next);
  block->next = nullptr;
  return block;
}

cudaEvent_t take_event(DeviceState& state) {
  cudaEvent_t event = nullptr;
  if (state.events.empty()) {
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  } else {
    event = state.events.back();
    state.events.pop_back();
  }
  return event;
}

}  // namespace

void* allocate(size_t bytes, Block** result) {
  Stream::Impl& owner = current_stream(std::max(current.device, 0));
  DeviceState& state = owner.state;
  Pool& pool = *owner.pool;
  std::lock_guard lock(state.mutex);
  const int c = bytes <= kSmall && caching() ? class_of(bytes) : -1;
  Block* block;
  if (c >= 0 && pool.free[c]) {
    block = std::exchange(pool.free[c], pool.free[c]->next);
  } else {
    const size_t size = c >= 0 ? bytes_of(c) : std::max<size_t>(bytes, 1);
    void* data;
    if (c >= 0) {
      if (pool.slab_left < size) {
        pool.slab = static_cast<char*>(from_driver(owner, kSlab));
        pool.slab_left = kSlab;
      }
      pool.slab_left -= size;
      data = pool.slab + pool.slab_left;
    } else {
      data = from_driver(owner, size);
    }
    block = new_block(state);
    block->data = data, block->bytes = size, block->size_class = c, block->owner = &owner;
  }
  count(state, static_cast<int64_t>(block->bytes));
  *result = block;
  return block->data;
}

// Errors have no place to go from here, and at the end of the process the driver may be gone already.
void release(Block* block) {
  Stream::Impl& owner = *block->owner;
  DeviceState& state = owner.state;
  std::lock_guard lock(state.mutex);
  for (const cudaStream_t user : block->users) {
    const cudaEvent_t event = take_event(state);
    if (cudaEventRecord(event, user) == cudaSuccess) cudaStreamWaitEvent(owner.stream, event, 0);
    state.events.push_back(event);
  }
  block->users.clear();
  count(state, -static_cast<int64_t>(block->bytes));
  Block** list = &state.spare;
  if (block->size_class >= 0)
    list = &owner.pool->free[block->size_class];
  else
    cudaFreeAsync(block->data, owner.stream);
  block->next = std::exchange(*list, block);
}

void record_stream(void* memory, void* stream) {
  auto* block = static_cast<Block*>(memory);
  const auto user = static_cast<cudaStream_t>(stream);
  std::lock_guard lock(block->owner->state.mutex);
  if (user != block->owner->stream && std::find(block->users.begin(), block->users.end(), user) == block->users.end())
    block->users.push_back(user);
}

MemoryStats memory_stats(int device) {
  DeviceState& state = state_of(device);
  uint64_t reserved = 0;
  CUDA_CHECK(cudaMemPoolGetAttribute(state.memory, cudaMemPoolAttrReservedMemCurrent, &reserved));
  std::lock_guard lock(state.mutex);
  return {state.in_use, state.peak, std::max<int64_t>(0, static_cast<int64_t>(reserved) - state.in_use)};
}
void reset_peak_memory(int device) {
  DeviceState& state = state_of(device);
  std::lock_guard lock(state.mutex);
  state.peak = state.in_use;
}
void empty_cache(int device) {
  synchronize(device);
  empty_pinned_cache();
  CUDA_CHECK(cudaMemPoolTrimTo(state_of(device).memory, 0));
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

StreamGuard::StreamGuard(const Stream& stream) : before_(Stream::current(stream.device()).impl_) {
  current.streams[stream.device()] = stream.impl_.get();
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
