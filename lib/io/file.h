#pragma once
#include <cstdint>
#include <filesystem>

// Files of the operating system (POSIX): reading at an offset, and replacing a file atomically.
namespace reel::io {

/// A regular file open for reading, whose size is known and bounds what readers allocate. Errors name it.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  int64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }
  /// Fills `data` with the bytes [offset, offset + bytes); fewer are an Error.
  void read(void* data, int64_t bytes, int64_t offset) const;

 private:
  std::filesystem::path path_;
  int fd_;
  int64_t size_ = 0;
};

/// Replaces a file in one step: bytes go to a new file beside it, commit() syncs that and renames it. Without commit()
/// the new file is removed and the old one is left alone. A symbolic link stays and its target is replaced, a file that
/// is there keeps its permissions and, where the process may set them, owner and group; anything else that is there (a
/// folder, a device, a pipe) is an Error.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, int64_t bytes);
  void commit();

 private:
  std::filesystem::path path_, temporary_;
  int fd_ = -1;
};

}  // namespace reel::io
