#pragma once
#include <exception>
#include <memory>
#include <unordered_map>
#include <vector>

#include "lib/autograd/row_group.h"
#include "lib/batching/context.h"
#include "lib/core/fibers.h"
#include "lib/ops/transposed.h"
#include "reel/batching.h"

namespace reel::batching::internal {

/// A fiber with what it runs. Those that are done wait in a list of the thread for something new.
struct Task {
  Fiber* fiber = nullptr;
  Context context;
  void (*run)(void*) = nullptr;  // does not throw
  void* argument = nullptr;
  Loop* loop = nullptr;
  Task* next = nullptr;  // behind this one in the list of those that can go on
  int64_t waits = 0;
  size_t row = SIZE_MAX;  // of the report: its last call
};

/// A map in progress: the fibers of one thread that make calls together. The thread's own stack is one of them.
///
/// There is no fiber that schedules. One that has to wait chooses which goes on, and switches to it: first those that
/// can, in the order in which they became ready; if there is none, the one that made the first call of the largest
/// group, which makes that group's call, with its own state of the thread.
class Loop final : public Meeting {
 public:
  explicit Loop(Report* report);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  bool wait(Call& call) override;
  int64_t waits() const override { return running_->waits; }
  void note(const std::string& label, const char* reason) override;
  void note_item() override;

  /// Lets `run(argument)` run in another fiber. False if there cannot be one more, or there are `limit`.
  bool start(void (*run)(void*), void* argument, size_t limit);
  /// Suspends the running fiber until make_ready(it).
  void suspend();
  void make_ready(Task* task);
  Task* running() const { return running_; }
  /// All calls that wait, now or later, end with an exception.
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
  Task* choose();
  void chosen();
  bool find_rows(Call& call);
  void add_to_group(Call& call);
  bool lead(Call& first);
  void run_finite();
  void run_group(Call& first);
  void run_rows(Call& first, size_t size, int64_t rows, RowGroup* group, Report::Row* row);
  Report::Row& row_of(const Call& call);

  Task host_;
  Task* running_ = &host_;
  Task *first_ready_ = nullptr, *last_ready_ = nullptr;
  std::vector<Group> groups_;
  uint64_t groups_made_ = 0;
  bool cancelled_ = false;
  Meeting* const before_;
  detail::TransposedWeights weights_;  // which no example changes
  std::vector<Call*> calls_;           // which lead() makes
  // Of run_group, kept for their capacity.
  std::vector<Tensor> parts_, inputs_, saved_;
  std::vector<Node*> gathers_;
  std::vector<int64_t> counts_;
  Report* const report_;
  const int64_t faults_;              // page_faults() when the map began
  int64_t began_ = 0, choosing_ = 0;  // when the map began, and when choose() did
  std::unordered_map<const void*, size_t> row_numbers_;
};

}  // namespace reel::batching::internal
