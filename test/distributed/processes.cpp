#include "test/distributed/processes.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <thread>
#include <vector>

extern char** environ;

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

Child::Child(const std::string& test_case, std::map<std::string, std::string> variables) {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  output_ = ends[0];
  variables["REEL_TEST_PARENT"] = std::to_string(::getpid());
  std::vector<std::string> environment;
  for (char** v = environ; *v; ++v)
    if (const std::string text = *v; !variables.contains(text.substr(0, text.find('=')))) environment.push_back(text);
  for (const auto& [name, value] : variables) environment.push_back(name + "=" + value);
  std::vector<char*> pointers;
  for (std::string& text : environment) pointers.push_back(text.data());
  pointers.push_back(nullptr);

  std::string program = "distributed_tests", name = test_case;
  char* const arguments[] = {program.data(), name.data(), nullptr};
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
  const int failure = ::posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, arguments, pointers.data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  REQUIRE(failure == 0);
}

Child::~Child() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  ::close(output_);
}

void Child::signal(int number) { REQUIRE(::kill(pid_, number) == 0); }

bool Child::read_more(Clock::time_point deadline) {
  const auto rest = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
  pollfd ready = {.fd = output_, .events = POLLIN, .revents = 0};
  if (::poll(&ready, 1, static_cast<int>(std::max<int64_t>(rest, 0))) <= 0) return false;
  char buffer[4096];
  const ssize_t got = ::read(output_, buffer, sizeof buffer);
  if (got > 0) text_.append(buffer, static_cast<size_t>(got));
  return got > 0;
}

std::string Child::expect(const std::string& beginning, milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  do {
    for (size_t end; (end = text_.find('\n', read_)) != std::string::npos;) {
      const std::string line = text_.substr(read_, end - read_);
      read_ = end + 1;
      if (line.starts_with(beginning)) return line.substr(beginning.size());
    }
  } while (read_more(deadline));
  INFO("the child printed:\n" << text_);
  FAIL("no line of the child began with \"" << beginning << "\"");
  return {};
}

int Child::wait(milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  while (true) {
    int status = 0;
    const bool ended = ::waitpid(pid_, &status, WNOHANG) == pid_;
    if (ended) {
      pid_ = -1;
      return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    if (Clock::now() >= deadline) break;
    read_more(std::min(deadline, Clock::now() + milliseconds(10)));
    std::this_thread::sleep_for(milliseconds(2));
  }
  INFO("the child printed:\n" << text_);
  FAIL("a child did not end in time");
  return -1;
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
