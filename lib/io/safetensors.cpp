#include "reel/io/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

#include "lib/io/checksum.h"
#include "lib/io/elements.h"
#include "lib/io/load_options.h"
#include "lib/io/mapped_file.h"
#include "lib/io/shards.h"
#include "lib/io/tensor_file.h"
#include "lib/io/torch_file.h"

// The safetensors format (https://github.com/huggingface/safetensors#format).
//
// A file is the header's length (8 bytes, little endian), the header, and the tensors' bytes without holes. The header
// is JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, …, "__metadata__": {"key":
// "value"}} with offsets counted from the header's end.
//
// Files that reel writes vouch for themselves: the metadata have an entry "reel.crc32" of 8 hexadecimal digits for the
// header and 8 for each tensor, in the header's order. They are the CRC-32 (zlib's) of the header's length and the
// header with zeros for all these digits, and of the tensor's bytes.
namespace reel::io {

struct ElementName {
  Element element;
  const char* name;
};

namespace {

static_assert(std::endian::native == std::endian::little);

using nlohmann::json;

constexpr int64_t kMaxHeader = 100'000'000;  // as in the reference implementation
constexpr const char *kMetadataKey = "__metadata__", *kChecksumKey = "reel.crc32";
constexpr size_t kDigits = 8;  // of a checksum

constexpr ElementName kTypeNames[] = {
    {{Element::kFloat, 8}, "F64"},   {{Element::kFloat, 4}, "F32"},    {{Element::kFloat, 2}, "F16"},
    {{Element::kSigned, 8}, "I64"},  {{Element::kSigned, 4}, "I32"},   {{Element::kSigned, 2}, "I16"},
    {{Element::kSigned, 1}, "I8"},   {{Element::kUnsigned, 4}, "U32"}, {{Element::kUnsigned, 2}, "U16"},
    {{Element::kUnsigned, 1}, "U8"}, {{Element::kBool, 1}, "BOOL"},    {{Element::kBrainFloat, 2}, "BF16"}};

const char* name_in_file(DType type) {
  const auto is_type = [&](const ElementName& known) {
    return known.element.dtype() == type && known.element.bytes == size_of(type);
  };
  return std::find_if(std::begin(kTypeNames), std::end(kTypeNames), is_type)->name;
}

// ---- checksums ------------------------------------------------------------------------------------------------------

uint32_t crc_of_header(const std::string& header) {
  const uint64_t length = header.size();
  return crc_of(header.data(), header.size(), crc_of(&length, sizeof length));
}

// Where the digits stand in a header as reel writes it; npos in others. A quote within a name or value is escaped.
size_t digits_in(const std::string& header) {
  const std::string before = json(kChecksumKey).dump() + ":\"";
  size_t at = header.find(before);
  while (at != std::string::npos && at > 0 && header[at - 1] == '\\') at = header.find(before, at + 1);
  return at == std::string::npos ? at : at + before.size();
}

// ---- reading the header ---------------------------------------------------------------------------------------------

// An iterator over the header that records how far the parser has read, for positions in errors.
struct MarkingIterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;
  const char* at;
  const char** mark;
  reference operator*() const { return *at; }
  MarkingIterator& operator++() {
    *mark = ++at;
    return *this;
  }
  MarkingIterator operator++(int) {
    MarkingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const MarkingIterator& other) const { return at == other.at; }
  bool operator!=(const MarkingIterator& other) const { return at != other.at; }
};

// A SAX parser: fields are checked as they are read, so that a malicious header is never a JSON tree in memory.
class HeaderReader : public nlohmann::json_sax<json> {
 public:
  HeaderReader(const std::filesystem::path& path, const std::string& text) : path_(path), text_(text) {}

  void parse() {
    json::sax_parse(MarkingIterator{begin(), &mark_}, MarkingIterator{begin() + text_.size(), &mark_}, this);
  }
  std::vector<TensorEntry> entries;
  Metadata metadata;

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    const std::string tensor =
        depth_ >= 2 && !in_metadata_ && !entries.empty() ? quote(entries.back().name) + ": " : "";
    reel::detail::fail(path_, ": byte ", position(), ": ", tensor, parts...);
  }

