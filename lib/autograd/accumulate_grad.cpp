#include "lib/autograd/accumulate_grad.h"

#include "lib/autograd/gradient_ops.h"
#include "lib/base/fork_lock.h"
#include "lib/base/lazy.h"
#include "lib/base/sanitizers.h"
#include "lib/device/device.h"
#include "reel/autograd.h"

namespace reel {
namespace {

struct LeafIds {
  std::mutex mutex;
  std::vector<uint32_t> unused;
  uint32_t next = 0;
};
LeafIds& leaf_ids() {
  static constinit Lazy<LeafIds> ids;
  return ids.get();
}

// Leaves that are being freed. A hook may hold the last handle to the next one, and so on: a recursion would overflow
// the stack.
struct DyingLeaves {
  AccumulateGrad* first = nullptr;
  bool draining = false;
};
constinit thread_local DyingLeaves dying_leaves;

ForkLock ids_lock(ForkLock::Order::kMemory, leaf_ids().mutex);

std::mutex creation_mutex;
ForkLock creation_lock(ForkLock::Order::kTensors, creation_mutex);
// Shared by the leaves, so that a leaf need not carry one: two leaves with one mutex only block each other at times.
// Recursive, since a gradient that is replaced may be a leaf itself, whose own is dropped with it.
#ifdef REEL_THREAD_SANITIZER
constexpr size_t kGradientMutexes = 16;  // it follows no more than 64 locks that a thread holds, and a fork holds all
#else
constexpr size_t kGradientMutexes = 64;
#endif
std::recursive_mutex gradient_mutexes[kGradientMutexes];

/// All gradient_mutexes as one lock. A thread may hold one and wait for another, so whoever wants all must not wait for
/// one while it holds others.
struct GradientLocks {
  void lock() {
    for (size_t wait_for = 0;;) {
      gradient_mutexes[wait_for].lock();
      size_t i = 0;
      while (i < kGradientMutexes && (i == wait_for || gradient_mutexes[i].try_lock())) ++i;
      if (i == kGradientMutexes) return;
      gradient_mutexes[wait_for].unlock();
      const size_t failed = i;
      while (i-- > 0)
        if (i != wait_for) gradient_mutexes[i].unlock();
      wait_for = failed;
    }
  }
  void unlock() {
    for (std::recursive_mutex& mutex : gradient_mutexes) mutex.unlock();
  }
  void renew() {
    for (std::recursive_mutex& mutex : gradient_mutexes) new (&mutex) std::recursive_mutex;
  }
} gradient_locks;
ForkLock gradients_lock(ForkLock::Order::kGradients, gradient_locks);

// A dense gradient of `leaf` with the rows of `sparse`, which is undefined afterwards.
Tensor to_dense(const TensorImpl* leaf, SparseGrad& sparse) {
  const GradMetadata like = metadata_of(leaf);
  Tensor dense = zeros(like.shape, {.dtype = like.dtype, .device = like.device});
  SparseGrad none;
  add_sparse(dense, none, sparse, like.shape);
  sparse = {};
  return dense;
}

}  // namespace

AccumulateGrad::AccumulateGrad() : made_in_(capturing() ? current_capture->id : 0) {
  LeafIds& ids = leaf_ids();
  std::lock_guard lock(ids.mutex);
  if (ids.unused.empty()) {
    if (ids.unused.capacity() <= ids.next)
      ids.unused.reserve(2 * ids.next + 64);  // so that ~AccumulateGrad need not allocate
    id_ = ids.next++;
  } else {
    id_ = ids.unused.back();
    ids.unused.pop_back();
  }
}
AccumulateGrad::~AccumulateGrad() {
  std::lock_guard lock(leaf_ids().mutex);
  leaf_ids().unused.push_back(id_);
}

AccumulateGrad& accumulate_grad_of(TensorImpl* impl) {
  if (!impl->leaf) {
    std::lock_guard lock(creation_mutex);
    if (!impl->leaf) impl->leaf = new AccumulateGrad;
  }
  return *impl->leaf;
}

void free_accumulate_grad(AccumulateGrad* grad) {
  DyingLeaves& dying = dying_leaves;
  grad->next = std::exchange(dying.first, grad);
  if (dying.draining) return;
  dying.draining = true;
  while (AccumulateGrad* next = dying.first) {
    dying.first = next->next;
    delete next;
  }
  dying.draining = false;
}

std::recursive_mutex& AccumulateGrad::mutex() const { return gradient_mutexes[id_ % kGradientMutexes]; }

// ---- captures and streams -------------------------------------------------------------------------------------------

/// Does on the host's side what a captured graph does to a leaf's gradient.
struct CapturedGrad final : GraphHook {
  const Tensor leaf;
  Tensor given;        // the gradient before the capture
  const bool is_read;  // by the graph
  const uint64_t capture = current_capture->id;
  Tensor left;           // the gradient at the end of the work
  bool changes = false;  // it is another tensor than before, or none

