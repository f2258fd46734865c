#include "lib/io/source.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "lib/io/checksum.h"

namespace reel::io {
namespace {

constexpr int64_t kBuffer = 1 << 16;
constexpr int64_t kMaxInflation = 1032;  // RFC 1951: at most 258 bytes for 2 bits
// Text becomes many objects in memory, whose number nothing in the file foretells: so much of it, and so many times the
// compressed bytes, is taken for an attack. Text that people write inflates about 3 times, tables and logs up to 50.
constexpr int64_t kFreeText = 16 << 20, kMaxTextInflation = 200;

// These are the first bytes of files that are not UTF-8, and what to do with them.
constexpr std::pair<std::string_view, const char*> kNoText[] = {
    {"\xff\xfe", "the text is UTF-16, by its byte order mark; convert it to UTF-8"},
    {"\xfe\xff", "the text is UTF-16, by its byte order mark; convert it to UTF-8"},
    {"PK\3\4", "this is a zip file, no text; unpack it"},
    {"BZh91AY&SY", "this is compressed by bzip2, not gzip; decompress it"},
    {"\x28\xb5\x2f\xfd", "this is compressed by zstd, not gzip; decompress it"},
    {"\xfd\x37zXZ", "this is compressed by xz, not gzip; decompress it"}};

bool is_gzip(const InputFile& file) {
  unsigned char magic[2] = {};
  if (file.size() >= 2) file.read(magic, 2, 0);
  return magic[0] == 0x1f && magic[1] == 0x8b;
}

}  // namespace

struct Source::Inflater {
  z_stream stream{};
  bool gzip, in_member = true;
  std::vector<char> input = std::vector<char>(kBuffer);

