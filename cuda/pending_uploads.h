// This file has PendingUploads, the small copies from the host that a stream has still to be given.
#pragma once
#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <bitset>
#include <cstdint>
#include <memory>
#include <mutex>

namespace reel::cuda {

struct CudaStream;

/// PendingUploads are the small copies from the host to a GPU that were made on a stream, and which one kernel makes
/// together as soon as anything else has to do with the stream: a launch or copy on it, an event, a synchronization, or
/// a program that asks for its handle. It gets at the cudaStream_t by CudaStream::handle() alone, which makes them
/// first. So whoever can see in which order the stream's work is done, in any thread, finds them where they were put.
///
/// Memory that is released and allocated again before they are made stays right, too. It belongs to the stream: what
/// writes there next is either work of that stream, which comes after them, or another of them, and those that overlap
/// are never pending at the same time. Another stream gets it after an event, which comes after them, too.
class PendingUploads {
 public:
  static constexpr size_t kMaxBytes = 64;  // of one of them

  explicit PendingUploads(CudaStream& stream) : stream_(stream) {}
  /// Adds one, whose bytes are copied at once.
  cudaError_t add(void* to, const void* from, size_t bytes);
  /// Makes those that there are. If that fails they stay, for the next one to try.
  cudaError_t flush() noexcept { return count_.load(std::memory_order_acquire) == 0 ? cudaSuccess : launch(); }

  /// A Word is a part of one, of at most 8 bytes.
  struct Word {
    unsigned char* to;
    uint64_t value;
    int bytes;
  };

 private:
  static constexpr int kMaxWords = 1360;  // of a launch, to which they are an argument of less than 32,764 bytes
  static constexpr size_t kLine = 64;     // bytes
  cudaError_t launch() noexcept;
  cudaError_t launch_locked() noexcept;
  bool overlaps(const unsigned char* begin, size_t bytes) const;
  template <class F>
  static void for_each_line(const unsigned char* begin, size_t bytes, const F& f);

  CudaStream& stream_;
  std::mutex mutex_;            // guards all that follows
  std::atomic<int> count_ = 0;  // of words; 0 again when they have been launched
  std::unique_ptr<std::array<Word, kMaxWords>> words_;
  std::bitset<size_t{1} << 14> lines_;  // those of memory that have some, by a hash
};

/// Copies few bytes from the host to the current device, on the current stream: inside of a batching::map later,
/// together with others, if it `may_wait`. Not for captures.
void upload_small(void* to, const void* from, size_t bytes, bool may_wait);

}  // namespace reel::cuda
