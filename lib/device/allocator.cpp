#include "lib/device/allocator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/fork_lock.h"
#include "lib/base/lazy.h"
#include "lib/base/per_thread.h"
#include "lib/device/block_pool.h"
#include "lib/device/device.h"
#include "lib/device/kernels/table.h"
#include "lib/device/poison.h"
#include "lib/device/storage.h"
#include "reel/memory.h"

namespace reel {
namespace {

constexpr size_t kGrain = 64, kSmall = 32 << 10, kMedium = (1 << 20) - BlockPool::kOverhead, kSlab = 256 << 10;
constexpr size_t kLargeHolder = kMedium, kMost = size_t{1} << 47;

struct Block {
  Block* next;
  // Of the first block of a batch in the depot.
  Block* next_batch;
  uint32_t count;
};
static_assert(sizeof(Block) <= kGrain);
/// What a thread that has ended has left of its slab.
struct SlabRest {
  SlabRest* next;
  size_t bytes;
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

// Classes 0 … 15 are multiples of 64 bytes up to 1 KiB; after that each doubling has four. Blocks of a BlockPool are
// these sizes with what the pool needs.
constexpr int class_of(size_t bytes) {
  if (bytes <= 16 * kGrain) [[likely]]
    return bytes == 0 ? 0 : static_cast<int>((bytes - 1) / kGrain);
  if (bytes > kSmall) bytes += BlockPool::kOverhead;
  const int log = std::bit_width(bytes - 1) - 1;  // 2^log < bytes <= 2^(log + 1)
  return 16 + (log - 10) * 4 + static_cast<int>(((bytes - 1) >> (log - 2)) & 3);
}
constexpr size_t bytes_of(int size_class) {
  if (size_class < 16) return (size_class + 1) * kGrain;
  const int log = 10 + (size_class - 16) / 4, quarter = (size_class - 16) % 4;
  const size_t bytes = (size_t{1} << log) + static_cast<size_t>(quarter + 1) * (size_t{1} << (log - 2));
  return bytes > kSmall ? bytes - BlockPool::kOverhead : bytes;
}
// Of small and medium blocks.
constexpr int kClasses = class_of(kMedium) + 1;
// bytes_of() as a table, since every allocation needs it.
constexpr auto kBytesOf = [] {
  std::array<uint32_t, kClasses> table{};
  for (int c = 0; c < kClasses; ++c) table[static_cast<size_t>(c)] = static_cast<uint32_t>(bytes_of(c));
  return table;
}();
/// What a block for so many bytes counts.
size_t block_bytes(size_t bytes) {
  constexpr size_t kPage = BlockPool::kPage, kOverhead = BlockPool::kOverhead;
  return bytes <= kMedium ? bytes_of(class_of(bytes)) : (bytes + kOverhead + kPage - 1) / kPage * kPage - kOverhead;
}
/// Makes the first `bytes` of a block accessible and poisons the others.
void unpoison([[maybe_unused]] void* block, [[maybe_unused]] size_t bytes, [[maybe_unused]] size_t all) {
  ASAN_UNPOISON_MEMORY_REGION(block, bytes);
  ASAN_POISON_MEMORY_REGION(static_cast<char*>(block) + bytes, all - bytes);
}
// How many blocks a batch holds at first, 32 KiB, and at most, 1 MiB.
constexpr uint32_t first_batch_size(size_t bytes) { return static_cast<uint32_t>(bytes < kSmall ? kSmall / bytes : 1); }
constexpr uint32_t largest_batch_size(size_t bytes) { return static_cast<uint32_t>((1 << 20) / bytes); }

struct Cache;
constinit thread_local Cache* current = nullptr;  // what my_cache has made; its destructor clears it first
// What the threads share. Never destroyed, since tensors in static storage may be released after any other static
// object. Nothing that is given back makes it allocate.
struct Depot {
  std::mutex mutex;
  Block* batches[class_of(kSmall) + 1] = {};
  SlabRest* rests = nullptr;
  BlockPool medium, large;
  std::vector<Cache*> caches;
  int64_t in_use_by_none = 0;     // of threads that have ended
  int64_t peak_seen = 0;          // of the bytes in use, when a thread asked for its share
  std::atomic<int64_t> slabs{0};  // bytes

  size_t share_of_thread();
};
Depot& depot() {
  static constinit Lazy<Depot> depot;
  return depot.get();
}
/// Locks the depot's mutex. In a forked child it drops the caches of the other threads, which are gone with the memory
/// that they had.
struct DepotLock {
  void lock() { depot().mutex.lock(); }
  void unlock() { depot().mutex.unlock(); }
  void renew();
} depot_mutex;
ForkLock depot_lock(ForkLock::Order::kMemory, depot_mutex);
ForkLock medium_lock(ForkLock::Order::kMemory, depot().medium), large_lock(ForkLock::Order::kMemory, depot().large);

struct Cache {
  struct List {
    Batch active, spare;
  };
  List lists[kClasses];
  uint32_t limits[kClasses];  // of a batch
  size_t granted = 0;         // by which the limits have grown, in bytes
  char* slab = nullptr;
  size_t slab_left = 0;
  std::atomic<int64_t> in_use{0}, peak{0};  // written by the owner alone

