#pragma once
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "reel/version.h"

#pragma GCC visibility push(default)
/// A profiler: every kernel that the ops run, every rule that backward runs, layers, and user-defined scopes, with
/// their times, the bytes that they touch and the memory in use, on all threads.
///
///   profile::start();
///   train_an_epoch();
///   const profile::Report report = profile::stop();
///   std::cout << report.table();             // by self time
///   report.save_trace("trace.json");         // for chrome://tracing or ui.perfetto.dev
///
/// or, without changing the program, REEL_PROFILE=trace.json ./program: from its start to its end, with the table on
/// stderr. Rank 1 of several processes (see reel/distributed.h) writes trace.rank1.json. When off, the cost per op is
/// one test of a flag.
namespace reel::profile {

namespace internal {
extern constinit std::atomic<bool> recording;
}  // namespace internal
/// Whether something is recorded.
inline bool running() { return internal::recording.load(std::memory_order_acquire); }

/// What an event is: a kernel, a rule of backward(), a call of a layer, a Scope of the program, or a message on its way
/// between processes. Messages overlap with each other and with everything else; their times are not part of any other.
enum class Kind : uint8_t { kKernel, kRule, kLayer, kScope, kCommunication };

/// Records a part of the program under a name, if anything is recorded: profile::Scope scope("epoch").
class Scope {
 public:
  /// Begins the event; the destructor ends it.
  explicit Scope(const std::string& name, Kind kind = Kind::kScope);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  bool recorded_;
};

/// One event. Times are in seconds since start().
struct Event {
  std::string name;  ///< Of the kernel, rule, layer or scope.
  Kind kind;         ///< Which of them it is.
  bool backward;     ///< During a backward pass.
  int thread;        ///< Numbered by their first events; -1 for messages.
  double begin;      ///< When it began.
  double end;        ///< When it ended.
  double self;       ///< Its duration without the events inside of it.
  int64_t bytes;     ///< Of the tensors that a kernel reads and writes.
  int64_t in_use;    ///< Bytes of CPU memory at its end: allocated minus freed by the thread.
  /// The rest of an event that waited while another fiber of the thread ran: no call of its own.
  bool continued = false;
};

/// The events of one name, kind and direction together.
struct Row {
  std::string name;  ///< Of the events.
  Kind kind;         ///< Of the events.
  bool backward;     ///< Of the events.
  int64_t calls;     ///< How many they are.
  double total;      ///< Seconds; of events inside each other only the outer ones count.
  double self;       ///< Seconds without the events inside of them.
  int64_t bytes;     ///< Read and written.
};

/// What stop() returns.
struct Report {
  std::vector<Event> events;  ///< Of each thread in the order of their beginnings.
  double seconds = 0;         ///< From start() to stop().

  std::vector<Row> rows() const;  ///< Most self time first.
  /// Most self time first, at most `most` rows; the last row is the time outside of all events: the program itself and
  /// the recording of the tape.
  std::string table(size_t most = 30) const;
  /// In the format of Chrome's traces, with the memory in use over time.
  void save_trace(const std::filesystem::path& path) const;
};

/// Begins to record on all threads. An Error if something is recorded already.
void start();
/// Ends the recording. Events that other threads are within have not ended, and are not in the report. An Error if
/// nothing is recorded.
Report stop();

}  // namespace reel::profile
#pragma GCC visibility pop
