// Processes that a test starts, and jobs whose ranks are processes.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "reel/distributed/group.h"
#include "test/distributed/ranks.h"
#include "test/support/folder.h"

namespace ranks {

using Variables = std::map<std::string, std::string>;

/// Waits until ready() is true, and returns whether that was in time.
template <class Ready>
bool eventually(const Ready& ready, std::chrono::nanoseconds limit) {
  using Clock = std::chrono::steady_clock;
  for (const auto end = Clock::now() + limit; Clock::now() < end;
       std::this_thread::sleep_for(std::chrono::milliseconds(2)))
    if (ready()) return true;
  return ready();
}

/// A Process is started by a test, and killed when this object goes (fork() alone would not do: the library has
/// threads). What it prints goes to a file.
class Process {
 public:
  struct Options {
    std::string program = "/proc/self/exe";
    int in = -1, out = -1;                                       // otherwise nothing, and a file
    bool merged = true;                                          // errors are in out()
    std::function<bool(const std::string& name)> inherits = {};  // which variables the process has of this one's
  };
  /// `variables` replace those of this process.
  Process(std::vector<std::string> arguments, const Variables& variables, const Options& options);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  std::string out() const { return contents(folder_ / "out"); }
  std::string err() const { return contents(folder_ / "err"); }
  /// Returns the exit code, or 128 and the signal that ended the process. Fails the test if it does not end in time.
  int wait(std::chrono::milliseconds limit);

 private:
  Folder folder_;
  pid_t pid_ = -1;
};

/// A Child runs one test case of this program, and ends when the test does.
class Child : public Process {
 public:
  /// The test case finds the variables in its environment.
  explicit Child(const std::string& test_case, Variables variables = {});

  /// Waits until the child prints a line that begins with this, and returns the rest of the line. Fails the test, with
  /// all that was printed, if there is none in time.
  std::string expect(const std::string& beginning, std::chrono::milliseconds limit = std::chrono::seconds(10));
  int wait(std::chrono::milliseconds limit = std::chrono::seconds(10)) { return Process::wait(limit); }

 private:
  size_t read_ = 0;  // of out(): what expect() has seen
};

/// In a child: prints a line for Child::expect().
void tell(const std::string& line);
/// Returns, in a child, a variable that the parent has set.
std::string given(const char* variable);
/// Lets a child end when its parent does, and after 60 s. A child calls it first.
void be_a_child();

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

  pid_t pid(int rank) const { return at(rank).pid(); }
  /// Waits up to 20 s until the rank has said what begins so by say().
  void wait_for(int rank, std::string_view word);
  /// Waits for the end of a rank as Process::wait does.
  int wait(int rank, std::chrono::milliseconds limit = std::chrono::seconds(20)) { return at(rank).wait(limit); }
  /// Waits for all, and fails the test unless all end with 0.
  void succeed(std::chrono::milliseconds limit = std::chrono::seconds(20));
  uint16_t port() const { return server_->port(); }
  /// Returns what a rank has written.
  std::string output(int rank) const { return at(rank).out(); }

 private:
  Process& at(int rank) const { return *processes_.at(static_cast<size_t>(rank)); }
  std::unique_ptr<reel::distributed::StoreServer> server_;
  std::vector<std::unique_ptr<Process>> processes_;
};

/// Runs f, in a hidden case, as the rank that the environment says, with a default group over Gloo, and ends the
/// process with 0, or with 3 after it has written what was thrown.
void run_rank(const std::function<void(int rank)>& f,
              reel::distributed::ProcessGroupOptions options = {.backend = reel::distributed::Backend::kGloo});
/// Returns the member of such a process, without a group.
std::shared_ptr<reel::distributed::Member> member_of_process();
/// Prints, in a hidden case, a word for wait_for().
void say(std::string_view word);

}  // namespace ranks
