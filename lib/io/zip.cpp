#include "lib/io/zip.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

#include "lib/io/checksum.h"
#include "reel/error.h"

namespace reel::io {
namespace {

constexpr uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50, kEnd64 = 0x06064b50,
                   kLocator64 = 0x07064b50;
constexpr int64_t kLocalSize = 30, kEndSize = 22, kEnd64Size = 56, kLocatorSize = 20;
constexpr uint16_t kStored = 0, kDeflated = 8, kExtra64 = 1;
constexpr uint32_t kIn64 = 0xFFFFFFFF;  // "see the 64-bit field"

// Record signatures and sizes are those of PKWARE's APPNOTE.TXT, sections 4.3.7 (local header), 4.3.12 (central
// directory), 4.3.14 to 4.3.16 (ends of the directory) and 4.5.3 (zip64 extra field).

// ---- reading --------------------------------------------------------------------------------------------------------

// Little-endian fields, one after the other.
class Fields {
 public:
  Fields(const InputFile& file, std::string_view bytes, int64_t position)
      : file_(file), bytes_(bytes), position_(position) {}

  template <class T>
  T take() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view take(size_t count) {
    if (count > bytes_.size()) fail("the zip directory ends inside a field");
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    position_ += static_cast<int64_t>(count);
    return taken;
  }
  bool empty() const { return bytes_.empty(); }
  int64_t position() const { return position_; }
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    reel::detail::fail(file_.path().string(), ": byte ", position_, ": ", parts...);
  }

