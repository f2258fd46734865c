// The CUDA runtime's functions for devices, memory and launches.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <new>
#include <set>
#include <utility>
#include <vector>

#include "simt.h"
#include "streams.h"

/// A memory pool's bytes count as used on the GPU until the pool is trimmed, allocated or not.
struct CUmemPoolHandle_st {
  int device = 0;
  uint64_t threshold = 0, reserved = 0, used = 0, most_reserved = 0, most_used = 0;
  simt::Devices opened_to = 0;                    // other devices that may access its memory
  std::map<cudaStream_t, uint64_t> pending = {};  // part of `used`: freed in stream order, by work that has not run yet
};

namespace simt {
namespace {

constexpr uint64_t kPoolStep = uint64_t(2) << 20;
constexpr uint64_t kMaxPending = uint64_t(256) << 20;  // bytes pending to be freed; beyond, the stream runs
constexpr size_t kShared = 48 << 10;

/// The first are the devices' default pools.
std::vector<cudaMemPool_t>& pools() {
  static auto& all = *new std::vector<cudaMemPool_t>;
  if (all.empty())
    for (int device = 0; device < device_count(); ++device) all.push_back(new CUmemPoolHandle_st{.device = device});
  return all;
}
cudaMemPool_t default_pool(int device) { return pools()[static_cast<size_t>(device)]; }
std::map<int, uint64_t> outside_pools;  // by device

uint64_t& limit() {
  static uint64_t bytes = [] {
    const char* const text = std::getenv("SIMT_MEMORY");
    return text ? std::strtoull(text, nullptr, 10) : uint64_t(8) << 30;
  }();
  return bytes;
}
uint64_t reserved(int device) {
  uint64_t sum = outside_pools[device];
  for (const cudaMemPool_t pool : pools())
    if (pool->device == device) sum += pool->reserved;
  return sum;
}

// ---- memory of the GPU ----------------------------------------------------------------------------------------------

/// Reserves memory of the pool. Memory that the stream itself has freed counts as free. False if there is not enough.
bool take(CUmemPoolHandle_st& pool, uint64_t size, cudaStream_t stream) {
  uint64_t& pending = pool.pending[stream];
  const uint64_t again = std::min(pending, size);
  const uint64_t wanted = pool.used - again + size;
  if (wanted > pool.reserved) {
    const uint64_t more = (wanted - pool.reserved + kPoolStep - 1) / kPoolStep * kPoolStep;
    if (reserved(pool.device) + more > limit()) return false;
    pool.reserved += more;
  }
  pending -= again;
  pool.used = wanted;
  pool.most_used = std::max(pool.most_used, pool.used);
  pool.most_reserved = std::max(pool.most_reserved, pool.reserved);
  return true;
}
void put_back(CUmemPoolHandle_st& pool, uint64_t size, cudaStream_t stream) {
  uint64_t& pending = pool.pending[stream];
  const uint64_t waiting = std::min(pending, size);  // less than `size` if the stream has used it again
  pending -= waiting;
  pool.used -= waiting;
}
void trim(CUmemPoolHandle_st& pool, uint64_t keep) {
  const uint64_t used = (pool.used + kPoolStep - 1) / kPoolStep * kPoolStep;
  pool.reserved = std::min(pool.reserved, std::max(used, keep));
}

MemoryBlock* allocate_outside(size_t size, int device) {
  if (size > limit() || reserved(device) + size > limit()) return nullptr;
  MemoryBlock* const block = allocate(size, device);
  if (block) outside_pools[device] += size;
  return block;
}

/// Frees a block at once.
void drop(MemoryBlock* block) {
  if (block->pool)
    block->pool->used -= block->size;
  else
    outside_pools[block->device] -= block->size;
  retire(block);
}

/// Memory that belongs to a graph for its lifetime.
cudaError_t allocate_in_capture(void** address, size_t size, Stream& stream) {
  if (stream.capture->invalid) return cudaErrorStreamCaptureInvalidated;
  MemoryBlock* const block = allocate_outside(size, stream.device);
  if (!block) return cudaErrorMemoryAllocation;
  block->of_graph = true;
  stream.capture->graph->blocks.emplace_back(block, drop);
  *address = block->data;
  return issue(stream, [block] { prepare(block); });
}

cudaError_t allocate_in_stream(void** address, size_t size, cudaMemPool_t pool, Stream& stream) {
  *address = nullptr;
  if (size == 0) return cudaSuccess;
  if (stream.capture) return allocate_in_capture(address, size, stream);
  if (size > limit() || !take(*pool, size, &stream)) return cudaErrorMemoryAllocation;
  MemoryBlock* const block = allocate(size, pool->device);
  if (!block) die("no addresses are left for %zu bytes", size);
  block->pool = pool;
  *address = block->data;
  return issue(stream, [block] { prepare(block); });
}

/// The block that starts there and was not freed yet.
MemoryBlock* find_whole(const void* address) {
  MemoryBlock* const block = find_block(address, 0);
  return block && block->data == address && !block->freed ? block : nullptr;
}

cudaError_t free_in_stream(void* address, Stream& stream) {
  if (!address) return cudaSuccess;
  MemoryBlock* const block = find_whole(address);
  if (!block) return cudaErrorInvalidValue;
  if (block->of_graph) return issue(stream, [block] { rest(block); });
  if (stream.capture) return refuse_if_captured(stream);  // it is not the graph's
  block->freed = true;
  if (!block->pool) return issue(stream, [block] { drop(block); });
  uint64_t& pending = block->pool->pending[&stream];
  pending += block->size;
  const cudaError_t status = issue(stream, [block, &stream] {
    put_back(*block->pool, block->size, &stream);
    retire(block);
  });
  if (pending > kMaxPending) finish(stream);
  return status;
}

// ---- memory of the host ---------------------------------------------------------------------------------------------

struct Pinned {
  size_t size;
  bool registered;
};
std::map<const char*, Pinned>& pinned() {
  static auto& all = *new std::map<const char*, Pinned>;
  return all;
}
bool is_pinned(const void* address) {
  const auto after = pinned().upper_bound(static_cast<const char*>(address));
  if (after == pinned().begin()) return false;
  const auto& [start, memory] = *std::prev(after);
  return static_cast<size_t>(static_cast<const char*>(address) - start) < memory.size;
}

// ---- copies ---------------------------------------------------------------------------------------------------------

/// Rows of bytes.
struct Rows {
  char* data;
  size_t pitch;

