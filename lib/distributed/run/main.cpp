// reel-run: starts the ranks of a job, and ends all of them when one fails.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "lib/distributed/run/job.h"
#include "lib/distributed/run/nodes.h"
#include "lib/distributed/run/options.h"
#include "lib/distributed/run/task.h"
#include "reel/distributed/launch.h"
#include "reel/distributed/store.h"

namespace reel::distributed::run {
namespace {

std::string random_hex(size_t digits) {
  std::string result(digits, '0');
  for (char& digit : result) {
    unsigned char byte = 0;
    REEL_CHECK(::getrandom(&byte, 1, 0) == 1, "no random numbers");
    digit = "0123456789abcdef"[byte % 16];
  }
  return result;
}

std::string read_token() {
  return Launch::from([](const char* name) -> const char* {
           return std::string(name).starts_with("REEL_TOKEN") ? std::getenv(name) : nullptr;
         })
      .token;
}

/// One that nothing listens at now.
uint16_t free_port() {
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  socklen_t size = sizeof address;
  const auto pointer = reinterpret_cast<sockaddr*>(&address);
  REEL_CHECK(::bind(socket.get(), pointer, size) == 0 && ::getsockname(socket.get(), pointer, &size) == 0,
             "no free port: ", std::strerror(errno));
  return ntohs(address.sin_port);
}

/// What a task returns. No rank is running, so a signal ends reel-run at once: the task may wait for another machine.
template <class T>
T await(Task<T>& task, Console& console) {
  while (true) {
    pollfd polled[] = {{task.fd(), POLLIN, 0},
                       {console.signals.fd(), POLLIN, 0},
                       {console.err.has_text() ? console.err.fd() : -1, POLLOUT, 0}};
    if (::poll(polled, 3, -1) < 0) continue;
    if (polled[2].revents) console.err.write();
    if (polled[1].revents)
      while (const auto signal = console.signals.next())
        if (*signal == SIGINT || *signal == SIGTERM || *signal == SIGHUP || *signal == SIGQUIT)
          std::_Exit(128 + *signal);
    if (polled[0].revents) return task.take();
  }
}

/// Calls f in a thread, and waits for it as await() does.
template <class F>
auto await_call(Console& console, F f) {
  Task<decltype(f(std::declval<const std::atomic<bool>&>()))> task(std::move(f));
  return await(task, console);
}

std::string describe(const Failure& failure, const std::optional<Error>& reason) {
  std::string text = "the first failure: " + failure.what;
  if (!failure.last_lines.empty()) {
    text += "\nreel-run: the last it has written to stderr:";
    for (const auto& line : failure.last_lines) text += "\n    " + line;
  }
  if (reason) text += "\nreel-run: the reason that ranks were told: " + std::string(reason->what());
  return text;
}

class Job {
 public:
  Job(RunOptions options, Console& console) : options_(std::move(options)), console_(console) {}

  int run() {
    token_ = read_token();
    REEL_CHECK(
        options_.nodes == 1 || !token_.empty(), "a job of ", options_.nodes,
        " machines needs a secret that all of them know, in REEL_TOKEN or in a file that REEL_TOKEN_FILE names: ",
        "export REEL_TOKEN=$(openssl rand -hex 16)");
    if (token_.empty()) token_ = random_hex(32);
    Place place;
    place.token = token_;
    place.host = options_.host;
    place.run_id = options_.run_id.empty() ? "reel-" + random_hex(12) : options_.run_id;
    place.world_size = options_.ranks;
    if (options_.nodes > 1) join_nodes(place);
    while (true) {
      host_store(place);
      if (nodes_)
        place = await_call(console_, [&](const auto& stopped) { return nodes_->agree_on_place(place, stopped); });
      const Verdict verdict = run_generation(place);
      if (!verdict.text.empty()) console_.say(verdict.text);
      if (!verdict.restart) {
        if (nodes_ && !lost_)
          await_call(console_, [&](const auto& stopped) { return nodes_->farewell(stopped), true; });
        return verdict.status;
      }
      ++place.generation;
      console_.say("all ranks are started again, " + std::to_string(place.generation) + " of " +
                   std::to_string(options_.max_restarts) + " times");
    }
  }