 private:
  const InputFile& file_;
  std::string_view bytes_;
  int64_t position_;
};

std::string read_part(const InputFile& file, int64_t begin, int64_t bytes) {
  std::string part(bytes, '\0');
  file.read(part.data(), bytes, begin);
  return part;
}

struct Directory {
  int64_t begin, bytes, entries;
};

// The end record lies at the end of the file, before a comment of up to 65535 bytes. A match of its signature counts
// only if its comment ends with the file: the comment may contain the signature, too.
Directory find_directory(const InputFile& file) {
  const int64_t tail_begin = std::max<int64_t>(0, file.size() - kEndSize - 0xFFFF);
  const std::string tail = read_part(file, tail_begin, file.size() - tail_begin);
  const std::string_view mark(reinterpret_cast<const char*>(&kEnd), 4);
  size_t at = tail.size() < kEndSize ? std::string::npos : tail.rfind(mark, tail.size() - kEndSize);
  const auto comment_fits = [&] {
    uint16_t comment;
    std::memcpy(&comment, tail.data() + at + 20, 2);
    return at + kEndSize + comment == tail.size();
  };
  while (at != std::string::npos && !comment_fits()) at = at == 0 ? std::string::npos : tail.rfind(mark, at - 1);
  REEL_CHECK(at != std::string::npos, file.path().string(), ": not a zip file, it has no directory");

  const int64_t end = tail_begin + static_cast<int64_t>(at);
  Fields fields(file, std::string_view(tail).substr(at + 4), end + 4);
  const auto disk = fields.take<uint16_t>(), first_disk = fields.take<uint16_t>();
  fields.take<uint16_t>();
  Directory directory{0, 0, fields.take<uint16_t>()};
  directory.bytes = fields.take<uint32_t>();
  directory.begin = fields.take<uint32_t>();
  int64_t limit = end;
  if (end >= kLocatorSize) {  // some programs write 64-bit fields where they need none
    const std::string locator = read_part(file, end - kLocatorSize, kLocatorSize);
    Fields at64(file, locator, end - kLocatorSize);
    if (at64.take<uint32_t>() == kLocator64) {
      at64.take<uint32_t>();
      const auto begin64 = at64.take<uint64_t>();
      if (begin64 > static_cast<uint64_t>(end) || static_cast<int64_t>(begin64) > end - kLocatorSize - kEnd64Size)
        at64.fail("the zip64 directory's end lies at ", begin64, ", outside of the file");
      limit = static_cast<int64_t>(begin64);
      const std::string record = read_part(file, limit, kEnd64Size);
      Fields end64(file, record, limit);
      if (end64.take<uint32_t>() != kEnd64) end64.fail("no end of a zip64 directory");
      end64.take(8 + 2 + 2 + 4 + 4 + 8);
      const auto entries = end64.take<uint64_t>(), bytes = end64.take<uint64_t>(), begin = end64.take<uint64_t>();
      if (begin > static_cast<uint64_t>(limit) || bytes > static_cast<uint64_t>(limit) || entries > bytes)
        end64.fail("the zip64 directory lies outside of the file");
      directory = {static_cast<int64_t>(begin), static_cast<int64_t>(bytes), static_cast<int64_t>(entries)};
    }
  }
  if (disk != first_disk) fields.fail("zip files of several disks are not read");
  if (directory.begin > limit || directory.bytes != limit - directory.begin)
    fields.fail("the directory of ", directory.bytes, " bytes at ", directory.begin, " does not end at ", limit);
  return directory;
}

// The zip64 extra field: 64-bit values for those fields of the header that are 0xFFFFFFFF, in this order.
void read_extra64(Fields& extra, const std::vector<int64_t*>& replaced) {
  while (!extra.empty()) {
    const auto id = extra.take<uint16_t>(), bytes = extra.take<uint16_t>();
    const int64_t position = extra.position();
    Fields content = extra;
    extra.take(bytes);
    if (id != kExtra64) continue;
    for (int64_t* value : replaced) {
      if (*value != kIn64) continue;
      const auto wide = content.take<uint64_t>();
      if (wide >> 62 || content.position() - position > bytes) content.fail("a 64-bit field is malformed");
      *value = static_cast<int64_t>(wide);
    }
    return;
  }
}

ZipEntry read_entry(const InputFile& file, Fields& fields, int64_t directory_begin) {
  if (fields.take<uint32_t>() != kCentral) fields.fail("no entry of a zip directory");
  fields.take(2 + 2);  // versions
  const auto flags = fields.take<uint16_t>(), method = fields.take<uint16_t>();
  fields.take(2 + 2);  // time and date
  ZipEntry entry{};
  entry.crc = fields.take<uint32_t>();
  int64_t compressed = fields.take<uint32_t>();
  entry.size = fields.take<uint32_t>();
  const auto name = fields.take<uint16_t>(), extra = fields.take<uint16_t>(), comment = fields.take<uint16_t>();
  fields.take(2 + 2 + 4);  // disk, attributes
  int64_t header = fields.take<uint32_t>();
  entry.name = fields.take(name);
  const int64_t extra_position = fields.position();
  Fields extra_fields(file, fields.take(extra), extra_position);
  read_extra64(extra_fields, {&entry.size, &compressed, &header});
  fields.take(comment);

  const auto fail = [&](const auto&... parts) { fields.fail("'", entry.name.substr(0, 200), "': ", parts...); };
  if (flags & 1) fail("it is encrypted");
  if (method != kStored && method != kDeflated) fail("its compression, ", method, ", is neither stored nor deflated");
  entry.deflated = method == kDeflated;
  if (!entry.deflated && compressed != entry.size)
    fail("stored, but its sizes ", compressed, " and ", entry.size, " differ");
  if (header > directory_begin - kLocalSize) fail("its header at ", header, " lies outside of the file");

  const std::string bytes = read_part(file, header, kLocalSize);
  Fields local(file, bytes, header);
  if (local.take<uint32_t>() != kLocal) local.fail("no header of a member");
  local.take(kLocalSize - 4 - 4);
  const auto local_name = local.take<uint16_t>(), local_extra = local.take<uint16_t>();
  entry.begin = header + kLocalSize + local_name + local_extra;
  if (entry.begin > directory_begin || compressed > directory_begin - entry.begin)
    fail("its ", compressed, " bytes at ", entry.begin, " lie outside of the file");
  entry.end = entry.begin + compressed;
  return entry;
}

}  // namespace

std::vector<ZipEntry> read_zip(const InputFile& file) {
  const Directory directory = find_directory(file);
  const std::string bytes = read_part(file, directory.begin, directory.bytes);
  Fields fields(file, bytes, directory.begin);
  std::vector<ZipEntry> entries;
  while (!fields.empty()) entries.push_back(read_entry(file, fields, directory.begin));
  if (static_cast<int64_t>(entries.size()) != directory.entries)
    fields.fail("the directory has ", entries.size(), " entries, not ", directory.entries);

  // Overlapping members would let a small file unfold into terabytes (Fifield 2019, "A better zip bomb").
  std::vector<const ZipEntry*> in_order;
  for (const ZipEntry& entry : entries) in_order.push_back(&entry);
  std::sort(in_order.begin(), in_order.end(), [](const auto* a, const auto* b) { return a->begin < b->begin; });
  for (size_t i = 1; i < in_order.size(); ++i)
    if (in_order[i]->begin < in_order[i - 1]->end)
      fields.fail("'", in_order[i]->name.substr(0, 200), "' overlaps another member");
  return entries;
}

// ---- writing --------------------------------------------------------------------------------------------------------

