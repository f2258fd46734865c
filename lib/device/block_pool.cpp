#include "lib/device/block_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "lib/device/poison.h"

namespace reel {
namespace {

constexpr size_t kPage = BlockPool::kPage, kRange = 64 << 20, kLeast = 16 << 10;  // kLeast: the least that is split off
// Added to the size of a range: addresses that are a power of two apart have one place in the processor's caches.
constexpr size_t kSkew = 69 * kPage;
constexpr int kLooks = 16;  // at blocks in a bin: many that do not fit cost little

size_t round_up(size_t bytes, size_t grain) { return (bytes + grain - 1) / grain * grain; }

/// The bin of free blocks of this size.
int bin_of(size_t bytes) {
  const int log = std::bit_width(bytes) - 1;
  return 4 * log + static_cast<int>(bytes >> (log - 2) & 3);
}

}  // namespace

/// In front of a block's bytes, also of a free one's.
struct alignas(64) BlockPool::Block {
  size_t bytes;   // with this header
  Block* before;  // its neighbour at lower addresses, nullptr for the first of a range
  Range* range;
  bool free = false;
  Block *next = nullptr, *previous = nullptr;  // of a free one: in its bin

  char* begin() { return reinterpret_cast<char*>(this); }
  Block* after();
};

/// Reserved addresses. `present` has a bit for each page that the system has given. The `rest` behind the last block is
/// in no bin: it is used where no bin has room, that of an old range first, so that what has been used before is used
/// again rather than fresh pages.
struct BlockPool::Range {
  Block* rest = nullptr;
  char* begin = nullptr;
  size_t bytes = 0;
  std::vector<uint64_t> present;

  ~Range() {
    if (!begin) return;
    ASAN_UNPOISON_MEMORY_REGION(begin, bytes);
    ::munmap(begin, bytes);
  }
  size_t count(size_t first, size_t last) const {
    size_t pages = 0;
    for_each_word(first, last, [&](size_t word, uint64_t bits) { pages += std::popcount(present[word] & bits); });
    return pages;
  }
  /// Sets the bits of pages [first, last) and returns how many have changed.
  size_t set(size_t first, size_t last, bool value) {
    size_t changed = 0;
    for_each_word(first, last, [&](size_t word, uint64_t bits) {
      const uint64_t before = present[word], after = value ? before | bits : before & ~bits;
      changed += std::popcount(before ^ after);
      present[word] = after;
    });
    return changed;
  }

