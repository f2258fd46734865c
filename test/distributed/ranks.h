#pragma once
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "reel/distributed/group.h"
#include "reel/error.h"

// Jobs of threads and of processes, for tests. What runs on the ranks throws where it fails: Catch's macros are for one
// thread.
namespace ranks {

using reel::detail::concat;

/// Throws if the condition is false.
template <class... Parts>
void expect(bool condition, const Parts&... what) {
  if (!condition) throw std::runtime_error(concat(what...));
}

/// Runs f as each rank of a job of threads, with a default group. Returns what each has thrown, "" if nothing.
std::vector<std::string> run_threads(int world, const std::function<void(int rank)>& f,
                                     reel::distributed::Options options = {.rendezvous = std::chrono::seconds(20),
                                                                           .heartbeat = std::chrono::seconds(2)});
/// The same, and fails the test if one has thrown.
void threads(int world, const std::function<void(int rank)>& f);

/// A job of processes: this program as each rank, with a hidden test case and a store in this process, whose run id is
/// "test". RANK, MASTER_PORT and so on are set as torchrun sets them.
class Processes {
 public:
  struct Options {
    std::vector<std::string> variables = {};  // NAME=value
    std::chrono::milliseconds heartbeat{2000};
    bool hosted = false;  // the environment names the store in this process
  };
  Processes(int world, std::string_view hidden_case, Options options);
  Processes(int world, std::string_view hidden_case) : Processes(world, hidden_case, Options()) {}
  ~Processes();  ///< Kills what is left.
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  pid_t pid(int rank) const { return pids_.at(static_cast<size_t>(rank)); }
  /// Waits until the rank has said what begins so by say(), for 20 s at most.
  void wait_for(int rank, std::string_view word);
  /// Waits for the end of a rank, and fails the test at the deadline: 0, an exit code, or minus the signal.
  int wait(int rank, std::chrono::milliseconds limit = std::chrono::seconds(20));
  /// Waits for all, and fails the test unless all end with 0.
  void succeed(std::chrono::milliseconds limit = std::chrono::seconds(20));
  uint16_t port() const { return server_->port(); }
  /// What a rank has written.
  std::string output(int rank) const;

 private:
  std::string path(int rank) const;
  std::unique_ptr<reel::distributed::StoreServer> server_;
  std::string folder_;
  std::vector<pid_t> pids_;
};

/// In a hidden case: runs f as the rank that the environment says, with a default group over Gloo, and ends the process
/// with 0, or with 3 after it has written what was thrown.
void run_rank(const std::function<void(int rank)>& f,
              reel::distributed::Options options = {.backend = reel::distributed::Backend::kGloo});
/// The member of such a process, without a group.
std::shared_ptr<reel::distributed::Member> member_of_process();
/// In a hidden case: a word for wait_for().
void say(std::string_view word);

}  // namespace ranks
