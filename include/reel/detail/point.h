#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <typeinfo>
#include <vector>

#include "reel/tensor.h"

#pragma GCC visibility push(default)
// How calls of layers and functions meet inside of batching::map (reel/batching.h): each waits as a Call, and the
// Meeting of the thread makes one call of those that can be one.
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

struct Task;

/// A call that others may join. It lies on the stack of the fiber that makes it, with the tensors that it is made with.
class Call {
 public:
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Of kRows.
  /// Makes the call with these in the place of its tensors, and keeps the result.
  virtual void run(std::span<const Tensor>) {}
  /// Of the kept result.
  virtual std::vector<Tensor> outputs() const { return {}; }
  /// Makes this call's result from outputs[…][at], given those of `leader`, which may be this and is then the last one.
  virtual void take(const Call&, std::span<std::vector<Tensor>>, size_t) {}
  // Of kSequences.
  /// Makes all calls of the list that this is the first of, and their results, and records them as the group, if any.
  virtual void run_all(RowGroup*) {}

  /// Are the arguments that are no tensors equal to those of another call of the same type?
  virtual bool same_arguments(const Call& other) const = 0;
  /// For reports.
  virtual std::string label() const = 0;

  const Mode mode;
  const void* const what;  // the layer or function
  const std::type_info& type;
  const bool training;
  const int8_t least_rank;  // of a floating-point tensor that has rows; 0: this call cannot be joined
  enum class State : uint8_t { kWaits, kDone, kAlone, kLeads, kCancelled };
  State state = State::kWaits;
  bool fits = true;   // there was room for all tensors
  uint8_t count = 0;  // of entries
  uint64_t modes = 0;
  int64_t rows = -1;  // or sequences
  Task* task = nullptr;
  Call* next = nullptr;
  static constexpr size_t kMaxEntries = 48;
  std::array<const Tensor*, kMaxEntries> entries;  // nullptr ends a list

 protected:
  Call(Mode mode_, const void* what_, const std::type_info& type_, bool training_, int64_t least_rank_)
      : mode(mode_), what(what_), type(type_), training(training_), least_rank(static_cast<int8_t>(least_rank_)) {}
  ~Call() = default;
  void add(const Tensor* tensor) {
    if (count < kMaxEntries)
      entries[count++] = tensor;
    else
      fits = false;
  }
};

/// Where the calls of one thread meet.
class Meeting {
 public:
  /// Waits for others. True: the call has its result. False: it is to be made by itself.
  virtual bool wait(Call& call) = 0;
  /// How often the running fiber has waited, if there is a report.
  virtual int64_t waits() const = 0;
  /// For the report: the running fiber has called a layer that does not wait.
  virtual void note(const std::string& label, const char* reason) = 0;
  /// For the report: the running fiber has called item().
  virtual void note_item() = 0;
  /// Is there another fiber, or a report?
  bool has_others() const { return others_ > 0 || reports_; }
  bool reports() const { return reports_; }

 protected:
  ~Meeting() = default;
  size_t others_ = 0;
  bool reports_ = false;
};
/// That of the calling thread, if another fiber could join a call now; nullptr otherwise.
Meeting* meeting();

/// While it lives, calls of the running fiber do not wait: they are parts of a call that has found no others.
class Alone {
 public:
  explicit Alone(bool alone = true);
  ~Alone();
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;

 private:
  Meeting* const before_;
};

}  // namespace internal
}  // namespace reel::batching
#pragma GCC visibility pop
