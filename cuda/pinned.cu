#include <algorithm>
#include <bit>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "cuda/device.h"

// Pinned (page-locked) memory of the host, which a GPU reads by DMA, so that copies from it are asynchronous.
// Allocating it is slow: blocks, of sizes that are powers of two, are kept for reuse. A block that a GPU may still be
// using is not reused before the events of its copies have happened.
namespace reel::cuda {
namespace {

struct Copy {
  DeviceState* to;
  cudaEvent_t made;
};
struct Pinned {
  void* data;
  size_t bytes;
  bool captured = false;     // a graph copies from it at each replay: it is not reused
  std::vector<Copy> copies;  // from or to it
};

// Never destroyed: tensors in static storage are released after everything else.
struct Registry {
  std::mutex mutex;
  std::map<const char*, Pinned> blocks;          // by address
  std::map<size_t, std::deque<Pinned*>> unused;  // by size; the copies of the first of each end first

  Pinned* find(const void* address) {
    auto next = blocks.upper_bound(static_cast<const char*>(address));
    if (next == blocks.begin()) return nullptr;
    auto& [data, block] = *--next;
    return static_cast<const char*>(address) < data + block.bytes ? &block : nullptr;
  }
  /// Have all copies of the block been made?
  bool done(Pinned& block) {
    std::erase_if(block.copies, [](const Copy& copy) {
      if (cudaEventQuery(copy.made) != cudaSuccess) return cudaGetLastError(), false;
      return_event(*copy.to, copy.made);
      return true;
    });
    return block.copies.empty();
  }
};
Registry& registry() {
  static Registry* const registry = new Registry;
  return *registry;
}

}  // namespace

void* allocate_pinned(size_t bytes) {
  REEL_CHECK(!capturing(), "pin_memory: cannot be captured in a cuda::Graph; do it before");
  const size_t size = std::bit_ceil(std::max<size_t>(bytes, 4096));
  const DeviceGuard guard(any_device());
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  std::deque<Pinned*>& unused = all.unused[size];
  if (!unused.empty() && all.done(*unused.front())) {
    void* data = unused.front()->data;
    unused.pop_front();
    return data;
  }
  void* data = nullptr;
  CUDA_CHECK(cudaHostAlloc(&data, size, cudaHostAllocPortable));
  all.blocks[static_cast<const char*>(data)] = {data, size, false, {}};
  return data;
}

void release_pinned(void* data) {
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  Pinned& block = all.blocks.at(static_cast<const char*>(data));
  if (!block.captured) all.unused[block.bytes].push_back(&block);
}

bool is_pinned(const void* data) {
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  return all.find(data) != nullptr;
}

void note_copy(const void* data) {
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  Pinned* block = all.find(data);
  if (!block) return;
  if (capturing()) {
    block->captured = true;
    return;
  }
  DeviceState& state = state_of(current.device);
  const cudaEvent_t made = take_event(state);
  CUDA_CHECK(cudaEventRecord(made, stream()));
  block->copies.push_back({&state, made});
}

void empty_pinned_cache() {
  Registry& all = registry();
  const DeviceGuard guard(any_device());
  std::lock_guard lock(all.mutex);
  for (auto& [size, unused] : all.unused)
    std::erase_if(unused, [&](Pinned* block) {
      if (!all.done(*block) || cudaFreeHost(block->data) != cudaSuccess) return false;
      all.blocks.erase(static_cast<const char*>(block->data));
      return true;
    });
}

void CudaRuntime::download(int device, const void* from, void* to, size_t bytes) {
  use({DeviceType::kCUDA, static_cast<int8_t>(device)});
  CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream()));
  note_copy(to);
}

void CudaRuntime::upload(int device, const void* from, void* to, size_t bytes) {
  use({DeviceType::kCUDA, static_cast<int8_t>(device)});
  CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream()));
  note_copy(from);
}

}  // namespace reel::cuda
