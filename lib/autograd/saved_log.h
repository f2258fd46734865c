// SavedTensorLog: a list of the tensors that ops save for their derivatives.
#pragma once
#include <utility>
#include <vector>

#include "reel/tensor.h"

namespace reel {

/// While it lives, SavedTensors that this thread makes from tensors and outputs are appended to a list, as tensors.
class SavedTensorLog {
 public:
  explicit SavedTensorLog(std::vector<Tensor>& list) : before_(std::exchange(current, &list)) {}
  ~SavedTensorLog() { current = before_; }
  SavedTensorLog(const SavedTensorLog&) = delete;
  SavedTensorLog& operator=(const SavedTensorLog&) = delete;

  /// Appends a tensor that no rule has saved, but which is infinite where a derivative may be.
  static void add(const Tensor& y) {
    if (current) [[unlikely]]
      current->push_back(y);
  }
  static constinit thread_local std::vector<Tensor>* current;

 private:
  std::vector<Tensor>* const before_;
};

}  // namespace reel
