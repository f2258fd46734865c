#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>
#include <vector>

namespace reel {

/// Memory of the system in blocks of any size, for all threads. Blocks are cut from reserved ranges of addresses. One
/// that is released waits for the next request of its size, which finds its bytes still in a cache of the processor;
/// when there is none for a request, all that wait are merged with their free neighbours. Free pages are kept for
/// the next blocks, but together with the blocks they take at most a quarter (or 16 MiB) more than the blocks did at
/// their recent peak, which is that of the last 10 to 20 seconds; others go back to the system.
class BlockPool {
 public:
  using Clock = std::chrono::steady_clock;
  /// Blocks are whole pages, of which so many bytes belong to the pool. So the bytes of all blocks begin at the same
  /// place of a page: a store would delay the loads behind it that have its place in theirs.
  static constexpr size_t kPage = 4096, kOverhead = 64;

  /// A peak is recent in its period and the next.
  explicit BlockPool(Clock::duration period = std::chrono::seconds(10)) : period_(period) {}
  ~BlockPool();  ///< Gives all memory back, also that of blocks in use.
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  /// 64-byte aligned, on pages that may be fresh; nullptr if the system has no memory left.
  void* allocate(size_t bytes);
  void release(void* block);
  /// Gives all free pages back to the system.
  void trim();
  /// Holds the pool's own lock while the process forks.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }
  void renew() { new (&mutex_) std::mutex; }
  /// Bytes of pages that the system has given and has not got back, an upper bound.
  size_t resident() const { return resident_.load(std::memory_order_relaxed); }

 private:
  struct Range;
  struct Block;
  static constexpr int kBins = 4 * 48;  // four to a doubling, up to 2^48 bytes

  Block* take_waiting(size_t bytes);
  void merge_waiting();
  Block* find(size_t bytes) const;
  Block* reserve(size_t bytes);
  void split(Block* block, size_t bytes);
  void insert(Block* block);
  void remove(Block* block);
  void mark_present(Block* block);
  void discard(Block* block, size_t limit);
  void trim_to(size_t limit);
  size_t limit() const;
  void note_time();

  const Clock::duration period_;
  std::mutex mutex_;
  std::vector<Range*> ranges_;           // oldest first
  std::array<Block*, kBins> waiting_{};  // released and not merged, by size; the last released first
  int num_waiting_ = 0;
  std::array<Block*, kBins> bins_{};           // free and merged, by size
  std::array<uint64_t, kBins / 64> filled_{};  // a bit for each of them that is not empty
  size_t allocated_ = 0, peak_ = 0, last_peak_ = 0;
  std::atomic<size_t> resident_{0};
  unsigned calls_ = 0;
  Clock::time_point since_ = Clock::now();
};

}  // namespace reel