  bool start_object(size_t) override {
    if (skips()) return ++skipped_, true;
    if (depth_ == 1 && key_ == kMetadataKey) {
      start_metadata();
      in_metadata_ = true;
    } else if (depth_ == 1) {
      TensorEntry& entry = entries.emplace_back();
      entry.name = key_;
      entry.position = position();
    } else if (depth_ != 0) {
      fail("an object is not expected here");
    }
    ++depth_;
    return true;
  }
  bool end_object() override {
    if (skipped_) return --skipped_, true;
    if (--depth_ == 1) in_metadata_ = false;
    return true;
  }
  bool key(std::string& key) override {
    if (!skipped_) key_ = std::move(key);
    return true;
  }
  bool start_array(size_t) override {
    if (skips()) return ++skipped_, true;
    if (depth_ != 2 || in_metadata_ || numbers_) fail("an array is not expected here");
    if (key_ == "shape")
      start_numbers(entries.back().shape);
    else if (key_ == "data_offsets")
      start_numbers(entries.back().offsets);
    else
      fail("an array is not expected here");
    return true;
  }
  bool end_array() override {
    if (skipped_) return --skipped_, true;
    numbers_ = nullptr;
    return true;
  }
  bool string(std::string& value) override {
    if (skips()) return true;
    if (in_metadata_) {
      if (!metadata.emplace(key_, std::move(value)).second) fail("metadata ", quote(key_), " appears twice");
      return true;
    }
    if (depth_ != 2 || numbers_ || key_ != "dtype") fail("a string is not expected here");
    TensorEntry& entry = entries.back();
    if (entry.dtype) fail("dtype appears twice");
    for (const ElementName& type : kTypeNames)
      if (value == type.name) entry.type = &type;
    entry.dtype = std::move(value);
    return true;
  }
  bool number_unsigned(uint64_t value) override {
    if (skips()) return true;
    if (!numbers_) fail("a number is not expected here");
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) fail("the number ", value, " is too large");
    if (numbers_->size() == kMaxDims) fail("a list of more than ", kMaxDims, " numbers");
    numbers_->push_back(static_cast<int64_t>(value));
    return true;
  }
  bool number_integer(int64_t value) override { return skips() || (fail("a negative number, ", value), false); }
  bool number_float(double, const std::string& text) override {
    return skips() || (fail("not a whole number, ", text), false);
  }
  bool null() override {
    if (skips()) return true;
    if (depth_ != 1 || key_ != kMetadataKey) fail("null is not expected here");
    start_metadata();
    return true;
  }
  bool boolean(bool) override { return skips() || (fail("true and false are not expected here"), false); }
  bool binary(json::binary_t&) override { fail("binary data"); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    fail("the header is not JSON: ", shortened(error.what()));
  }

  static std::string quote(const std::string& name) { return "'" + shortened(name) + "'"; }

 private:
  static std::string shortened(const std::string& text) {
    return text.size() <= 200 ? text : text.substr(0, 200) + "…";
  }
  const char* begin() const { return text_.data(); }
  int64_t position() const { return 8 + (mark_ ? mark_ - begin() : 0); }
  // Returns whether this is in a field of a tensor that the format does not have. The reference skips these as well.
  bool skips() const {
    return depth_ == 2 && !in_metadata_ && key_ != "dtype" && key_ != "shape" && key_ != "data_offsets";
  }
  void start_metadata() {
    if (std::exchange(seen_metadata_, true)) fail(kMetadataKey, " appears twice");
  }
  void start_numbers(std::optional<std::vector<int64_t>>& numbers) {
    if (numbers) fail(key_, " appears twice");
    numbers_ = &numbers.emplace();
  }

  const std::filesystem::path& path_;
  const std::string& text_;
  const char* mark_ = nullptr;
  int depth_ = 0;
  int64_t skipped_ = 0;  // objects and arrays that are open in the value of a field that is skipped
  bool in_metadata_ = false, seen_metadata_ = false;
  std::string key_;
  std::vector<int64_t>* numbers_ = nullptr;
};

// Returns whether the first 8 bytes of a file are letters, as of a page that a server has sent in a file's place.
bool is_text(uint64_t bytes) {
  for (; bytes; bytes >>= 8)
    if ((bytes & 0xff) < ' ' || (bytes & 0xff) > '~') return false;
  return true;
}

}  // namespace

template <class... Parts>
void TensorFile::fail_at(const TensorEntry& entry, const Parts&... parts) const {
  reel::detail::fail(file_.path(), ": byte ", entry.position, ": ", HeaderReader::quote(entry.name), ": ", parts...);
}

