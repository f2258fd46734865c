#include "reel/io/npy.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "lib/io/elements.h"
#include "lib/io/file.h"
#include "lib/io/load_options.h"
#include "lib/io/source.h"
#include "lib/io/zip.h"

// NumPy's .npy files and .npz, zip archives of them
// (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
//
// A .npy file is "\x93NUMPY", a version (2 bytes), the header's length (2 bytes, from version 2 on 4), the header, and
// the elements. The header is a literal of Python: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
namespace reel::io {
namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr int64_t kAlignment = 64;       // of the elements, so that a file can be mapped
constexpr int64_t kMaxHeader = 1 << 20;  // a plain array's has about 100 bytes; version 2 would allow 4 GiB

// ---- types ----------------------------------------------------------------------------------------------------------

struct TypeName {
  DType type;
  const char* descr;
};
constexpr TypeName kTypeNames[] = {{kBool, "|b1"},    {kUInt8, "|u1"},   {kInt32, "<i4"},  {kInt64, "<i8"},
                                   {kFloat16, "<f2"}, {kFloat32, "<f4"}, {kFloat64, "<f8"}};

const char* descr_of(DType type) {
  for (const auto& [known, descr] : kTypeNames)
    if (known == type) return descr;
  return nullptr;
}

std::optional<Element> element_of(std::string_view descr) {
  bool big_endian = false;
  if (!descr.empty() && std::string_view("<>|=").find(descr[0]) != std::string_view::npos) {
    big_endian = descr[0] == '>';
    descr.remove_prefix(1);
  }
  if (descr.size() != 2 || descr[1] < '1' || descr[1] > '8') return {};
  const int bytes = descr[1] - '0';
  const auto element = [&](Element::Kind kind) -> std::optional<Element> {
    const Element element{kind, bytes, big_endian};
    return element.dtype() ? std::optional(element) : std::nullopt;
  };
  switch (descr[0]) {
    case 'b': return element(Element::kBool);
    case 'u': return element(Element::kUnsigned);
    case 'i': return element(Element::kSigned);
    case 'f': return element(Element::kFloat);
    default: return {};
  }
}

// ---- the header -----------------------------------------------------------------------------------------------------

class HeaderParser {
 public:
  HeaderParser(const Source& source, std::string_view text, int64_t position)
      : source_(source), text_(text), position_(position) {}

  Element element{};
  bool fortran_order = false;
  std::vector<int64_t> shape;

  void parse() {
    expect('{');
    while (!take('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr" && !std::exchange(has_descr_, true))
        descr();
      else if (key == "fortran_order" && !std::exchange(has_order_, true))
        fortran_order = boolean();
      else if (key == "shape" && !std::exchange(has_shape_, true))
        tuple();
      else
        fail("the key '", key.substr(0, 100), "' is unknown or comes twice");
      if (!take(',') && peek() != '}') fail("expected ',' or '}'");
    }
    if (peek()) fail("text after the header");
    if (!has_descr_ || !has_order_ || !has_shape_) fail("the header lacks descr, fortran_order or shape");
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    source_.fail_at(position_ + static_cast<int64_t>(at_), parts...);
  }
  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail("expected '", c, "'");
  }

  std::string_view quoted() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') fail("expected a string");
    const size_t begin = ++at_, end = text_.find(quote, begin);
    if (end == std::string_view::npos) fail("a string without an end");
    at_ = end + 1;
    return text_.substr(begin, end - begin);
  }
  bool boolean() {
    peek();
    for (const std::string_view word : {"True", "False"})
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return word == "True";
      }
    fail("expected True or False");
  }
  void descr() {
    if (peek() == '[') fail("an array of records; reel has only plain ones");
    const std::string_view text = quoted();
    const auto known = element_of(text);
    if (!known) fail("reel has no dtype for '", text.substr(0, 100), "'");
    element = *known;
  }
  void tuple() {
    expect('(');
    while (!take(')')) {
      if (shape.size() == kMaxDims) fail("more than ", kMaxDims, " dimensions");
      shape.push_back(number());
      if (!take(',') && peek() != ')') fail("expected ',' or ')'");
    }
  }
  int64_t number() {
    peek();
    const size_t begin = at_;
    int64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_)
      if (__builtin_mul_overflow(value, int64_t{10}, &value) || __builtin_add_overflow(value, text_[at_] - '0', &value))
        fail("a size that is too large");
    if (at_ == begin) fail("expected a size");
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // as Python 2 wrote long integers
    return value;
  }

  const Source& source_;
  std::string_view text_;
  int64_t position_;
  size_t at_ = 0;
  bool has_descr_ = false, has_order_ = false, has_shape_ = false;
};

