// SparseRows collects the rows that the gradient of an embedding matrix consists of.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "lib/autograd/grad_metadata.h"
#include "reel/tensor.h"

namespace reel {

/// SparseRows are rows of a gradient that have not been added to each other yet, with their ids: one addition at the
/// end takes the place of one for each use of the matrix. The ids of rows on a GPU stay there until the host needs
/// them, so that one read of all of them is the only synchronization.
class SparseRows {
 public:
  bool empty() const { return count_ == 0; }
  int64_t bytes() const { return empty() ? 0 : view_of(values_).numel * size_of(view_of(values_).dtype); }

  /// Adds values [n, …] of the target's dtype at contiguous ids [n], n > 0. The sum may become a sparse gradient if all
  /// additions say `sparse`. The first values are kept, not copied, if this is their only handle.
  void add(const GradMetadata& target, const Tensor& ids, Tensor values, bool sparse);
  /// Adds the rows of another one.
  void merge(const GradMetadata& target, SparseRows& other);
  /// Adds all rows to `dense`, and keeps none.
  void flush_into(Tensor& dense, const GradMetadata& target);
  /// Returns true if the rows are for a sparse gradient, which take() returns.
  bool is_sparse() const { return sparse_ && !empty(); }
  /// Returns all rows as a sparse gradient with distinct, sorted ids, and keeps none.
  SparseGrad take(Device device);
  void clear() {
    values_.reset(), unread_ids_.reset(), ids_.clear();
    count_ = unread_ = 0;
    sparse_ = true;
  }
  /// Marks the rows as used on the current stream.
  void record_current_stream() const;

 private:
  const std::vector<int64_t>& read_ids();
  void append(const GradMetadata& target, std::span<const int64_t> ids, const View& values, bool sparse);

  Tensor values_;             // [capacity, …], of which `count_` rows are filled
  std::vector<int64_t> ids_;  // those of the first rows
  Tensor unread_ids_;         // [capacity], on a GPU: those of the last `unread_` rows
  int64_t count_ = 0, unread_ = 0;
  bool sparse_ = true;
};

}  // namespace reel
