// This file has what ops, layers and functions whose calls are batched have to do with the scheduler.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

#include "reel/base/detail/no_suspend_guard.h"
#include "reel/tensor.h"

#pragma GCC visibility push(default)
// Calls of ops, layers and functions are batched inside of batching::map (reel/batching.h): each waits as a Call, and
// the BatchScheduler of the thread makes one call of those that can be one.
namespace reel {
class RowGroup;
}
namespace reel::batching::internal {

struct FiberTask;

/// A call that others may join. It lies on the stack of the fiber that makes it, with the tensors that it is made with.
class Call {
 public:
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  /// A Kind says what the rows of a call are.
  enum class Kind : uint8_t {
    kRows,      ///< Row i of the results depends on row i of the tensors only, along dimension 0.
    kSequences  ///< The call is of sequences of different lengths.
  };
  // Calls of kRows implement these:
  /// Makes the call with these in the place of its tensors, and keeps the result.
  virtual void run(std::span<const Tensor>) {}
  /// Returns the tensors of the kept result.
  virtual std::vector<Tensor> outputs() const { return {}; }
  /// Makes this call's result from outputs[…][at]. The other call is the one that was made for the group; it may be
  /// this one, which is then the last that is asked.
  virtual void set_result_from_group(const Call&, std::span<std::vector<Tensor>>, size_t) {}
  // Calls of kSequences implement this:
  /// Makes all calls of the list that this is the first of, and their results, and records them as the group, if any.
  virtual void run_all(RowGroup*) {}

  /// Returns true if the arguments that have no rows are equal to those of another call of the same type.
  virtual bool same_arguments(const Call& other) const = 0;
  /// Returns the name that reports have.
  virtual std::string label() const = 0;

  const Kind kind;
  const void* const callee;  // the op, layer or function
  const void* const weight;  // a tensor that joined calls have in common, nullptr if there is none
  const std::type_info& type;
  enum class State : uint8_t { kWaits, kDone, kAlone, kRunsGroup, kCancelled };
  State state = State::kWaits;
  bool fits = true;   // there was room for all tensors in `entries`
  uint8_t count = 0;  // how many entries there are
  uint64_t modes = 0;
  int64_t rows = -1;  // how many rows, or sequences, the call has
  FiberTask* task = nullptr;
  Call* next = nullptr;
  static constexpr size_t kMaxEntries = 48;
  std::array<const Tensor*, kMaxEntries> entries;  // nullptr ends a list

 protected:
  Call(Kind kind_, const void* callee_, const std::type_info& type_, const void* weight_ = nullptr)
      : kind(kind_), callee(callee_), weight(weight_), type(type_) {}
  ~Call() = default;
  void add(const Tensor* tensor) {
    if (count < kMaxEntries)
      entries[count++] = tensor;
    else
      fits = false;
  }
};

/// Makes one call of the calls of several fibers of a thread.
class BatchScheduler {
 public:
  /// Blocks the fiber until the call was batched (true: it has its result) or must run alone (false).
  virtual bool wait(Call& call) = 0;
  /// Notes for the report that the running fiber makes a call that does not wait.
  virtual void note(std::string_view label, const char* reason) noexcept = 0;
  /// Notes for the report that the running fiber has called item().
  virtual void note_item() = 0;
  /// Returns true if there is another fiber, or a report.
  bool has_others() const { return others_ > 0 || reports_; }
  bool reports() const { return reports_; }

 protected:
  ~BatchScheduler() = default;
  size_t others_ = 0;
  bool reports_ = false;
};
/// Returns the scheduler of the calling thread if another fiber could join a call now; nullptr otherwise.
BatchScheduler* scheduler();

}  // namespace reel::batching::internal
#pragma GCC visibility pop
