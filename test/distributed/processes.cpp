#include "test/distributed/processes.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>

extern char** environ;

namespace ranks {

using namespace reel::distributed;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

namespace {
std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& string : strings) result.push_back(string.data());
  result.push_back(nullptr);
  return result;
}
}  // namespace

Process::Process(std::vector<std::string> arguments, const Variables& variables, const Options& options) {
  arguments.insert(arguments.begin(), options.program);
  std::vector<std::string> environment;
  for (char** variable = environ; *variable; ++variable) {
    const std::string entry = *variable, name = entry.substr(0, entry.find('='));
    if (!variables.contains(name) && (!options.inherits || options.inherits(name))) environment.push_back(entry);
  }
  for (const auto& [name, value] : variables) environment.push_back(name + "=" + value);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const auto redirect = [&](int to, int from, const std::string& file, int flags) {
    if (from >= 0)
      posix_spawn_file_actions_adddup2(&actions, from, to);
    else
      posix_spawn_file_actions_addopen(&actions, to, file.c_str(), flags, 0600);
  };
  constexpr int kWrite = O_WRONLY | O_CREAT | O_APPEND;
  redirect(0, options.in, "/dev/null", O_RDONLY);
  redirect(1, options.out, folder_ / "out", kWrite);
  redirect(2, options.merged ? 1 : -1, folder_ / "err", kWrite);
  const int error = posix_spawn(&pid_, options.program.c_str(), &actions, nullptr, pointers(arguments).data(),
                                pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  REQUIRE(error == 0);
}

Process::~Process() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Process::signal(int number) const { REQUIRE(::kill(pid_, number) == 0); }

int Process::wait(milliseconds limit) {
  int status = 0;
  if (!eventually([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }, limit))
    FAIL("a process has not ended within " << limit.count() << " ms:\n" << out() << err());
  pid_ = -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// ---- a test case in a process ---------------------------------------------------------------------------------------

namespace {
Variables with_parent(Variables variables) {
  variables["REEL_TEST_PARENT"] = std::to_string(::getpid());
  return variables;
}
}  // namespace

Child::Child(const std::string& test_case, Variables variables)
    : Process({test_case}, with_parent(std::move(variables)), {}) {}

std::string Child::expect(const std::string& beginning, milliseconds limit) {
  std::string line;
  const auto is_printed = [&] {
    const std::string text = out();
    for (size_t end; (end = text.find('\n', read_)) != std::string::npos;) {
      line = text.substr(read_, end - read_);
      read_ = end + 1;
      if (line.starts_with(beginning)) return true;
    }
    return false;
  };
  if (!eventually(is_printed, limit)) FAIL("no line of the child began with \"" << beginning << "\":\n" << out());
  return line.substr(beginning.size());
}

void tell(const std::string& line) {
  const std::string text = line + "\n";
  [[maybe_unused]] const ssize_t written = ::write(2, text.data(), text.size());
}

std::string given(const char* variable) {
  const char* const value = std::getenv(variable);
  REQUIRE(value);
  return value;
}

void be_a_child() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (std::to_string(::getppid()) != given("REEL_TEST_PARENT")) std::_Exit(99);
  ::alarm(60);
}

// ---- a job of processes ---------------------------------------------------------------------------------------------

Processes::Processes(int world, std::string_view hidden_case, Options options) {
  StoreOptions store;
  store.run_id = "test";
  store.world_size = world;
  store.heartbeat = options.heartbeat;
  server_ = std::make_unique<StoreServer>(store);
  const std::string port = std::to_string(server_->port()), size = std::to_string(world);
  for (int rank = 0; rank < world; ++rank) {
    const std::string own = std::to_string(rank);
    Variables variables{{"TEST_RANK", own},
                        {"TEST_WORLD", size},
                        {"TEST_PORT", port},
                        {"TEST_HEARTBEAT", std::to_string(options.heartbeat.count())},
                        {"RANK", own},
                        {"WORLD_SIZE", size},
                        {"LOCAL_RANK", own},
                        {"LOCAL_WORLD_SIZE", size},
                        {"MASTER_ADDR", "127.0.0.1"},
                        {"MASTER_PORT", port}};
    if (options.hosted) variables.insert({{"TORCHELASTIC_RUN_ID", "test"}, {"REEL_STORE", "test@127.0.0.1:" + port}});
    for (const std::string& variable : options.variables) {
      const size_t equals = variable.find('=');
      variables.emplace(variable.substr(0, equals), variable.substr(equals + 1));
    }
    processes_.push_back(
        std::make_unique<Process>(std::vector{std::string(hidden_case)}, variables, Process::Options()));
  }
}

void Processes::wait_for(int rank, std::string_view word) {
  const std::string line = concat("say ", word);
  if (!eventually([&] { return output(rank).find(line) != std::string::npos; }, 20s))
    FAIL("rank " << rank << " has not said " << word << ":\n" << output(rank));
}

void Processes::succeed(milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  for (int rank = 0; rank < static_cast<int>(processes_.size()); ++rank) {
    const int code = wait(rank, std::chrono::duration_cast<milliseconds>(deadline - Clock::now()));
    if (code != 0) FAIL_CHECK("rank " << rank << " ended with " << code << ":\n" << output(rank));
  }
}

// ---- in a process of a job ------------------------------------------------------------------------------------------

namespace {
int number(const char* variable) {
  const char* const text = std::getenv(variable);
  expect(text, variable, " is not set: this case is run by another");
  return std::atoi(text);
}
}  // namespace

std::shared_ptr<Member> member_of_process() {
  StoreOptions store;
  store.port = static_cast<uint16_t>(number("TEST_PORT"));
  store.run_id = "test";
  store.world_size = number("TEST_WORLD");
  store.heartbeat = std::chrono::milliseconds(number("TEST_HEARTBEAT"));
  return connect_store(number("TEST_RANK"), store);
}

void run_rank(const std::function<void(int)>& f, reel::distributed::ProcessGroupOptions options) {
  int code = 0;
  try {
    options.heartbeat = std::chrono::milliseconds(number("TEST_HEARTBEAT"));
    init_process_group(member_of_process(), options);
    f(number("TEST_RANK"));
  } catch (const reel::distributed::Error& error) {
    std::printf("Error %d: %s\n", error.kind, error.what());
    code = 3;
  } catch (const std::exception& error) {
    std::printf("exception: %s\n", error.what());
    code = 4;
  }
  std::fflush(stdout);
  if (code == 4) _exit(code);  // a rank that dies
  destroy_process_group();
  std::exit(code);
}

void say(std::string_view word) {
  std::printf("say %s\n", std::string(word).c_str());
  std::fflush(stdout);
}

}  // namespace ranks
