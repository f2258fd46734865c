#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "lib/device/device.h"
#include "lib/distributed/engine.h"
#include "lib/distributed/nccl.h"

// What a ProcessGroup, its Works and its Channels share: the queue of its ops, the threads that run them, and its end.
namespace reel::distributed {

using Clock = std::chrono::steady_clock;

/// Of the group's engine and NCCL: they go when all ranks have closed the group, since a connection that is closed
/// earlier takes with it what others have not read yet.
struct Retired {
  std::shared_ptr<Store> store;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Nccl> nccl;
  int size;
};

/// One rank's part of the whole job, which its groups share.
struct Membership {
  std::shared_ptr<Member> member;  // nullptr in a world of 1
  ProcessGroupOptions options;     // whose backend is not kAuto once a group has started
  bool threads = false;            // whose ranks are threads: it has no address
  bool checks = true;              // REEL_DIST_CHECK
  int rank = 0, world_size = 1;
  std::string address;  // that engines bind to
  std::mutex mutex;
  int groups = 0;  // made so far
  std::list<Retired> retired;

  /// Closes what all ranks have closed.
  void bury() noexcept;
};

class Core;

/// An op under way. Threads of the group use its body, nothing else of it: tensors that it holds are released by those
/// that launch and wait.
struct WorkState {
  virtual ~WorkState() = default;
  virtual void wait() = 0;
  virtual bool done() = 0;
  /// Returns the handle that users have.
  static Work work(std::shared_ptr<WorkState> state) { return Work(std::move(state)); }
};

/// On the CPU.
class Op : public WorkState {
 public:
  Op(std::shared_ptr<Core> core, std::string what, uint64_t sequence, std::function<void()> body);
  /// Of a message that goes on by itself.
  Op(std::shared_ptr<Core> core, std::string what, std::unique_ptr<Message> message, bool sends);
  void wait() override;
  bool done() override;
  void on_finish(std::function<void()> f) { after_ = std::move(f); }
  int other() const { return other_; }      // rank of a message that is over
  int64_t ended() const { return ended_; }  // profile::now() when it was over

 private:
  friend Core;
  enum Status { kQueued, kRunning, kDone };
  void finish();  // in a thread of the caller's

  const std::shared_ptr<Core> core_;
  const std::string what_;
  const uint64_t sequence_;
  Clock::time_point deadline_;  // of a message once it is waited for; mutex_ of the core
  const std::function<void()> body_;
  const bool sends_ = false;
  std::function<void()> after_;  // in a thread of the caller's, once; holds the memory of what is under way
  const std::unique_ptr<Message> message_;
  std::atomic<Status> status_ = kQueued;  // written under mutex_ of the core
  bool failed_ = false;                   // mutex_ of the core
  int other_ = -1;
  int64_t ended_ = 0;
  std::mutex finishing_;
};

/// On a GPU, by NCCL.
class GpuOp : public WorkState {
 public:
  GpuOp(std::shared_ptr<Core> core, Device device, std::string what, uint64_t sequence);
  ~GpuOp() override;  // waits, if nobody has
  void wait() override;
  bool done() override;
  /// Queues work on the current stream of who waits, once, which has waited for the op. It may hold tensors.
  void on_finish(std::function<void()> f) { after_ = std::move(f); }

 private:
  friend Core;
  const std::shared_ptr<Core> core_;
  const Device device_;
  const std::string what_;
  const uint64_t sequence_;
  const std::shared_ptr<DeviceEvent> ended_;
  std::function<void()> after_;
  bool queued_ = false;
  std::mutex finishing_;
};

/// The state of a group. Shared with its Works, which may outlive it.
class Core : public std::enable_shared_from_this<Core> {
 public:
  Core(std::shared_ptr<Membership> membership, std::vector<int> ranks, int number);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;
  /// Connects the ranks, and starts threads. Not of a group of one.
  void start();
  /// Waits for what is under way, and stops the threads. Nothing can be launched any more.
  void close() noexcept;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  const std::vector<int>& ranks() const { return ranks_; }
  const std::string& name() const { return name_; }
  bool checks() const { return membership_->checks; }
  Milliseconds timeout() const { return membership_->options.timeout; }
  Backend backend() const { return membership_->options.backend; }
  /// Whether the engine is memory that threads share.
  bool shares_memory() const { return membership_->threads && backend() != Backend::kGloo; }
  Engine* engine() const { return engine_.get(); }  // nullptr in a group of one
  Store& store() const { return *store_; }

  /// Throws the Error that has ended the group, if one has, or that it has been destroyed.
  void check() const;
  uint64_t next_sequence() { return ++sequence_; }
  /// Numbers are used again after 4,094 channels; 0 and 1 are the group's own.
  uint32_t next_channel() { return 2 + channels_++ % 4094; }
  /// Of an op's phase, of which it has 4.
  static Tag tag(uint32_t channel, uint64_t sequence, uint32_t phase = 0) {
    return (channel & 0xfff) << 20 | static_cast<Tag>((sequence * 4 + phase) & 0xfffff);
  }

  void launch(const std::shared_ptr<Op>& op);  ///< For a worker, or who waits first.
  void launch_message(const std::shared_ptr<Op>& op);
  void run_now(const std::shared_ptr<Op>& op);  ///< In this thread.

