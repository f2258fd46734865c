#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reel/distributed/launch.h"
#include "reel/distributed/store.h"
#include "reel/tensor.h"

#pragma GCC visibility push(default)
/// Process groups: collectives and messages of several ranks.
namespace reel::distributed {

/// How the tensors of all ranks become one. Sums and averages of float16 and bfloat16 are added in float32, once
/// rounded; kAvg is of floating-point types; kMin and kMax keep NaN; bool has kMin (and) and kMax (or) only. NCCL
/// rounds halves after each addition, and promises nothing of NaN.
enum class ReduceOp { kSum, kAvg, kMin, kMax, kProd };

/// Who moves the data.
enum class Backend {
  kAuto,  ///< kNccl if each rank can have a GPU of its machine for itself and open NCCL, otherwise kGloo.
  kGloo,  ///< TCP. Tensors on a GPU go through pinned memory.
  /// NCCL for tensors on GPUs, for those on the CPU and for messages what kGloo does. libnccl.so.2, or the file that
  /// REEL_NCCL names, is opened at run time. A rank has one GPU, that of its first such collective, for itself.
  kNccl,
};

struct ProcessGroupImpl;
struct WorkState;

/// A collective or message under way. Copies share it.
class Work {
 public:
  Work() = default;  ///< One that is done.
  /// Blocks until it is done; results on a GPU are then copied there on the current stream. With NCCL the current
  /// stream waits, and the calling thread does not. Throws the group's Error if it has failed.
  void wait() const;
  /// Whether wait() would return or throw at once.
  bool done() const;

 private:
  friend struct WorkState;
  explicit Work(std::shared_ptr<WorkState> state) : state_(std::move(state)) {}
  std::shared_ptr<WorkState> state_;
};

/// What recv() got.
struct Received {
  int from;  ///< The rank in the group.
};

/// Ranks that call collectives together. All of them make the same calls in the same order, from one thread at a time;
/// unless REEL_DIST_CHECK=0, every call is compared between the ranks before data moves, and a difference is an Error
/// of kMismatch on all of them that prints each rank's call.
///
/// Tensors on a GPU are read and written in the order of the calling thread's current stream and of that which waits.
/// With NCCL a call that is compared returns when all ranks have made it, and calls of several groups must come in one
/// order on all ranks. When a group ends, what waits for it on a GPU goes on with undefined values, until the next call
/// throws. A cuda::Graph cannot capture collectives.
///
/// Every call returns at once, and Work::wait() waits for it; until then its tensors must not be used, nor their memory
/// changed. Results are written into tensors that are given, which may be views of any layout. Tensors that need
/// gradients are an Error where they would be written: collectives are not recorded (use no_grad, detach, .grad()).
/// What no Work waits for is complete when the group is destroyed. A message has the timeout from when somebody waits
/// for it: it may be expected for any time before.
///
/// A group is dead after its first Error, and then every call throws that. A destructor waits for what is under way but
/// messages that nobody has sent, and throws nothing; on the way of an exception it ends the job.
class ProcessGroup {
 public:
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const;                       ///< In this group.
  int size() const;                       ///< Of this group.
  const std::vector<int>& ranks() const;  ///< Of the job, by rank in this group.
  Backend backend() const;                ///< Never kAuto.
  Milliseconds timeout() const;           ///< Of one op, from its call to its end.

  Work all_reduce(const Tensor& tensor, ReduceOp op = ReduceOp::kSum);  ///< In place.
  Work broadcast(const Tensor& tensor, int root);                       ///< Root's is copied to the others.
  Work all_gather(const Tensor& out, const Tensor& in);                 ///< out [size, …] = in [...] of every rank.
  /// Tensors whose first sizes differ by rank: outs[r] is in of rank r, and has its size.
  Work all_gather_v(TensorList outs, const Tensor& in);
  Work reduce_scatter(const Tensor& out, const Tensor& in, ReduceOp op = ReduceOp::kSum);  ///< in [size, …], out […].
  Work all_to_all(TensorList outs, TensorList ins);           ///< outs[r] = ins[rank()] of rank r.
  Work gather(TensorList outs, const Tensor& in, int root);   ///< outs are the root's only.
  Work scatter(const Tensor& out, TensorList ins, int root);  ///< ins are the root's only.
  /// To a recv() of the same tag, dtype and size. Waits for what is on a GPU.
  Work send(const Tensor& tensor, int to, int tag = 0);
  Work recv(const Tensor& tensor, int from, int tag = 0);  ///< From a send() of the same tag, dtype and size.
  /// From whichever of these ranks sends first. Waits.
  Received recv_any(const Tensor& tensor, std::span<const int> from, int tag = 0);
  void barrier();  ///< Until all ranks have called it.
  /// The same with a deadline of its own, whose Error names the ranks that have not come.
  void monitored_barrier(Milliseconds timeout);
  std::string broadcast_object(std::string_view bytes, int root);      ///< Any bytes. Waits.
  std::vector<std::string> all_gather_object(std::string_view bytes);  ///< By rank. Waits.

  /// Ends the group, and the job, on all ranks, with an Error of kAborted that says why.
  void abort(std::string_view why) noexcept;

 private:
  friend struct ProcessGroupImpl;
  explicit ProcessGroup(std::unique_ptr<ProcessGroupImpl> impl);
  std::unique_ptr<ProcessGroupImpl> impl_;
};

/// Of init_process_group(). Variables of the environment win: who starts a job knows its network.
struct ProcessGroupOptions {
  Backend backend = Backend::kAuto;  ///< Who moves the data.
  Milliseconds timeout{1'800'000};   ///< Of one op; also REEL_DIST_TIMEOUT, in seconds.
  Milliseconds rendezvous{300'000};  ///< For all ranks to come.
  Milliseconds heartbeat{10'000};    ///< A rank that is silent for so long is lost; also REEL_DIST_HEARTBEAT.
  std::string interface = {};  ///< Of the network, "eth1"; also REEL_IFNAME. Otherwise the one that leads to rank 0.
};

/// Joins the job that the environment describes (see Launch) and makes the default group. A world of 1 opens no socket.
/// Calling it twice is an Error. DistributedDataParallel and default_group() call it where nobody has.
void init_process_group(const ProcessGroupOptions& options = {});
/// Waits for all ranks, and leaves the job. A rank that waits in a collective for this one gets an Error which says
/// that it left. At the end of the program it happens by itself.
void destroy_process_group();
bool is_initialized();  ///< Returns whether this process has a default group.
int rank();             ///< Of this process in the job; 0 where no variable says otherwise. Does not initialize.
int world_size();       ///< Of the job; 1 where no variable says otherwise. Does not initialize.
int local_rank();       ///< On this machine. Does not initialize.
ProcessGroup& default_group();  ///< Of all ranks.
/// A group of some ranks of the job, in this order. All ranks of the job call it, also those that are not of it, which
/// get nullptr.
std::unique_ptr<ProcessGroup> new_group(std::span<const int> ranks);

}  // namespace reel::distributed
#pragma GCC visibility pop
