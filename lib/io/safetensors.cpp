#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

#include "lib/io/elements.h"
#include "lib/io/file.h"
#include "reel/io/safetensors.h"

// The safetensors format (https://github.com/huggingface/safetensors#format).
//
// A file is the header's length (8 bytes, little endian), the header, and the tensors' bytes without holes. The header
// is JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, …, "__metadata__": {"key":
// "value"}} with offsets counted from the header's end.
namespace reel::io {
namespace {

static_assert(std::endian::native == std::endian::little);

using nlohmann::json;

constexpr int64_t kMaxHeader = 100'000'000;  // as in the reference implementation
constexpr const char* kMetadataKey = "__metadata__";

struct TypeName {
  Element element;
  const char* name;
};
constexpr TypeName kTypeNames[] = {
    {{Element::kFloat, 8}, "F64"},   {{Element::kFloat, 4}, "F32"},    {{Element::kFloat, 2}, "F16"},
    {{Element::kSigned, 8}, "I64"},  {{Element::kSigned, 4}, "I32"},   {{Element::kSigned, 2}, "I16"},
    {{Element::kSigned, 1}, "I8"},   {{Element::kUnsigned, 4}, "U32"}, {{Element::kUnsigned, 2}, "U16"},
    {{Element::kUnsigned, 1}, "U8"}, {{Element::kBool, 1}, "BOOL"},    {{Element::kBrainFloat, 2}, "BF16"}};

const char* name_in_file(DType type) {
  const auto is_type = [&](const TypeName& known) {
    return known.element.dtype() == type && known.element.bytes == size_of(type);
  };
  return std::find_if(std::begin(kTypeNames), std::end(kTypeNames), is_type)->name;
}

// ---- reading the header ---------------------------------------------------------------------------------------------

struct Entry {
  std::string name;
  int64_t position = 0;  // in the file, of its description
  std::optional<std::string> dtype;
  std::optional<std::vector<int64_t>> shape, offsets;
  const TypeName* type = nullptr;  // nullptr: a dtype that reel does not have
};

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
  std::vector<Entry> entries;
  Metadata metadata;

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    const std::string tensor =
        depth_ >= 2 && !in_metadata_ && !entries.empty() ? quote(entries.back().name) + ": " : "";
    reel::detail::fail(path_, ": byte ", position(), ": ", tensor, parts...);
  }

  bool start_object(size_t) override {
    if (depth_ == 1 && key_ == kMetadataKey) {
      if (std::exchange(seen_metadata_, true)) fail(kMetadataKey, " appears twice");
      in_metadata_ = true;
    } else if (depth_ == 1) {
      entries.push_back({key_, position(), {}, {}, {}});
    } else if (depth_ != 0) {
      fail("an object is not expected here");
    }
    ++depth_;
    return true;
  }
  bool end_object() override {
    if (--depth_ == 1) in_metadata_ = false;
    return true;
  }
  bool key(std::string& key) override {
    key_ = std::move(key);
    return true;
  }
  bool start_array(size_t) override {
    if (depth_ != 2 || in_metadata_ || numbers_) fail("an array is not expected here");
    if (key_ == "shape")
      start_numbers(entries.back().shape);
    else if (key_ == "data_offsets")
      start_numbers(entries.back().offsets);
    else
      fail("unknown field ", quote(key_));
    return true;
  }
  bool end_array() override {
    numbers_ = nullptr;
    return true;
  }
  bool string(std::string& value) override {
    if (in_metadata_) {
      if (!metadata.emplace(key_, std::move(value)).second) fail("metadata ", quote(key_), " appears twice");
      return true;
    }
    if (depth_ != 2 || numbers_) fail("a string is not expected here");
    if (key_ != "dtype") fail("unknown field ", quote(key_));
    Entry& entry = entries.back();
    if (entry.dtype) fail("dtype appears twice");
    for (const TypeName& type : kTypeNames)
      if (value == type.name) entry.type = &type;
    entry.dtype = std::move(value);
    return true;
  }
  bool number_unsigned(uint64_t value) override {
    if (!numbers_) fail("a number is not expected here");
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) fail("the number ", value, " is too large");
    if (numbers_->size() == kMaxDims) fail("a list of more than ", kMaxDims, " numbers");
    numbers_->push_back(static_cast<int64_t>(value));
    return true;
  }
  bool number_integer(int64_t value) override { fail("a negative number, ", value); }
  bool number_float(double, const std::string& text) override { fail("not a whole number, ", text); }
  bool null() override { fail("null is not expected here"); }
  bool boolean(bool) override { fail("true and false are not expected here"); }
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
  void start_numbers(std::optional<std::vector<int64_t>>& numbers) {
    if (numbers) fail(key_, " appears twice");
    numbers_ = &numbers.emplace();
  }

  const std::filesystem::path& path_;
  const std::string& text_;
  const char* mark_ = nullptr;
  int depth_ = 0;
  bool in_metadata_ = false, seen_metadata_ = false;
  std::string key_;
  std::vector<int64_t>* numbers_ = nullptr;
};

template <class... Parts>
[[noreturn]] void fail_at(const InputFile& file, const Entry& entry, const Parts&... parts) {
  reel::detail::fail(file.path(), ": byte ", entry.position, ": ", HeaderReader::quote(entry.name), ": ", parts...);
}

// Compares the bytes of the data with those that the shape takes.
void check_size(const InputFile& file, const Entry& entry, int64_t given) {
  const Shape shape(*entry.shape);
  const Element element = entry.type->element;
  const auto bytes = byte_count(*entry.shape, *element.dtype());
  if (!bytes) fail_at(file, entry, "the shape ", shape, " is too large");
  const int64_t in_file = *bytes / size_of(*element.dtype()) * element.bytes;
  if (in_file != given)
    fail_at(file, entry, "a ", entry.type->name, " tensor of shape ", shape, " has ", in_file,
            " bytes, data_offsets give ", given);
}