namespace {

template <class... T>
std::string fields(T... values) {
  std::string bytes;
  (bytes.append(reinterpret_cast<const char*>(&values), sizeof values), ...);
  return bytes;
}

std::string deflated(const std::vector<std::span<const char>>& pieces) {
  z_stream stream{};
  REEL_CHECK(deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY) == Z_OK,
             "zlib: out of memory");
  std::string bytes;
  std::vector<char> out(1 << 16);
  const auto run = [&](int flush) {
    do {
      stream.next_out = reinterpret_cast<Bytef*>(out.data());
      stream.avail_out = static_cast<uInt>(out.size());
      deflate(&stream, flush);
      bytes.append(out.data(), out.size() - stream.avail_out);
    } while (stream.avail_out == 0);
  };
  for (std::span<const char> piece : pieces)
    while (!piece.empty()) {
      const auto part = piece.first(std::min<size_t>(piece.size(), 1 << 30));
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(part.data()));
      stream.avail_in = static_cast<uInt>(part.size());
      run(Z_NO_FLUSH);
      piece = piece.subspan(part.size());
    }
  run(Z_FINISH);
  deflateEnd(&stream);
  return bytes;
}

constexpr uint16_t kVersion = 20, kVersion64 = 45, kUtf8 = 1 << 11, kMidnight = 0, kFirstOf1980 = 1 << 5 | 1;

}  // namespace

void ZipWriter::write(const std::string& bytes) {
  file_.write(bytes.data(), static_cast<int64_t>(bytes.size()));
  at_ += static_cast<int64_t>(bytes.size());
}

void ZipWriter::add(const std::string& name, const std::vector<std::span<const char>>& pieces) {
  REEL_CHECK(name.size() <= 0xFFFF, "zip: a name of ", name.size(), " bytes");
  uint32_t crc = 0;
  int64_t size = 0;
  for (const auto piece : pieces) {
    crc = crc_of(piece.data(), piece.size(), crc);
    size += static_cast<int64_t>(piece.size());
  }
  const std::string packed = deflate_ ? deflated(pieces) : "";
  const int64_t compressed = deflate_ ? static_cast<int64_t>(packed.size()) : size, header = at_;

  const bool wide = size >= zip64_from_ || compressed >= zip64_from_, wide_header = header >= zip64_from_;
  const auto narrow = [](int64_t value, bool is_wide) { return is_wide ? kIn64 : static_cast<uint32_t>(value); };
  const uint16_t version = wide || wide_header ? kVersion64 : kVersion, method = deflate_ ? kDeflated : kStored;
  const auto name_bytes = static_cast<uint16_t>(name.size());
  const std::string shared = fields(version, kUtf8, method, kMidnight, kFirstOf1980, crc, narrow(compressed, wide),
                                    narrow(size, wide), name_bytes);
  const auto extra = [&](bool with_header) {
    std::string content;
    if (wide) content += fields(size, compressed);
    if (with_header && wide_header) content += fields(header);
    return content.empty() ? content : fields(kExtra64, static_cast<uint16_t>(content.size())) + content;
  };
  const std::string local_extra = extra(false), central_extra = extra(true);
  write(fields(kLocal) + shared + fields(static_cast<uint16_t>(local_extra.size())) + name + local_extra);
  directory_ += fields(kCentral, version) + shared +
                fields(static_cast<uint16_t>(central_extra.size()), uint16_t{0}, uint16_t{0}, uint16_t{0}, uint32_t{0},
                       narrow(header, wide_header)) +
                name + central_extra;
  ++entries_;
  if (deflate_) return write(packed);
  for (const auto piece : pieces) {
    file_.write(piece.data(), static_cast<int64_t>(piece.size()));
    at_ += static_cast<int64_t>(piece.size());
  }
}

void ZipWriter::finish() {
  const int64_t begin = at_, bytes = static_cast<int64_t>(directory_.size());
  const bool wide = begin >= zip64_from_ || bytes >= zip64_from_ || entries_ >= 0xFFFF;
  write(directory_);
  if (wide) {
    const int64_t end64 = at_;
    write(fields(kEnd64, kEnd64Size - 12, kVersion64, kVersion64, uint32_t{0}, uint32_t{0}, entries_, entries_, bytes,
                 begin) +
          fields(kLocator64, uint32_t{0}, end64, uint32_t{1}));
  }
  const uint16_t count = wide ? 0xFFFF : static_cast<uint16_t>(entries_);
  write(fields(kEnd, uint16_t{0}, uint16_t{0}, count, count, wide ? kIn64 : static_cast<uint32_t>(bytes),
               wide ? kIn64 : static_cast<uint32_t>(begin), uint16_t{0}));
}

}  // namespace reel::io
