// Runs reel-run as a user does. Ranks are scripts of sh, or a hidden test case of this program.
#pragma once
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "test/distributed/processes.h"

namespace launched {

using namespace std::chrono_literals;
using Catch::Matchers::Contains, Catch::Matchers::StartsWith, Catch::Matchers::Matches;
using Clock = std::chrono::steady_clock;
using ranks::Variables;

inline constexpr auto kDeadline = 60s;

template <class Ready>
bool eventually(const Ready& ready, Clock::duration limit = kDeadline) {
  return ranks::eventually(ready, limit);
}

/// What a launcher has been started with, and must not be seen by the tests' own.
inline const char* const kOther[] = {"RANK",       "WORLD_SIZE",         "LOCAL_RANK",       "LOCAL_WORLD_SIZE",
                                     "REEL_TOKEN", "REEL_TOKEN_FILE",    "REEL_NUM_THREADS", "OMP_NUM_THREADS",
                                     "REEL_STORE", "REEL_DIST_HEARTBEAT"};

/// The path of reel-run, which lies beside this program.
inline std::string reel_run() {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "reel-run").string();
}

/// A Run is a reel-run that has none of kOther in its environment.
class Run : public ranks::Process {
 public:
  explicit Run(std::vector<std::string> arguments, const Variables& variables = {}, int in = -1, int out = -1,
               const std::string& program = reel_run())
      : Process(std::move(arguments), variables,
                {.program = program, .in = in, .out = out, .merged = false, .inherits = is_inherited}) {}

  bool prints(const std::string& text) const {
    return eventually([&] { return out().find(text) != std::string::npos; });
  }
  int wait() { return Process::wait(kDeadline); }

 private:
  static bool is_inherited(const std::string& name) {
    return !name.starts_with("PET_") && std::find(std::begin(kOther), std::end(kOther), name) == std::end(kOther);
  }
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