  /// Whether a copy may access them, as far as can be checked.
  bool usable(size_t width, size_t height) const {
    if (!is_device(data)) return data != nullptr;
    const MemoryBlock* const block = find_block(data, pitch * (height - 1) + width);
    return block && !block->freed;
  }
};

void copy_rows(Rows to, Rows from, size_t width, size_t height) {
  for (size_t row = 0; row < height; ++row) std::memmove(to.data + row * to.pitch, from.data + row * from.pitch, width);
}

/// The work of an asynchronous copy. Pinned memory must still be pinned when it runs.
Work copy_later(Rows to, Rows from, size_t width, size_t height) {
  const bool to_pinned = is_pinned(to.data), from_pinned = is_pinned(from.data);
  Devices devices = 0;
  for (const char* data : {to.data, from.data})
    if (const MemoryBlock* const block = find_block(data)) devices |= only(block->device);
  return [=] {
    const Open open(devices);
    if ((to_pinned && !is_pinned(to.data)) || (from_pinned && !is_pinned(from.data)))
      die("a copy comes to pinned memory that is gone");
    copy_rows(to, from, width, height);
  };
}

cudaError_t copy(Rows to, Rows from, size_t width, size_t height, cudaMemcpyKind kind, Stream& stream) {
  if (width == 0 || height == 0) return cudaSuccess;
  if (width > to.pitch || width > from.pitch) return cudaErrorInvalidPitchValue;
  const bool to_device = is_device(to.data), from_device = is_device(from.data);
  const cudaMemcpyKind actual = to_device     ? from_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice
                                : from_device ? cudaMemcpyDeviceToHost
                                              : cudaMemcpyHostToHost;
  if (kind != cudaMemcpyDefault && kind != actual) return cudaErrorInvalidValue;
  if (!to.usable(width, height) || !from.usable(width, height)) return cudaErrorInvalidValue;
  const Activity activity{.kind = Activity::kCopy, .bytes = width * height, .direction = actual};
  const bool from_pageable = !from_device && !is_pinned(from.data), to_pageable = !to_device && !is_pinned(to.data);
  if (from_pageable || to_pageable) {
    const cudaError_t status = refuse_if_captured(stream);
    if (status != cudaSuccess) return status;
  }
  if (from_pageable) {  // CUDA reads pageable memory before the call returns
    auto rows = std::make_shared<std::vector<char>>(width * height);
    copy_rows({rows->data(), width}, from, width, height);
    const Work work = copy_later(to, {rows->data(), width}, width, height);
    const cudaError_t status = issue(
        stream, [work, rows] { work(); }, activity);
    if (status == cudaSuccess && to_pageable) finish(stream);
    return status;
  }
  const cudaError_t status = issue(stream, copy_later(to, from, width, height), activity);
  if (status == cudaSuccess && to_pageable) finish(stream);
  return status;
}

cudaError_t fill(Rows rows, int value, size_t width, size_t height, Stream& stream) {
  if (width == 0 || height == 0) return cudaSuccess;
  if (width > rows.pitch) return cudaErrorInvalidPitchValue;
  if (!rows.usable(width, height) || (!is_device(rows.data) && !is_pinned(rows.data))) return cudaErrorInvalidValue;
  const auto work = [=] {
    for (size_t row = 0; row < height; ++row) std::memset(rows.data + row * rows.pitch, value, width);
  };
  return issue(stream, work, {.kind = Activity::kFill, .bytes = width * height});
}

char* bytes_at(const void* address) { return static_cast<char*>(const_cast<void*>(address)); }

// ---- kernels --------------------------------------------------------------------------------------------------------

/// The most shared memory, static arrays included, that kernels may have on the current device, if it was set.
std::map<const void*, size_t>& shared_limits() {
  static auto& all = *new std::vector<std::map<const void*, size_t>>(static_cast<size_t>(device_count()));
  return all[static_cast<size_t>(current_device)];
}

/// CUDA loads a kernel when it is first used on a device, which a capture refuses.
cudaError_t load(const void* kernel) {
  static auto& loaded = *new std::set<std::pair<int, const void*>>;
  const std::pair key(current_device, kernel);
  if (loaded.contains(key)) return cudaSuccess;
  const cudaError_t status = refuse_while_capturing();
  if (status == cudaSuccess) loaded.insert(key);
  return status;
}

struct Name {
  cudaError_t status;
  const char *name, *text;
};
constexpr Name kNames[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidPitchValue, "cudaErrorInvalidPitchValue", "invalid pitch argument"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState", "the operation cannot be performed in the present state"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered",
     "pointer does not correspond to a registered memory region"},
    {cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "capture was not ended in the same stream as it began"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {cudaErrorGraphExecUpdateFailure, "cudaErrorGraphExecUpdateFailure",
     "the graph update was not performed because it included changes which violated constraints specific to "
     "instantiated graph update"},
};
const Name* find_name(cudaError_t status) {
  for (const Name& one : kNames)
    if (one.status == status) return &one;
  return nullptr;
}

}  // namespace

void limit_memory(size_t bytes) {
  const std::lock_guard lock(state().mutex);
  limit() = bytes;
}

void give_back_unused() {
  for (const cudaMemPool_t pool : pools()) trim(*pool, pool->threshold);
}

unsigned long long launches() {
  const std::lock_guard lock(state().mutex);
  return state().launches;
}

unsigned long long driver_calls() {
  const std::lock_guard lock(state().mutex);
  return state().calls;
}

cudaError_t check_launch(const void* kernel, dim3 grid, dim3 block, size_t shared) {
  return call([&] {
    ++state().launches;
    --state().calls;  // enqueue() counts the launch
    const bool fits = block.x > 0 && block.y > 0 && block.z > 0 && block.x <= 1024 && block.y <= 1024 &&
                      block.z <= 64 && block.x * block.y * block.z <= 1024 && grid.x > 0 && grid.y > 0 && grid.z > 0 &&
                      grid.x <= 2147483647u && grid.y <= 65535 && grid.z <= 65535;
    if (!fits) return cudaErrorInvalidConfiguration;
    if (const cudaError_t status = load(kernel); status != cudaSuccess) return status;
    const auto allowed = shared_limits().find(kernel);
    return shared + static_shared(kernel) > (allowed == shared_limits().end() ? kShared : allowed->second)
               ? cudaErrorInvalidValue
               : cudaSuccess;
  });
}

}  // namespace simt

