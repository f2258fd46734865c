// This file has FiberScheduler, which runs the fibers of batching::map and makes one call of several.
#pragma once
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lib/autograd/row_group.h"
#include "lib/base/fibers.h"
#include "lib/batching/thread_state.h"
#include "lib/ops/transposed.h"
#include "reel/batching.h"

namespace reel::batching::internal {

/// A fiber with what it runs. Fibers that are done wait in a list of the thread for something new.
struct FiberTask {
  Fiber* fiber = nullptr;
  ThreadStateSnapshot thread_state;
  void (*run)(void*) = nullptr;  // does not throw
  void* argument = nullptr;
  FiberScheduler* scheduler = nullptr;
  FiberTask* next = nullptr;  // the one behind it in the list of those that can go on
  size_t row = SIZE_MAX;      // the row of the report that its last call has
};

/// A FiberScheduler is a map in progress: the fibers of one thread that make calls together. The thread's own stack is
/// one of them.
///
/// There is no fiber that schedules. A fiber that has to wait chooses which goes on, and switches to it: first those
/// that can, in the order in which they became ready; if there is none, the fiber that made the first call of the
/// largest group, which makes that group's call, with its own state of the thread.
class FiberScheduler final : public BatchScheduler {
 public:
  explicit FiberScheduler(Report* report);
  ~FiberScheduler();
  FiberScheduler(const FiberScheduler&) = delete;
  FiberScheduler& operator=(const FiberScheduler&) = delete;

  bool wait(Call& call) override;
  void note(std::string_view label, const char* reason) noexcept override;
  void note_item() override;

  /// Lets `run(argument)` run in another fiber. Returns false if there cannot be one more.
  bool start(void (*run)(void*), void* argument);
  /// Does so for one more branch of an example. Returns false also if more fibers would make the map slower.
  bool fork(void (*run)(void*), void* argument);
  /// Suspends the running fiber until make_ready(it).
  void suspend();
  void make_ready(FiberTask* task);
  FiberTask* running() const { return running_; }
  /// Ends all calls that wait, now or later, with an exception.
  void cancel();
  bool cancelled() const { return cancelled_; }

 private:
  struct Group {
    Call *first, *last;
    size_t size;
    uint64_t number;  // of groups before it
  };
  static void main(void* task);
  void end_task();  // returns with another task to run
  FiberTask* choose();
  void end_schedule_timing();
  bool find_rows(Call& call);
  void add_to_group(Call& call);
  bool run_group_of(Call& first);
  void run_finite();
  void run_group(Call& first);
  void run_rows(Call& first, size_t size, int64_t rows, RowGroup* group, Report::Row* row);
  Report::Row& row_of(const Call& call);

  FiberTask host_;
  FiberTask* running_ = &host_;
  FiberTask *first_ready_ = nullptr, *last_ready_ = nullptr;
  std::vector<Group> groups_;
  uint64_t groups_made_ = 0;
  bool cancelled_ = false;
  bool on_gpu_;  // whether the last call was on a GPU or, before the first, whether new tensors are
  const detail::FiberWaits before_;
  detail::TransposedWeights weights_;  // which no example changes
  std::vector<Call*> calls_;           // which run_group_of() makes
  // run_group uses these, which are kept for their capacity.
  std::vector<Tensor> parts_, inputs_, saved_;
  std::vector<Node*> gathers_;
  std::vector<int64_t> counts_;
  Report* const report_;
  const int64_t faults_;                                 // page_faults() when the map began
  int64_t began_ = 0, choosing_ = 0;                     // when the map began, and when choose() did
  std::unordered_map<std::string, size_t> row_numbers_;  // by label
};

}  // namespace reel::batching::internal
