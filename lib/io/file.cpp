#include "lib/io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>

#include "reel/error.h"

namespace reel::io {
namespace {

// Linux moves at most 2 GiB a call.
constexpr int64_t kMostAtOnce = int64_t{1} << 30;

[[noreturn]] void fail_errno(const char* what, const std::filesystem::path& path) {
  reel::detail::fail(what, " ", path, ": ", std::strerror(errno));
}

}  // namespace

InputFile::InputFile(const std::filesystem::path& path)
    : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {  // does not wait for a pipe's writer
  if (fd_ < 0) fail_errno("cannot open", path);
  struct stat status;
  if (::fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(fd_);
    reel::detail::fail("cannot read ", path, ": it is not a regular file");
  }
  size_ = status.st_size;
}

InputFile::~InputFile() { ::close(fd_); }

void InputFile::read(void* data, int64_t bytes, int64_t offset) const {
  for (int64_t done = 0; done < bytes;) {
    const ssize_t got =
        ::pread(fd_, static_cast<char*>(data) + done, std::min(bytes - done, kMostAtOnce), offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno("cannot read", path_);
    REEL_CHECK(got > 0, path_, ": ends at byte ", offset + done, " where more was expected");
    done += got;
  }
}

AtomicFile::AtomicFile(const std::filesystem::path& path) : path_(path) {
  static std::atomic<int> counter{0};
  // Not mkstemp: a file made by open() has the permissions that the user's umask gives.
  while (fd_ < 0) {
    temporary_ = path;
    temporary_ += ".tmp-" + std::to_string(::getpid()) + "-" + std::to_string(counter++);
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0 && errno != EEXIST) fail_errno("cannot write", temporary_);
  }
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, int64_t bytes) {
  for (int64_t done = 0; done < bytes;) {
    const ssize_t put = ::write(fd_, static_cast<const char*>(data) + done, std::min(bytes - done, kMostAtOnce));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_errno("cannot write", temporary_);
    done += put;
  }
}

void AtomicFile::commit() {
  if (::fsync(fd_) != 0) fail_errno("cannot sync", temporary_);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_errno("cannot replace", path_);
  ::close(fd_);
  fd_ = -1;
  // The new name survives a power cut once the folder is synced. The rename has happened, so a file system that cannot
  // sync folders is no error.
  const std::filesystem::path folder = path_.has_parent_path() ? path_.parent_path() : ".";
  if (const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); fd >= 0) {
    ::fsync(fd);
    ::close(fd);
  }
}

}  // namespace reel::io