// Compares the bytes of the data with those that the shape takes.
void TensorFile::check_size(const TensorEntry& entry, int64_t given) const {
  const Shape shape(*entry.shape);
  const Element element = entry.type->element;
  const auto bytes = byte_count(*entry.shape, *element.dtype());
  if (!bytes) fail_at(entry, "the shape ", shape, " is too large");
  const int64_t in_file = *bytes / size_of(*element.dtype()) * element.bytes;
  if (in_file != given)
    fail_at(entry, "a ", entry.type->name, " tensor of shape ", shape, " has ", in_file, " bytes, data_offsets give ",
            given);
}

// Checks the header against itself and the file's size before anything is allocated: names are unique, every tensor has
// the bytes of its shape, and tensors lie side by side without gaps or overlaps, as the format demands.
void TensorFile::check() const {
  const int64_t data_bytes = file_.size() - data_begin_;
  std::unordered_set<std::string> names;
  std::vector<const TensorEntry*> by_offset;
  for (const TensorEntry& entry : entries_) {
    if (!names.insert(entry.name).second) fail_at(entry, "appears twice");
    if (!entry.dtype) fail_at(entry, "has no dtype");
    if (!entry.shape) fail_at(entry, "has no shape");
    if (!entry.offsets || entry.offsets->size() != 2) fail_at(entry, "data_offsets are not two numbers");
    const int64_t begin = (*entry.offsets)[0], end = (*entry.offsets)[1];
    if (begin > end || end > data_bytes)
      fail_at(entry, "data_offsets [", begin, ", ", end, "] are outside of the ", data_bytes, " data bytes");
    if (entry.type) check_size(entry, end - begin);
    by_offset.push_back(&entry);
  }
  std::sort(by_offset.begin(), by_offset.end(),
            [](const TensorEntry* a, const TensorEntry* b) { return a->offsets < b->offsets; });
  int64_t expected = 0;
  for (const TensorEntry* entry : by_offset) {
    const int64_t begin = (*entry->offsets)[0];
    if (begin != expected)
      fail_at(*entry, "its data begin at ", begin, begin < expected ? " inside another tensor's" : " after a gap",
              ", not at ", expected);
    expected = (*entry->offsets)[1];
  }
  REEL_CHECK(expected == data_bytes, file_.path(), ": byte ", data_begin_ + expected, ": ", data_bytes - expected,
             " bytes after the last tensor");
}

TensorFile::TensorFile(const std::filesystem::path& path, bool verify) : file_(path) {
  REEL_CHECK(file_.size() >= 8, path, ": byte 0: ", file_.size(), " bytes are too few for a safetensors file");
  uint64_t length = 0;
  file_.read(&length, sizeof length, 0);
  const bool fits = length <= kMaxHeader && static_cast<int64_t>(length) <= file_.size() - 8;
  REEL_CHECK(fits, path, ": byte 0: this is no safetensors or .pt file: its header would be ", length,
             " bytes long, of ", file_.size(), path.extension() == ".onnx" ? "; onnx::load reads .onnx" : "",
             is_text(length) ? "; it begins like a text" : "");
  std::string text(length, '\0');
  file_.read(text.data(), static_cast<int64_t>(length), 8);
  const size_t brace = text.find_first_not_of(" \t\r\n"), nul = text.find('\0');
  REEL_CHECK(brace != std::string::npos && text[brace] == '{', path, ": byte 8: the header does not begin with '{'");
  REEL_CHECK(nul == std::string::npos, path, ": byte ", 8 + nul, ": the header is not JSON: it has a NUL");

  HeaderReader header(path, text);
  header.parse();
  entries_ = std::move(header.entries);
  metadata_ = std::move(header.metadata);
  data_begin_ = 8 + static_cast<int64_t>(length);
  check();
  const auto checksums = metadata_.extract(kChecksumKey);
  has_checksums_ = !checksums.empty();
  if (has_checksums_ && verify) read_checksums(text);
}

void TensorFile::read_checksums(const std::string& header) {
  constexpr const char* kDamaged =
      ": byte 8: the header is damaged, or a program has changed it and kept the metadata's \"reel.crc32\"";
  std::string blank = header;
  const size_t begin = digits_in(header), digits = kDigits * (entries_.size() + 1);
  REEL_CHECK(begin != std::string::npos && begin + digits < header.size() && header[begin + digits] == '"',
             file_.path(), kDamaged);
  blank.replace(begin, digits, digits, '0');
  const auto checksum = [&](size_t i) {
    const char* const first = header.data() + begin + i * kDigits;
    uint32_t value = 0;
    std::from_chars(first, first + kDigits, value, 16);
    REEL_CHECK(fmt::format("{:08x}", value) == std::string_view(first, kDigits), file_.path(), kDamaged);
    return value;
  };
  REEL_CHECK(checksum(0) == crc_of_header(blank), file_.path(), kDamaged);
  for (size_t i = 0; i < entries_.size(); ++i) entries_[i].checksum = checksum(i + 1);
}

