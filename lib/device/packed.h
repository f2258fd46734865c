// This file contains PackedCopies, the copies of a weight in the layouts in which kernels read it.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

namespace reel {

/// A PackedCopy is a copy of a weight, or of a part of it, in the layout in which some kernel reads it.
struct PackedCopy {
  PackedCopy() = default;
  PackedCopy(const PackedCopy&) = delete;
  PackedCopy& operator=(const PackedCopy&) = delete;
  virtual ~PackedCopy() = default;
  const PackedCopy* next = nullptr;
};

/// PackedCopies are kept beside a tensor whose elements seldom change. Kernels add them when they first run, and find
/// them without a lock afterwards. Threads may do so at once; who changes the tensor's elements does it alone.
class PackedCopies {
 public:
  PackedCopies() = default;
  PackedCopies(const PackedCopies&) = delete;
  PackedCopies& operator=(const PackedCopies&) = delete;
  ~PackedCopies() { clear(); }

  /// Drops all copies unless they are those of this version of the tensor's elements.
  void keep(uint32_t version) {
    if (version_.load(std::memory_order_acquire) == version) return;
    const std::lock_guard lock(mutex_);
    if (version_.load(std::memory_order_relaxed) == version) return;
    clear();
    version_.store(version, std::memory_order_release);
  }
  /// Drops all copies.
  void clear() {
    const PackedCopy* copy = first_.exchange(nullptr, std::memory_order_acq_rel);
    while (copy) delete std::exchange(copy, copy->next);
  }
  /// Returns the copy for which matches(copy) is true, otherwise adds make(), which returns a std::unique_ptr.
  template <class Matches, class Make>
  const PackedCopy& get(const Matches& matches, const Make& make) {
    if (const PackedCopy* const found = find(matches)) return *found;
    const std::lock_guard lock(mutex_);
    if (const PackedCopy* const found = find(matches)) return *found;
    std::unique_ptr<PackedCopy> made = make();
    made->next = first_.load(std::memory_order_relaxed);
    first_.store(made.get(), std::memory_order_release);
    return *made.release();
  }

 private:
  template <class Matches>
  const PackedCopy* find(const Matches& matches) const {
    const PackedCopy* copy = first_.load(std::memory_order_acquire);
    while (copy && !matches(*copy)) copy = copy->next;
    return copy;
  }

  std::atomic<const PackedCopy*> first_{nullptr};
  std::atomic<uint32_t> version_{0};
  std::mutex mutex_;
};

}  // namespace reel
