#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "reel/types.h"

namespace reel {

/// The bytes behind a tensor and its views. CPU storage lies directly behind this header, in the same block.
struct alignas(64) Storage {
  std::atomic<uint32_t> refs{1};
  std::atomic<uint32_t> version{
      0};  // counts in-place changes; a plain store, since only one thread may change the data
  std::atomic<uint32_t> leaf_views{0};  // tensors with InPlace::kLeafView
  Device device;
  bool large = false;  // listed by an out-of-memory Error: see largest_holders
  size_t bytes = 0;
  void* data = nullptr;
  void* block = nullptr;                     // what DeviceRuntime::release takes
  std::function<void()>* release = nullptr;  // foreign memory (from_blob): called when the last reference is gone

  /// shape and dtype are remembered for the error message of an allocation that fails.
  static Storage* make(size_t bytes, Device device, const Shape& shape, DType dtype);
  static Storage* adopt(void* data, size_t bytes, std::function<void()> release);
  void retain() { refs.fetch_add(1, std::memory_order_relaxed); }
  void drop() {
    if (unique() || refs.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy();
  }
  bool unique() const { return refs.load(std::memory_order_acquire) == 1; }
  void changed() { version.store(version.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }

 private:
  void destroy();
};

}  // namespace reel
