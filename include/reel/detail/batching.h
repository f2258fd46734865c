// What ops, layers and functions whose calls are batched have to do with the scheduler.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <typeinfo>
#include <vector>

#include "reel/detail/no_batching_guard.h"
#include "reel/tensor.h"

#pragma GCC visibility push(default)
// How calls of ops, layers and functions are batched inside of batching::map (reel/batching.h): each waits as a Call,
// and the BatchScheduler of the thread makes one call of those that can be one.
namespace reel {
class RowGroup;
}
namespace reel::batching {

/// What a layer does with several examples at once: its member kBatching.
enum class Mode : uint8_t {
  kNone,      ///< Nothing: it is called for each example by itself.
  kRows,      ///< Row i of its results depends on row i of its arguments only, rows being counted along dimension 0.
  kSequences  ///< It takes a list of sequences of different lengths. For layers of the library.
};
using enum Mode;

namespace internal {

struct FiberTask;

/// A call that others may join. It lies on the stack of the fiber that makes it, with the tensors that it is made with.
class Call {
 public:
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // What calls of mode kRows implement:
  /// Makes the call with these in the place of its tensors, and keeps the result.
  virtual void run(std::span<const Tensor>) {}
  /// Returns the tensors of the kept result.
  virtual std::vector<Tensor> outputs() const { return {}; }
  /// Makes this call's result from outputs[…][at]. The other call is the one that was made for the group; it may be
  /// this one, which is then the last that is asked.
  virtual void set_result_from_group(const Call&, std::span<std::vector<Tensor>>, size_t) {}
  // What calls of mode kSequences implement:
  /// Makes all calls of the list that this is the first of, and their results, and records them as the group, if any.
  virtual void run_all(RowGroup*) {}

  /// Returns true if the arguments that are no tensors are equal to those of another call of the same type.
  virtual bool same_arguments(const Call& other) const = 0;
  /// Returns the name that reports have.
  virtual std::string label() const = 0;

  const Mode mode;
  const void* const callee;  // the layer or function
  const std::type_info& type;
  const bool training;
  const int8_t min_rank;  // of a floating-point tensor that has rows; 0: this call cannot be joined
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
  Call(Mode mode_, const void* callee_, const std::type_info& type_, bool training_, int64_t min_rank)
      : mode(mode_), callee(callee_), type(type_), training(training_), min_rank(static_cast<int8_t>(min_rank)) {}
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
  /// Returns how often the running fiber has waited, if there is a report.
  virtual int64_t waits() const = 0;
  /// Notes for the report that the running fiber has called a layer that does not wait.
  virtual void note(const std::string& label, const char* reason) = 0;
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

/// Returns true while this thread makes one call of those of several examples.
bool in_group();
/// Sets what in_group() returns, and returns what it was.
bool exchange_in_group(bool now);
/// NotJoinable is thrown while in_group() is true by what has to see each example's call: each is then made by itself.
/// It is not a std::exception, since programs catch those.
struct NotJoinable {};

}  // namespace internal
}  // namespace reel::batching
#pragma GCC visibility pop
