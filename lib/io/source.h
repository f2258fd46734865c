#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/io/file.h"
#include "reel/error.h"

// Sequential reading of files that may be compressed, with a bound on what is left, so that readers can check sizes in
// a file before they allocate memory for them.
namespace reel::io {

/// The bytes of a file in order, inflated if it is gzip (RFC 1952; recognized by its first two bytes), or its lines.
/// Errors begin with the file and the place: "words.txt:12: …" for lines, "images.gz: byte 16: …" for bytes, which are
/// counted after inflating.
class Source {
 public:
  explicit Source(const std::filesystem::path& path);
  /// A part of a file, as it stands or in the deflate format. `name` takes the file's place in Errors.
  Source(const InputFile& file, std::string name, int64_t begin, int64_t end, bool deflated);
  ~Source();
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  /// Fills `data`; fewer than `bytes` only at the end. Returns how many.
  int64_t read(void* data, int64_t bytes);
  /// Fills `data`, or throws.
  void read_exactly(void* data, int64_t bytes);
  /// Replaces `line` by the next one, without its line end (LF or CR LF) and without the byte order mark that a first
  /// line may have; false at the end. A first line of UTF-16 or of a compressed file that is not gzip's is an Error.
  bool read_line(std::string& line);
  /// Throws if the line just read has a CR or NUL in it, which are text in no format of one row to a line.
  void check_row(const std::string& line) const;
  /// Appends all bytes up to `stop`, which is read and dropped; false if the end came first. As in read_line,
  /// compressed text that inflates more than 200 times throws.
  bool read_until(char stop, std::string& text);
  bool at_end() { return begin_ == end_ && !refill(); }
  /// Throws unless everything has been read.
  void expect_end();

  int64_t position() const { return position_ - static_cast<int64_t>(end_ - begin_); }  ///< Bytes read so far.
  int64_t line_number() const { return lines_; }                                        ///< Of the line just read.
  /// An upper bound of the bytes that are left: exact for plain files; deflate compresses at most 1032 : 1.
  int64_t max_remaining() const;
  /// Of all bytes read; for parts of files only.
  uint32_t crc() const { return crc_; }
  const std::string& name() const { return name_; }

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    fail_at(position(), parts...);
  }
  template <class... Parts>
  [[noreturn]] void fail_at(int64_t position, const Parts&... parts) const {
    reel::detail::fail(name_, ": byte ", position, ": ", parts...);
  }
  template <class... Parts>
  [[noreturn]] void fail_line(const Parts&... parts) const {
    reel::detail::fail(name_, ":", lines_, ": ", parts...);
  }

 private:
  void check_first(std::string& line) const;
  struct Inflater;

  bool refill();                             // false at the end
  int64_t produce(char* to, int64_t bytes);  // at least one byte, none at the end
  int64_t inflate(char* to, int64_t bytes);

  std::optional<InputFile> own_;
  const InputFile& file_;
  std::string name_;
  int64_t file_at_, file_end_;  // the bytes of the file that are not read yet
  std::unique_ptr<Inflater> inflater_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;  // what of buffer_ is not handed out yet
  int64_t position_ = 0, lines_ = 0;
  uint32_t crc_ = 0;
  bool is_part_;
};

}  // namespace reel::io
