#pragma once
#include <cstddef>
#include <vector>

#include "lib/device/allocator.h"

namespace reel::cpu {

/// Temporary memory of a kernel, from the caching allocator: fresh pages of the system would cost more than most
/// kernels. Its functions are not inline: the linker must not mix up what files of simd/ are compiled for.
class Scratch {
 public:
  explicit Scratch(size_t bytes = 0);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  template <class T = void>
  T* data() const {
    return static_cast<T*>(data_);
  }

 private:
  size_t bytes_;
  void* data_;
};

/// Allocates the elements of containers like a Scratch; it throws OutOfMemoryError where there is no memory.
template <class T>
struct ScratchAllocator {
  using value_type = T;
  ScratchAllocator() = default;
  template <class U>
  ScratchAllocator(const ScratchAllocator<U>&) {}
  T* allocate(size_t n) { return static_cast<T*>(allocate_cpu(n * sizeof(T))); }
  void deallocate(T* data, size_t n) { release_cpu(data, n * sizeof(T)); }
  bool operator==(const ScratchAllocator&) const = default;
};
template <class T>
using ScratchVector = std::vector<T, ScratchAllocator<T>>;

}  // namespace reel::cpu
