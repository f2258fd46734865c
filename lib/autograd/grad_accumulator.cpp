// This file chooses how each gradient is added to a sum, and completes the sum.
#include "lib/autograd/grad_accumulator.h"

#include "lib/autograd/deferred_gemm.h"
#include "lib/autograd/dense_grad.h"
#include "lib/autograd/gradient_ops.h"
#include "lib/autograd/small_sums.h"
#include "lib/autograd/sparse_rows.h"
#include "lib/autograd/tape.h"
#include "lib/base/per_thread.h"

namespace reel {

Tensor given_gradient(const Tensor& given, const GradMetadata& target, const char* op, const char* what) {
  REEL_CHECK(given.shape() == target.shape, op, ": ", what, " of shape ", given.shape(), " for a tensor of shape ",
             target.shape);
  const Tensor grad = given.to(target.dtype);
  if (target.shape.empty()) return grad.to(target.device);
  REEL_CHECK(grad.device() == target.device, op, ": ", what, " on ", grad.device(), " for a tensor on ", target.device);
  return grad;
}

// ---- what is pending ------------------------------------------------------------------------------------------------

/// A PendingGrad is the part of a sum that is not in its dense tensor yet.
struct PendingGrad {
  DeferredGemm gemm;
  SparseRows rows;
  SmallSums sums;
  PendingGrad* next = nullptr;  // in the free list
};

namespace {
/// A FreeList holds the thread's unused objects, with the capacity of their vectors: a backward pass in the steady
/// state allocates none.
struct FreeList {
  PendingGrad* head = nullptr;
  ~FreeList() {
    while (head) delete std::exchange(head, head->next);
  }
};
constinit thread_local PerThread<FreeList> free_list;
}  // namespace

PendingGrad& GradAccumulator::pending() {
  if (!pending_) {
    PendingGrad*& head = free_list->head;
    pending_ = head ? std::exchange(head, head->next) : new PendingGrad;
  }
  return *pending_;
}

void GradAccumulator::recycle_pending() {
  PendingGrad* pending = std::exchange(pending_, nullptr);
  pending->gemm.clear(), pending->rows.clear(), pending->sums.clear();
  pending->next = std::exchange(free_list->head, pending);
}

void GradAccumulator::free_pending() { delete std::exchange(pending_, nullptr); }

bool GradAccumulator::take_pending(GradAccumulator& other, const GradMetadata& target) {
  PendingGrad& from = *other.pending_;
  // Kept gradients are not copies: the program may hold the same tensors, and change them after this backward pass.
  from.sums.flush_into(other.dense_, target);
  from.gemm.pack(target);
  if (from.gemm.empty() && from.rows.empty()) {
    other.recycle_pending();
    return true;
  }
  if (!pending_) {
    std::swap(pending_, other.pending_);
    return true;
  }
  pending_->gemm.merge(dense_, target, from.gemm);
  pending_->rows.merge(target, from.rows);
  other.recycle_pending();
  return pending_->rows.bytes() < kMaxPackBytes;
}

std::span<const Tensor> GradAccumulator::small_addends() const {
  if (!pending_ || !pending_->gemm.empty() || !pending_->rows.empty()) return {};
  return pending_->sums.addends();
}

void GradAccumulator::record_current_stream() const {
  if (pending_) pending_->gemm.record_current_stream(), pending_->rows.record_current_stream();
}

// ---- adding ---------------------------------------------------------------------------------------------------------

void GradAccumulator::add(Tensor g) {
  if (!dense_.defined())
    dense_ = std::move(g);
  else if (grad_mode)
    dense_ = accumulate(dense_, g);
  else if (is_small_on_gpu(g))
    pending().sums.add(dense_, std::move(g));
  else
    add_dense(dense_, g);
}

Tensor GradAccumulator::add_product(const GradMetadata& target, const Tensor& g_rows, const Tensor& x_rows,
                                    bool column_sums) {
  const View &g = view_of(g_rows), &x = view_of(x_rows);
  const int64_t n = g.shape[0], out = g.shape[1], in = x.shape[1];
  REEL_CHECK(target.shape == Shape({out, in}) && target.dtype == g.dtype && target.dtype == x.dtype,
             "backward: a gradient of ", g.dtype, " ", Shape{out, in}, " for a weight of ", target.dtype, " ",
             target.shape, "; was it replaced after the forward pass?");
  Tensor sums;
  if (n == 0) {  // zeros are a gradient, too
    make_writable(dense_, target);
  } else if (n < DeferredGemm::min_rows_of_gemm(target)) {
    pending().gemm.add(dense_, target, g_rows, x_rows);
  } else {
    if (column_sums && target.device != kCPU) sums = make_tensor({out}, target.dtype, target.device);
    add_gemm(dense_, target, g, x, sums);
  }
  return sums;
}

void GradAccumulator::add_rows(const GradMetadata& target, const Tensor& ids, Tensor values, bool sparse) {
  if (!sparse && target.device != kCPU) {  // at once, so that the host need not read the ids
    if (is_small_on_gpu(values) && view_of(ids).contiguous)
      return pending().sums.add_rows(dense_, target, ids, std::move(values));
    return kernels_on(target.device)
        .index_add(view_of(make_writable(dense_, target)), 0, view_of(ids), view_of(values));
  }
  if (view_of(ids).numel > 0)
    pending().rows.add(target, ids.contiguous(), std::move(values), sparse);
  else if (!sparse)
    make_writable(dense_, target);
}

void GradAccumulator::add_region(const GradMetadata& target, int64_t offset, const Strides& strides, const Tensor& g) {
  Shape shape = view_of(g).shape;
  for (int d = 0; d < shape.size(); ++d)
    if (strides[d] == 0) shape[d] = 1;  // the view repeats these elements: their gradients add up
  const Tensor part = sum_to(g, shape).to(target.dtype);
  const bool is_first = !dense_.defined();
  const View& whole = view_of(make_writable(dense_, target));
  const View place = make_view(whole.as<char>() + offset * size_of(target.dtype), shape, strides, target.dtype);
  if (is_first)  // the rest is zero
    kernels_on(target.device).copy(view_of(part), place);
  else
    add_views(target.device, place, view_of(part), place);
}

// ---- the sum --------------------------------------------------------------------------------------------------------

FinalGrad GradAccumulator::take(const GradMetadata& target, bool sparse_wanted) {
  FinalGrad sum;
  if (pending_) {
    pending_->gemm.flush_into(dense_, target);
    pending_->sums.flush_into(dense_, target);
    if (sparse_wanted && pending_->rows.is_sparse() && !dense_.defined())
      sum.sparse = pending_->rows.take(target.device);
    else
      pending_->rows.flush_into(dense_, target);
    recycle_pending();
  }
  sum.dense = std::move(dense_);
  return sum;
}

void add_sparse(Tensor& dense, SparseGrad& sparse, const SparseGrad& more, const Shape& shape) {
  if (!dense.defined() && !sparse.ids.defined()) {
    sparse = more;
  } else if (!dense.defined()) {
    GradAccumulator both;
    const GradMetadata target{more.values.dtype(), more.values.device(), shape};
    both.add_rows(target, sparse.ids, sparse.values, true);
    both.add_rows(target, more.ids, more.values, true);
    sparse = both.take(target, true).sparse;
  } else {
    if (!is_writable(dense)) dense = no_grad([&] { return dense.clone(); });
    kernels_of(dense).index_add(view_of(dense), 0, view_of(more.ids), view_of(more.values));
    TensorImpl::of(dense)->storage->changed();
  }
}

}  // namespace reel