 private:
  /// f(word, the bits of it that belong to pages [first, last))
  template <class F>
  static void for_each_word(size_t first, size_t last, const F& f) {
    constexpr uint64_t kAll = ~uint64_t{0};
    for (size_t word = first / 64; word * 64 < last; ++word) {
      uint64_t bits = kAll;
      if (word == first / 64) bits &= kAll << first % 64;
      if (last < word * 64 + 64) bits &= kAll >> (word * 64 + 64 - last);
      f(word, bits);
    }
  }
};

BlockPool::Block* BlockPool::Block::after() {
  static_assert(sizeof(Block) == kOverhead);
  char* const end = begin() + bytes;
  return end == range->begin + range->bytes ? nullptr : reinterpret_cast<Block*>(end);
}

// ---- free blocks ----------------------------------------------------------------------------------------------------

void BlockPool::insert(Block* block) {
  block->free = true;
  if (!block->after()) {
    block->range->rest = block;
    return;
  }
  const int bin = bin_of(block->bytes);
  block->previous = nullptr;
  block->next = bins_[bin];
  if (block->next) block->next->previous = block;
  bins_[bin] = block;
  filled_[bin / 64] |= uint64_t{1} << bin % 64;
}

void BlockPool::remove(Block* block) {
  block->free = false;
  if (block->range->rest == block) {
    block->range->rest = nullptr;
    return;
  }
  const int bin = bin_of(block->bytes);
  (block->previous ? block->previous->next : bins_[bin]) = block->next;
  if (block->next) block->next->previous = block->previous;
  if (!bins_[bin]) filled_[bin / 64] &= ~(uint64_t{1} << bin % 64);
}

/// One that waits and is not larger than a split would make it.
BlockPool::Block* BlockPool::take_waiting(size_t bytes) {
  Block** link = &waiting_[bin_of(bytes)];
  for (int look = 0; *link && look < kLooks; link = &(*link)->next, ++look) {
    Block* const block = *link;
    if (block->bytes < bytes || block->bytes - bytes >= kLeast) continue;
    *link = block->next;
    --num_waiting_;
    return block;
  }
  return nullptr;
}

void BlockPool::merge_waiting() {
  const auto merge = [](Block* low, Block* high) {
    low->bytes += high->bytes;
    if (Block* const after = high->after()) after->before = low;
    return low;
  };
  for (int bin = 0; num_waiting_ > 0; ++bin)
    while (Block* block = waiting_[bin]) {
      waiting_[bin] = block->next;
      --num_waiting_;
      if (Block* const after = block->after(); after && after->free) remove(after), merge(block, after);
      if (Block* const before = block->before; before && before->free) remove(before), block = merge(before, block);
      insert(block);
    }
}

/// One from the bin of its size, if one there is large enough, or from the next that has any, or a range's rest.
BlockPool::Block* BlockPool::find(size_t bytes) const {
  const int own = bin_of(bytes);
  Block* block = bins_[own];
  for (int look = 0; block && look < kLooks; block = block->next, ++look)
    if (block->bytes >= bytes) return block;
  for (int bin = own + 1; bin < kBins; bin = (bin / 64 + 1) * 64)
    if (const uint64_t rest = filled_[bin / 64] >> bin % 64) return bins_[bin + std::countr_zero(rest)];
  for (const Range* range : ranges_)
    if (range->rest && range->rest->bytes >= bytes) return range->rest;
  return nullptr;
}

/// Leaves the block with so many bytes, and what is left over as a free block, unless that is too small to be of use.
void BlockPool::split(Block* block, size_t bytes) {
  if (block->bytes - bytes < kLeast) return;
  ASAN_UNPOISON_MEMORY_REGION(block->begin() + bytes, sizeof(Block));
  auto* const rest = new (block->begin() + bytes) Block{block->bytes - bytes, block, block->range};
  if (Block* const after = block->after()) after->before = rest;
  block->bytes = bytes;
  insert(rest);
}

// ---- pages of the system --------------------------------------------------------------------------------------------

/// A free block in a range of its own. Addresses cost nothing, so there are more of them than asked for: a tensor that
/// grows a little finds room at the place of the last one, where the pages are.
BlockPool::Block* BlockPool::reserve(size_t bytes) {
  const size_t exact = round_up(bytes, kPage);
  for (const size_t size : {std::max(kRange, std::bit_ceil(exact)) + kSkew, exact}) {
    auto range = std::make_unique<Range>();
    void* const begin = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (begin == MAP_FAILED) continue;
    range->begin = static_cast<char*>(begin), range->bytes = size;
    try {
      range->present.resize(size / kPage / 64 + 1);
      ranges_.push_back(range.get());
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
    auto* const block = new (begin) Block{size, nullptr, range.release()};
    insert(block);
    ASAN_POISON_MEMORY_REGION(block + 1, size - sizeof(Block));
    return block;
  }
  return nullptr;
}

void BlockPool::mark_present(Block* block) {
  const auto first = static_cast<size_t>(block->begin() - block->range->begin);
  const size_t pages = block->range->set(first / kPage, round_up(first + block->bytes, kPage) / kPage, true);
  resident_.store(resident() + pages * kPage, std::memory_order_relaxed);
}

/// Gives pages of a free block back, as many as there are too many, from its end. A range of which nothing is left
/// goes.
void BlockPool::discard(Block* block, size_t limit) {
  if (limit > 0 && resident() <= limit) return;
  Range* const range = block->range;
  const auto first = static_cast<size_t>(block->begin() - range->begin);
  const bool whole = block->bytes == range->bytes;
  const size_t begin = whole ? 0 : round_up(first + sizeof(Block), kPage) / kPage, end = (first + block->bytes) / kPage;
  const size_t excess = limit > 0 ? (resident() - limit + kPage - 1) / kPage : range->bytes;
  size_t from = end, found = 0;
  while (from > begin && found < excess) {
    const size_t next = std::max(begin, (from - 1) / 64 * 64);  // a word of bits at a time
    found += range->count(next, from);
    from = next;
  }
  resident_.store(resident() - found * kPage, std::memory_order_relaxed);
  if (whole && from == 0) {
    std::erase(ranges_, range);
    delete range;
  } else if (found) {
    range->set(from, end, false);
    ::madvise(range->begin + from * kPage, (end - from) * kPage, MADV_DONTNEED);
  }
}

void BlockPool::trim_to(size_t limit) {
  merge_waiting();
  for (size_t i = ranges_.size(); i-- > 0;)  // where allocate() looks last
    if (Block* const rest = ranges_[i]->rest) discard(rest, limit);
  for (int bin = kBins - 1; bin >= 0; --bin)
    for (Block* block = bins_[bin]; block && resident() > limit; block = block->next) discard(block, limit);
}

size_t BlockPool::limit() const {
  const size_t peak = std::max(peak_, last_peak_);
  return peak + std::max<size_t>(peak / 4, 16 << 20);
}

void BlockPool::note_time() {
  if (++calls_ % 64) return;  // what time it is takes as long as the rest
  const Clock::time_point now = Clock::now();
  if (now - since_ < period_) return;
  since_ = now;
  last_peak_ = std::exchange(peak_, allocated_);
}

BlockPool::~BlockPool() {
  for (Range* range : ranges_) delete range;
}

// ---- for the allocator ----------------------------------------------------------------------------------------------

void* BlockPool::allocate(size_t bytes) {
  const size_t needed = round_up(bytes + kOverhead, kPage);
  std::lock_guard lock(mutex_);
  Block* block = take_waiting(needed);
  if (!block) {
    merge_waiting();
    block = find(needed);
    if (!block) block = reserve(needed);
    if (!block) {  // ranges that are free may be in the way
      trim_to(0);
      block = reserve(needed);
    }
    if (!block) return nullptr;
    remove(block);
    split(block, needed);
    mark_present(block);
  }
  allocated_ += block->bytes;
  peak_ = std::max(peak_, allocated_);
  note_time();
  if (resident() > limit()) trim_to(limit());
  ASAN_UNPOISON_MEMORY_REGION(block + 1, block->bytes - sizeof(Block));
  return block + 1;
}

void BlockPool::release(void* data) {
  Block* const block = static_cast<Block*>(data) - 1;
  ASAN_POISON_MEMORY_REGION(block + 1, block->bytes - sizeof(Block));
  std::lock_guard lock(mutex_);
  allocated_ -= block->bytes;
  block->next = std::exchange(waiting_[bin_of(block->bytes)], block);
  ++num_waiting_;
  note_time();
  if (resident() > limit()) trim_to(limit());
}

void BlockPool::trim() {
  std::lock_guard lock(mutex_);
  trim_to(0);
}

}  // namespace reel
