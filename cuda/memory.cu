#include <algorithm>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <string_view>

#include "cuda/device.h"
#include "lib/device/allocator.h"

// A caching, stream-ordered allocator. Every block belongs to the stream that it was allocated on: later work of that
// stream may reuse it as soon as it is released, without synchronization.
namespace reel::cuda {
namespace {

// Free blocks are kept in lists, by stream and size; four lists to a doubling. Those of up to 1 MiB are cut from slabs
// and as large as their list allows. Larger ones come from the driver's pool, rounded up by a sixteenth at most; of
// them the lists keep a quarter of the GPU's memory, and none when memory runs out: the driver can give one's memory to
// another of a different size.
constexpr size_t kSmall = size_t{1} << 20, kSlab = size_t{8} << 20, kGrain = 256;

constexpr int class_of(size_t bytes) {
  if (bytes <= 4 * kGrain) return bytes ? static_cast<int>((bytes - 1) / kGrain) : 0;
  const int log = std::bit_width(bytes - 1) - 1;
  return 4 + (log - 10) * 4 + static_cast<int>(((bytes - 1) >> (log - 2)) & 3);
}
static_assert(class_of(SIZE_MAX) == kClasses - 1);

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

size_t rounded(size_t bytes) {
  const size_t step = std::bit_floor(bytes) / 16;
  return (bytes + step - 1) / step * step;
}
bool is_large(const MemoryBlock& block) { return !block.pool->of_graph && block.bytes > kSmall; }

/// The first block of a list that has so many bytes, or nullptr. A list's blocks differ by a quarter at most.
MemoryBlock* take_free(DeviceState& state, MemoryBlock** list, size_t bytes) {
  constexpr int kMostTried = 32;
  for (int i = 0; i < kMostTried && *list; ++i, list = &(*list)->next) {
    MemoryBlock* const block = *list;
    if (block->bytes < bytes) continue;
    *list = std::exchange(block->next, nullptr);
    if (is_large(*block)) state.kept -= static_cast<int64_t>(block->bytes);
    return block;
  }
  return nullptr;
}

/// Gives the large blocks in free lists back to the driver.
void free_kept(DeviceState& state) {
  for (CudaStream* stream : state.streams)
    for (int c = class_of(kSmall) + 1; c < kClasses; ++c)
      while (MemoryBlock* block = stream->pool->free[c]) {
        stream->pool->free[c] = block->next;
        cudaFreeAsync(block->data, stream->try_handle());
        state.kept -= static_cast<int64_t>(block->bytes);
        block->next = std::exchange(state.spare, block);
      }
}

/// Completes pending frees and returns the memory to the driver. Streams are synchronized one by one:
/// cudaDeviceSynchronize would invalidate captures of other threads.
void reclaim(DeviceState& state) {
  const RelaxedCaptureGuard guard;
  free_kept(state);
  for (CudaStream* stream : state.streams) cudaStreamSynchronize(stream->try_handle());
  cudaMemPoolTrimTo(state.memory, 0);
}

/// Uploads that are pending need not be made first: they are to other memory, since what is freed is freed after them.
void* from_driver(CudaStream& stream, size_t bytes) {
  DeviceState& state = stream.state;
  void* data = nullptr;
  cudaError_t status = cudaMallocFromPoolAsync(&data, bytes, state.memory, stream.raw());
  if (status == cudaErrorMemoryAllocation) {  // what was freed but not yet reached may be enough
    cudaGetLastError();
    reclaim(state);
    status = cudaMallocFromPoolAsync(&data, bytes, state.memory, stream.raw());
  }
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    const auto size = [](auto n) { return human_size(static_cast<double>(n)); };
    reel::detail::fail_as<reel::OutOfMemoryError>(
        "out of memory on cuda:", state.index, ": ", bytes, " bytes (", size(bytes),
        ") could not be allocated; tensors have ", size(state.in_use), ", ", size(free), " of ", size(total),
        " are free", largest_holders({DeviceType::kCUDA, static_cast<int8_t>(state.index)}));
  }
  check(status, "cudaMallocFromPoolAsync");
  return data;
}

/// For a graph: memory of its own, allocated outside of the capture.
void* for_graph(MemoryPool& pool, size_t bytes) {
  const RelaxedCaptureGuard guard;
  void* data = from_driver(*pool.stream, bytes);
  CUDA_CHECK(cudaStreamSynchronize(pool.stream->handle()));
  pool.from_driver.push_back(data);
  return data;
}

void* new_memory(MemoryPool& pool, size_t bytes, bool small) {
  const auto take = [&](size_t n) { return pool.of_graph ? for_graph(pool, n) : from_driver(*pool.stream, n); };
  if (!small) return take(bytes);
  if (pool.slab_left < bytes) {
    pool.slab = static_cast<char*>(take(kSlab));
    pool.slab_left = kSlab;
  }
  pool.slab_left -= bytes;
  return pool.slab + pool.slab_left;
}

void count(DeviceState& state, int64_t bytes) {
  state.in_use += bytes;
  state.peak = std::max(state.peak, state.in_use);
}

MemoryBlock* new_block(DeviceState& state) {
  if (!state.spare) return new MemoryBlock;
  MemoryBlock* block = std::exchange(state.spare, state.spare->next);
  block->next = nullptr;
  return block;
}

/// What the stream is given from now on comes after what the users have been given.
void wait_for(const std::vector<CudaStream*>& users, CudaStream& stream) {
  for (CudaStream* user : users) order(*user, stream);
}

void give_back(MemoryPool* pool) {
  const DeviceGuard guard(pool->stream->state.index);
  wait_for(pool->users, *pool->stream);
  for (void* data : pool->from_driver) cudaFreeAsync(data, pool->stream->try_handle());
  for (MemoryBlock*& list : pool->free)
    while (list) delete std::exchange(list, list->next);
  delete pool;
}

}  // namespace

