#include "cuda/pending_uploads.h"

#include <algorithm>
#include <cstring>

#include "cuda/aligned_vector.h"
#include "cuda/device.h"
#include "lib/base/op_modes.h"
#include "lib/device/pending_uploads.h"

// Small copies from the host by a kernel whose argument has the bytes: there is nothing to pin or to wait for.
namespace reel::cuda {
namespace {

using Word = PendingUploads::Word;

template <int capacity>
struct Words {
  Word words[capacity];
  int count;
};

template <int capacity>
__global__ void write_words(const __grid_constant__ Words<capacity> words) {
  const auto i = static_cast<int>(first_index());
  if (i >= words.count) return;
  const Word& word = words.words[i];
  if (word.bytes == 8 && is_aligned<8>(word.to))
    *reinterpret_cast<uint64_t*>(word.to) = word.value;
  else
    for (int k = 0; k < word.bytes; ++k) word.to[k] = static_cast<unsigned char>(word.value >> 8 * k);
}

/// Not by launch(), which is for the current stream, and does nothing while arguments of a graph are renewed.
template <int capacity>
cudaError_t write(const Word* words, int count, cudaStream_t stream) {
  Words<capacity> argument;
  std::copy_n(words, count, argument.words);
  argument.count = count;
  const auto blocks = static_cast<unsigned>(ceil_div(count, kThreads));
#if defined(__CUDACC__)
  void* pointers[] = {&argument};
  return cudaLaunchKernel(reinterpret_cast<const void*>(write_words<capacity>), blocks, kThreads, pointers, 0, stream);
#else
  return simt::launch(write_words<capacity>, blocks, kThreads, 0, stream, argument);
#endif
}

/// The stream whose uploads the calling thread has left pending.
constinit thread_local CudaStream* left_pending = nullptr;

}  // namespace

template <class F>
void PendingUploads::for_each_line(const unsigned char* begin, size_t bytes, const F& f) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(begin);
  for (uintptr_t line = address / kLine; line <= (address + bytes - 1) / kLine; ++line)
    f(static_cast<size_t>((line * 0x9e3779b97f4a7c15u) >> 50));
}

/// Looks at the words only if one of them may lie in the same lines.
bool PendingUploads::overlaps(const unsigned char* begin, size_t bytes) const {
  bool may = false;
  for_each_line(begin, bytes, [&](size_t line) { may |= lines_[line]; });
  return may && std::any_of(words_->begin(), words_->begin() + count_,
                            [&](const Word& word) { return word.to < begin + bytes && begin < word.to + word.bytes; });
}

cudaError_t PendingUploads::add(void* to, const void* from, size_t bytes) {
  auto* const begin = static_cast<unsigned char*>(to);
  const std::lock_guard lock(mutex_);
  if (!words_) words_ = std::make_unique<std::array<Word, kMaxWords>>();
  const auto needed = static_cast<int>(ceil_div(static_cast<int64_t>(bytes), 8));
  if (count_ + needed > kMaxWords || overlaps(begin, bytes))
    if (const cudaError_t status = launch_locked(); status != cudaSuccess) return status;
  for_each_line(begin, bytes, [&](size_t line) { lines_.set(line); });
  int count = count_;
  for (size_t at = 0; at < bytes; at += 8) {
    Word& word =
        (*words_)[static_cast<size_t>(count++)] = {begin + at, 0, static_cast<int>(std::min<size_t>(8, bytes - at))};
    std::memcpy(&word.value, static_cast<const unsigned char*>(from) + at, static_cast<size_t>(word.bytes));
  }
  count_.store(count, std::memory_order_release);
  return cudaSuccess;
}

cudaError_t PendingUploads::launch() noexcept {
  const std::lock_guard lock(mutex_);
  return launch_locked();
}

cudaError_t PendingUploads::launch_locked() noexcept {
  const int count = count_;
  if (count == 0) return cudaSuccess;
  const DeviceGuard guard(stream_.state.index);
  const RelaxedCaptureGuard relaxed(capturing());  // of another stream: the first launch loads the kernel
  const auto by = count <= 16 ? write<16> : count <= 160 ? write<160> : write<kMaxWords>;
  const cudaError_t status = by(words_->data(), count, stream_.raw());
  if (status != cudaSuccess) return status;
  lines_.reset();
  count_.store(0, std::memory_order_release);  // only now: who finds none uses the stream at once
  return cudaSuccess;
}

void upload_small(void* to, const void* from, size_t bytes, bool may_wait) {
  CudaStream& stream = current_stream(std::max(current.device, 0));
  if (left_pending && left_pending != &stream) flush_pending_uploads();
  check(stream.uploads.add(to, from, bytes), "the launch of small copies to the GPU");
  if (!may_wait || !op_modes.has(OpModes::kBatching) || stream.is_exposed()) return void(stream.handle());
  left_pending = &stream;
  detail::flush_pending = [] { std::exchange(left_pending, nullptr)->uploads.flush(); };
}

}  // namespace reel::cuda
