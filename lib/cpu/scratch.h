#pragma once
#include <cstddef>

#include "lib/core/allocator.h"

namespace reel::cpu {

/// Temporary memory of a kernel, from the caching allocator: fresh pages of the system would cost more than most
/// kernels.
class Scratch {
 public:
  explicit Scratch(size_t bytes = 0) : bytes_(bytes), data_(bytes ? allocate_cpu(bytes) : nullptr) {}
  ~Scratch() {
    if (data_) release_cpu(data_, bytes_);
  }
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

}  // namespace reel::cpu