void* allocate(size_t bytes, MemoryBlock** result) {
  CudaStream& stream = current_stream(std::max(current.device, 0));
  DeviceState& state = stream.state;
  const Capture* capture = ongoing_capture();
  MemoryPool& pool = capture ? *capture->pool : *stream.pool;
  std::lock_guard lock(state.mutex);
  const bool small = bytes <= kSmall, listed = pool.of_graph || caching();
  const int c = listed ? class_of(bytes) : -1;
  MemoryBlock* block = listed ? take_free(state, &pool.free[c], bytes) : nullptr;
  if (!block) {
    const size_t size = !listed ? std::max<size_t>(bytes, 1) : small || pool.of_graph ? bytes_of(c) : rounded(bytes);
    void* data = new_memory(pool, size, listed && small);
    block = new_block(state);
    block->data = data, block->bytes = size, block->size_class = c, block->pool = &pool;
  }
  ++pool.live;
  count(state, static_cast<int64_t>(block->bytes));
  *result = block;
  return block->data;
}

// Errors have no place to go from here, and at the end of the process the driver may be gone already.
void release(MemoryBlock* block) {
  MemoryPool& pool = *block->pool;
  CudaStream& stream = *pool.stream;
  DeviceState& state = stream.state;
  if (Capture* capture = ongoing_capture(); capture && capture->pool != &pool) {
    capture->held.push_back(block);
    return;
  }
  std::lock_guard lock(state.mutex);
  // What a thread releases while it works on another stream is likely to have been used there: what a backward pass has
  // saved, say, which the program cannot record.
  if (CudaStream& here = current_stream(state.index); &here != &stream && !here.for_captures)
    add_user(block->users, here);
  for (CudaStream* user : block->users) pool.of_graph ? add_user(pool.users, *user) : void(order(*user, stream));
  block->users.clear();
  count(state, -static_cast<int64_t>(block->bytes));
  MemoryBlock** list = &state.spare;
  const auto bytes = static_cast<int64_t>(block->bytes);
  const bool large = is_large(*block);
  if (block->size_class >= 0 && (!large || state.kept + bytes <= state.most_kept)) {
    list = &pool.free[block->size_class];
    if (large) state.kept += bytes;
  } else {
    const DeviceGuard guard(state.index);
    cudaFreeAsync(block->data, stream.try_handle());
  }
  block->next = std::exchange(*list, block);
  if (--pool.live == 0 && pool.abandoned) give_back(&pool);
}

void abandon(MemoryPool* pool) {
  std::lock_guard lock(pool->stream->state.mutex);
  pool->abandoned = true;
  if (pool->live == 0) give_back(pool);
}

void add_user(std::vector<CudaStream*>& users, CudaStream& stream) {
  if (std::find(users.begin(), users.end(), &stream) == users.end()) users.push_back(&stream);
}

void record_stream(MemoryBlock* block, CudaStream& stream) {
  CudaStream& own = *block->pool->stream;
  std::lock_guard lock(own.state.mutex);
  if (&stream != &own && !stream.for_captures) add_user(block->users, stream);
}

void* CudaRuntime::allocate(int device, size_t bytes, void** block) {
  use({DeviceType::kCUDA, static_cast<int8_t>(device)});
  MemoryBlock* made = nullptr;
  void* data = cuda::allocate(bytes, &made);
  *block = made;
  return data;
}
MemoryStats CudaRuntime::memory_stats(int device) {
  DeviceState& state = state_of(device);
  const DeviceGuard guard(device);
  uint64_t reserved = 0;
  CUDA_CHECK(cudaMemPoolGetAttribute(state.memory, cudaMemPoolAttrReservedMemCurrent, &reserved));
  std::lock_guard lock(state.mutex);
  return {state.in_use, state.peak, std::max<int64_t>(0, static_cast<int64_t>(reserved) - state.in_use)};
}
void CudaRuntime::reset_peak_memory_stats(int device) {
  DeviceState& state = state_of(device);
  std::lock_guard lock(state.mutex);
  state.peak = state.in_use;
}
void CudaRuntime::empty_cache(int device) {
  synchronize(device);
  const DeviceGuard guard(device);
  empty_pinned_cache();
  DeviceState& state = state_of(device);
  {
    const std::lock_guard lock(state.mutex);
    free_kept(state);
  }
  synchronize(device);
  CUDA_CHECK(cudaMemPoolTrimTo(state.memory, 0));
}

}  // namespace reel::cuda
