#include "lib/distributed/run/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "reel/error.h"

namespace reel::distributed::run {
namespace {

constexpr int kHandled[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP};

// What execvp would find, by this process's PATH, or the reason why it is not found.
std::string find_program(const std::string& name) {
  const auto problem = [](const std::string& path) {
    struct stat status;
    if (::stat(path.c_str(), &status) != 0) return errno;
    if (S_ISDIR(status.st_mode)) return EISDIR;
    return ::access(path.c_str(), X_OK) == 0 ? 0 : errno;
  };
  const auto fail = [&](int error) {
    const bool missing = error == ENOENT || error == ENOTDIR;
    throw CannotRun{missing ? 127 : 126, "cannot run " + name + ": " + std::strerror(error)};
  };
  if (name.find('/') != name.npos) {
    if (const int error = problem(name)) fail(error);
    return name;
  }
  const char* const variable = std::getenv("PATH");
  const std::string path = variable ? variable : "/usr/local/bin:/usr/bin:/bin";
  int first = ENOENT;
  for (size_t begin = 0; begin <= path.size() && !name.empty();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const std::string folder = path.substr(begin, end - begin);
    const std::string found = (folder.empty() ? "." : folder) + "/" + name;
    const int error = problem(found);
    if (error == 0) return found;
    if (error == EACCES) first = error;
    begin = end + 1;
  }
  fail(first);
  return {};
}

std::vector<char*> pointers(const std::vector<std::string>& strings, size_t before = 0) {
  std::vector<char*> result(before, nullptr);
  for (const auto& string : strings) result.push_back(const_cast<char*>(string.c_str()));
  result.push_back(nullptr);
  return result;
}

}  // namespace

Signals::Signals() {
  sigset_t mask;
  sigemptyset(&mask);
  for (const int signal : kHandled) {
    struct sigaction now;
    if (::sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) sigaddset(&mask, signal);
  }
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &action, nullptr);  // ignored, it would leave no zombies
  sigaddset(&mask, SIGCHLD);
  action.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &action, &old_pipe_);
  ::sigprocmask(SIG_BLOCK, &mask, &old_mask_);
  fd_ = Descriptor(::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  REEL_CHECK(fd_, "signalfd: ", std::strerror(errno));
}

std::optional<int> Signals::next() {
  signalfd_siginfo info;
  if (::read(fd_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

void Signals::restore() const {
  ::sigaction(SIGPIPE, &old_pipe_, nullptr);
  ::sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
}

Process::Process(const Start& start) {
  const std::string path = find_program(start.command.front());
  // A script without #! is the shell's, as execvp has it.
  std::vector<char*> shell = pointers(start.command, 1);
  char* const* const arguments = shell.data() + 1;
  std::vector<char*> plain(arguments, arguments + start.command.size() + 1);
  shell[0] = const_cast<char*>("sh");
  shell[1] = const_cast<char*>(path.c_str());
  const std::vector<char*> environment = pointers(start.environment);
  auto [failure, report] = make_pipe();
  const pid_t parent = ::getpid();
  id_ = ::fork();
  REEL_CHECK(id_ >= 0, "fork: ", std::strerror(errno));
  if (id_ == 0) {
    // Other threads of the parent may have held any lock: only system calls from here on.
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);  // it has died before that
    if (::dup2(start.in, 0) == 0 && ::dup2(start.out, 1) == 1 && ::dup2(start.err, 2) == 2) {
      start.signals.restore();
      ::execve(path.c_str(), plain.data(), environment.data());
      if (errno == ENOEXEC) ::execve("/bin/sh", shell.data(), environment.data());
    }
    const int error = errno;
    [[maybe_unused]] const ssize_t put = ::write(report.get(), &error, sizeof error);
    ::_exit(127);
  }
  ::setpgid(id_, id_);  // whoever comes first; a signal to the group must find it
  int error = 0;
  report = {};
  ssize_t got;
  while ((got = ::read(failure.get(), &error, sizeof error)) < 0 && errno == EINTR) {
  }
  if (got != sizeof error) return;
  finish();
  throw CannotRun{error == ENOENT ? 127 : 126, "cannot run " + path + ": " + std::strerror(error)};
}

std::optional<siginfo_t> Process::ended() const {
  siginfo_t info = {};
  if (::waitid(P_PID, static_cast<id_t>(id_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
    return std::nullopt;
  return info;
}

void Process::send(int signal) const noexcept {
  if (id_ > 0) ::kill(-id_, signal);
}

void Process::finish() noexcept {
  if (id_ <= 0) return;
  send(SIGKILL);
  while (::waitpid(id_, nullptr, 0) < 0 && errno == EINTR) {
  }
  id_ = -1;
}

}  // namespace reel::distributed::run