  /// Whether NCCL moves tensors of this device, and not the engine.
  bool uses_nccl(Device device) const {
    return backend() == Backend::kNccl && size() > 1 && device.type == DeviceType::kCUDA;
  }
  /// Queues what `f` does with NCCL on the group's stream of the op's device: behind what the current one has been
  /// given. In the calling thread; it connects the ranks the first time.
  using GpuBody = std::function<void(Nccl& nccl, DeviceStream& stream, Nccl::Deadline deadline)>;
  void launch(const std::shared_ptr<GpuOp>& op, const GpuBody& f);
  /// The group's stream of a device, beside the one that computes.
  std::shared_ptr<DeviceStream> stream_of(Device device);

  /// Sums halves in float32, and averages.
  void all_reduce(Tag tag, void* data, int64_t count, DType dtype, ReduceOp op);

  void abort(std::string_view why) noexcept;
  /// Ends the job with this reason, unless it has ended for another one, and the group with the first.
  [[noreturn]] void end(const Error& reason);
  /// What is called where an engine has thrown: the first cause becomes the group's Error.
  [[noreturn]] void explain(const std::string& what, uint64_t sequence, bool of_message = false);
  /// The Error of ranks that have not come to `what` in time.
  Error late(const std::string& what, uint64_t sequence, Milliseconds limit, std::vector<int> missing = {}) const;
  /// Waits until all ranks have come to this place, through the store. The Error names those that have not.
  void meet(const std::string& place, Milliseconds limit);

 private:
  friend Op;
  friend GpuOp;
  Nccl& connected(Device device, Nccl::Deadline deadline);
  bool watch_gpu(Clock::time_point& asked);
  void close_gpu() noexcept;
  void choose_backend();
  void work();
  void watch();
  void run(Op& op) noexcept;
  void wait(Op& op);
  void wait_for_message(Op& op);
  bool is_over(Op& op);
  void prune();
  void idle() noexcept;
  void compare_settings();
  void set_interrupt(std::function<void()> interrupt);
  void fail(const Error& reason) noexcept;
  [[noreturn]] void throw_error() const;                        // mutex_ is held
  void check_left(const std::string& what, uint64_t sequence);  // ends the group if ranks have left the job
  std::vector<Activity> ask() const;                            // of all ranks; none if the store does not answer

  const std::shared_ptr<Membership> membership_;
  const std::vector<int> ranks_;
  int rank_ = 0;
  const std::string name_;
  std::shared_ptr<Store> store_;
  std::unique_ptr<Engine> engine_;
  std::atomic<uint64_t> sequence_ = 0;
  std::atomic<uint32_t> channels_ = 0;
  std::optional<int64_t> callback_;

  mutable std::mutex mutex_;
  std::condition_variable queued_, finished_, stopping_;
  std::deque<Op*> queue_;
  std::list<std::shared_ptr<Op>> under_way_;  // what has not been seen to be finished
  Op* closing_ = nullptr;                     // what close() waits for
  int running_ = 0;
  bool stop_ = false, closed_ = false;
  std::atomic<bool> dead_ = false, gone_ = false;  // by an Error; at the end of close()
  std::optional<Error> error_;
  uint64_t meetings_ = 0;

  // Of GPUs.
  struct Queued {
    std::string what;
    uint64_t sequence;
    std::shared_ptr<DeviceEvent> ended;
    Clock::time_point begin, deadline;
  };
  std::mutex connecting_;
  std::unique_ptr<Nccl> nccl_;  // made under mutex_, gone only with the threads
  std::vector<std::pair<Device, std::shared_ptr<DeviceStream>>> streams_;  // mutex_
  std::deque<Queued> on_gpu_;                                              // mutex_

  std::mutex interrupt_mutex_;
  std::function<void()> interrupt_;  // of the rendezvous
  std::vector<std::thread> threads_;
};

/// Whether a worker may run an op, or the calling thread does so at once.
enum class Run { kAsync, kNow };

struct ProcessGroupImpl {
  std::shared_ptr<Core> core;
  static ProcessGroupImpl& of(ProcessGroup& group) { return *group.impl_; }
  static std::unique_ptr<ProcessGroup> make_group(std::shared_ptr<Core> core) {
    return std::unique_ptr<ProcessGroup>(
        new ProcessGroup(std::make_unique<ProcessGroupImpl>(ProcessGroupImpl{std::move(core)})));
  }

  Work all_reduce(const Tensor& tensor, ReduceOp op, Run run);
  Work broadcast(const Tensor& tensor, int root, Run run);
  Work all_gather(const Tensor& out, const Tensor& in, Run run);
  Work all_gather_v(std::span<const Tensor> outs, const Tensor& in, Run run);
  Work reduce_scatter(const Tensor& out, const Tensor& in, ReduceOp op, Run run);
  Work all_to_all(std::span<const Tensor> outs, std::span<const Tensor> ins, Run run);
  Work gather(std::span<const Tensor> outs, const Tensor& in, int root, Run run);
  Work scatter(const Tensor& out, std::span<const Tensor> ins, int root, Run run);
};

/// Waits until all of these ranks have come to `place`, and returns those that have not after `limit`.
std::vector<int> meet(Store& store, const std::string& place, int rank, std::span<const int> ranks, Milliseconds limit);

}  // namespace reel::distributed
