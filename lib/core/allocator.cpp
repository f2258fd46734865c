#include "lib/core/allocator.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "lib/core/storage.h"
#include "lib/device.h"
#include "lib/kernels/table.h"
#include "reel/memory.h"

// The address sanitizer sees only allocations of the system. To have it report accesses beyond a tensor, or to a freed
// one, the unused rest of a block and free blocks (but for their links) are poisoned.
#if !defined(__SANITIZE_ADDRESS__) && defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(begin, bytes) static_cast<void>(0)
#define ASAN_UNPOISON_MEMORY_REGION(begin, bytes) static_cast<void>(0)
#endif

namespace reel {
namespace {

constexpr size_t kGrain = 64, kSmall = 32 << 10, kSlab = 256 << 10, kLargeHolder = 1 << 20;
constexpr int kClasses = 160;  // up to 2^42 bytes

struct Block {
  Block* next;
};
struct Batch {
  Block* head = nullptr;
  uint32_t count = 0;
  Block* pop() {
    Block* block = head;
    head = block->next, --count;
    return block;
  }
  void push(Block* block) { block->next = head, head = block, ++count; }
};

// Classes 0 … 15 are multiples of 64 bytes up to 1 KiB; after that each doubling has four.
int class_of(size_t bytes) {
  if (bytes <= 16 * kGrain) return bytes == 0 ? 0 : static_cast<int>((bytes - 1) / kGrain);
  const int log = std::bit_width(bytes - 1) - 1;  // 2^log < bytes <= 2^(log + 1)
  return 16 + (log - 10) * 4 + static_cast<int>(((bytes - 1) >> (log - 2)) & 3);
}
size_t bytes_of(int size_class) {
  if (size_class < 16) return (size_class + 1) * kGrain;
  const int log = 10 + (size_class - 16) / 4, quarter = (size_class - 16) % 4;
  return (size_t{1} << log) + static_cast<size_t>(quarter + 1) * (size_t{1} << (log - 2));
}
/// Makes the first `bytes` of a block accessible and poisons the others.
void unpoison([[maybe_unused]] void* block, [[maybe_unused]] size_t bytes, [[maybe_unused]] int size_class) {
  ASAN_UNPOISON_MEMORY_REGION(block, bytes);
  ASAN_POISON_MEMORY_REGION(static_cast<char*>(block) + bytes, bytes_of(size_class) - bytes);
}
// How many blocks one batch holds: 1 MiB of small ones, 4 MiB of large ones, at least one.
uint32_t batch_size(size_t block_bytes) {
  return static_cast<uint32_t>(std::max<size_t>(1, (block_bytes <= kSmall ? 1 << 20 : 4 << 20) / block_bytes));
}

struct Cache;
// What the threads share. Never destroyed, since tensors in static storage may be released after any other static
// object.
struct Depot {
  std::mutex mutex;
  std::vector<Batch> batches[kClasses];
  std::vector<Cache*> caches;
  int64_t retired_in_use = 0;  // of threads that have ended
  std::atomic<int64_t> from_system{0};
};
Depot& depot() {
  static Depot* const depot = new Depot;
  return *depot;
}

struct Cache {
  struct List {
    Batch active, spare;
  };
  List lists[kClasses];
  uint32_t limits[kClasses];
  char* slab = nullptr;
  size_t slab_left = 0;
  std::atomic<int64_t> in_use{0}, peak{0};  // written by the owner alone

