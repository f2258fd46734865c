#pragma once
#include <atomic>
#include <memory>
#include <new>
#include <utility>

#include "lib/device/allocator.h"
#include "lib/device/kernels/table.h"
#include "lib/device/packed.h"
#include "lib/device/storage.h"
#include "lib/tensor/watch.h"
#include "reel/tensor.h"

namespace reel {

struct Node;
class AccumulateGrad;

/// Whether in-place changes of a tensor can be recorded.
enum class InPlace : uint8_t {
  kRecorded,
  kUnrecordedView,  // a view made under no_grad: it has no base, which would have to learn of the change
  kHidesHistory,    // an unrecorded view of a tensor with history: changing it while recording is an Error
  kSaved,           // a saved view, which has no base: see SavedTensor
  kLeafView,        // a view that was made a leaf, and so left its base; its storage counts it
  // From here on all views of it are so, too:
  kAliasesInput,  // shares memory with an input of the custom op or checkpoint that made it
  kBatchedRow,    // shares memory with tensors that nothing connects it with: see scatter_rows
};

/// What a Tensor points to. `base` links a view to the tensor that owns its storage. An in-place change of the base
/// under recording gives it another history_version; a view that was recorded at an earlier one has its own history
/// recorded anew before that is next used (update_view_history in autograd/tape.h).
struct TensorImpl : detail::Counted {
  // One cache line, and the view in the next two.
  bool requires_grad = false;      // a leaf that the user wants a gradient for
  bool is_wrapped_number = false;  // made from a C++ number: weak in type promotion
  bool retains_grad = false;       // retain_grad
  bool watched = false;            // see watch.h
  InPlace in_place = InPlace::kRecorded;
  bool rectified = false;  // a fresh result without elements below 0, as long as nothing has changed it: see fused.h
  uint16_t output = 0;     // which output of node this is
  // The storage's version behind the change that last replaced the history; of a view, what its base's was when the
  // history of the view was recorded.
  uint32_t history_version = 0;
  std::atomic<uint32_t> outdated{0};  // references of recorded ops from before that change, which no pass can use
  Storage* storage = nullptr;
  Node* node = nullptr;            // how it was computed, nullptr for leaves
  AccumulateGrad* leaf = nullptr;  // gradient and hooks
  TensorImpl* base = nullptr;
  PackedCopies* packed = nullptr;  // of a weight that was prepared for inference: see fused.h
  alignas(64) View view;

  static TensorImpl* of(const Tensor& tensor) { return static_cast<TensorImpl*>(tensor.impl_.get()); }
  /// Takes over one reference.
  static Tensor wrap(TensorImpl* impl) { return Tensor(static_cast<detail::Counted*>(impl)); }
  static Tensor share(TensorImpl* impl) {
    impl->refs.fetch_add(1, std::memory_order_relaxed);
    return wrap(impl);
  }
  static TensorImpl* make() {
    auto* impl = new (allocate_cpu(sizeof(TensorImpl))) TensorImpl;
    if (watching) [[unlikely]]
      watch(impl);
    return impl;
  }
  Device device() const { return storage->device; }
  /// How many saved tensors and edges refer to this.
  uint32_t graph_refs() const { return static_cast<uint32_t>(refs.load(std::memory_order_relaxed) >> 32); }
};

/// The kernels' side of a tensor; an Error that names the op if it is undefined.
inline const View& view_of(const Tensor& tensor, const char* op) {
  REEL_CHECK(tensor.defined(), op, ": undefined tensor");
  return TensorImpl::of(tensor)->view;
}
inline const View& view_of(const Tensor& tensor) { return TensorImpl::of(tensor)->view; }
inline const KernelTable& kernels_of(const Tensor& tensor) { return kernels_on(TensorImpl::of(tensor)->device()); }
/// Keeps its memory from being used again before the calling thread's current stream has done what it has been given.
void record_current_stream(const Tensor& tensor);

/// Row-major strides of shape.
Strides contiguous_strides(const Shape& shape);
bool is_contiguous(const Shape& shape, const Strides& strides);
/// A View with all members filled in.
View make_view(void* data, const Shape& shape, const Strides& strides, DType dtype);
/// `view` repeated by stride 0 to `shape`, which it broadcasts to.
View expand_view(const View& view, const Shape& shape);

/// An uninitialised contiguous tensor: what every op starts its result with.
Tensor make_tensor(const Shape& shape, DType dtype, Device device = kCPU);
/// Returns an uninitialised contiguous tensor on the CPU, in pinned memory.
Tensor make_pinned_tensor(const Shape& shape, DType dtype);
/// Returns whether the dtype can hold the number. Only integer types have a range.
bool fits(Scalar value, DType dtype);
/// Throws if an integer type cannot hold the number. As in PyTorch's ops a negative one may wrap in uint8.
void check_fits(const char* op, Scalar value, DType dtype);
/// A view of x's storage, without history. The caller makes sure that it stays inside the storage, and records it.
Tensor alias(const Tensor& x, void* data, const Shape& shape, const Strides& strides);
/// What a view of source that is made without recording is.
inline InPlace unrecorded_view(const TensorImpl* source) {
  const bool hides = source->node || source->requires_grad || source->in_place == InPlace::kHidesHistory;
  return hides ? InPlace::kHidesHistory : InPlace::kUnrecordedView;
}
/// Makes `view`, which has no base, a view of source or of source's base.
void set_base(TensorImpl* view, TensorImpl* source);
/// Makes a view without history the tensor of its own that a leaf is. While it lives, its base cannot be given a
/// history.
void leave_base(TensorImpl* view);
/// Ends that: impl is about to go, to leave its storage, or to get a history.
inline void end_leaf_view(TensorImpl* impl) {
  if (impl->in_place != InPlace::kLeafView) return;
  impl->storage->leaf_views.fetch_sub(1, std::memory_order_relaxed);
  impl->in_place = InPlace::kRecorded;
}

/// Gives target, a leaf, source's elements, shape and dtype; its gradient and hooks stay.
void set_data(const Tensor& target, const Tensor& source);

/// dim in [-rank, rank) as an index from 0; an Error that names the op otherwise. A 0-d tensor counts as 1-d.
int wrap_dim(int64_t dim, int rank, const char* op);

/// to = from, of one shape, whatever devices and dtypes they are of.
void copy_between(Device source, const View& from, Device target, const View& to, CopyOptions options = {});

/// Returns a tensor of x's shape and device. Its elements, which are not initialised, have x's order in memory if x is
/// a permutation of row-major elements.
Tensor make_like(const Tensor& x, DType dtype);
/// Returns a copy of x. If x is a permutation of row-major elements, so is the copy.
Tensor clone_in_order(const Tensor& x);

/// True when this is the only handle to the tensor, and no recorded op refers to it.
inline bool is_only_reference(const Tensor& tensor) {
  return TensorImpl::of(tensor)->refs.load(std::memory_order_acquire) == 1;
}
/// True when that is so, and this is the only tensor of its storage, so that it may be overwritten.
inline bool is_exclusive(const Tensor& tensor) {
  const TensorImpl* impl = TensorImpl::of(tensor);
  return is_only_reference(tensor) && impl->storage->unique() && !impl->storage->release;
}

}  // namespace reel
