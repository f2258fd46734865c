// GradAccumulator sums the gradients that arrive at one tensor.
#pragma once
#include <span>
#include <utility>

#include "lib/autograd/grad_metadata.h"
#include "reel/tensor.h"

namespace reel {

struct PendingGrad;

/// Returns what the user gave as the gradient of such a tensor, in its dtype; `what` says how it was given. A 0-d
/// tensor's is also moved to its device. Throws Error if the shape or the device differs.
Tensor given_gradient(const Tensor& given, const GradMetadata& target, const char* op, const char* what);

/// A FinalGrad is the sum of an accumulator: dense or, where all that was added are rows for a sparse gradient, sparse.
struct FinalGrad {
  Tensor dense;
  SparseGrad sparse;
  bool defined() const { return dense.defined() || sparse.ids.defined(); }
};

/// A GradAccumulator is the sum of the gradients that arrive at one tensor. A part of it may be pending: a
/// DeferredGemm, SparseRows and SmallSums, which only materialize() and take() add to the rest; these two may run a
/// GEMM. `target` describes the tensor that the gradient belongs to; it is the same in all calls.
class GradAccumulator {
 public:
  GradAccumulator() = default;
  GradAccumulator(GradAccumulator&& other) noexcept
      : dense_(std::move(other.dense_)), pending_(std::exchange(other.pending_, nullptr)) {}
  GradAccumulator& operator=(GradAccumulator&& other) noexcept {
    std::swap(dense_, other.dense_), std::swap(pending_, other.pending_);
    return *this;
  }
  ~GradAccumulator() {
    if (pending_) [[unlikely]]
      free_pending();
  }

  bool has_pending() const { return pending_ != nullptr; }
  bool empty() const { return !dense_.defined() && !pending_; }
  /// Returns the sum without what is pending: all of it after materialize().
  const Tensor& dense() const { return dense_; }

  /// Returns the small gradients that wait to be added to dense(), in the order in which they came, if nothing else is
  /// pending; none otherwise.
  std::span<const Tensor> small_addends() const;

  /// Adds g, of the target's shape and dtype.
  void add(Tensor g);
  /// Adds gᵀ x for contiguous float g [n, out] and x [n, in]. With `column_sums` the result may be the sums [out] of
  /// g's columns, if the product gives them along with itself; otherwise it is undefined. Small factors on a GPU are
  /// kept, not copied: an Error follows if they are changed in place before the sum is needed.
  Tensor add_product(const GradMetadata& target, const Tensor& g, const Tensor& x, bool column_sums = false);
  /// Adds values [n, …] to the rows ids [n] of the sum. The sum is sparse as long as all additions say `sparse`. The
  /// first values are kept, not copied, where this is their only handle.
  void add_rows(const GradMetadata& target, const Tensor& ids, Tensor values, bool sparse);
  /// Adds g to the part of the sum that a view with this offset (in elements), g's shape and these strides shows.
  void add_region(const GradMetadata& target, int64_t offset, const Strides& strides, const Tensor& g);

  /// Adds what is pending to dense(), and returns that: undefined if nothing was added.
  const Tensor& materialize(const GradMetadata& target) {
    if (pending_) dense_ = take(target, false).dense;
    return dense_;
  }
  /// Returns the whole sum; the accumulator is empty afterwards.
  FinalGrad take(const GradMetadata& target, bool sparse_wanted);
  /// Puts another dense gradient into the place of dense().
  void replace(Tensor g) { dense_ = std::move(g); }
  /// Puts the whole sum into the place of dense() and what is pending.
  void replace_all(Tensor sum) { clear(), dense_ = std::move(sum); }

  /// Moves what is pending in `other`, which must be something, here, so that products of several backward passes
  /// become one GEMM. What cannot wait is added to the dense sum of `other`. Returns false when so much has been
  /// collected that the sum should be taken.
  bool take_pending(GradAccumulator& other, const GradMetadata& target);
  /// Marks what is pending as used on the current stream, since an earlier backward pass may have run on another one.
  void record_current_stream() const;

  void clear() {
    dense_.reset();
    if (pending_) recycle_pending();
  }

 private:
  PendingGrad& pending();
  void free_pending();     // to the heap, for accumulators that may outlive the thread's free list
  void recycle_pending();  // to the thread's free list

  Tensor dense_;
  PendingGrad* pending_ = nullptr;
};

/// Adds `more` to the gradient of a matrix of this shape, which so far is `dense` or `sparse` or, if both are
/// undefined, nothing.
void add_sparse(Tensor& dense, SparseGrad& sparse, const SparseGrad& more, const Shape& shape);

}  // namespace reel
