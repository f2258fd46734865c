#include "lib/distributed/run/job.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "reel/error.h"

extern char** environ;

namespace reel::distributed::run {
namespace {

using std::chrono::milliseconds, std::chrono::seconds;

constexpr size_t kLastLines = 20;
constexpr auto kSignalGrace = seconds(30);         // after a signal that a user or a scheduler has sent
constexpr auto kSecondSignal = milliseconds(500);  // from when on another one is meant: timeout(1) sends two at once
constexpr auto kQuiet = milliseconds(200);         // after the end, of pipes that something else still holds

Clock::duration to_duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::min(seconds, 1e8)));
}

int timeout_until(std::optional<Clock::time_point> time) {
  if (!time) return -1;
  const auto left = std::chrono::ceil<milliseconds>(*time - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000));
}

bool wants_end(int signal) { return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT; }

std::string signal_name(int signal) { return "signal " + std::to_string(signal) + " (" + ::strsignal(signal) + ")"; }

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", seconds);
  return text;
}

std::string number_text(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.10g", number);
  return text;
}

/// A run id as a folder's name.
std::string folder_name(std::string id) {
  for (char& c : id)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_') c = '_';
  return id.empty() ? "run" : id.substr(0, 100);
}

Descriptor open_log(const RunOptions& options, const Place& place, int rank, const char* name) {
  const std::filesystem::path folder = std::filesystem::path(options.log_dir) / folder_name(place.run_id) /
                                       ("attempt_" + std::to_string(place.generation)) / std::to_string(rank);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  Descriptor file(::open((folder / name).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  REEL_CHECK(file, "cannot write ", (folder / name).string(), ": ", std::strerror(errno));
  return file;
}

std::vector<std::string> environment_of(const RunOptions& options, const Place& place, int local_rank) {
  const auto text = [](int number) { return std::to_string(number); };
  std::vector<std::pair<std::string, std::string>> set = {
      {"RANK", text(place.first_rank + local_rank)},
      {"WORLD_SIZE", text(place.world_size)},
      {"LOCAL_RANK", text(local_rank)},
      {"LOCAL_WORLD_SIZE", text(options.ranks)},
      {"GROUP_RANK", text(options.node)},
      {"GROUP_WORLD_SIZE", text(options.nodes)},
      {"ROLE_NAME", "default"},
      {"ROLE_RANK", text(place.first_rank + local_rank)},
      {"ROLE_WORLD_SIZE", text(place.world_size)},
      {"MASTER_ADDR", place.host},
      {"MASTER_PORT", text(place.master_port)},
      {"TORCHELASTIC_RUN_ID", place.run_id},
      {"TORCHELASTIC_RESTART_COUNT", text(place.generation)},
      {"TORCHELASTIC_MAX_RESTARTS", text(options.max_restarts)},
      {"TORCHELASTIC_USE_AGENT_STORE", "False"},
      {"REEL_STORE", place.run_id + "@" + place.host + ":" + text(place.store_port)},
  };
  if (!place.token.empty() && !std::getenv("REEL_TOKEN_FILE")) set.emplace_back("REEL_TOKEN", place.token);
  if (options.timeout) set.emplace_back("REEL_DIST_TIMEOUT", number_text(*options.timeout));
  if (options.heartbeat) set.emplace_back("REEL_DIST_HEARTBEAT", number_text(*options.heartbeat));
  // OpenBLAS starts its threads when it is loaded; it knows OpenMP's variable.
  for (const char* name : {"REEL_NUM_THREADS", "OMP_NUM_THREADS"})
    if (!std::getenv(name)) set.emplace_back(name, text(std::max(1, available_cores() / options.ranks)));
  std::vector<std::string> result;
  for (char** variable = environ; *variable; ++variable) {
    const std::string_view entry(*variable), name = entry.substr(0, entry.find('='));
    if (std::ranges::none_of(set, [&](const auto& pair) { return pair.first == name; })) result.emplace_back(entry);
  }
  for (const auto& [name, value] : set) result.push_back(name + "=" + value);
  return result;
}

struct Rank {
  const int rank;
  Stream out, err;
  Process process;
  bool running = true;

  Rank(int rank_, Stream out_, Stream err_, const Process::Start& start)
      : rank(rank_), out(std::move(out_)), err(std::move(err_)), process(start) {}

  Failure failure(const siginfo_t& info) const {
    const bool exited = info.si_code == CLD_EXITED;
    const std::string name = "rank " + std::to_string(rank) + " (process " + std::to_string(process.id()) + ") ";
    return {rank, exited ? info.si_status : 128 + info.si_status,
            name + (exited ? "exited with status " + std::to_string(info.si_status)
                           : "was killed by " + signal_name(info.si_status))};
  }
};

class Generation {
 public:
  Generation(const RunOptions& options, const Place& place, Console& console, const Elsewhere& elsewhere,
             const std::function<void()>& failed)
      : options_(options), place_(place), console_(console), elsewhere_(elsewhere), failed_(failed) {}

  Outcome run() {
    try {
      for (int i = 0; i < options_.ranks; ++i) start(i);
    } catch (const CannotRun& error) {
      cannot_start(error.status, error.message);
    } catch (const std::exception& error) {
      cannot_start(1, error.what());
    }
    while (running() > 0) {
      wait(deadline_);
      if (deadline_ && Clock::now() >= *deadline_) escalate();
    }
    // What ranks have started and left behind ends with them.
    for (auto& rank : ranks_) rank.process.finish();
    drain();
    for (auto& failure : outcome_.failures)
      for (const auto& rank : ranks_)
        if (rank.rank == failure.rank) failure.last_lines = rank.err.last_lines();
    return std::move(outcome_);
  }

 private:
  enum class Ending { kNo, kByItself, kTerminated, kKilled };

  void start(int local_rank) {
    const int rank = place_.first_rank + local_rank;
    auto [out, out_end] = make_pipe();
    auto [err, err_end] = make_pipe();
    // A background process group that reads its terminal would be stopped.
    const bool reads = rank == 0 && !::isatty(0);
    const Descriptor nothing(reads ? -1 : ::open("/dev/null", O_RDONLY | O_CLOEXEC));
    const auto environment = environment_of(options_, place_, local_rank);
    const std::string prefix = "[" + std::to_string(rank) + "] ";
    const auto log = [&](Streams stream, const char* name) {
      return options_.logs(local_rank, stream) ? open_log(options_, place_, rank, name) : Descriptor();
    };
    const auto sink = [&](Streams stream, Sink& own) { return options_.prints(local_rank, stream) ? &own : nullptr; };
    ranks_.emplace_back(
        rank, Stream(std::move(out), prefix, sink(kStdout, console_.out), log(kStdout, "stdout.log"), 0),
        Stream(std::move(err), prefix, sink(kStderr, console_.err), log(kStderr, "stderr.log"), kLastLines),
        Process::Start{options_.command, environment, reads ? 0 : nothing.get(), out_end.get(), err_end.get(),
                       console_.signals});
  }

  void cannot_start(int status, std::string message) {
    outcome_.failures.push_back({place_.first_rank, status, std::move(message)});
    outcome_.can_restart = false;
    failed_();
    kill();
  }

  size_t running() const {
    return static_cast<size_t>(std::ranges::count_if(ranks_, [](const Rank& rank) { return rank.running; }));
  }
  void send(int signal) {
    for (const auto& rank : ranks_) rank.process.send(signal);
  }

  /// Waits for whatever happens first, until then, and deals with it. Returns whether anything was read.
  bool wait(std::optional<Clock::time_point> until) {
    polled_.clear();
    polled_.push_back({console_.signals.fd(), POLLIN, 0});
    polled_.push_back({elsewhere_heard_ ? -1 : elsewhere_.fd, POLLIN, 0});
    for (const Sink* sink : {&console_.out, &console_.err})
      polled_.push_back({sink->has_text() ? sink->fd() : -1, POLLOUT, 0});
    for (const auto& rank : ranks_)
      for (const Stream* stream : {&rank.out, &rank.err})
        polled_.push_back({stream->is_wanted() ? stream->fd() : -1, POLLIN, 0});
    if (::poll(polled_.data(), polled_.size(), timeout_until(until)) <= 0) return false;
    auto event = polled_.begin() + 2;
    for (Sink* sink : {&console_.out, &console_.err})
      if ((event++)->revents) sink->write();
    bool read = false;
    for (auto& rank : ranks_)
      for (Stream* stream : {&rank.out, &rank.err})
        if ((event++)->revents && stream->is_wanted()) {
          stream->read();
          read = true;
        }
    if (polled_[0].revents)
      while (const auto signal = console_.signals.next()) take_signal(*signal);
    if (polled_[1].revents) take_elsewhere();
    return read;
  }

  void take_signal(int signal) {
    if (signal == SIGCHLD) return look_for_ends();
    if (signal == SIGTSTP) return console_.say("a job cannot be suspended: its ranks would be taken for dead");
    if (outcome_.signal && wants_end(signal) && Clock::now() - signalled_ >= kSecondSignal) return kill();
    send(signal);
    if (!wants_end(signal) || outcome_.signal) return;
    outcome_.signal = signal;
    signalled_ = Clock::now();
    if (ending_ == Ending::kKilled) return;
    console_.say(signal_name(signal) + " was passed on to the ranks; another one kills them");
    ending_ = Ending::kTerminated;
    deadline_ = signalled_ + kSignalGrace;
  }

  void take_elsewhere() {
    elsewhere_heard_ = true;
    const std::string reason = elsewhere_.reason();
    if (reason.empty() || ending_ != Ending::kNo) return;
    console_.say(reason);
    give_grace();
  }

  void look_for_ends() {
    std::vector<Failure> now;
    for (auto& rank : ranks_) {
      const auto info = rank.running ? rank.process.ended() : std::nullopt;
      if (!info) continue;
      rank.running = false;
      if (info->si_code != CLD_EXITED || info->si_status != 0) now.push_back(rank.failure(*info));
    }
    if (now.empty() || (killing_ && !outcome_.signal)) return;
    // Of those that have ended at the same time, one that was killed is the cause, and errors are its consequence.
    std::stable_partition(now.begin(), now.end(), [](const Failure& failure) { return failure.status > 128; });
    const bool first = outcome_.failures.empty();
    std::ranges::move(now, std::back_inserter(outcome_.failures));
    if (!first) return;
    failed_();
    const std::string& what = outcome_.failures.front().what;
    if (ending_ != Ending::kNo) return;
    if (const size_t others = running())
      console_.say(what + "; " + std::to_string(others) + (others == 1 ? " other has " : " others have ") +
                   seconds_text(options_.grace) + " to end");
    give_grace();
  }

  void give_grace() {
    ending_ = Ending::kByItself;
    deadline_ = Clock::now() + to_duration(options_.grace);
  }

  void escalate() {
    if (ending_ != Ending::kByItself) return kill();
    killing_ = true;
    send(SIGTERM);
    send(SIGCONT);  // one that is stopped would not hear it
    ending_ = Ending::kTerminated;
    deadline_ = Clock::now() + to_duration(options_.grace);
  }

  void kill() {
    killing_ = true;
    send(SIGKILL);
    ending_ = Ending::kKilled;
    deadline_.reset();
  }

  /// Reads what is left in the pipes. Something that has left the process group may hold them for ever, and after a
  /// signal nobody waits for a slow reader.
  void drain() {
    const auto open = [&] {
      return std::ranges::any_of(ranks_, [](const Rank& rank) { return rank.out.fd() >= 0 || rank.err.fd() >= 0; });
    };
    for (auto last = Clock::now(); open() && Clock::now() - last < kQuiet;) {
      const bool held_up = !outcome_.signal && (console_.out.is_full() || console_.err.is_full());
      if (wait(last + kQuiet) || held_up) last = Clock::now();
    }
    for (auto& rank : ranks_) rank.out.close(), rank.err.close();
    console_.hurries = outcome_.signal != 0;
  }

  const RunOptions& options_;
  const Place& place_;
  Console& console_;
  const Elsewhere& elsewhere_;
  const std::function<void()>& failed_;

  std::list<Rank> ranks_;
  Outcome outcome_;
  Ending ending_ = Ending::kNo;
  std::optional<Clock::time_point> deadline_;
  Clock::time_point signalled_{};
  bool killing_ = false;  // whatever ends now was ended by reel-run
  bool elsewhere_heard_ = false;
  std::vector<pollfd> polled_;
};

}  // namespace

void Console::flush() {
  while (out.has_text() || err.has_text()) {
    pollfd polled[] = {{signals.fd(), POLLIN, 0},
                       {out.has_text() ? out.fd() : -1, POLLOUT, 0},
                       {err.has_text() ? err.fd() : -1, POLLOUT, 0}};
    const int ready = ::poll(polled, 3, hurries ? static_cast<int>(kQuiet.count()) : -1);
    if (ready == 0 || (ready < 0 && errno != EINTR)) return;
    if (ready < 0) continue;
    if (polled[1].revents) out.write();
    if (polled[2].revents) err.write();
    if (polled[0].revents)
      while (const auto signal = signals.next()) hurries = hurries || wants_end(*signal);
  }
}

Outcome run_generation(const RunOptions& options, const Place& place, Console& console, const Elsewhere& elsewhere,
                       const std::function<void()>& failed) {
  return Generation(options, place, console, elsewhere, failed).run();
}

}  // namespace reel::distributed::run
