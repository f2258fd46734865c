#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace reel::distributed::run {

/// Which of a rank's output streams, as torchrun numbers them.
enum Streams { kNone = 0, kStdout = 1, kStderr = 2, kBoth = 3 };

/// Streams of all ranks of this machine, or of some by their local rank: "3" or "0:1,1:3".
struct StreamChoice {
  Streams all = kNone;
  std::map<int, Streams> some = {};
  bool has(int local_rank, Streams stream) const;
};

/// The command line of reel-run.
struct RunOptions {
  int ranks = 1;  // on this machine
  int nodes = 1;
  int node = 0;      // this machine
  std::string host;  // of node 0
  uint16_t port = 0;
  std::string run_id;
  int max_restarts = 0;
  double grace = 5, rendezvous = 600;        // seconds
  std::optional<double> timeout, heartbeat;  // seconds
  std::string log_dir;
  std::optional<StreamChoice> tee, redirects;
  std::vector<std::string> command;

  bool prints(int local_rank, Streams stream) const;  // on reel-run's own
  bool logs(int local_rank, Streams stream) const;    // to a file in log_dir
};

/// Processors that this process may run on.
int available_cores();

/// Reads it; PET_NNODES and its kin, which torchrun knows, stand for flags that are not given. Returns nothing where
/// help or an error has been printed, with `status` set.
std::optional<RunOptions> parse_command_line(int argc, char** argv, int& status);

}  // namespace reel::distributed::run