  Cache() {
    for (int c = 0; c < kClasses; ++c) limits[c] = c < 120 ? batch_size(bytes_of(c)) : 1;
    std::lock_guard lock(depot().mutex);
    depot().caches.push_back(this);
  }
  ~Cache() {
    flush();
    std::lock_guard lock(depot().mutex);
    std::erase(depot().caches, this);
    depot().retired_in_use += in_use.load(std::memory_order_relaxed);
  }
  void flush() {
    std::lock_guard lock(depot().mutex);
    for (int c = 0; c < kClasses; ++c)
      for (Batch* batch : {&lists[c].active, &lists[c].spare})
        if (batch->count) depot().batches[c].push_back(std::exchange(*batch, {}));
  }
  void count(int64_t bytes) {
    const int64_t now = in_use.load(std::memory_order_relaxed) + bytes;
    in_use.store(now, std::memory_order_relaxed);
    if (now > peak.load(std::memory_order_relaxed)) peak.store(now, std::memory_order_relaxed);
  }
  void* take(int c) {
    List& list = lists[c];
    if (!list.active.count) refill(c);
    return list.active.pop();
  }
  void give(int c, void* block) {
    List& list = lists[c];
    if (list.active.count >= limits[c]) overflow(c);
    list.active.push(static_cast<Block*>(block));
  }
  void refill(int c);
  void overflow(int c);
};

// Trivially destructible, so that tensors in other thread-local objects can still be released after Owner has ended:
// their blocks then go to the depot.
thread_local Cache* current = nullptr;
thread_local bool ended = false;
struct Owner {
  Cache cache;
  Owner() { current = &cache; }
  ~Owner() { current = nullptr, ended = true; }
};
[[gnu::noinline]] Cache* start_cache() {
  if (ended) return nullptr;
  thread_local Owner owner;
  return &owner.cache;
}
Cache* cache() { return current ? current : start_cache(); }

void* from_system(size_t bytes) {
  void* block = std::aligned_alloc(kGrain, bytes);
  if (!block) {
    empty_cache();
    block = std::aligned_alloc(kGrain, bytes);
  }
  if (block) depot().from_system.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  return block;
}

[[gnu::noinline]] void Cache::refill(int c) {
  List& list = lists[c];
  if (list.spare.count) {
    std::swap(list.active, list.spare);
    return;
  }
  {
    std::lock_guard lock(depot().mutex);
    auto& batches = depot().batches[c];
    if (!batches.empty()) {
      list.active = batches.back();
      batches.pop_back();
      return;
    }
  }
  const size_t bytes = bytes_of(c);
  if (bytes > kSmall) {
    if (void* block = from_system(bytes)) list.active.push(static_cast<Block*>(block));
  } else {
    if (slab_left < bytes) {
      slab = static_cast<char*>(from_system(kSlab));
      slab_left = slab ? kSlab : 0;
    }
    // A few at a time, so that blocks that are allocated one after another are neighbours in memory.
    for (int i = 0; i < 8 && slab_left >= bytes; ++i, slab_left -= bytes)
      list.active.push(reinterpret_cast<Block*>(slab + slab_left - bytes));
  }
  if (!list.active.count) throw std::bad_alloc();
}

[[gnu::noinline]] void Cache::overflow(int c) {
  List& list = lists[c];
  if (list.spare.count) {
    std::lock_guard lock(depot().mutex);
    depot().batches[c].push_back(list.spare);
  }
  list.spare = std::exchange(list.active, {});
}

// ---- the largest tensors --------------------------------------------------------------------------------------------

struct Holder {
  Shape shape;
  DType dtype;
};
struct Holders {
  std::mutex mutex;
  std::map<const Storage*, Holder> all;
};
Holders& holders() {
  static Holders* const holders = new Holders;
  return *holders;
}
}  // namespace

std::string human_size(double bytes) {
  const char* units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  int unit = 0;
  for (; bytes >= 1024 && unit < 6; ++unit) bytes /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
  return text;
}
std::string largest_holders(Device device) {
  std::lock_guard lock(holders().mutex);
  std::vector<std::pair<size_t, Holder>> largest;
  for (const auto& [storage, holder] : holders().all)
    if (storage->device == device) largest.emplace_back(storage->bytes, holder);
  std::sort(largest.begin(), largest.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  largest.resize(std::min<size_t>(largest.size(), 5));
  std::string text;
  for (const auto& [bytes, holder] : largest)
    text += (text.empty() ? "; the largest holders: " : ", ") + human_size(static_cast<double>(bytes)) + " (" +
            name_of(holder.dtype) + " " + holder.shape.to_string() + ")";
  return text;
}

void* allocate_cpu(size_t bytes) {
  const int c = class_of(bytes);
  try {
    if (c >= kClasses) throw std::bad_alloc();
    if (Cache* mine = cache()) {
      void* block = mine->take(c);
      unpoison(block, bytes, c);
      mine->count(static_cast<int64_t>(bytes_of(c)));
      return block;
    }
    if (void* block = from_system(bytes_of(c))) return unpoison(block, bytes, c), block;
    throw std::bad_alloc();
  } catch (const std::bad_alloc&) {
    detail::fail("out of memory: ", bytes, " bytes (", human_size(static_cast<double>(bytes)),
                 ") could not be allocated; ", human_size(static_cast<double>(memory_stats().in_use)), " are in use",
                 largest_holders(kCPU));
  }
}

void release_cpu(void* block, size_t bytes) {
  const int c = class_of(bytes);
  unpoison(block, sizeof(Block), c);
  if (Cache* mine = cache()) {
    mine->give(c, block);
    mine->count(-static_cast<int64_t>(bytes_of(c)));
  } else {
    std::lock_guard lock(depot().mutex);
    static_cast<Block*>(block)->next = nullptr;
    depot().batches[c].push_back({static_cast<Block*>(block), 1});
    depot().retired_in_use -= static_cast<int64_t>(bytes_of(c));
  }
}

int64_t thread_memory_in_use() {
  const Cache* mine = cache();
  return mine ? mine->in_use.load(std::memory_order_relaxed) : 0;
}

MemoryStats memory_stats() {
  Depot& all = depot();
  std::lock_guard lock(all.mutex);
  MemoryStats stats{.in_use = all.retired_in_use, .peak_in_use = all.retired_in_use};
  for (const Cache* c : all.caches) {
    stats.in_use += c->in_use.load(std::memory_order_relaxed);
    stats.peak_in_use += c->peak.load(std::memory_order_relaxed);
  }
  stats.peak_in_use = std::max(stats.peak_in_use, stats.in_use);
  stats.cached = std::max<int64_t>(0, all.from_system.load(std::memory_order_relaxed) - stats.in_use);
  return stats;
}

void reset_peak_memory_stats() {
  std::lock_guard lock(depot().mutex);
  for (Cache* c : depot().caches) c->peak.store(c->in_use.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

void empty_cache() {
  if (current) current->flush();
  std::lock_guard lock(depot().mutex);
  for (int c = class_of(kSmall) + 1; c < kClasses; ++c) {
    for (Batch& batch : depot().batches[c])
      while (batch.count) {
        std::free(batch.pop());
        depot().from_system.fetch_sub(static_cast<int64_t>(bytes_of(c)), std::memory_order_relaxed);
      }
    depot().batches[c].clear();
  }
}

// ---- storage --------------------------------------------------------------------------------------------------------

Storage* Storage::make(size_t bytes, Device device, const Shape& shape, DType dtype) {
  Storage* storage;
  if (device.type == DeviceType::kCPU) {
    storage = new (allocate_cpu(sizeof(Storage) + bytes)) Storage;
    storage->data = storage + 1;
  } else {
    void* block = nullptr;
    void* data = runtime(device).allocate(device.index, bytes, &block);
    storage = new (allocate_cpu(sizeof(Storage))) Storage;
    storage->data = data;
    storage->block = block;
  }
  storage->device = device;
  storage->bytes = bytes;
  if (bytes >= kLargeHolder) {
    std::lock_guard lock(holders().mutex);
    holders().all.emplace(storage, Holder{shape, dtype});
    storage->large = true;
  }
  return storage;
}

Storage* Storage::adopt(void* data, size_t bytes, std::function<void()> release) {
  auto* call = new std::function<void()>(release ? std::move(release) : [] {});
  auto* storage = new (allocate_cpu(sizeof(Storage))) Storage;
  storage->data = data;
  storage->bytes = bytes;
  storage->release = call;
  return storage;
}

void Storage::destroy() {
  if (large) {
    std::lock_guard lock(holders().mutex);
    holders().all.erase(this);
  }
  const bool behind_header = data == this + 1;
  if (release) {
    (*release)();
    delete release;
  } else if (!behind_header) {
    try {
      runtime(device).release(block, bytes);
    } catch (const Error&) {  // at the end of the process, or after a fault of the GPU: it is gone with the driver
    }
  }
  const size_t block = sizeof(Storage) + (behind_header ? bytes : 0);
  this->~Storage();
  release_cpu(this, block);
}

}  // namespace reel
