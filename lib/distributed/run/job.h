#pragma once
#include <chrono>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/distributed/run/child.h"
#include "lib/distributed/run/options.h"
#include "lib/distributed/run/output.h"

namespace reel::distributed::run {

using Clock = std::chrono::steady_clock;

/// reel-run's own output and signals.
struct Console {
  Signals signals;
  Sink out{1}, err{2};
  void say(const std::string& text) { err.put("reel-run: " + text + "\n"); }
  bool hurries = false;  // a signal has come: what reads slowly is not waited for
  /// Waits until all is written.
  void flush();
};

/// A rank that has ended otherwise than with status 0.
struct Failure {
  int rank = 0;
  int status = 0;                           // as a shell has it
  std::string what;                         // "rank 1 (process 4242) was killed by signal 9 (Killed)"
  std::deque<std::string> last_lines = {};  // of its stderr
};

/// How a generation has ended on this machine.
struct Outcome {
  std::vector<Failure> failures = {};  // in their order, without those that reel-run has killed
  int signal = 0;                      // that ended it, or 0
  bool can_restart = true;
};

/// What all ranks of a generation on this machine are told.
struct Place {
  int world_size = 1;
  int first_rank = 0;  // on this machine
  int generation = 0;
  std::string run_id;
  std::string host;          // node rank 0's
  uint16_t store_port = 0;   // of reel-run's store
  uint16_t master_port = 0;  // a free one, for what expects to listen at MASTER_PORT in rank 0
  std::string token;
};

/// What tells a generation that it has ended on another machine. `fd` becomes readable then.
struct Elsewhere {
  int fd = -1;
  std::function<std::string()> reason = {};  // "" if all ranks have ended well
};

/// Runs this machine's ranks until all have ended. `failed` is called once, when the first has.
Outcome run_generation(const RunOptions& options, const Place& place, Console& console, const Elsewhere& elsewhere,
                       const std::function<void()>& failed);

}  // namespace reel::distributed::run
