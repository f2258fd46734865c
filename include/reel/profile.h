#pragma once
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "reel/version.h"

#pragma GCC visibility push(default)
/// A profiler: every kernel that the ops run, every rule that backward runs, layers, and user-defined scopes, with
/// their times, the bytes that they touch and the memory in use, on all threads; and what GPUs do: kernels, copies and
/// fills on their streams, with the op that launched them.
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
///
/// The time of an op on a GPU is what the host takes to launch it: the GPU's own times are in Report::gpu. They come
/// from CUPTI, a library of the CUDA toolkit that is opened when the first op on a GPU is recorded. Without it
/// Report::gpu is empty, and table() says why.
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
  int64_t bytes;     ///< Of the tensors that a kernel of the CPU reads and writes.
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

/// What a GPU did, or a wait of the host for it. Times are in seconds since start().
struct GpuEvent {
  /// What a GPU does, and what the host does that waits for it.
  enum class Kind : uint8_t { kKernel, kCopy, kFill, kWait };
  std::string name;  ///< Of the kernel without reel's namespaces, "memcpy …", "memset", or the function that waits.
  Kind kind;         ///< Which of them it is.
  /// The names of the events that the host was within when it launched it: "step/fc (Linear)/gemm"; those of a wait
  /// likewise.
  std::string op;
  int device;     ///< The GPU's number; -1 for waits.
  int stream;     ///< CUPTI's number of the stream; -1 for waits.
  double begin;   ///< When it began.
  double end;     ///< When it ended.
  int64_t bytes;  ///< That were copied or filled.
};

/// The kernels, copies, fills or waits of one name and op together.
struct Launch {
  std::string op;       ///< As in GpuEvent.
  std::string name;     ///< As in GpuEvent.
  GpuEvent::Kind kind;  ///< Of all of them.
  int64_t count;        ///< How many they are.
  double seconds;       ///< The GPU's time, or the host's for waits.
  int64_t bytes;        ///< That were copied or filled.
};

/// What stop() returns.
struct Report {
  std::vector<Event> events;  ///< Of each thread in the order of their beginnings.
  double seconds = 0;         ///< From start() to stop().
  std::vector<GpuEvent> gpu;  ///< In the order of their beginnings.
  std::string gpu_note;       ///< What is missing in `gpu`, and why; empty if nothing is.

  std::vector<Row> rows() const;         ///< Most self time first.
  std::vector<Launch> launches() const;  ///< Most time first.
  /// Most self time first, at most `most` rows; the last row is the time outside of all events: the program itself and
  /// the recording of the tape. After that at most `most` rows of launches(), and their sums.
  std::string table(size_t most = 30) const;
  /// In the format of Chrome's traces, with the memory in use over time, and a row for each stream of a GPU.
  void save_trace(const std::filesystem::path& path) const;
};

/// Begins to record on all threads. An Error if something is recorded already.
void start();
/// Ends the recording, and waits for the GPUs. Events that other threads are within have not ended, and are not in the
/// report. An Error if nothing is recorded.
Report stop();

}  // namespace reel::profile
#pragma GCC visibility pop