// Checks the header against itself and the file's size before anything is allocated: names are unique, every tensor has
// the bytes of its shape, and tensors lie side by side without gaps or overlaps, as the format demands.
void check(const HeaderReader& header, const InputFile& file, int64_t data_begin) {
  std::unordered_set<std::string> names;
  std::vector<const Entry*> by_offset;
  for (const Entry& entry : header.entries) {
    if (!names.insert(entry.name).second) fail_at(file, entry, "appears twice");
    if (!entry.dtype) fail_at(file, entry, "has no dtype");
    if (!entry.shape) fail_at(file, entry, "has no shape");
    if (!entry.offsets || entry.offsets->size() != 2) fail_at(file, entry, "data_offsets are not two numbers");
    const int64_t begin = (*entry.offsets)[0], end = (*entry.offsets)[1];
    if (begin > end || end > file.size() - data_begin)
      fail_at(file, entry, "data_offsets [", begin, ", ", end, "] are outside of the ", file.size() - data_begin,
              " data bytes");
    if (entry.type) check_size(file, entry, end - begin);
    by_offset.push_back(&entry);
  }
  std::sort(by_offset.begin(), by_offset.end(), [](const Entry* a, const Entry* b) { return a->offsets < b->offsets; });
  int64_t expected = 0;
  for (const Entry* entry : by_offset) {
    const int64_t begin = (*entry->offsets)[0];
    if (begin != expected)
      fail_at(file, *entry, "its data begin at ", begin, begin < expected ? " inside another tensor's" : " after a gap",
              ", not at ", expected);
    expected = (*entry->offsets)[1];
  }
  REEL_CHECK(expected == file.size() - data_begin, file.path(), ": byte ", data_begin + expected, ": ",
             file.size() - data_begin - expected, " bytes after the last tensor");
}

}  // namespace

// ---- writing --------------------------------------------------------------------------------------------------------

void save(const StateDict& tensors, const std::filesystem::path& path, const Metadata& metadata) {
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
    if (!metadata.empty()) text += json(kMetadataKey).dump() + ":" + json(metadata).dump();
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto& [name, tensor] = tensors[i];
      const json description = {{"dtype", name_in_file(tensor.dtype())},
                                {"shape", std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end())},
                                {"data_offsets", {begins[i], begins[i] + byte_count(tensor)}}};
      text += (text.size() > 1 ? "," : "") + json(name).dump() + ":" + description.dump();
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
  file.write(&length, sizeof length);
  file.write(text.data(), static_cast<int64_t>(text.size()));
  for (const size_t i : order) {
    const Tensor dense = tensors[i].second.detach().to(kCPU).contiguous();
    file.write(bytes_of(dense), byte_count(dense));
  }
  file.commit();
}

void save(const nn::Module& module, const std::filesystem::path& path, const Metadata& metadata) {
  save(module.state_dict(), path, metadata);
}

// ---- loading --------------------------------------------------------------------------------------------------------

StateDict load(const std::filesystem::path& path, Metadata* metadata) { return load(path, LoadOptions(), metadata); }

StateDict load(const std::filesystem::path& path, const LoadOptions& options, Metadata* metadata) {
  const InputFile file(path);
  REEL_CHECK(file.size() >= 8, path, ": byte 0: ", file.size(), " bytes are too few for a safetensors file");
  uint64_t length = 0;
  file.read(&length, sizeof length, 0);
  REEL_CHECK(length <= kMaxHeader && static_cast<int64_t>(length) <= file.size() - 8, path,
             ": byte 0: the header's length is ", length, ", in a file of ", file.size(), " bytes");
  std::string text(length, '\0');
  file.read(text.data(), static_cast<int64_t>(length), 8);
  REEL_CHECK(text.starts_with('{'), path, ": byte 8: the header does not begin with '{'");

  HeaderReader header(path, text);
  header.parse();
  const int64_t data_begin = 8 + static_cast<int64_t>(length);
  check(header, file, data_begin);

  StateDict tensors;
  for (const Entry& entry : header.entries) {
    if (options.keep && !options.keep(entry.name)) continue;
    if (!entry.type) fail_at(file, entry, "reel has no dtype ", HeaderReader::quote(*entry.dtype));
    const Element element = entry.type->element;
    const Tensor tensor = empty(Shape(*entry.shape), {.dtype = *element.dtype(), .device = kCPU});
    const std::span<char> staging = staging_bytes(tensor, element);
    const int64_t begin = data_begin + (*entry.offsets)[0];
    file.read(staging.data(), static_cast<int64_t>(staging.size()), begin);
    if (tensor.dtype() == kBool) {
      const auto bad = std::find_if(staging.begin(), staging.end(), [](char value) { return uint8_t(value) > 1; });
      REEL_CHECK(bad == staging.end(), path, ": byte ", begin + (bad - staging.begin()), ": ",
                 HeaderReader::quote(entry.name), ": a bool is ", int{uint8_t(*bad)});
    }
    convert_elements(tensor, element);
    tensors.emplace_back(entry.name, tensor);
  }
  if (metadata) *metadata = std::move(header.metadata);
  return tensors;
}

nn::LoadResult load(nn::Module& module, const std::filesystem::path& path, nn::LoadOptions options) {
  const StateDict tensors = load(path);
  try {
    return module.load_state_dict(tensors, options);
  } catch (const Error& error) {
    reel::detail::fail(path, ": ", error.what());
  }
}

}  // namespace reel::io