Tensor read(Source& source) {
  std::array<char, 8> magic;
  source.read_exactly(magic.data(), magic.size());
  if (std::string_view(magic.data(), 6) != kMagic) source.fail_at(0, "not a .npy file");
  const int version = static_cast<unsigned char>(magic[6]);
  if (version < 1 || version > 3) source.fail_at(6, "version ", version, " of the format is unknown");
  uint32_t length = 0;
  source.read_exactly(&length, version == 1 ? 2 : 4);
  const int64_t position = source.position();
  if (length > kMaxHeader || length > source.max_remaining())
    source.fail("a header of ", length, " bytes, where at most ", std::min(kMaxHeader, source.max_remaining()),
                " can follow");
  std::string text(length, '\0');
  source.read_exactly(text.data(), length);
  HeaderParser header(source, text, position);
  header.parse();

  std::vector<int64_t> shape = header.shape;
  if (header.fortran_order) std::reverse(shape.begin(), shape.end());
  Tensor tensor = read_elements(source, header.element, shape, "the array");
  source.expect_end();
  if (!header.fortran_order) return tensor;
  Shape dims;
  for (int64_t i = tensor.dim(); i-- > 0;) dims.push_back(i);
  return tensor.permute(dims).contiguous();
}

// Everything before the elements.
std::string header_of(const Tensor& tensor, const std::string& what) {
  const char* descr = descr_of(tensor.dtype());
  REEL_CHECK(descr, what, ": NumPy has no ", tensor.dtype());
  std::string shape;
  for (const int64_t size : tensor.shape()) shape += std::to_string(size) + ", ";
  if (tensor.dim() > 1) shape.resize(shape.size() - 2);
  if (tensor.dim() == 1) shape.pop_back();
  std::string text = std::string("{'descr': '") + descr + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  const size_t before = kMagic.size() + 4, whole = before + text.size() + 1;
  text.resize(text.size() + (kAlignment - whole % kAlignment) % kAlignment, ' ');
  text += '\n';
  std::string header(kMagic);
  header += '\1';
  header += '\0';
  header += static_cast<char>(text.size() & 0xff);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

Tensor dense_of(const Tensor& tensor) { return tensor.detach().to(kCPU).contiguous(); }

}  // namespace

void save_npy(const Tensor& tensor, const std::filesystem::path& path) {
  REEL_CHECK(tensor.defined(), "save_npy: ", path, ": the tensor is undefined");
  const std::string header = header_of(tensor, "save_npy: " + path.string());
  const Tensor dense = dense_of(tensor);
  AtomicFile file(path);
  file.write(header.data(), static_cast<int64_t>(header.size()));
  file.write(bytes_of(dense), byte_count(dense));
  file.commit();
}

Tensor load_npy(const std::filesystem::path& path) {
  Source source(path);
  return read(source);
}

void save_npz(const StateDict& tensors, const std::filesystem::path& path, NpzOptions options) {
  std::unordered_set<std::string> names;
  std::vector<std::string> headers;
  for (const auto& [name, tensor] : tensors) {
    const std::string what = "save_npz: " + path.string() + ": '" + name + "'";
    REEL_CHECK(tensor.defined(), what, " is undefined");
    REEL_CHECK(names.insert(name).second, what, " is given twice");
    headers.push_back(header_of(tensor, what));
  }
  AtomicFile file(path);
  ZipWriter zip(file, options.compressed);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor dense = dense_of(tensors[i].second);
    zip.add(tensors[i].first + ".npy",
            {std::span<const char>(headers[i]),
             {static_cast<const char*>(bytes_of(dense)), static_cast<size_t>(byte_count(dense))}});
  }
  zip.finish();
  file.commit();
}

StateDict load_npz(const std::filesystem::path& path, const LoadOptions& options) {
  const InputFile file(path);
  StateDict tensors;
  std::unordered_set<std::string> names;
  for (const ZipEntry& entry : read_zip(file)) {
    constexpr std::string_view kEnding = ".npy";
    const std::string what = file.path().string() + ": '" + entry.name.substr(0, 200) + "'";
    const bool is_array = entry.name.ends_with(kEnding);
    const std::optional<std::string> name = loaded_name(
        std::string_view(entry.name).substr(0, entry.name.size() - (is_array ? kEnding.size() : 0)), options);
    if (!name) continue;
    REEL_CHECK(is_array, what, " is not a .npy");
    REEL_CHECK(names.insert(*name).second, what, " appears twice");
    Source source(file, what, entry.begin, entry.end, entry.deflated);
    const Tensor tensor = read(source);
    REEL_CHECK(source.position() == entry.size && source.crc() == entry.crc, what,
               ": its size or checksum is not the one in the directory");
    tensors.emplace_back(*name, tensor);
  }
  return tensors;
}

}  // namespace reel::io