void TensorFile::verify(const TensorEntry& entry, uint32_t checksum) const {
  if (!entry.checksum || *entry.checksum == checksum) return;
  reel::detail::fail(file_.path(), ": byte ", begin_of(entry), ": ", HeaderReader::quote(entry.name),
                     ": the data are damaged, their CRC-32 is ",
                     fmt::format("{:08x}, not {:08x}", checksum, *entry.checksum));
}

// ---- writing --------------------------------------------------------------------------------------------------------

void save(const StateDict& tensors, const std::filesystem::path& path, const Metadata& metadata) {
  save(tensors, path, metadata, 1);
}

void save(const StateDict& tensors, const std::filesystem::path& path, const Metadata& metadata, int keep) {
  REEL_CHECK(!metadata.contains(kChecksumKey), "save: ", path, ": metadata cannot be named ", kChecksumKey);
  // Wide elements first, which aligns all data to their size: readers map the file.
  std::vector<size_t> order(tensors.size());
  std::unordered_set<std::string> names;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, tensor] = tensors[i];
    REEL_CHECK(tensor.defined(), "save: ", path, ": '", name, "' is undefined");
    REEL_CHECK(name != kMetadataKey, "save: ", path, ": a tensor cannot be named ", kMetadataKey);
    REEL_CHECK(names.insert(name).second, "save: ", path, ": '", name, "' is given twice");
    order[i] = i;
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return size_of(tensors[a].second.dtype()) > size_of(tensors[b].second.dtype());
  });

  std::vector<int64_t> begins(tensors.size());
  int64_t end = 0;
  for (const size_t i : order) {
    begins[i] = end;
    end += byte_count(tensors[i].second);
  }
  std::string text = "{";
  try {
    Metadata all = metadata;
    all[kChecksumKey].assign(kDigits * (tensors.size() + 1), '0');
    // Strings only: nlohmann's destructor of an object allocates, and ends the process if it cannot.
    const auto quoted = [](const std::string& string) { return json(string).dump(); };
    text += quoted(kMetadataKey) + ":{";
    for (const char* comma = ""; const auto& [key, value] : all) {
      text += comma + quoted(key) + ":" + quoted(value);
      comma = ",";
    }
    text += "}";
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto& [name, tensor] = tensors[i];
      text += fmt::format(R"(,{}:{{"data_offsets":[{},{}],"dtype":"{}","shape":[{}]}})", quoted(name), begins[i],
                          begins[i] + byte_count(tensor), name_in_file(tensor.dtype()),
                          fmt::join(tensor.shape().begin(), tensor.shape().end(), ","));
    }
  } catch (const json::exception& error) {
    reel::detail::fail("save: ", path, ": a name or metadata is not UTF-8: ", error.what());
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  REEL_CHECK(static_cast<int64_t>(text.size()) <= kMaxHeader, "save: ", path, ": the header of ", text.size(),
             " bytes is longer than the format allows");

  AtomicFile file(path);
  const uint64_t length = text.size();
  file.reserve(static_cast<int64_t>(sizeof length + length) + end);
  file.write(&length, sizeof length);
  file.write(text.data(), static_cast<int64_t>(text.size()));
  std::vector<uint32_t> checksums(tensors.size() + 1);
  checksums[0] = crc_of_header(text);
  for (const size_t i : order) {
    const Tensor dense = tensors[i].second.detach().to(kCPU).contiguous();
    file.write(bytes_of(dense), byte_count(dense), &checksums[i + 1]);
  }
  const std::string digits = fmt::format("{:08x}", fmt::join(checksums, ""));
  file.write_at(digits.data(), static_cast<int64_t>(digits.size()),
                static_cast<int64_t>(sizeof length + digits_in(text)));
  file.commit(keep);
}

void save(const nn::Module& module, const std::filesystem::path& path, const Metadata& metadata) {
  save(module.state_dict(), path, metadata);
}

void check_writable(const std::filesystem::path& path) { const AtomicFile unused(path); }

