#pragma once
#include <vector>

#include "lib/device/kernels/update.h"
#include "lib/tensor/tensor_impl.h"

namespace reel::optim {

/// The gradients of many parameters as kernels take them that change all of them at once: contiguous, those of one
/// device and dtype together. Of a sparse one the rows.
class Gradients {
 public:
  struct Batch {
    Device device;
    DType dtype;
    std::vector<Updated> gradients;
  };

  /// Those of a parameter that has one.
  void add(const Tensor& parameter);
  const std::vector<Batch>& batches() const { return batches_; }
  /// After kernels have written them.
  void changed();

 private:
  struct Copy {
    Tensor parameter, grad, dense;
  };
  std::vector<Batch> batches_;
  std::vector<Tensor> given_;
  std::vector<Copy> copies_;  // of those that kernels do not take as they are
};

}  // namespace reel::optim
