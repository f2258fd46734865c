#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "reel/distributed/error.h"

#pragma GCC visibility push(default)
/// What launchers (reel-run, torchrun, Slurm, MPI) say about this process in the environment.
namespace reel::distributed {

/// Which process of which job this is, as whatever started it says in the environment. A variable that is empty counts
/// as not set.
struct Launch {
  std::string source;        ///< Who said so: "reel-run", "torchrun", "OpenMPI", "mpirun", "Slurm", … "nothing".
  int rank = 0;              ///< Of the process, from 0.
  int world_size = 1;        ///< How many there are.
  int local_rank = 0;        ///< On this machine.
  int local_world_size = 1;  ///< On this machine; at least so many where no variable says it.
  int generation = 0;        ///< How often the job was restarted.
  /// Where the store is: a loopback address if all ranks are known to be on this machine.
  std::string master_host = "127.0.0.1";
  /// Of the store, if it is hosted. Otherwise rank 0 listens there, or at the next that is free: others may listen at
  /// this one, so clients must ask whose store it is. 0 in a world of 1 if no variable says it.
  uint16_t master_port = 0;
  bool store_is_hosted = false;  ///< By the launcher (reel-run), not by rank 0.
  std::string run_id;            ///< The same for all processes of a job.
  std::string token;             ///< REEL_TOKEN, or what the file REEL_TOKEN_FILE holds: 32 hex digits, or "".

  /// Reads RANK and WORLD_SIZE with what belongs to them (reel-run, torchrun, Kubeflow's PyTorchJob), otherwise
  /// mpirun's variables (OpenMPI, MPICH, Intel MPI), otherwise those of a step of Slurm; a world of 1 if there is none.
  /// MASTER_ADDR and MASTER_PORT say where rank 0 is; needed only where mpirun uses several machines, or where a user
  /// has set RANK himself. reel::Error if variables are malformed, or contradict each other, with both values.
  static Launch from_environment();
  /// The same from a function in place of getenv(), which returns nullptr where a variable is not set.
  static Launch from(const std::function<const char*(const char*)>& variable);
};

/// The hosts that a list of Slurm's names: "gnode[08-10,20],login" is gnode08, gnode09, gnode10, gnode20, login. An
/// Error if it is malformed or names more than 65,536.
std::vector<std::string> expand_hostlist(std::string_view list);

}  // namespace reel::distributed
#pragma GCC visibility pop
