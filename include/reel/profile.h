#pragma once
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

/// Where the time goes: every kernel that the ops run, every rule that backward runs, layers, and scopes of one's own,
/// with their times, the bytes that they touch and the memory in use, on all threads.
///
///   profile::start();
///   train_an_epoch();
///   const profile::Report report = profile::stop();
///   std::cout << report.table();             // by self time
///   report.save_trace("trace.json");         // for chrome://tracing or ui.perfetto.dev
///
/// or, without changing the program, REEL_PROFILE=trace.json ./program: from its start to its end, with the table on
/// stderr. While nothing is recorded an op pays for one test of a flag.
namespace reel::profile {

namespace internal {
extern constinit std::atomic<bool> recording;
}
inline bool running() { return internal::recording.load(std::memory_order_acquire); }

enum class Kind : uint8_t { kKernel, kRule, kLayer, kScope };

/// Records a part of the program under a name, if anything is recorded: profile::Scope scope("epoch").
class Scope {
 public:
  explicit Scope(const std::string& name, Kind kind = Kind::kScope);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  bool recorded_;
};

/// One thing that happened. Times are in seconds since start().
struct Event {
  std::string name;
  Kind kind;
  bool backward;  ///< In a walk of backward().
  int thread;     ///< Numbered by their first events.
  double begin, end;
  double self;     ///< Without the events inside of it.
  int64_t bytes;   ///< Of the tensors that a kernel reads and writes.
  int64_t in_use;  ///< Bytes of CPU memory that the thread's tensors hold at its end: what it took less what it gave.
};

/// What has the same name, kind and direction, together.
struct Row {
  std::string name;
  Kind kind;
  bool backward;
  int64_t calls;
  double total, self;  ///< Seconds; of events inside each other `total` counts the outer ones only.
  int64_t bytes;
};

struct Report {
  std::vector<Event> events;  ///< Of each thread in the order of their beginnings.
  double seconds = 0;         ///< From start() to stop().

  std::vector<Row> rows() const;  ///< Most self time first.
  /// Most self time first, at most so many rows; ends with what happened outside of all events: the program itself and
  /// the recording of the tape.
  std::string table(size_t most = 30) const;
  /// In the format of Chrome's traces, with the memory in use over time.
  void save_trace(const std::filesystem::path& path) const;
};

/// Begins to record on all threads. An Error if something is recorded already.
void start();
/// Ends it. No other thread may be inside an op. An Error if nothing is recorded.
Report stop();

}  // namespace reel::profile
