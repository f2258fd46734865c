// SavedTensorLog lists the tensors that ops save for their derivatives.
#pragma once
#include <utility>
#include <vector>

#include "reel/tensor.h"

namespace reel {

/// While a SavedTensorLog lives, the tensors that this thread makes SavedTensors of are appended to its list.
class SavedTensorLog {
 public:
  explicit SavedTensorLog(std::vector<Tensor>& list) : before_(std::exchange(current, &list)) {}
  ~SavedTensorLog() { current = before_; }
  SavedTensorLog(const SavedTensorLog&) = delete;
  SavedTensorLog& operator=(const SavedTensorLog&) = delete;

  /// Appends a tensor if there is a log: one that is saved, or one that is infinite where a derivative may be.
  static void add(const Tensor& y) {
    if (current) [[unlikely]]
      append(y);
  }
  static constinit thread_local std::vector<Tensor>* current;

 private:
  [[gnu::cold, gnu::noinline]] static void append(const Tensor& y);
  std::vector<Tensor>* const before_;
};

}  // namespace reel
