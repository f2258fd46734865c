#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <vector>

#include "cuda/runtime.h"

// Memory of the host that a GPU reads by itself, so that copies from it wait for nobody. Registering memory is slow:
// blocks, of sizes that are powers of two, are kept for reuse. A block that a GPU may still be reading is not reused
// before the events of its copies have happened.
namespace reel::cuda {
namespace {

struct Pinned {
  void* data = nullptr;
  size_t bytes = 0;
  bool in_use = false;
  bool captured = false;  // a graph copies from it at each replay: it is not reused
  std::vector<cudaEvent_t> events;
};

// Never destroyed: tensors in static storage are released after everything else.
struct Registry {
  std::mutex mutex;
  std::map<const char*, Pinned> blocks;  // by address
  std::vector<cudaEvent_t> spare;

  Pinned* find(const void* address) {
    auto next = blocks.upper_bound(static_cast<const char*>(address));
    if (next == blocks.begin()) return nullptr;
    auto& [data, block] = *--next;
    return static_cast<const char*>(address) < data + block.bytes ? &block : nullptr;
  }
  /// Have all copies from the block been made?
  bool done(Pinned& block) {
    std::erase_if(block.events, [&](cudaEvent_t event) {
      if (cudaEventQuery(event) != cudaSuccess) return cudaGetLastError(), false;
      spare.push_back(event);
      return true;
    });
    return block.events.empty();
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
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  for (auto& [data, block] : all.blocks)
    if (!block.in_use && !block.captured && block.bytes == size && all.done(block)) {
      block.in_use = true;
      return block.data;
    }
  void* data = nullptr;
  CUDA_CHECK(cudaHostAlloc(&data, size, cudaHostAllocPortable));
  all.blocks[static_cast<const char*>(data)] = {data, size, true, false, {}};
  return data;
}

void release_pinned(void* data) {
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  all.blocks.at(static_cast<const char*>(data)).in_use = false;
}

bool is_pinned(const void* data) {
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  return all.find(data) != nullptr;
}

void note_copy_from(const void* data) {
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  Pinned* block = all.find(data);
  if (!block) return;
  if (capturing()) {
    block->captured = true;
    return;
  }
  cudaEvent_t event = nullptr;
  if (all.spare.empty()) {
    CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  } else {
    event = all.spare.back();
    all.spare.pop_back();
  }
  CUDA_CHECK(cudaEventRecord(event, stream()));
  block->events.push_back(event);
}

void empty_pinned_cache() {
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  for (auto next = all.blocks.begin(); next != all.blocks.end();) {
    Pinned& block = next->second;
    const bool gone = !block.in_use && all.done(block) && cudaFreeHost(block.data) == cudaSuccess;
    next = gone ? all.blocks.erase(next) : std::next(next);
  }
}

}  // namespace reel::cuda