// ---- the runtime's functions ----------------------------------------------------------------------------------------

using namespace simt;

extern "C" {

const char* cudaGetErrorName(cudaError_t status) {
  const Name* const found = find_name(status);
  return found ? found->name : "unrecognized error code";
}
const char* cudaGetErrorString(cudaError_t status) {
  const Name* const found = find_name(status);
  return found ? found->text : "unrecognized error code";
}
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }

cudaError_t cudaGetDeviceCount(int* count) { return *count = device_count(), cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = current_device, cudaSuccess; }
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= device_count()) return last_error = cudaErrorInvalidDevice;
  current_device = device;
  check_current();
  return cudaSuccess;
}
/// Peer access for copies only: kernels may not access another device's memory.
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return call([&] {
    if (std::min(device, peer) < 0 || std::max(device, peer) >= device_count()) return cudaErrorInvalidDevice;
    *can = device != peer;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  const auto found = [&] {
    if (device < 0 || device >= device_count()) return cudaErrorInvalidDevice;
    cudaDeviceProp p{};
    std::strcpy(p.name, "a CPU as an H100");
    p.totalGlobalMem = limit();
    p.major = 9, p.minor = 0;
    p.multiProcessorCount = 132;
    p.warpSize = 32;
    p.maxThreadsPerBlock = 1024, p.maxThreadsPerMultiProcessor = 2048, p.maxBlocksPerMultiProcessor = 32;
    p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024, p.maxThreadsDim[2] = 64;
    p.maxGridSize[0] = 2147483647, p.maxGridSize[1] = p.maxGridSize[2] = 65535;
    p.regsPerBlock = p.regsPerMultiprocessor = 65536;
    p.sharedMemPerBlock = kShared, p.sharedMemPerBlockOptin = kMaxShared;
    p.sharedMemPerMultiprocessor = 228 << 10, p.reservedSharedMemPerBlock = 1 << 10;
    p.totalConstMem = 64 << 10;
    p.l2CacheSize = 50 << 20, p.memoryBusWidth = 5120;
    p.memPitch = 2147483647, p.textureAlignment = 512, p.texturePitchAlignment = 32;
    p.asyncEngineCount = 3, p.concurrentKernels = 1, p.streamPrioritiesSupported = 1;
    p.unifiedAddressing = p.canMapHostMemory = p.managedMemory = p.memoryPoolsSupported = 1;
    const char* const have_pools = std::getenv("SIMT_POOLS");  // 0: as on some virtual GPUs
    if (have_pools && !std::strcmp(have_pools, "0")) p.memoryPoolsSupported = 0;
    p.hostRegisterSupported = p.cooperativeLaunch = p.clusterLaunch = 1;
    p.globalL1CacheSupported = p.localL1CacheSupported = 1;
    *properties = p;
    return cudaSuccess;
  };
  const cudaError_t status = found();
  if (status != cudaSuccess) last_error = status;
  return status;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return call([&] {
    cudaDeviceProp p;
    if (cudaGetDeviceProperties(&p, device) != cudaSuccess) return cudaErrorInvalidDevice;
    const auto found = [&](auto number) { return *value = static_cast<int>(number), cudaSuccess; };
    switch (attribute) {
      case cudaDevAttrComputeCapabilityMajor: return found(p.major);
      case cudaDevAttrComputeCapabilityMinor: return found(p.minor);
      case cudaDevAttrMultiProcessorCount: return found(p.multiProcessorCount);
      case cudaDevAttrWarpSize: return found(p.warpSize);
      case cudaDevAttrMaxThreadsPerBlock: return found(p.maxThreadsPerBlock);
      case cudaDevAttrMaxThreadsPerMultiProcessor: return found(p.maxThreadsPerMultiProcessor);
      case cudaDevAttrMaxBlocksPerMultiprocessor: return found(p.maxBlocksPerMultiProcessor);
      case cudaDevAttrMaxGridDimX: return found(p.maxGridSize[0]);
      case cudaDevAttrMaxGridDimY: return found(p.maxGridSize[1]);
      case cudaDevAttrMaxSharedMemoryPerBlock: return found(p.sharedMemPerBlock);
      case cudaDevAttrMaxSharedMemoryPerBlockOptin: return found(p.sharedMemPerBlockOptin);
      case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return found(p.sharedMemPerMultiprocessor);
      case cudaDevAttrL2CacheSize: return found(p.l2CacheSize);
      case cudaDevAttrMemoryPoolsSupported: return found(p.memoryPoolsSupported);
      case cudaDevAttrUnifiedAddressing: return found(p.unifiedAddressing);
      default: return cudaErrorNotSupported;
    }
  });
}

cudaError_t cudaMalloc(void** address, size_t size) {
  return call([&] {
    *address = nullptr;
    const cudaError_t status = refuse_while_capturing();
    if (status != cudaSuccess || size == 0) return status;
    MemoryBlock* const block = allocate_outside(size, current_device);
    if (!block) return cudaErrorMemoryAllocation;
    prepare(block);
    *address = block->data;
    return cudaSuccess;
  });
}
cudaError_t cudaFree(void* address) {
  return call([&] {
    const cudaError_t status = refuse_while_capturing();
    if (status != cudaSuccess || !address) return status;
    finish_all();
    MemoryBlock* const block = find_whole(address);
    if (!block || block->of_graph) return cudaErrorInvalidValue;
    drop(block);
    return cudaSuccess;
  });
}
cudaError_t cudaMallocAsync(void** address, size_t size, cudaStream_t stream) {
  return call_on(stream,
                 [&](Stream& found) { return allocate_in_stream(address, size, default_pool(found.device), found); });
}
cudaError_t cudaMallocFromPoolAsync(void** address, size_t size, cudaMemPool_t pool, cudaStream_t stream) {
  return call_on(stream, [&](Stream& found) { return allocate_in_stream(address, size, pool, found); });
}
cudaError_t cudaFreeAsync(void* address, cudaStream_t stream) {
  return call_on(stream, [&](Stream& found) { return free_in_stream(address, found); });
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return call([&] {
    *total = limit();
    *free = limit() - std::min(limit(), reserved(current_device));
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return call([&] {
    if (device < 0 || device >= device_count()) return cudaErrorInvalidDevice;
    *pool = default_pool(device);
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) { return cudaDeviceGetDefaultMemPool(pool, device); }
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  return call([&] {
    const auto [type, device] = properties->location;
    cudaDeviceProp device_properties;
    if (cudaGetDeviceProperties(&device_properties, device) != cudaSuccess || !device_properties.memoryPoolsSupported)
      return cudaErrorNotSupported;
    if (properties->allocType != cudaMemAllocationTypePinned || type != cudaMemLocationTypeDevice || device < 0 ||
        device >= device_count())
      return cudaErrorInvalidValue;
    pools().push_back(*pool = new CUmemPoolHandle_st{.device = device});
    return cudaSuccess;
  });
}
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* access, size_t count) {
  return call([&] {
    for (size_t i = 0; i < count; ++i) {
      const auto [type, device] = access[i].location;
      const bool takes_own = device == pool->device && access[i].flags != cudaMemAccessFlagsProtReadWrite;
      if (type != cudaMemLocationTypeDevice || device < 0 || device >= device_count() || takes_own)
        return cudaErrorInvalidValue;
    }
    for (size_t i = 0; i < count; ++i) {
      const simt::Devices bit = only(access[i].location.id);
      access[i].flags == cudaMemAccessFlagsProtNone ? pool->opened_to &= ~bit : pool->opened_to |= bit;
    }
    return cudaSuccess;
  });
}
/// The object itself stays: blocks that are still allocated refer to it.
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  return call([&] { return pool->threshold = 0, trim(*pool, 0), cudaSuccess; });
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep) {
  return call([&] { return trim(*pool, keep), cudaSuccess; });
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return call([&] {
    switch (attribute) {
      case cudaMemPoolAttrReleaseThreshold: return pool->threshold = *static_cast<uint64_t*>(value), cudaSuccess;
      case cudaMemPoolAttrReservedMemHigh: return pool->most_reserved = pool->reserved, cudaSuccess;
      case cudaMemPoolAttrUsedMemHigh: return pool->most_used = pool->used, cudaSuccess;
      case cudaMemPoolReuseFollowEventDependencies:
      case cudaMemPoolReuseAllowOpportunistic:
      case cudaMemPoolReuseAllowInternalDependencies: return cudaSuccess;
      default: return cudaErrorInvalidValue;
    }
  });
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return call([&] {
    const auto found = [&](uint64_t number) { return *static_cast<uint64_t*>(value) = number, cudaSuccess; };
    switch (attribute) {
      case cudaMemPoolAttrReleaseThreshold: return found(pool->threshold);
      case cudaMemPoolAttrReservedMemCurrent: return found(pool->reserved);
      case cudaMemPoolAttrReservedMemHigh: return found(pool->most_reserved);
      case cudaMemPoolAttrUsedMemCurrent: return found(pool->used);
      case cudaMemPoolAttrUsedMemHigh: return found(pool->most_used);
      default: return *static_cast<int*>(value) = 1, cudaSuccess;
    }
  });
}

cudaError_t cudaHostAlloc(void** address, size_t size, unsigned) {
  return call([&] {
    *address = nullptr;
    const cudaError_t status = refuse_while_capturing();
    if (status != cudaSuccess || size == 0) return status;
    if (posix_memalign(address, 4096, size) != 0) return cudaErrorMemoryAllocation;
    std::memset(*address, 0xff, size);
    pinned()[bytes_at(*address)] = {size, false};
    return cudaSuccess;
  });
}
cudaError_t cudaMallocHost(void** address, size_t size) { return cudaHostAlloc(address, size, 0); }
cudaError_t cudaFreeHost(void* address) {
  return call([&] {
    const cudaError_t status = refuse_while_capturing();
    if (status != cudaSuccess || !address) return status;
    const auto found = pinned().find(bytes_at(address));
    if (found == pinned().end() || found->second.registered) return cudaErrorInvalidValue;
    finish_all();
    pinned().erase(found);
    std::free(address);
    return cudaSuccess;
  });
}
cudaError_t cudaHostRegister(void* address, size_t size, unsigned) {
  return call([&] {
    if (!address || size == 0 || is_device(address)) return cudaErrorInvalidValue;
    const auto next = pinned().lower_bound(bytes_at(address));
    if (is_pinned(address) || (next != pinned().end() && next->first < bytes_at(address) + size))
      return cudaErrorHostMemoryAlreadyRegistered;
    pinned()[bytes_at(address)] = {size, true};
    return cudaSuccess;
  });
}
cudaError_t cudaHostUnregister(void* address) {
  return call([&] {
    const auto found = pinned().find(bytes_at(address));
    if (found == pinned().end() || !found->second.registered) return cudaErrorHostMemoryNotRegistered;
    pinned().erase(found);
    return cudaSuccess;
  });
}
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  return call([&] {
    if (!is_pinned(host)) return cudaErrorInvalidValue;
    *device = host;
    return cudaSuccess;
  });
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  return call([&] {
    *attributes = {};
    attributes->device = -1;
    attributes->type = cudaMemoryTypeUnregistered;
    void* const pointer = const_cast<void*>(address);
    if (const MemoryBlock* const block = find_block(address)) {
      attributes->device = block->device;
      attributes->type = cudaMemoryTypeDevice;
      attributes->devicePointer = pointer;
    } else if (is_pinned(address)) {
      attributes->device = 0;
      attributes->type = cudaMemoryTypeHost;
      attributes->devicePointer = attributes->hostPointer = pointer;
    } else if (!is_device(address)) {
      attributes->hostPointer = pointer;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return call_on(stream, [&](Stream& found) {
    for (const void* const address : {static_cast<const void*>(to), from}) {
      // A pool's memory is other devices' only if it is opened to them; cudaMemcpyPeerAsync does not need that.
      const MemoryBlock* const block = find_block(address);
      if (block && block->pool && block->device != found.device && !(block->pool->opened_to & only(found.device)))
        return cudaErrorInvalidValue;
    }
    return copy({bytes_at(to), bytes}, {bytes_at(from), bytes}, bytes, 1, kind, found);
  });
}
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                                cudaStream_t stream) {
  return call_on(stream, [&](Stream& found) {
    const MemoryBlock *const target = find_block(to), *const source = find_block(from);
    if (!target || !source || target->device != to_device || source->device != from_device)
      return cudaErrorInvalidValue;
    return copy({bytes_at(to), bytes}, {bytes_at(from), bytes}, bytes, 1, cudaMemcpyDeviceToDevice, found);
  });
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  return call_on(stream, [&](Stream& found) {
    return copy({bytes_at(to), to_pitch}, {bytes_at(from), from_pitch}, width, height, kind, found);
  });
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return call([&] {
    const cudaError_t status = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
    const bool waits = !is_device(to) || !is_device(from);  // the host does not, of a copy within the GPU's memory
    if (status == cudaSuccess && waits) finish(*find_stream(nullptr));
    return status;
  });
}
cudaError_t cudaMemsetAsync(void* address, int value, size_t bytes, cudaStream_t stream) {
  return call_on(stream, [&](Stream& found) { return fill({bytes_at(address), bytes}, value, bytes, 1, found); });
}
cudaError_t cudaMemset2DAsync(void* address, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
  return call_on(stream, [&](Stream& found) { return fill({bytes_at(address), pitch}, value, width, height, found); });
}
cudaError_t cudaMemset(void* address, int value, size_t bytes) {
  return cudaMemsetAsync(address, value, bytes, nullptr);
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  return call([&] {
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaErrorNotSupported;
    const size_t of_arrays = static_shared(kernel);
    if (value < 0 || static_cast<size_t>(value) + of_arrays > kMaxShared) return cudaErrorInvalidValue;
    shared_limits()[kernel] = static_cast<size_t>(value) + of_arrays;
    return cudaSuccess;
  });
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  return call([&] {
    *attributes = {};
    if (const cudaError_t status = load(kernel); status != cudaSuccess) return status;
    attributes->maxThreadsPerBlock = 1024;
    attributes->numRegs = 64;
    attributes->ptxVersion = attributes->binaryVersion = 90;
    const auto allowed = shared_limits().find(kernel);
    attributes->sharedSizeBytes = static_shared(kernel);
    attributes->maxDynamicSharedSizeBytes =
        static_cast<int>((allowed == shared_limits().end() ? kShared : allowed->second) - attributes->sharedSizeBytes);
    return cudaSuccess;
  });
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int threads, size_t shared,
                                                                   unsigned) {
  return call([&] {
    if (threads <= 0 || shared > kMaxShared) return cudaErrorInvalidValue;
    const size_t by_shared = (size_t(228) << 10) / (shared + 1024), by_threads = 2048 / static_cast<size_t>(threads);
    *blocks = static_cast<int>(std::min({by_shared, by_threads, size_t(32)}));
    return cudaSuccess;
  });
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads, size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, kernel, threads, shared, 0);
}

}  // extern "C"
