#pragma once
#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lib/autograd/observer.h"
#include "lib/distributed/buckets.h"
#include "lib/distributed/channel.h"
#include "lib/distributed/layout.h"
#include "reel/distributed/ddp.h"

// One reduction is a round. All ranks take part in each: with a walk, by reduce(), or in join() with nothing. Which
// collectives a round has, and their order, follows from the module and from what earlier rounds have brought, which is
// the same on all ranks:
//
//   the header   where each rank is, and which parameters it contributes to; in front of bucket 0, where that can be
//   buckets      dense gradients, in order, each as soon as it is full and those before it are on their way
//   rows         how many rows of the sparse parameters each rank has, and those
//   buffers      if some rank has changed them
//
// The first round begins when its walk has ended, since only then is it known whose gradients are sparse.
namespace reel::distributed {

// A parameter's element of the header: 1 for each rank that has touched it and kSeenSparse for each that has had rows
// of it in a bucket. float32 adds them exactly.
inline constexpr int kSeenSparse = 4096;
inline constexpr int kMaxWorld = kSeenSparse - 1;
inline constexpr int64_t kAllRows = -1;
inline constexpr int64_t kSteps = int64_t{1} << 23;                // the header counts them modulo this
inline constexpr uint64_t kSampleRange = (uint64_t{1} << 24) - 1;  // of sample_weights(), which float32 holds exactly

/// What the header says when it has come back.
struct Verdict {
  std::vector<int> active;   // ranks of the group that have not joined
  double divisor = 1;        // of the sums
  std::vector<int> used;     // by slot: how many ranks have touched it
  std::vector<bool> sparse;  // by slot: should travel as rows from the next round on
  bool buffers_changed = false;
};

struct DistributedDataParallel::Impl final : BackwardObserver {
  Impl(nn::Module& module_, DistributedDataParallelOptions options_);
  ~Impl();

  // These implement BackwardObserver.
  bool begin(std::span<const uint32_t> reached) override;
  void arrived(uint32_t slot, bool has_grad) override;
  void end() override;
  void failed() noexcept override;

  void reduce();
  void join(optim::Optimizer* optimizer);
  void leave_join() noexcept;
  void fail(const std::exception_ptr& error) noexcept;

  nn::Module& module;
  const DistributedDataParallelOptions options;
  ProcessGroup& group;
  const int rank, world;
  std::optional<Channel> channel;
  std::vector<std::pair<std::string, Tensor>> parameters;  // those that require gradients, by slot
  std::vector<Description> described;                      // how they were
  std::vector<std::pair<std::string, Tensor>> frozen;
  std::vector<Tensor> buffers;
  std::vector<uint32_t> buffer_versions;  // when they were last sent
  std::atomic<int> unsynced{0};           // how many NoSync there are

 private:
  void start();
  void stop() noexcept;
  template <class F>
  auto say_step(F f);
  void enter();
  void leave();
  void check_frozen() const;
  void check_unchanged();
  void check_static(std::span<const uint32_t> reached);
  void discover(bool active);
  void make_layout();
  void send_all(bool active);
  void write_header(bool active);
  float sample_weights() const;
  [[noreturn]] void explain_weights(const std::vector<int>& active);
  void fill(uint32_t slot);
  void launch_full();
  Verdict finish(bool active);
  Verdict read_header();
  void count_rows(bool active);
  void receive_rows(const Verdict& verdict, bool active);
  void receive_buckets(const Verdict& verdict, bool active);

  // By slot.
  std::vector<uint8_t> reached_;                       // by the walk of this round
  std::vector<uint8_t> waited_;                        // for its arrival
  std::vector<uint8_t> sparse_;                        // travels as rows
  std::vector<uint8_t> seen_sparse_;                   // had rows, but travels in a bucket
  std::vector<std::pair<uint32_t, uint32_t>> places_;  // bucket and index in it

  std::vector<Bucket> buckets_;
  std::vector<float> own_header_;  // where bucket 0 cannot carry it
  float* header_ = nullptr;
  Channel::Ticket header_ticket_ = 0;
  int64_t header_launched_ = 0;
  // How long the last round's header was on its way. Who has waited least has come last.
  int64_t header_begin_ = 0, header_end_ = 0;
  float header_wait_ = 0;            // microseconds
  std::vector<int64_t> row_counts_;  // of all slots, by rank; kAllRows of a dense gradient
  Channel::Ticket counts_ticket_ = 0;
  size_t launched_ = 0;      // buckets of this round
  bool discovered_ = false;  // which parameters are sparse: the first round is over, or about to be sent
  std::vector<uint8_t> static_reached_;
  std::vector<int> last_active_;  // ranks, in the last round that had any
  int64_t step_ = 0;              // rounds that this rank has begun, also in vain

  std::atomic<bool> busy_{false};        // a round is under way
  std::atomic<std::thread::id> thread_;  // its thread
  std::mutex error_mutex_;
  std::exception_ptr error_;  // that has ended all
};

}  // namespace reel::distributed