// ---- loading --------------------------------------------------------------------------------------------------------

StateDict TensorFile::load(const LoadOptions& options) const {
  const auto mapping = options.mmap ? std::make_shared<const MappedFile>(file_) : nullptr;
  StateDict tensors;
  std::vector<const TensorEntry*> loaded;
  std::vector<std::span<char>> fresh;
  std::unordered_set<std::string> names;
  for (const TensorEntry& entry : entries_) {
    const std::optional<std::string> name = loaded_name(entry.name, options);
    if (!name) continue;
    if (!names.insert(*name).second) fail_at(entry, HeaderReader::quote(*name), " is given twice");
    if (!entry.type) fail_at(entry, "reel has no dtype ", HeaderReader::quote(*entry.dtype));
    const DType dtype = *entry.type->element.dtype();
    const Shape shape(*entry.shape);
    if (char* const data = mapping ? mapping->data() + begin_of(entry) : nullptr;
        data && fits_in_place(data, entry.type->element)) {
      tensors.emplace_back(*name, from_blob(data, dtype, shape, [mapping] {}));
    } else {
      tensors.emplace_back(*name, empty(shape, {.dtype = dtype, .device = kCPU}));
      fresh.push_back(memory_of(tensors.back().second));
    }
    loaded.push_back(&entry);
  }
  prefer_huge_pages(std::move(fresh));
  for (size_t i = 0; i < loaded.size(); ++i) read(*loaded[i], tensors[i].second, mapping.get());
  return tensors;
}

void TensorFile::read(const TensorEntry& entry, const Tensor& tensor, const MappedFile* mapping) const {
  const int64_t begin = begin_of(entry);
  const std::span<char> bytes = staging_bytes(tensor, entry.type->element);
  const bool is_mapped = mapping && bytes.data() == mapping->data() + begin, is_checked = entry.checksum.has_value();
  if (is_mapped && !is_checked) return;
  const uint32_t checksum = crc_of_pieces(static_cast<int64_t>(bytes.size()), [&](int64_t at, int64_t size) {
    if (!is_mapped) file_.read(bytes.data() + at, size, begin + at);
    return is_checked ? crc_of(bytes.data() + at, static_cast<size_t>(size)) : 0;
  });
  verify(entry, checksum);
  if (is_mapped) return;
  if (tensor.dtype() == kBool) {
    const auto bad = std::find_if(bytes.begin(), bytes.end(), [](char value) { return uint8_t(value) > 1; });
    REEL_CHECK(bad == bytes.end(), file_.path(), ": byte ", begin + (bad - bytes.begin()), ": ",
               HeaderReader::quote(entry.name), ": a bool is ", int{uint8_t(*bad)});
  }
  convert_elements(tensor, entry.type->element);
}

void TensorFile::verify() const {
  REEL_CHECK(has_checksums_, file_.path(), ": byte 8: its metadata have no checksums");
  for (const TensorEntry& entry : entries_) {
    const int64_t begin = begin_of(entry), end = data_begin_ + (*entry.offsets)[1];
    verify(entry, crc_of_pieces(end - begin, [&](int64_t at, int64_t size) {
             const auto bytes = std::make_unique_for_overwrite<char[]>(static_cast<size_t>(size));
             file_.read(bytes.get(), size, begin + at);
             return crc_of(bytes.get(), static_cast<size_t>(size));
           }));
  }
}

StateDict load(const std::filesystem::path& path, Metadata* metadata) { return load(path, LoadOptions(), metadata); }

StateDict load(const std::filesystem::path& path, const LoadOptions& options, Metadata* metadata) {
  const InputFile input(path);
  if (is_torch_file(input)) {
    if (metadata) metadata->clear();
    return load_torch(input, options);
  }
  if (is_shard_index(input)) return load_shards(input, options, metadata);
  const TensorFile file(path, options.verify);
  StateDict tensors = file.load(options);
  if (metadata) *metadata = file.metadata();
  return tensors;
}

nn::LoadResult load(nn::Module& module, const std::filesystem::path& path, const LoadOptions& options) {
  const StateDict tensors = load(path, options);
  try {  // the names are already those of the module
    return module.load_state_dict(
        tensors, {.strict = options.strict, .ignore_mismatched_sizes = options.ignore_mismatched_sizes});
  } catch (const OutOfMemoryError&) {
    throw;
  } catch (const Error& error) {
    reel::detail::fail(path, ": ", error.what());
  }
}

}  // namespace reel::io
