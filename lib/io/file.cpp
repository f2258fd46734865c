#include "lib/io/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "lib/io/checksum.h"
#include "reel/error.h"

namespace reel::io {
namespace {

// Of a call of read or write, which Linux limits to 2 GiB.
constexpr int64_t kMaxTransfer = int64_t{1} << 30;
// Files are written in pieces that end at multiples of kWritten: the system then keeps them in large pages, which are
// faster to write and to map. How many bytes are sent to the disk at once while others are written is kFlushed.
constexpr int64_t kWritten = 4 << 20, kFlushed = 32 << 20;

[[noreturn]] void fail_errno(const char* what, const std::filesystem::path& path) {
  reel::detail::fail(what, " ", path, ": ", std::strerror(errno));
}

struct Descriptor {
  const int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : ".";
}

// The kernel's rule for links that it follows itself (proc(5), protected_symlinks): whoever may write to a folder like
// /tmp must not lead others' files astray.
void check_link(const std::filesystem::path& path, uid_t owner) {
  struct stat folder;
  if (::stat(folder_of(path).c_str(), &folder) != 0) return;
  const bool shared = (folder.st_mode & S_ISVTX) && (folder.st_mode & S_IWOTH);
  REEL_CHECK(!shared || owner == ::geteuid() || owner == folder.st_uid, "cannot write ", path,
             ": it is a symbolic link of another user, in a sticky folder that anyone may write to");
}

// The end of a chain of symbolic links, which need not exist. What cannot be looked at is reported when it is opened.
std::filesystem::path target_of(std::filesystem::path path) {
  constexpr int kMaxLinks = 40;  // Linux's own limit
  for (int links = 0;; ++links) {
    const Descriptor link{::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC)};
    struct stat status;
    if (link.fd < 0 || ::fstat(link.fd, &status) != 0 || !S_ISLNK(status.st_mode)) return path;
    REEL_CHECK(links < kMaxLinks, "cannot write ", path, ": too many symbolic links");
    check_link(path, status.st_uid);
    char target[PATH_MAX];
    const ssize_t length = ::readlinkat(link.fd, "", target, sizeof target);
    if (length < 0) fail_errno("cannot read the symbolic link", path);
    path = path.parent_path() / std::string(target, static_cast<size_t>(length));
  }
}

// ".name.tmp-0" for "name", cut so that it is a name that file systems take.
std::filesystem::path temporary_name(const std::filesystem::path& path, int slot) {
  std::string name = path.filename().string();
  size_t length = std::min<size_t>(name.size(), 240);
  const auto continues = [](char c) { return (c & 0xc0) == 0x80; };  // a character of UTF-8
  while (length > 0 && length < name.size() && continues(name[length])) --length;
  return path.parent_path() / ("." + name.substr(0, length) + ".tmp-" + std::to_string(slot));
}

bool same_file(const struct stat& a, const struct stat& b) { return a.st_dev == b.st_dev && a.st_ino == b.st_ino; }

// A writer holds the lock of its temporary file, so one that can be locked is a dead process's. While it is locked here
// nobody else removes it.
void remove_stale(const std::filesystem::path& temporary) {
  const Descriptor file{::open(temporary.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)};
  struct stat opened, named;
  if (file.fd < 0 || ::fstat(file.fd, &opened) != 0 || !S_ISREG(opened.st_mode)) return;
  if (::flock(file.fd, LOCK_EX | LOCK_NB) != 0) return;
  if (::lstat(temporary.c_str(), &named) == 0 && same_file(opened, named)) ::unlink(temporary.c_str());
}

std::filesystem::path numbered(const std::filesystem::path& path, int number) {
  if (number == 0) return path;
  std::filesystem::path name = path.stem();
  name += "." + std::to_string(number);
  name += path.extension();
  return path.parent_path() / name;
}

// Gives the file at `path` the name of the first kept one, and those the next. It stays at `path`, too, if there are
// hard links; then it is there already if a process was killed between this and the renaming of the new file.
void keep_old_files(const std::filesystem::path& path, int keep) {
  struct stat now, last;
  const std::filesystem::path first = numbered(path, 1);
  if (keep == 1 || ::lstat(path.c_str(), &now) != 0) return;
  if (::lstat(first.c_str(), &last) == 0 && same_file(now, last)) return;
  for (int i = keep - 2; i > 0; --i)
    if (::rename(numbered(path, i).c_str(), numbered(path, i + 1).c_str()) != 0 && errno != ENOENT)
      fail_errno("cannot rename", numbered(path, i));
  if (keep == 2) ::unlink(first.c_str());
  if (::link(path.c_str(), first.c_str()) != 0 && ::rename(path.c_str(), first.c_str()) != 0)
    fail_errno("cannot rename", path);
  for (int i = keep; ::unlink(numbered(path, i).c_str()) == 0; ++i) {
  }
}

}  // namespace