 private:
  void join_nodes(Place& place) {
    nodes_ = await_call(console_, [&](const auto&) { return std::make_unique<Nodes>(options_, token_); });
    const auto sizes = await_call(console_, [&](const auto& stopped) { return nodes_->sizes(stopped); });
    place.first_rank = std::accumulate(sizes.begin(), sizes.begin() + options_.node, 0);
    place.world_size = std::accumulate(sizes.begin(), sizes.end(), 0);
  }

  /// A new generation of the ranks' store, on node 0.
  void host_store(Place& place) {
    if (options_.node != 0) return;
    place.master_port = !nodes_ && options_.port ? options_.port : free_port();
    if (server_) return server_->restart(place.generation);
    StoreOptions options;
    options.host = options_.host;
    options.run_id = place.run_id;
    options.world_size = place.world_size;
    options.token = token_;
    if (options_.heartbeat) options.heartbeat = Milliseconds(std::llround(*options_.heartbeat * 1000));
    server_ = std::make_unique<StoreServer>(options);
    place.store_port = server_->port();
  }

  Verdict run_generation(const Place& place) {
    const auto decide = [&](Outcome outcome) { return this->decide(std::move(outcome), place.generation); };
    if (!nodes_) return decide(run::run_generation(options_, place, console_, {}, [] {}));
    Task<std::string> end([&](const auto& stopped) {
      try {
        return nodes_->await_end(place.generation, stopped);
      } catch (const reel::Error& error) {
        return std::string(error.what());  // thrown again by what follows
      }
    });
    const auto failed = [&] {
      try {
        nodes_->ended(place.generation, false);
      } catch (const reel::Error&) {  // settle() throws it again
      }
    };
    Outcome outcome = run::run_generation(options_, place, console_, {end.fd(), [&] { return end.take(); }}, failed);
    try {
      return await_call(console_, [&](const auto& stopped) {
        if (outcome.failures.empty()) nodes_->ended(place.generation, true);
        return nodes_->settle(place.generation, outcome, decide, stopped);
      });
    } catch (const reel::Error& error) {
      Verdict verdict = decide(std::move(outcome));
      verdict.restart = false;
      verdict.text +=
          (verdict.text.empty() ? "" : "\nreel-run: ") + std::string("another machine is lost: ") + error.what();
      verdict.status = std::max(verdict.status, 1);
      lost_ = true;
      return verdict;
    }
  }

  /// The rank that the store blames is the cause, where it has failed; otherwise the one that failed first.
  Verdict decide(Outcome outcome, int generation) const {
    if (outcome.failures.empty()) return {};
    const auto reason = server_ ? server_->aborted() : std::nullopt;
    const auto& blamed = reason ? reason->ranks : std::vector<int>();
    const auto found = std::ranges::find_if(
        outcome.failures, [&](const Failure& failure) { return std::ranges::count(blamed, failure.rank) > 0; });
    const Failure& cause = found != outcome.failures.end() ? *found : outcome.failures.front();
    const bool restart = !outcome.signal && outcome.can_restart && generation < options_.max_restarts;
    return {restart, cause.status, outcome.signal ? "" : describe(cause, reason)};
  }

  const RunOptions options_;
  Console& console_;
  std::string token_;
  std::unique_ptr<Nodes> nodes_;
  bool lost_ = false;  // some of them
  std::unique_ptr<StoreServer> server_;
};

/// Descriptors 0, 1 and 2 are ours alone: a pipe or a socket must not get one of their numbers.
void open_standard_streams() {
  int fd;
  while ((fd = ::open("/dev/null", O_RDWR)) >= 0 && fd <= 2) {
  }
  if (fd >= 0) ::close(fd);
}

int run_job(int argc, char** argv) {
  int status = 0;
  auto options = parse_command_line(argc, argv, status);
  if (!options) return status;
  open_standard_streams();
  Console console;
  try {
    status = Job(std::move(*options), console).run();
  } catch (const std::exception& error) {
    console.say(error.what());
    status = 1;
  }
  console.flush();
  return status;
}

}  // namespace
}  // namespace reel::distributed::run

int main(int argc, char** argv) {
  try {
    return reel::distributed::run::run_job(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "reel-run: %s\n", error.what());
    return 1;
  }
}