  explicit Inflater(bool gzip_) : gzip(gzip_) {
    constexpr int kWindow = 15, kGzip = 16;
    REEL_CHECK(inflateInit2(&stream, gzip ? kWindow + kGzip : -kWindow) == Z_OK, "zlib: out of memory");
  }
  ~Inflater() { inflateEnd(&stream); }
};

Source::Source(const std::filesystem::path& path)
    : own_(path), file_(*own_), name_(path.string()), file_at_(0), file_end_(file_.size()), is_part_(false) {
  if (is_gzip(file_)) inflater_ = std::make_unique<Inflater>(true);
}

Source::Source(const InputFile& file, std::string name, int64_t begin, int64_t end, bool deflated)
    : file_(file), name_(std::move(name)), file_at_(begin), file_end_(end), is_part_(true) {
  if (deflated) inflater_ = std::make_unique<Inflater>(false);
}

Source::~Source() = default;

int64_t Source::max_remaining() const {
  const int64_t ready = static_cast<int64_t>(end_ - begin_), in_file = file_end_ - file_at_;
  if (!inflater_) return ready + in_file;
  return ready + (in_file + inflater_->stream.avail_in + 1) * kMaxInflation + (1 << 15);  // and zlib's own window
}

// ---- bytes ----------------------------------------------------------------------------------------------------------

int64_t Source::inflate(char* to, int64_t bytes) {
  z_stream& stream = inflater_->stream;
  stream.next_out = reinterpret_cast<Bytef*>(to);
  stream.avail_out = static_cast<uInt>(std::min<int64_t>(bytes, 1 << 30));
  const uInt before = stream.avail_out;
  while (stream.avail_out == before) {
    if (stream.avail_in == 0) {
      const int64_t part = std::min(kBuffer, file_end_ - file_at_);
      if (part == 0) {
        if (!inflater_->in_member) return 0;
        fail("the compressed data end early");
      }
      file_.read(inflater_->input.data(), part, file_at_);
      file_at_ += part;
      stream.next_in = reinterpret_cast<Bytef*>(inflater_->input.data());
      stream.avail_in = static_cast<uInt>(part);
    }
    if (!inflater_->in_member) {  // a gzip file may go on with another member, after zeros that fill a tape's block
      if (!inflater_->gzip) fail("bytes after the compressed data");
      while (stream.avail_in > 0 && *stream.next_in == 0) ++stream.next_in, --stream.avail_in;
      if (stream.avail_in == 0) continue;
      inflateReset(&stream);
      inflater_->in_member = true;
    }
    const int status = ::inflate(&stream, Z_NO_FLUSH);
    if (status == Z_STREAM_END)
      inflater_->in_member = false;
    else if (status != Z_OK && status != Z_BUF_ERROR)
      fail("the compressed data are damaged, at byte ", file_at_ - stream.avail_in,
           " of the file: ", stream.msg ? stream.msg : "out of memory");
  }
  return before - stream.avail_out;
}

int64_t Source::produce(char* to, int64_t bytes) {
  int64_t got;
  if (inflater_) {
    got = inflate(to, bytes);
    if (is_part_) crc_ = crc_of(to, static_cast<size_t>(got), crc_);
  } else {
    got = std::min(bytes, file_end_ - file_at_);
    const uint32_t crc = crc_of_pieces(got, [&](int64_t begin, int64_t size) {
      file_.read(to + begin, size, file_at_ + begin);
      return is_part_ ? crc_of(to + begin, static_cast<size_t>(size)) : 0;
    });
    file_at_ += got;
    if (is_part_) crc_ = static_cast<uint32_t>(crc32_combine(crc_, crc, got));
  }
  position_ += got;
  return got;
}

bool Source::refill() {
  buffer_.resize(kBuffer);
  begin_ = end_ = 0;
  end_ = static_cast<size_t>(produce(buffer_.data(), kBuffer));
  return end_ > 0;
}

int64_t Source::read(void* data, int64_t bytes) {
  auto* to = static_cast<char*>(data);
  int64_t done = 0;
  while (done < bytes) {
    if (begin_ < end_) {
      const auto part = std::min(static_cast<size_t>(bytes - done), end_ - begin_);
      std::memcpy(to + done, buffer_.data() + begin_, part);
      begin_ += part;
      done += static_cast<int64_t>(part);
    } else if (bytes - done >= kBuffer) {
      const int64_t part = produce(to + done, bytes - done);
      if (part == 0) break;
      done += part;
    } else if (!refill()) {
      break;
    }
  }
  return done;
}

void Source::read_exactly(void* data, int64_t bytes) {
  const int64_t got = read(data, bytes);
  if (got < bytes) fail("ends where ", bytes - got, " more bytes were expected");
}

void Source::expect_end() {
  if (!at_end()) fail("there are bytes after the end of the data");
}

// ---- text -----------------------------------------------------------------------------------------------------------

bool Source::read_until(char stop, std::string& text) {
  while (true) {
    if (begin_ == end_ && !refill()) return false;
    if (inflater_ && position_ > kFreeText && position_ / kMaxTextInflation > file_at_)
      fail("the text is more than ", kMaxTextInflation, " times as long as the ", file_at_,
           " compressed bytes that it comes from; if that is meant, decompress the file");
    const char* first = buffer_.data() + begin_;
    const auto* found = static_cast<const char*>(std::memchr(first, stop, end_ - begin_));
    const size_t part = found ? static_cast<size_t>(found - first) : end_ - begin_;
    text.append(first, part);
    begin_ += part + (found != nullptr);
    if (found) return true;
  }
}

void Source::check_first(std::string& line) const {
  if (line.starts_with("\xef\xbb\xbf")) line.erase(0, 3);
  for (const auto& [begin, what] : kNoText)
    if (line.starts_with(begin)) fail_line(what);
  // A character below 256 has one byte of 0 in UTF-16.
  const auto is_nul = [&](size_t at) { return line[at] == '\0'; };
  if (line.size() > 3 && ((is_nul(0) && is_nul(2)) || (is_nul(1) && is_nul(3))))
    fail_line("the text is UTF-16 without a byte order mark; convert it to UTF-8");
}

void Source::check_row(const std::string& line) const {
  if (line.find('\r') != std::string::npos) fail_line("a CR without a LF; lines end with LF or CR LF");
  if (line.find('\0') != std::string::npos) fail_line("the text has a NUL");
}

bool Source::read_line(std::string& line) {
  line.clear();
  if (!read_until('\n', line) && line.empty()) return false;
  if (!line.empty() && line.back() == '\r') line.pop_back();
  if (lines_++ == 0) check_first(line);
  return true;
}

}  // namespace reel::io