std::filesystem::path kept_file(const std::filesystem::path& path, int number) {
  return numbered(target_of(path), number);
}

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
  constexpr std::string_view kPointer = "version https://git-lfs.github.com/spec/";
  char begin[kPointer.size()];
  if (size_ >= static_cast<int64_t>(kPointer.size()) && size_ < 1024 &&  // no pointer is larger
      ::pread(fd_, begin, sizeof begin, 0) == static_cast<ssize_t>(sizeof begin) &&
      std::string_view(begin, sizeof begin) == kPointer) {
    ::close(fd_);
    reel::detail::fail("cannot read ", path,
                       ": it is a pointer of Git LFS, not the file itself; 'git lfs pull' gets that");
  }
}

InputFile::~InputFile() { ::close(fd_); }

bool InputFile::is_complete() const {
  struct stat status;
  return ::fstat(fd_, &status) == 0 && status.st_size >= size_;
}

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

AtomicFile::AtomicFile(const std::filesystem::path& path) {
  REEL_CHECK(!path.empty(), "cannot write: the path is empty");
  path_ = target_of(path);
  struct stat old;
  const bool replaces = ::stat(path_.c_str(), &old) == 0;
  // rename() would replace a device or a pipe by a regular file, and one that the user has protected.
  REEL_CHECK(!replaces || S_ISREG(old.st_mode), "cannot write ", path, ": it is not a regular file");
  if (replaces && ::faccessat(AT_FDCWD, path_.c_str(), W_OK, AT_EACCESS) != 0) fail_errno("cannot write", path_);
  // Not mkstemp: a file made by open() has the permissions that the user's umask gives.
  mode_t mode = replaces ? old.st_mode & 0777 : 0666;
  open_temporary(replaces ? mode & 0700 : mode);  // the group is not the old one's yet
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

// Several processes and threads may write one file at once, each to a temporary file of its own: a slot.
void AtomicFile::open_temporary(unsigned mode) {
  constexpr int kSlots = 1000, kSwept = 16;
  for (int slot = 0; slot < kSwept; ++slot) remove_stale(temporary_name(path_, slot));
  for (int slot = 0; slot < kSlots; ++slot) {
    temporary_ = temporary_name(path_, slot);
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd_ < 0 && errno != EEXIST) fail_errno("cannot write", path_);
    if (fd_ < 0) continue;
    // Until it is locked another writer may take it for a dead process's. A file system without locks has none of
    // these.
    const bool taken = ::flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    struct stat status;
    if (!taken && ::fstat(fd_, &status) == 0 && status.st_nlink > 0) return;
    ::close(std::exchange(fd_, -1));
  }
  reel::detail::fail("cannot write ", path_, ": ", kSlots, " temporary files beside it are in use");
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::unlink(temporary_.c_str());  // while it is locked
  ::close(fd_);
}

void AtomicFile::reserve(int64_t bytes) {
  // No failure matters: where there is no space write() reports it, and some file systems cannot reserve.
  if (bytes >= kFlushed) ::fallocate(fd_, 0, 0, bytes);
}

void AtomicFile::write(const void* data, int64_t bytes, uint32_t* crc) {
  const auto* from = static_cast<const char*>(data);
  for (const char* const end = from + bytes; from < end;) {
    const int64_t size = std::min<int64_t>(end - from, kWritten - end_ % kWritten);
    if (crc) *crc = crc_of(from, static_cast<size_t>(size), *crc);
    write_at(from, size, end_);
    from += size, end_ += size;
    if (end_ - started_ < kFlushed) continue;
    ::sync_file_range(fd_, started_, end_ - started_, SYNC_FILE_RANGE_WRITE);  // only begins it; commit() waits for all
    started_ = end_;
  }
}

void AtomicFile::write_at(const void* data, int64_t bytes, int64_t offset) {
  for (int64_t done = 0; done < bytes;) {
    const ssize_t put =
        ::pwrite(fd_, static_cast<const char*>(data) + done, std::min(bytes - done, kMaxTransfer), offset + done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_errno("cannot write", temporary_);
    done += put;
  }
}

void AtomicFile::commit(int keep) {
  if (::fsync(fd_) != 0) fail_errno("cannot sync", temporary_);
  keep_old_files(path_, keep);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_errno("cannot replace", path_);
  ::close(std::exchange(fd_, -1));
  // The new name survives a power cut once the folder is synced. A folder that may not be opened, or a file system that
  // cannot sync folders, is no error: the file has been replaced.
  const Descriptor folder{::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (folder.fd >= 0 && ::fsync(folder.fd) != 0 && (errno == EIO || errno == ENOSPC || errno == EDQUOT))
    reel::detail::fail(path_, " is written, but a power cut may bring the old file back: its folder cannot be synced: ",
                       std::strerror(errno));
}

}  // namespace reel::io
