#pragma once
#include <cstdint>
#include <filesystem>

// Files of the operating system (POSIX): reading at an offset, and replacing a file atomically. Exported for
// reel::image, which is a library of its own.
#pragma GCC visibility push(default)
namespace reel::io {

/// A regular file open for reading, whose size is known and bounds what readers allocate. Errors name it.
class InputFile {
 public:
  /// Opens it. A folder, pipe or device, and a pointer of Git LFS in the file's place, are an Error.
  explicit InputFile(const std::filesystem::path& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  int64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return fd_; }
  /// Returns whether the file still has the bytes that it had when it was opened.
  bool is_complete() const;
  /// Fills `data` with the bytes [offset, offset + bytes); fewer are an Error.
  void read(void* data, int64_t bytes, int64_t offset) const;

 private:
  std::filesystem::path path_;
  int fd_;
  int64_t size_ = 0;
};

/// Replaces a file in one step: bytes go to a hidden temporary file beside it, commit() syncs that and renames it.
/// Without commit() the temporary file is removed and the old one is left alone; what a killed process has left, the
/// next one that writes the same file removes.
///
/// A symbolic link stays and its target is replaced, but, as the kernel's protected_symlinks has it, another user's
/// link in a sticky folder that anyone may write to is an Error. A file that is there keeps its permissions and, where
/// the process may set them, owner and group: root may replace another user's file, which remains that user's. A file
/// that the process may not write is an Error although it could be replaced: it was protected on purpose. Other hard
/// links to it keep the old contents. Anything else that is there (a folder, a device, a pipe) is an Error.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Sets space for a large file aside, where the file system can do that in one step: writing is faster then.
  void reserve(int64_t bytes);
  /// Appends bytes, and sends those before them to the disk meanwhile. If `crc` is given, it is the CRC-32 of bytes
  /// that they follow, and becomes that of all.
  void write(const void* data, int64_t bytes, uint32_t* crc = nullptr);
  /// Over bytes that have been written.
  void write_at(const void* data, int64_t bytes, int64_t offset);
  /// With `keep` > 1 the file that is replaced keeps the name kept_file(path, 1), that one the next, and so on, up to
  /// `keep` files; what would come after them is removed. Until the new file is complete none is touched, and there is
  /// a file at `path` all the time (where the file system has hard links).
  void commit(int keep = 1);

 private:
  void open_temporary(unsigned mode);

  std::filesystem::path path_, temporary_;
  int fd_ = -1;
  int64_t end_ = 0, started_ = 0;  // what is written, and what of it is on its way to the disk
};

/// "run.safetensors", "run.1.safetensors", …: where AtomicFile::commit writes a file, and keeps older ones of it.
std::filesystem::path kept_file(const std::filesystem::path& path, int number);

}  // namespace reel::io
#pragma GCC visibility pop
