#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "reel/distributed/group.h"
#include "reel/nn/module.h"
#include "reel/optim/optimizer.h"

#pragma GCC visibility push(default)
/// Data-parallel training of one module on all ranks.
namespace reel::distributed {

/// Gradients on their way: replaces how a bucket is summed. Called by the thread that runs the walk, strictly in the
/// order of the buckets. `flat` [n] holds this rank's gradients, and must hold their sum over all ranks in the end.
struct GradBucket {
  int index;    ///< From 0.
  Tensor flat;  ///< 1-d and contiguous.
};
/// Starts the sum of a bucket, and returns what waits for it and finishes it.
using CommHook = std::function<std::function<void()>(ProcessGroup& group, GradBucket bucket)>;
/// Built-in hooks.
namespace hooks {
CommHook bf16();  ///< Sums in bfloat16: half the bytes, 8 bits of precision.
CommHook fp16();  ///< Sums in float16: half the bytes; beyond 65504 infinite.
}  // namespace hooks

/// Of DistributedDataParallel.
struct DistributedDataParallelOptions {
  size_t bucket_bytes = 0;              ///< Of a bucket of gradients. 0: 4 MiB with Gloo, 25 MiB with NCCL.
  size_t first_bucket_bytes = 1 << 20;  ///< Of the first, which leaves earliest.
  bool broadcast_buffers = true;        ///< Rank 0's, after each synchronized backward(); shapes must not change.
  bool static_graph = false;            ///< All ranks use the same parameters in each step, which is checked once.
  bool divide_by_active = true;         ///< By the ranks that have not joined (see join()); otherwise by all.
  bool check_weights = true;            ///< Compare some weights in each reduction: see below.
  CommHook hook = {};                   ///< nullptr: all_reduce.
  ProcessGroup* group = nullptr;        ///< nullptr: the default group.
};

/// Trains one module on all ranks of a group, each with its own examples (Li et al., "PyTorch Distributed", VLDB 2020):
///
///   Net net;
///   distributed::DistributedDataParallel ddp(net);   // parameters and buffers are those of rank 0 from here on
///   …
///   loss.backward();                                 // gradients are the mean over all ranks when it returns
///
/// The module is used as before. During backward() gradients are summed in buckets, while the rest of the walk goes on;
/// buckets depend on the module alone, never on the order of events, so ranks cannot disagree. Graphs may differ by
/// rank and by step: a parameter that some rank has reached gets the mean, others contribute zeros; one that nobody has
/// reached since the last reduction keeps its gradient, also undefined. What is reduced is the accumulated grad(),
/// after hooks. Row-sparse gradients travel as rows, and stay sparse where they are on all ranks. Ranks have the same
/// bits after each step, if all make the same steps with the same optimizers, on processors of one kind: with AVX2 or,
/// where there are others, with REEL_CPU=baseline.
///
/// Each reduction compares some weights between the ranks, other ones each time; weights that have drifted apart are an
/// Error of kMismatch that names the first. It says what is wrong with the program, not with a rounding: turn it off by
/// check_weights only where weights differ on purpose.
///
/// Modules on GPUs: with NCCL a step waits for no GPU, unless gradients are rows, which travel through the host.
///
/// The constructor compares paths, shapes and dtypes of all parameters and buffers between the ranks; a difference is
/// an Error of kMismatch that names the first. The generators of the ranks are not changed: manual_seed(seed + rank())
/// gives dropout that differs. It must be destroyed before the module, which must not be moved, and before the group.
/// Convert, move, unfreeze, tie, add and replace parameters before it is made: later it is an Error of the next
/// backward(). A parameter may be frozen at any time, also on one rank only, and set free again.
///
/// backward() with create_graph is an Error, and so are two at once, of two threads or of a hook, that add to the same
/// gradients; nothing has been sent then, and training may go on. An exception that leaves backward() later, of a rule,
/// a hook or another rank's, ends the job on all ranks, with gradients that are of no use.
class DistributedDataParallel {
 public:
  /// All ranks of the group construct it at the same time.
  explicit DistributedDataParallel(nn::Module& module, DistributedDataParallelOptions options = {});
  ~DistributedDataParallel();
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  /// Within its life backward() adds to the rank's own gradients, without communication; the next backward() outside
  /// of it, or reduce(), reduces the sum.
  class [[nodiscard]] NoSync {
   public:
    explicit NoSync(DistributedDataParallel& ddp);  ///< Use no_sync().
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DistributedDataParallel& ddp_;
  };
  NoSync no_sync();  ///< Begins that.

  /// Around a loop over a rank's own examples, of which others may have more: a rank whose loop is over takes part in
  /// the others' reductions, with nothing, until all have ended. At the end of its life all parameters are those of a
  /// rank that was active last, and so are the options and states of the optimizer. Without one, training goes on alike
  /// only with an optimizer that remembers nothing, such as SGD without momentum. What else has counted steps, such as
  /// a schedule of learning rates, is the rank's own. Two at a time, of two wrapped modules, wait for each other for
  /// ever: use one after the other.
  class [[nodiscard]] Join {
   public:
    Join(DistributedDataParallel& ddp, optim::Optimizer* optimizer);  ///< Use join().
    ~Join() noexcept(false);
    Join(const Join&) = delete;
    Join& operator=(const Join&) = delete;

   private:
    DistributedDataParallel& ddp_;
    optim::Optimizer* optimizer_;
    int exceptions_;
  };
  Join join();                             ///< Begins that.
  Join join(optim::Optimizer& optimizer);  ///< The same, with the optimizer that steps these parameters.

  /// Reduces accumulated gradients without a walk: after threads that have called backward() within no_sync(), for
  /// L-BFGS, or on a rank that has no example in this step.
  void reduce();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reel::distributed
#pragma GCC visibility pop
