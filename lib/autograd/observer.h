// A BackwardObserver is how something above the tape follows backward passes: DistributedDataParallel, which sends
// gradients while the rest of the pass goes on. An observer of all leaves costs less than a hook on each, and learns
// what hooks are not told: which leaves a pass will reach, before it begins, and that no gradient has come to one of
// them.
#pragma once
#include <cstdint>
#include <span>

#include "reel/tensor.h"

#pragma GCC visibility push(default)
namespace reel {

/// A BackwardObserver follows the backward passes that accumulate in leaves; those of grad() and of checkpoints
/// accumulate in none. A leaf is known to its observer by a number, its slot. All calls come from the thread of the
/// pass; passes of several threads call at the same time.
class BackwardObserver {
 public:
  /// Is called when the pass has been counted and is about to begin: it reaches these slots, in no particular order,
  /// each once. Returns whether to follow it; otherwise the pass makes no other call, and leaves what it can pending in
  /// the leaves. Throws to end the pass with nothing changed. Recording is on exactly if the pass is to be
  /// differentiable.
  virtual bool begin(std::span<const uint32_t> reached) = 0;
  /// Is called exactly once for each slot that is reached, when all of the pass has been added to this leaf and its
  /// hooks have run. `has_grad` is false if every rule gave an undefined gradient.
  virtual void arrived(uint32_t slot, bool has_grad) = 0;
  /// Is called at the end of the pass, as a part of it: an exception leaves backward().
  virtual void end() = 0;
  /// Is called in place of end() when an exception, which is std::current_exception(), ends the pass.
  virtual void failed() noexcept = 0;

 protected:
  ~BackwardObserver() = default;
};

/// Makes passes tell the observer of this leaf. Throws Error if it has one already. No pass may run.
void observe(const Tensor& leaf, BackwardObserver* observer, uint32_t slot);
/// Stops the observer from following the leaf; does nothing if the leaf has another one or none.
void stop_observing(const Tensor& leaf, const BackwardObserver* observer) noexcept;
/// Returns whether a gradient was added to or set in this leaf since the last call, and is still there.
bool take_touched(const Tensor& leaf);
/// Returns what take_touched would return, and changes nothing.
bool is_touched(const Tensor& leaf);
/// Sets a gradient of rows; the ids are distinct and sorted. Like Tensor::set_grad, it touches the leaf.
void set_grad_rows(const Tensor& leaf, SparseGrad rows);

}  // namespace reel
#pragma GCC visibility pop
