#include "lib/io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "reel/error.h"

namespace reel::io {
namespace {

// Of a call of read or write, which Linux limits to 2 GiB.
constexpr int64_t kMaxTransfer = int64_t{1} << 30;

[[noreturn]] void fail_errno(const char* what, const std::filesystem::path& path) {
  reel::detail::fail(what, " ", path, ": ", std::strerror(errno));
}

// The end of a chain of symbolic links, which need not exist.
std::filesystem::path target_of(std::filesystem::path path) {
  constexpr int kMaxLinks = 40;  // Linux's own limit
  std::error_code error;         // ignored: opening the path reports it
  for (int links = 0; std::filesystem::is_symlink(path, error); ++links) {
    REEL_CHECK(links < kMaxLinks, "cannot write ", path, ": too many symbolic links");
    path = path.parent_path() / std::filesystem::read_symlink(path);
  }
  return path;
}

}  // namespace

InputFile::InputFile(const std::filesystem::path& path)
    : path_(path),
      fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {  // O_NONBLOCK: opening a pipe would block
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
        ::pread(fd_, static_cast<char*>(data) + done, std::min(bytes - done, kMaxTransfer), offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno("cannot read", path_);
    REEL_CHECK(got > 0, path_, ": ends at byte ", offset + done, " where more was expected");
    done += got;
  }
}

AtomicFile::AtomicFile(const std::filesystem::path& path) : path_(target_of(path)) {
  static std::atomic<int> counter{0};
  struct stat old;
  const bool replaces = ::stat(path_.c_str(), &old) == 0;
  // rename() would replace a device or a pipe by a regular file.
  REEL_CHECK(!replaces || S_ISREG(old.st_mode), "cannot write ", path, ": it is not a regular file");
  // Not mkstemp: a file made by open() has the permissions that the user's umask gives.
  mode_t mode = replaces ? old.st_mode & 0777 : 0666;
  while (fd_ < 0) {
    temporary_ = path_;
    temporary_ += ".tmp-" + std::to_string(::getpid()) + "-" + std::to_string(counter++);
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd_ < 0 && errno != EEXIST) fail_errno("cannot write", temporary_);
  }
  if (!replaces) return;
  // Restores owner and group, as root may, and bits that the umask removed. Where that fails the file has fewer
  // permissions, never more: those of the old group are not for another one.
  struct stat now;
  const bool known = ::fstat(fd_, &now) == 0;
  if (known && now.st_uid != old.st_uid && ::fchown(fd_, old.st_uid, old.st_gid) == 0) now.st_gid = old.st_gid;
  if (known && now.st_gid != old.st_gid && ::fchown(fd_, static_cast<uid_t>(-1), old.st_gid) == 0)
    now.st_gid = old.st_gid;
  if (!known || now.st_gid != old.st_gid) mode &= ~static_cast<mode_t>(S_IRWXG);
  ::fchmod(fd_, mode);
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, int64_t bytes) {
  for (int64_t done = 0; done < bytes;) {
    const ssize_t put = ::write(fd_, static_cast<const char*>(data) + done, std::min(bytes - done, kMaxTransfer));
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