  Cache() {
    for (int c = 0; c < kClasses; ++c) limits[c] = first_batch_size(bytes_of(c));
    std::lock_guard lock(depot().mutex);
    depot().caches.push_back(this);
  }
  ~Cache() {
    current = nullptr;
    flush();
    std::lock_guard lock(depot().mutex);
    if (slab_left) depot().rests = new (slab) SlabRest{depot().rests, slab_left};
    std::erase(depot().caches, this);
    depot().in_use_by_none += in_use.load(std::memory_order_relaxed);
  }
  void flush() {
    for (int c = 0; c < kClasses; ++c)
      for (Batch* batch : {&lists[c].active, &lists[c].spare})
        if (batch->count) share(c, *batch);
  }
  static void share(int c, Batch& batch);
  void count(int64_t bytes) {
    const int64_t now = in_use.load(std::memory_order_relaxed) + bytes;
    in_use.store(now, std::memory_order_relaxed);
    if (now > peak.load(std::memory_order_relaxed)) peak.store(now, std::memory_order_relaxed);
  }
  void discount(int64_t bytes) {
    in_use.store(in_use.load(std::memory_order_relaxed) - bytes, std::memory_order_relaxed);
  }
  void refill(int c);
  void take_rest(size_t bytes);
  void overflow(int c);
};

void DepotLock::renew() {
  new (&depot().mutex) std::mutex;
  std::erase_if(depot().caches, [](const Cache* cache) {
    if (cache == current) return false;
    depot().in_use_by_none += cache->in_use.load(std::memory_order_relaxed);
    return true;
  });
}

constinit thread_local PerThread<Cache> my_cache;
// Returns nullptr if there is no memory for a cache.
[[gnu::noinline]] Cache* start_cache() try { return current = &*my_cache; } catch (const std::bad_alloc&) {
  return nullptr;
}
Cache* cache() { return current ? current : start_cache(); }

/// What `get` returns, once more after the cache has been emptied if that is nullptr.
template <class Get>
void* from_system(const Get& get) {
  void* block = get();
  if (!block) {
    empty_cache();
    block = get();
  }
  return block;
}
void* from_pool(BlockPool& pool, size_t bytes) {
  return from_system([&] { return pool.allocate(bytes); });
}

[[gnu::noinline]] void Cache::refill(int c) {
  List& list = lists[c];
  if (list.spare.count) {
    std::swap(list.active, list.spare);
    return;
  }
  const size_t bytes = bytes_of(c);
  if (bytes > kSmall) {
    if (void* block = from_pool(depot().medium, bytes)) list.active.push(static_cast<Block*>(block));
  } else {
    {
      std::lock_guard lock(depot().mutex);
      if (Block* const first = depot().batches[c]) {
        depot().batches[c] = first->next_batch;
        list.active = {first, first->count};
        return;
      }
      if (slab_left < bytes) take_rest(bytes);
    }
    if (slab_left < bytes) {
      slab = static_cast<char*>(from_system([] { return std::aligned_alloc(kGrain, kSlab); }));
      slab_left = slab ? kSlab : 0;
      depot().slabs.fetch_add(static_cast<int64_t>(slab_left), std::memory_order_relaxed);
    }
    // A few at a time, so that blocks that are allocated one after another are neighbours in memory.
    for (int i = 0; i < 8 && slab_left >= bytes; ++i, slab_left -= bytes)
      list.active.push(reinterpret_cast<Block*>(slab + slab_left - bytes));
  }
  if (!list.active.count) throw std::bad_alloc();
}

/// Where other threads find them: small ones as they are, medium ones to be merged into blocks of other sizes.
void Cache::share(int c, Batch& batch) {
  if (bytes_of(c) > kSmall) {
    while (batch.count) depot().medium.release(batch.pop());
    return;
  }
  Block* const first = batch.head;
  first->count = std::exchange(batch, {}).count;
  std::lock_guard lock(depot().mutex);
  first->next_batch = std::exchange(depot().batches[c], first);
}

/// Goes on with what another thread has left of its slab, if there is enough of it. Under the depot's mutex.
void Cache::take_rest(size_t bytes) {
  constexpr int kLooks = 16;
  SlabRest** link = &depot().rests;
  for (int look = 0; *link && look < kLooks; link = &(*link)->next, ++look) {
    SlabRest* const rest = *link;
    if (rest->bytes < bytes) continue;
    *link = rest->next;
    slab = reinterpret_cast<char*>(rest);
    slab_left = rest->bytes;
    return;
  }
}

/// How many bytes a thread may keep to itself. A thread that frees what others have allocated would keep up to two of
/// the largest batches of each class.
size_t Depot::share_of_thread() {
  constexpr int64_t kLeast = 1 << 20;
  std::lock_guard lock(mutex);
  int64_t in_use = in_use_by_none;
  for (const Cache* cache : caches) in_use += cache->in_use.load(std::memory_order_relaxed);
  peak_seen = std::max(peak_seen, in_use);
  return static_cast<size_t>(std::max(kLeast, peak_seen / static_cast<int64_t>(4 * caches.size() + 1)));
}

[[gnu::noinline]] void Cache::overflow(int c) {
  List& list = lists[c];
  const size_t bytes = bytes_of(c);
  const uint32_t more = std::min(limits[c], largest_batch_size(bytes) - limits[c]);
  if (more && granted + more * bytes <= depot().share_of_thread()) {
    granted += more * bytes;
    limits[c] += more;
    return;
  }
  if (list.spare.count) share(c, list.spare);
  list.spare = std::exchange(list.active, {});
}

void count(Cache* mine, int64_t bytes) {
  if (mine) return mine->count(bytes);
  std::lock_guard lock(depot().mutex);
  depot().in_use_by_none += bytes;
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
  static constinit Lazy<Holders> holders;
  return holders.get();
}
ForkLock holders_lock(ForkLock::Order::kTensors, holders().mutex);
}  // namespace

std::string human_size(double bytes) {
  const char* units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  int unit = 0;
  for (; bytes >= 1024 && unit < 6; ++unit) bytes /= 1024;
  return fmt::format("{:.{}f} {}", bytes, unit ? 1 : 0, units[unit]);
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

namespace {

// For large blocks, and for threads whose cache has ended.
void* allocate_shared(Cache* mine, size_t bytes) {
  if (bytes > kMost) throw std::bad_alloc();
  const size_t all = block_bytes(bytes);
  void* const block = bytes > kMedium  ? from_pool(depot().large, all)
                      : bytes > kSmall ? from_pool(depot().medium, all)
                                       : from_system([&] { return std::aligned_alloc(kGrain, all); });
  if (!block) throw std::bad_alloc();
  unpoison(block, bytes, all);
  count(mine, static_cast<int64_t>(all));
  return block;
}

void release_shared(Cache* mine, void* block, size_t bytes) {
  const size_t all = block_bytes(bytes);
  if (bytes > kMedium) {
    depot().large.release(block);
  } else {
    unpoison(block, sizeof(Block), all);
    Batch one{new (block) Block{}, 1};
    Cache::share(class_of(bytes), one);
  }
  count(mine, -static_cast<int64_t>(all));
}

// The error is made when the program starts; a copy of it allocates nothing.
const OutOfMemoryError& bare_out_of_memory() {
  static constinit Lazy<OutOfMemoryError> error;
  return error.get([] { return OutOfMemoryError("out of memory, also for a message that says where"); });
}
[[maybe_unused]] const OutOfMemoryError& made_early = bare_out_of_memory();

[[noreturn, gnu::cold]] void fail_allocation(size_t bytes) try {
  const MemoryStats stats = memory_stats();
  detail::fail_as<OutOfMemoryError>("out of memory: ", bytes, " bytes (", human_size(static_cast<double>(bytes)),
                                    ") could not be allocated; ", human_size(static_cast<double>(stats.in_use)),
                                    " are in use, ", human_size(static_cast<double>(stats.cached)), " are cached",
                                    largest_holders(kCPU));
} catch (const std::bad_alloc&) {
  throw OutOfMemoryError(bare_out_of_memory());
}

void* take(Cache& mine, int c, size_t bytes) {
  void* const block = mine.lists[c].active.pop();
  const auto all = kBytesOf[static_cast<size_t>(c)];
  unpoison(block, bytes, all);
  mine.count(all);
  return block;
}
void give(Cache& mine, int c, void* block) {
  const auto all = kBytesOf[static_cast<size_t>(c)];
  unpoison(block, sizeof(Block), all);
  mine.lists[c].active.push(static_cast<Block*>(block));
  mine.discount(all);
}

// What is not in a list of this thread's, or does not fit into one. Apart from what is, so that this saves no
// registers.
[[gnu::noinline]] void* allocate_slowly(size_t bytes) {
  try {
    Cache* const mine = cache();
    if (bytes > kMedium || !mine) return allocate_shared(mine, bytes);
    const int c = class_of(bytes);
    if (!mine->lists[c].active.count) mine->refill(c);
    return take(*mine, c, bytes);
  } catch (const std::bad_alloc&) {
    fail_allocation(bytes);
  }
}
[[gnu::noinline]] void release_slowly(void* block, size_t bytes) {
  Cache* const mine = cache();
  if (bytes > kMedium || !mine) return release_shared(mine, block, bytes);
  const int c = class_of(bytes);
  if (mine->lists[c].active.count >= mine->limits[c]) mine->overflow(c);
  give(*mine, c, block);
}

}  // namespace

void* allocate_cpu(size_t bytes) {
  if (Cache* const mine = current; mine && bytes <= kMedium) [[likely]]
    if (const int c = class_of(bytes); mine->lists[c].active.count) [[likely]]
      return take(*mine, c, bytes);
  return allocate_slowly(bytes);
}

void release_cpu(void* block, size_t bytes) {
  if (Cache* const mine = current; mine && bytes <= kMedium) [[likely]]
    if (const int c = class_of(bytes); mine->lists[c].active.count < mine->limits[c]) [[likely]]
      return give(*mine, c, block);
  release_slowly(block, bytes);
}

int64_t thread_memory_in_use() {
  const Cache* mine = cache();
  return mine ? mine->in_use.load(std::memory_order_relaxed) : 0;
}

MemoryStats memory_stats() {
  Depot& all = depot();
  std::lock_guard lock(all.mutex);
  MemoryStats stats{.in_use = all.in_use_by_none, .peak_in_use = all.in_use_by_none};
  for (const Cache* c : all.caches) {
    stats.in_use += c->in_use.load(std::memory_order_relaxed);
    stats.peak_in_use += c->peak.load(std::memory_order_relaxed);
  }
  stats.peak_in_use = std::max(stats.peak_in_use, stats.in_use);
  const auto from_system =
      all.slabs.load(std::memory_order_relaxed) + static_cast<int64_t>(all.medium.resident() + all.large.resident());
  stats.cached = std::max<int64_t>(0, from_system - stats.in_use);
  return stats;
}

void reset_peak_memory_stats() {
  std::lock_guard lock(depot().mutex);
  for (Cache* c : depot().caches) c->peak.store(c->in_use.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

void empty_cache() {
  if (current) current->flush();
  depot().medium.trim();
  depot().large.trim();
}

// ---- storage --------------------------------------------------------------------------------------------------------

Storage* Storage::make(size_t bytes, Device device, const Shape& shape, DType dtype) {
  Storage* storage;
  if (device.type == DeviceType::kCPU) {
    storage = new (allocate_cpu(sizeof(Storage) + bytes)) Storage;
    storage->data = storage + 1;
  } else {
    storage = new (allocate_cpu(sizeof(Storage))) Storage;
    try {
      storage->data = runtime(device).allocate(device.index, bytes, &storage->block);
    } catch (...) {
      storage->~Storage();
      release_cpu(storage, sizeof(Storage));
      throw;
    }
  }
  storage->device = device;
  storage->bytes = bytes;
  if (bytes >= kLargeHolder) try {
      std::lock_guard lock(holders().mutex);
      holders().all.emplace(storage, Holder{shape, dtype});
      storage->large = true;
    } catch (const std::bad_alloc&) {  // then messages do not list it
    }
  return storage;
}

Storage* Storage::adopt(void* data, size_t bytes, std::function<void()> release) {
  auto call = std::make_unique<std::function<void()>>(release ? std::move(release) : [] {});
  auto* storage = new (allocate_cpu(sizeof(Storage))) Storage;
  storage->data = data;
  storage->bytes = bytes;
  storage->release = call.release();
  return storage;
}

namespace {

// Storages of foreign memory that are being freed, linked by `block`, which these do not use. What `release` holds may
// be the last handle to the next one, and so on: a recursion would overflow the stack.
struct DyingStorages {
  Storage* first = nullptr;
  bool draining = false;
};
constinit thread_local DyingStorages dying_storages;

void end_foreign(Storage* storage) {
  DyingStorages& dying = dying_storages;
  storage->block = std::exchange(dying.first, storage);
  if (std::exchange(dying.draining, true)) return;
  while (Storage* next = dying.first) {
    dying.first = static_cast<Storage*>(next->block);
    (*next->release)();
    delete next->release;
    next->~Storage();
    release_cpu(next, sizeof(Storage));
  }
  dying.draining = false;
}

}  // namespace

void Storage::destroy() {
  if (release) return end_foreign(this);
  if (large) {
    std::lock_guard lock(holders().mutex);
    holders().all.erase(this);
  }
  const bool behind_header = data == this + 1;
  if (!behind_header) {
    try {
      runtime(device).release(block, bytes);
    } catch (...) {  // at the end of the process, or after a fault of the GPU: it is gone with the driver
    }
  }
  const size_t block = sizeof(Storage) + (behind_header ? bytes : 0);
  this->~Storage();
  release_cpu(this, block);
}

}  // namespace reel