  CapturedGrad(TensorImpl* leaf_, Tensor given_, bool is_read_)
      : leaf(TensorImpl::share(leaf_)), given(std::move(given_)), is_read(is_read_) {
    ++grad().graphs_;
  }
  ~CapturedGrad() override {
    std::lock_guard lock(grad().mutex());
    --grad().graphs_;
  }
  AccumulateGrad& grad() const { return *TensorImpl::of(leaf)->leaf; }
  // Nothing of the work is done yet, so the gradient is what it was, unless the work makes a new one of nothing: then
  // that stays, for the captures that follow.
  void captured() override {
    std::lock_guard lock(grad().mutex());
    changes = grad().replaced_in_ == capture || !grad().dense_.is_same(given);
    left = grad().dense_;
    if (!left.defined() || (is_read && given.defined())) grad().dense_ = given;
    if (!is_read) given.reset();
  }
  void capture_failed() override { grad().replace(TensorImpl::of(leaf), given); }
  // The gradient may be another tensor by now: the graph gets its elements.
  void before_replay() override {
    if (!given.defined()) return;
    std::lock_guard lock(grad().mutex());
    const Tensor now = grad().dense(TensorImpl::of(leaf));
    if (now.defined() && now.is_same(given)) return;
    if (now.defined())
      copy_between(now.device(), view_of(now), given.device(), view_of(given));
    else
      kernels_of(given).fill(view_of(given), 0);
    TensorImpl::of(given)->storage->changed();
    grad().dense_ = given;
  }
  void after_replay() override {
    if (!changes) return;
    std::lock_guard lock(grad().mutex());
    if (!left.defined() || !left.is_same(grad().dense_)) grad().replace(TensorImpl::of(leaf), left);
  }
};

// Is called before each use of the gradient in a captured graph, under the mutex.
void AccumulateGrad::enter_capture(TensorImpl* leaf, bool is_read) {
  if (leaf->device() == kCPU || last_capture_ == current_capture->id) return;
  const bool is_from_outside = made_in_ != current_capture->id;
  if (is_from_outside) current_capture->run_outside([&] { dense(leaf); });
  last_capture_ = current_capture->id;
  if (!is_from_outside) return;
  current_capture->add_hook(std::make_unique<CapturedGrad>(leaf, dense_, is_read));
}

// Is called before each use of the gradient on the current stream, under the mutex.
void AccumulateGrad::follow_stream(Device device) {
  if (!stream_.follow(device)) return;
  for (const Tensor* part :
       {&dense_, &sparse_.ids, &sparse_.values, &taken_.dense, &taken_.sparse.ids, &taken_.sparse.values})
    if (part->defined() && part->device() == device) record_current_stream(*part);
  deferred_.record_current_stream();
}

// ---- reading and writing --------------------------------------------------------------------------------------------

// Brings dense_ or sparse_ up to date with what is deferred. Under the mutex.
void AccumulateGrad::materialize(TensorImpl* leaf) {
  if (deferred_.empty() && !taken_.defined()) return;
  NoGrad guard;
  if (taken_.defined()) add(leaf, taken_);
  if (deferred_.empty()) return;
  taken_ = deferred_.take(metadata_of(leaf), true);
  add(leaf, taken_);
}

Tensor AccumulateGrad::dense(TensorImpl* leaf) {
  std::lock_guard lock(mutex());
  if (capturing()) [[unlikely]]
    enter_capture(leaf, true);
  follow_stream(leaf->device());
  materialize(leaf);
  if (sparse_.ids.defined()) dense_ = to_dense(leaf, sparse_);
  return dense_;
}

const SparseGrad* AccumulateGrad::sparse(TensorImpl* leaf) {
  std::lock_guard lock(mutex());
  if (capturing()) [[unlikely]]
    enter_capture(leaf, true);
  follow_stream(leaf->device());
  materialize(leaf);
  return sparse_.ids.defined() ? &sparse_ : nullptr;
}

void AccumulateGrad::replace(TensorImpl* leaf, Tensor grad) {
  std::lock_guard lock(mutex());
  if (capturing()) [[unlikely]] {
    enter_capture(leaf, false);
    replaced_in_ = current_capture->id;
  }
  follow_stream(leaf->device());
  std::swap(dense_, grad);
  sparse_ = {}, taken_ = {};
  deferred_.clear();
  touched = dense_.defined();
}

void AccumulateGrad::replace_by_rows(TensorImpl* leaf, SparseGrad rows) {
  Tensor dropped;  // freed outside of the mutex
  std::lock_guard lock(mutex());
  if (capturing()) [[unlikely]] {
    enter_capture(leaf, false);
    replaced_in_ = current_capture->id;
  }
  follow_stream(leaf->device());
  std::swap(dense_, dropped), std::swap(sparse_, rows);
  taken_ = {};
  deferred_.clear();
  touched = true;
}

void AccumulateGrad::drop_recorded_grad() {
  Tensor dropped;  // freed outside of the mutex
  std::lock_guard lock(mutex());
  if (dense_.defined() && TensorImpl::of(dense_)->node) std::swap(dense_, dropped);
}

void AccumulateGrad::retain(const Tensor& grad) {
  {
    std::lock_guard lock(mutex());
    follow_stream(grad.device());
  }
  Tensor sum = dense_.defined() ? reel::accumulate(dense_, grad) : grad.clone();
  std::lock_guard lock(mutex());
  std::swap(dense_, sum);
}

// ---- accumulating ---------------------------------------------------------------------------------------------------

// dense_ or sparse_ += grad, which is undefined afterwards; if it throws, all three are as they were. Under the mutex.
void AccumulateGrad::add(TensorImpl* leaf, FinalGrad& grad) {
  const Shape& shape = leaf->view.shape;
  if (grad.sparse.ids.defined()) {
    add_sparse(dense_, sparse_, grad.sparse, shape);
    grad = {};
    return;
  }
  // The seed of backward() and saved tensors may arrive here; the gradient of a leaf is shared with no other handle. It
  // is row-major, or lies in memory as the leaf does.
  const View& view = view_of(grad.dense);
  const bool as_leaf = !view.contiguous && view.strides == leaf->view.strides && is_permuted(view);
  if (!is_exclusive(grad.dense) || !(view.contiguous || as_leaf))
    grad.dense = as_leaf ? clone_in_order(grad.dense) : grad.dense.clone();
  if (sparse_.ids.defined()) {
    SparseGrad none;
    add_sparse(grad.dense, none, sparse_, shape);
    sparse_ = {};
  }
  if (!dense_.defined()) {
    dense_ = std::move(grad.dense);
  } else if (grad_enabled()) {
    dense_ = reel::accumulate(dense_, grad.dense);
  } else {
    add_in_place(dense_, grad.dense);
  }
  grad = {};
}

void AccumulateGrad::accumulate(TensorImpl* leaf, GradAccumulator& arrived) {
  if (capturing()) [[unlikely]] {
    std::lock_guard lock(mutex());
    enter_capture(leaf, true);
  }
  if (hooks.empty() && arrived.has_pending()) {
    std::lock_guard lock(mutex());
    if (!capturing() && !graphs_) {  // a captured graph neither adds to what is deferred nor sees it in a replay
      touched = true;
      follow_stream(leaf->device());
      if (!deferred_.take_pending(arrived, metadata_of(leaf))) materialize(leaf);
      if (arrived.empty()) return;
    }
  }
  // Hooks may run backward passes of their own, which invalidates `arrived`.
  FinalGrad grad = arrived.take(metadata_of(leaf), true);
  if (!grad.defined()) return;
  run_hooks(leaf, grad);
  {
    std::lock_guard lock(mutex());
    touched = true;
    follow_stream(leaf->device());
    add(leaf, grad);
  }
  for_each_hook(hooks, [leaf](const Hook& hook) {
    if (hook.after) hook.after(TensorImpl::share(leaf));
  });
}

void AccumulateGrad::run_hooks(TensorImpl* leaf, FinalGrad& grad) const {
  for_each_hook(hooks, [&](const Hook& hook) {
    if (!hook.before) return;
    if (grad.sparse.ids.defined()) grad.dense = to_dense(leaf, grad.sparse);  // a hook gets a dense gradient
    if (const Tensor changed = hook.before(grad.dense); changed.defined())
      grad.dense = given_gradient(changed, metadata_of(leaf), "backward", "a hook's gradient");
  });
}

// ---- observers ------------------------------------------------------------------------------------------------------

void observe(const Tensor& leaf, BackwardObserver* observer, uint32_t slot) {
  AccumulateGrad& grad = accumulate_grad_of(TensorImpl::of(leaf));
  REEL_CHECK(!grad.observer, "observe: the leaf has an observer already");
  grad.observer = observer;
  grad.slot = slot;
}

void stop_observing(const Tensor& leaf, const BackwardObserver* observer) noexcept {
  AccumulateGrad* const grad = TensorImpl::of(leaf)->leaf;
  if (grad && grad->observer == observer) grad->observer = nullptr;
}

bool take_touched(const Tensor& leaf) {
  AccumulateGrad* const grad = TensorImpl::of(leaf)->leaf;
  return grad && grad->touched.exchange(false);
}

bool is_touched(const Tensor& leaf) {
  const AccumulateGrad* const grad = TensorImpl::of(leaf)->leaf;
  return grad && grad->touched;
}

void set_grad_rows(const Tensor& leaf, SparseGrad rows) {
  accumulate_grad_of(TensorImpl::of(leaf)).replace_by_rows(TensorImpl::of(leaf), std::move(rows));
}

}  // namespace reel
