#include "test/distributed/ranks.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace ranks {

using namespace reel::distributed;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

std::vector<std::string> run_threads(int world, const std::function<void(int)>& f, Options options) {
  std::vector<std::string> thrown(static_cast<size_t>(world));
  std::vector<std::shared_ptr<Member>> members = thread_members(world);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([&, rank, member = members[static_cast<size_t>(rank)]]() mutable {
      try {
        init_process_group(std::move(member), options);
        f(rank);
      } catch (const std::exception& error) {
        thrown[static_cast<size_t>(rank)] = error.what();
        if (is_initialized()) default_group().abort(error.what());
      }
      destroy_process_group();
    });
  members.clear();
  for (std::thread& thread : threads) thread.join();
  return thrown;
}

void threads(int world, const std::function<void(int)>& f) {
  const auto thrown = run_threads(world, f);
  for (size_t rank = 0; rank < thrown.size(); ++rank)
    if (!thrown[rank].empty()) FAIL_CHECK("rank " << rank << ": " << thrown[rank]);
}

// ---- processes ------------------------------------------------------------------------------------------------------

Processes::Processes(int world, std::string_view hidden_case, Options options) {
  StoreOptions store;
  store.run_id = "test";
  store.world_size = world;
  store.heartbeat = options.heartbeat;
  server_ = std::make_unique<StoreServer>(store);
  char name[] = "/tmp/reel-ranks-XXXXXX";
  REQUIRE(mkdtemp(name));
  folder_ = name;
  for (int rank = 0; rank < world; ++rank) {
    std::vector<std::string> variables = options.variables;
    for (char** given = environ; *given; ++given) variables.push_back(*given);  // the first of a name is found
    variables.insert(variables.begin(),
                     {concat("TEST_RANK=", rank), concat("TEST_WORLD=", world), concat("TEST_PORT=", server_->port()),
                      concat("TEST_HEARTBEAT=", options.heartbeat.count()), concat("RANK=", rank),
                      concat("WORLD_SIZE=", world), concat("LOCAL_RANK=", rank), concat("LOCAL_WORLD_SIZE=", world),
                      "MASTER_ADDR=127.0.0.1", concat("MASTER_PORT=", server_->port())});
    if (options.hosted)
      variables.insert(variables.begin(),
                       {"TORCHELASTIC_RUN_ID=test", concat("REEL_STORE=test@127.0.0.1:", server_->port())});
    std::vector<char*> environment, arguments;
    for (std::string& variable : variables) environment.push_back(variable.data());
    environment.push_back(nullptr);
    std::string program = "/proc/self/exe", hidden(hidden_case);
    for (std::string* argument : {&program, &hidden}) arguments.push_back(argument->data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, path(rank).c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    pid_t pid = 0;
    const int error = posix_spawn(&pid, program.c_str(), &actions, nullptr, arguments.data(), environment.data());
    posix_spawn_file_actions_destroy(&actions);
    REQUIRE(error == 0);
    pids_.push_back(pid);
  }
}

Processes::~Processes() {
  for (const pid_t pid : pids_) {
    if (pid <= 0) continue;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::string Processes::path(int rank) const { return concat(folder_, "/rank", rank); }

std::string Processes::output(int rank) const {
  std::ifstream file(path(rank));
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void Processes::wait_for(int rank, std::string_view word) {
  const std::string line = concat("say ", word);
  for (const auto deadline = Clock::now() + 20s; output(rank).find(line) == std::string::npos;
       std::this_thread::sleep_for(5ms))
    if (Clock::now() > deadline) FAIL("rank " << rank << " has not said " << word << ":\n" << output(rank));
}

int Processes::wait(int rank, std::chrono::milliseconds limit) {
  pid_t& pid = pids_.at(static_cast<size_t>(rank));
  for (const auto deadline = Clock::now() + limit;; std::this_thread::sleep_for(2ms)) {
    int status = 0;
    if (waitpid(pid, &status, WNOHANG) == pid) {
      pid = 0;
      return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    if (Clock::now() > deadline) {
      std::string all;
      for (size_t r = 0; r < pids_.size(); ++r) all += concat("rank ", r, ":\n", output(static_cast<int>(r)));
      FAIL("rank " << rank << " has not ended within " << limit.count() << " ms:\n" << all);
    }
  }
}

void Processes::succeed(std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  for (size_t rank = 0; rank < pids_.size(); ++rank) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    const int code = wait(static_cast<int>(rank), left);
    if (code != 0) FAIL_CHECK("rank " << rank << " ended with " << code << ":\n" << output(static_cast<int>(rank)));
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

void run_rank(const std::function<void(int)>& f, reel::distributed::Options options) {
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
