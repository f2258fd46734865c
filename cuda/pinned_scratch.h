// This file has PinnedScratch, from which the host copies to a GPU without waiting.
#pragma once
#include "cuda/runtime.h"

namespace reel::cuda {

/// Pinned memory of the host for one copy to the current device, outside of captures.
class PinnedScratch {
 public:
  explicit PinnedScratch(size_t bytes) : data_(allocate_pinned(bytes)) {}
  ~PinnedScratch() { release_pinned(data_); }  // reused only after the event that note_copy has recorded
  PinnedScratch(const PinnedScratch&) = delete;
  PinnedScratch& operator=(const PinnedScratch&) = delete;
  void* data() const { return data_; }
  /// Queues the copy of its first bytes.
  void copy_to(void* to, size_t bytes) const {
    CUDA_CHECK(cudaMemcpyAsync(to, data_, bytes, cudaMemcpyHostToDevice, stream()));
    note_copy(data_);
  }

 private:
  void* const data_;
};

}  // namespace reel::cuda
