#pragma once
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "test/support/folder.h"

extern char** environ;

// reel-run, run as a user does. Ranks are scripts of sh, or a hidden test case of this program.
namespace launched {

using namespace std::chrono_literals;
using Catch::Matchers::Contains, Catch::Matchers::StartsWith, Catch::Matchers::Matches;
using Clock = std::chrono::steady_clock;
using Variables = std::map<std::string, std::string>;

inline constexpr auto kDeadline = 60s;

inline std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (const auto& string : strings) result.push_back(const_cast<char*>(string.c_str()));
  result.push_back(nullptr);
  return result;
}

template <class Ready>
bool eventually(const Ready& ready, Clock::duration limit = kDeadline) {
  for (const auto end = Clock::now() + limit; Clock::now() < end; std::this_thread::sleep_for(2ms))
    if (ready()) return true;
  return ready();
}

/// What a launcher has been started with, and must not be seen by the tests' own.
inline const char* const kOther[] = {"RANK",       "WORLD_SIZE",         "LOCAL_RANK",       "LOCAL_WORLD_SIZE",
                                     "REEL_TOKEN", "REEL_TOKEN_FILE",    "REEL_NUM_THREADS", "OMP_NUM_THREADS",
                                     "REEL_STORE", "REEL_DIST_HEARTBEAT"};

/// The path of reel-run, which lies beside this program.
inline std::string reel_run() {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "reel-run").string();
}

/// A reel-run, killed at the end if it is still there. Its output goes to files.
class Run {
 public:
  explicit Run(std::vector<std::string> arguments, const Variables& variables = {}, int in = -1, int out = -1,
               const std::string& program = reel_run()) {
    arguments.insert(arguments.begin(), program);
    std::vector<std::string> environment;
    for (char** variable = environ; *variable; ++variable) {
      const std::string entry = *variable, name = entry.substr(0, entry.find('='));
      const bool other = std::any_of(std::begin(kOther), std::end(kOther), [&](const char* o) { return name == o; });
      if (!other && !name.starts_with("PET_") && !variables.count(name)) environment.push_back(entry);
    }
    for (const auto& [name, value] : variables) environment.push_back(name + "=" + value);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (in >= 0)
      posix_spawn_file_actions_adddup2(&actions, in, 0);
    else
      posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (out >= 0)
      posix_spawn_file_actions_adddup2(&actions, out, 1);
    else
      posix_spawn_file_actions_addopen(&actions, 1, (folder_ / "out").c_str(), O_WRONLY | O_CREAT, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, (folder_ / "err").c_str(), O_WRONLY | O_CREAT, 0600);
    const int error =
        posix_spawn(&id_, program.c_str(), &actions, nullptr, pointers(arguments).data(), pointers(environment).data());
    posix_spawn_file_actions_destroy(&actions);
    REQUIRE(error == 0);
  }
  ~Run() {
    if (id_ <= 0) return;
    ::kill(id_, SIGKILL);
    ::waitpid(id_, nullptr, 0);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  pid_t id() const { return id_; }
  void send(int signal) const { ::kill(id_, signal); }
  std::string out() const { return contents(folder_ / "out"); }
  std::string err() const { return contents(folder_ / "err"); }
  bool prints(const std::string& text) const {
    return eventually([&] { return out().find(text) != std::string::npos; });
  }
  /// The status as a shell has it.
  int wait() {
    int status = 0;
    pid_t ended = 0;
    if (!eventually([&] { return (ended = ::waitpid(id_, &status, WNOHANG)) != 0; })) FAIL("reel-run hangs: " + err());
    REQUIRE(ended == id_);
    id_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  Folder folder_;
  pid_t id_ = -1;
};

inline std::vector<std::string> script(std::vector<std::string> options, const std::string& text) {
  options.insert(options.end(), {"sh", "-c", text});
  return options;
}

/// Lines, sorted: those of different ranks come in any order.
inline std::vector<std::string> sorted_lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

inline bool is_alive(pid_t id) {
  if (::kill(id, 0) != 0) return false;
  const std::string stat = contents("/proc/" + std::to_string(id) + "/stat");
  return stat.find(") Z") == std::string::npos;  // a zombie waits for a parent that need not be there
}

/// Process ids that ranks have printed, "[0] pid 123".
inline std::vector<pid_t> ids_in(const std::string& text) {
  std::vector<pid_t> ids;
  for (size_t at = 0; (at = text.find("pid ", at)) != std::string::npos; ++at)
    ids.push_back(std::stoi(text.substr(at + 4)));
  return ids;
}

inline bool all_end(const std::vector<pid_t>& ids, Clock::duration limit) {
  return eventually([&] { return std::none_of(ids.begin(), ids.end(), is_alive); }, limit);
}

}  // namespace launched
