// SmallSums collects small gradients on a GPU until few kernels add all of them.
#pragma once
#include <span>
#include <vector>

#include "lib/autograd/grad_metadata.h"
#include "reel/tensor.h"

namespace reel {

/// SmallSums are small gradients of one tensor (see is_small_on_gpu), whole ones and rows, that have not been added to
/// its dense gradient yet. They are kept, not copied, so the pass that they are from must end with flush_into().
class SmallSums {
 public:
  bool empty() const { return addends_.empty() && row_ids_.empty(); }
  /// Returns the whole gradients, in the order in which they came, if there are no rows; none otherwise.
  std::span<const Tensor> addends() const { return row_ids_.empty() ? addends_ : std::span<const Tensor>(); }
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

struct NodeOutput;

/// Adds the small gradients that wait at the outputs of one node, by one kernel for the first of each output, one for
/// the second ones, and so on. The sums, and the gradients of other outputs with them, become parts of one tensor, in
/// the order of the outputs. Does nothing if few outputs have some, or if they are of several dtypes.
void sum_small_outputs(std::span<NodeOutput> outputs);

}  // namespace reel
