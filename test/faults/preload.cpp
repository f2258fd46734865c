// Preloaded into a program, makes one of its calls that change files fail: REEL_FAULT=N:WHAT is the Nth of them, WHAT
// an errno, "short" (half of a write is done) or "kill" (the process dies instead). Where there is no Nth call,
// REEL_FAULT_UNREACHED names a file that is made at the end.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <cstring>

namespace {

struct Fault {
  long left = 0;  // calls until it happens
  int error = 0;
  bool kills = false, is_short = false;
  const char* unreached = std::getenv("REEL_FAULT_UNREACHED");

  Fault() {
    const char* const text = std::getenv("REEL_FAULT");
    if (!text) return;
    char* what = nullptr;
    left = std::strtol(text, &what, 10);
    kills = std::strcmp(what, ":kill") == 0;
    is_short = std::strcmp(what, ":short") == 0;
    error = std::atoi(what + 1);
  }
  ~Fault() {
    if (left > 0 && unreached) ::close(::creat(unreached, 0600));
  }
};
Fault& fault() {
  static Fault fault;
  return fault;
}

// Is this the call?
bool now() {
  Fault& f = fault();
  if (f.left <= 0 || --f.left > 0) return false;
  if (f.kills) ::raise(SIGKILL);
  errno = f.error;
  return true;
}

template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  static const auto real = next<int(const char*, int, mode_t)>("open");
  if (flags & O_CREAT && now() && !fault().is_short) return -1;
  return real(path, flags, mode);
}
ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  static const auto real = next<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  if (!now()) return real(fd, data, bytes, offset);
  return fault().is_short ? real(fd, data, (bytes + 1) / 2, offset) : -1;
}
int fsync(int fd) {
  static const auto real = next<int(int)>("fsync");
  return now() && !fault().is_short ? -1 : real(fd);
}
int flock(int fd, int operation) {
  static const auto real = next<int(int, int)>("flock");
  return now() && !fault().is_short ? -1 : real(fd, operation);
}
int rename(const char* from, const char* to) {
  static const auto real = next<int(const char*, const char*)>("rename");
  return now() && !fault().is_short ? -1 : real(from, to);
}
int link(const char* from, const char* to) {
  static const auto real = next<int(const char*, const char*)>("link");
  return now() && !fault().is_short ? -1 : real(from, to);
}
int unlink(const char* path) {
  static const auto real = next<int(const char*)>("unlink");
  return now() && !fault().is_short ? -1 : real(path);
}

}  // extern "C"
#pragma GCC visibility pop
