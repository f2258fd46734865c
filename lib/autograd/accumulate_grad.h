// AccumulateGrad is what a leaf has for backward passes: its gradient and its hooks.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "lib/autograd/grad_accumulator.h"
#include "lib/autograd/observer.h"
#include "lib/device/device.h"

namespace reel {

/// An AccumulateGrad holds the gradient and the hooks of a leaf, or the gradient of a non-leaf with retain_grad.
///
/// What a backward pass leaves pending (see GradAccumulator) is deferred: it stays pending here until a read or too
/// much of it makes materialize() run the GEMMs, so that the products of several passes become one. Passes of several
/// threads may end at one leaf; a mutex guards the gradient, not the hooks. On a GPU, uses of the gradient on different
/// streams are ordered by events.
///
/// A captured graph uses the gradient that is there during the capture. What is deferred then is materialized outside
/// of the graph, and nothing is deferred while the graph exists. Each replay leaves the gradient as the captured work
/// would have left it without the graph (see CapturedGrad).
class AccumulateGrad {
 public:
  struct Hook {
    int64_t id;
    GradHook before;                           // gets the gradient of a pass, and may replace it
    std::function<void(const Tensor&)> after;  // called when it has been added to the leaf's
  };

  AccumulateGrad();
  ~AccumulateGrad();
  /// Returns a number that is small and unique among the living: the index at which a pass keeps its state of this
  /// leaf.
  uint32_t id() const { return id_; }

  // `leaf` is the tensor that this belongs to.
  /// Returns the gradient as a dense tensor, undefined if there is none. Materializes it, so it may run a GEMM.
  Tensor dense(TensorImpl* leaf);
  /// Returns the gradient if it is sparse, nullptr otherwise. Materializes it.
  const SparseGrad* sparse(TensorImpl* leaf);
  /// Sets the gradient, and forgets what is deferred. Undefined clears it.
  void replace(TensorImpl* leaf, Tensor grad);
  /// Sets a sparse gradient, and forgets what is deferred.
  void replace_by_rows(TensorImpl* leaf, SparseGrad rows);
  /// Clears the gradient if it has a history, which may lead back to the leaf and would keep both alive for ever. For a
  /// leaf without handles: nothing can read it.
  void drop_recorded_grad();
  /// Adds the gradient of a retain_grad tensor in one pass.
  void retain(const Tensor& grad);

  /// Adds what a pass has summed for the leaf. Runs the hooks, or defers what is pending if there are none.
  void accumulate(TensorImpl* leaf, GradAccumulator& arrived);
  /// Puts the gradient through the hooks that may replace it.
  void run_hooks(TensorImpl* leaf, FinalGrad& grad) const;

  std::vector<std::shared_ptr<const Hook>> hooks;
  AccumulateGrad* next = nullptr;  // in the list of free_accumulate_grad
  BackwardObserver* observer = nullptr;
  uint32_t slot = 0;                 // the observer's number of this leaf
  std::atomic<bool> touched{false};  // see take_touched

 private:
  friend struct CapturedGrad;

  std::recursive_mutex& mutex() const;
  void follow_stream(Device device);
  void enter_capture(TensorImpl* leaf, bool is_read);
  void materialize(TensorImpl* leaf);
  void add(TensorImpl* leaf, FinalGrad& grad);

  uint32_t id_;
  LastStream stream_;          // the last stream of a GPU that has used the gradient
  const uint64_t made_in_;     // the capture in which the leaf got its state, 0 for none
  uint64_t last_capture_ = 0;  // the last capture that has used the gradient
  uint64_t replaced_in_ = 0;   // the last capture that has replaced it
  int graphs_ = 0;             // how many captured graphs use it
  Tensor dense_;
  SparseGrad sparse_;         // defined only while dense_ is not
  GradAccumulator deferred_;  // of earlier passes; not yet part of the two above
  FinalGrad taken_;           // was deferred_; memory ran out before it could be added to them
};

/// Calls f with each hook, in the order of registration. f may remove hooks, and add some for the next pass. What is
/// called is the hook itself, not a copy, since a hook may keep a state of its own.
template <class Hook, class F>
void for_each_hook(const std::vector<std::shared_ptr<const Hook>>& hooks, F f) {
  const int64_t end = hooks.empty() ? 0 : hooks.back()->id;
  for (int64_t last = 0; last < end;) {
    const auto next =
        std::upper_bound(hooks.begin(), hooks.end(), last, [](int64_t id, const auto& hook) { return id < hook->id; });
    if (next == hooks.end() || (*next)->id > end) return;
    // f may remove it.
    const std::shared_ptr<const Hook> hook = *next;  // NOLINT(performance-unnecessary-copy-initialization)
    last = hook->id;
    f(*hook);
  }
}

}  // namespace reel
