#pragma once
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>

namespace reel::tensorboard {

/// CRC-32C (Castagnoli; RFC 3720, appendix B.4), rotated and shifted as records have it.
uint32_t masked_crc32c(std::string_view bytes);

/// A file of records: uint64 length | masked CRC of it | data | masked CRC of them, little-endian (TensorFlow's
/// TFRecord format). Several threads may append.
class EventFile {
 public:
  /// Where the data begin in what append() takes.
  static constexpr size_t kHeader = 12;

  /// A new file in `folder`, whose name no other has.
  EventFile(const std::filesystem::path& folder, const std::string& suffix);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Appends one record by one write(). `record` has kHeader bytes to fill in, and then the data. If it cannot be
  /// written whole, what was of it is taken back, and an Error says why.
  void append(std::string& record);
  void sync();

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  std::mutex mutex_;
  int64_t end_ = 0;  // of the last whole record
};

}  // namespace reel::tensorboard
