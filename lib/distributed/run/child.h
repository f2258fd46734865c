#pragma once
#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "lib/distributed/run/output.h"

namespace reel::distributed::run {

/// Signals that reel-run reads from a descriptor instead of being interrupted by them: those that are passed on to the
/// ranks, and SIGCHLD. One that was ignored when reel-run was started stays so.
class Signals {
 public:
  /// Blocks them: before any thread is started, which inherits that.
  Signals();
  int fd() const { return fd_.get(); }
  std::optional<int> next();  ///< One that has come.
  /// For a child, between fork and exec: what reel-run itself was started with.
  void restore() const;

 private:
  sigset_t old_mask_;
  struct sigaction old_pipe_;
  Descriptor fd_;
};

/// A program that cannot be started: the shell's status for it.
struct CannotRun {
  int status;  // 127: there is none, 126: it is none
  std::string message;
};

/// A program in a process group of its own, which is killed with the thread that started it, and with this object.
class Process {
 public:
  struct Start {
    const std::vector<std::string>& command;
    const std::vector<std::string>& environment;  // "NAME=value"
    int in, out, err;
    const Signals& signals;
  };
  /// Throws CannotRun or reel::Error.
  explicit Process(const Start& start);
  ~Process() { finish(); }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t id() const { return id_; }
  /// As waitid() tells it, if it has ended. It remains a zombie, so that its number is not another's.
  std::optional<siginfo_t> ended() const;
  /// Sends a signal to its group: to whatever it has started, too, also after its own end.
  void send(int signal) const noexcept;
  /// Kills what is left of the group, and waits.
  void finish() noexcept;

 private:
  pid_t id_ = -1;
};

}  // namespace reel::distributed::run
