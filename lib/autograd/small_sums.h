// SmallSums collects small gradients on a GPU until few kernels add all of them.
#pragma once
#include <vector>

#include "lib/autograd/grad_metadata.h"
#include "reel/tensor.h"

namespace reel {

/// SmallSums are small gradients of one tensor (see is_small_on_gpu), whole ones and rows, that have not been added to
/// its dense gradient yet. They are kept, not copied, so the pass that they are from must end with flush_into().
class SmallSums {
 public:
  bool empty() const { return addends_.empty() && row_ids_.empty(); }
  /// Adds g, of the shape and dtype of `dense`. If there are too many, the earlier ones are first added to `dense`.
  void add(Tensor& dense, Tensor g);
  /// Adds values [n, …] to the rows ids [n]. If there are too many, the earlier ones are first added to `dense`.
  void add_rows(Tensor& dense, const GradMetadata& target, const Tensor& ids, Tensor values);
  /// Adds everything to `dense`, and keeps nothing.
  void flush_into(Tensor& dense, const GradMetadata& target) {
    flush_rows_into(dense, target);
    flush_addends_into(dense);
  }
  void clear() { addends_.clear(), row_ids_.clear(), row_values_.clear(); }

 private:
  void flush_addends_into(Tensor& dense);
  void flush_rows_into(Tensor& dense, const GradMetadata& target);

  std::vector<Tensor> addends_, row_ids_, row_values_;
};

}  // namespace reel
