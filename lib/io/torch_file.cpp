#include "lib/io/torch_file.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "lib/io/elements.h"
#include "lib/io/load_options.h"
#include "lib/io/pickle.h"
#include "lib/io/source.h"
#include "lib/io/zip.h"
#include "reel/ops.h"

// A zip file of stored members in one folder (since PyTorch 1.6): data.pkl, a pickle of whatever was saved; data/0,
// data/1, …, the storages of its tensors; byteorder, "little" or "big". In the pickle a storage is a persistent object
// ("storage", torch.FloatStorage, "0", "cpu", 6) and a tensor the call torch._utils._rebuild_tensor_v2(storage, offset,
// sizes, strides, requires_grad, hooks). libtorch and TorchScript write modules as objects of classes __torch__.… whose
// state is a dict of their attributes.
namespace reel::io {
namespace {

constexpr std::string_view kZip("PK\3\4", 4), kLegacy("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 14);
constexpr int64_t kMaxPickle = 16 << 20;  // a tensor takes about 150 bytes of it
constexpr int kMaxDepth = 100;            // of dicts in dicts

struct StorageType {
  std::string_view global;
  std::optional<Element> element;
};
constexpr StorageType kStorageTypes[] = {{"torch.DoubleStorage", Element{Element::kFloat, 8}},
                                         {"torch.FloatStorage", Element{Element::kFloat, 4}},
                                         {"torch.HalfStorage", Element{Element::kFloat, 2}},
                                         {"torch.BFloat16Storage", Element{Element::kBrainFloat, 2}},
                                         {"torch.LongStorage", Element{Element::kSigned, 8}},
                                         {"torch.IntStorage", Element{Element::kSigned, 4}},
                                         {"torch.ShortStorage", Element{Element::kSigned, 2}},
                                         {"torch.CharStorage", Element{Element::kSigned, 1}},
                                         {"torch.ByteStorage", Element{Element::kUnsigned, 1}},
                                         {"torch.BoolStorage", Element{Element::kBool, 1}},
                                         {"torch.ComplexFloatStorage", {}},
                                         {"torch.ComplexDoubleStorage", {}},
                                         {"torch.storage.UntypedStorage", {}},
                                         {"torch.UntypedStorage", {}}};

constexpr std::string_view kRebuild[] = {"torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor"};
constexpr std::string_view kParameter[] = {"torch._utils._rebuild_parameter",
                                           "torch._utils._rebuild_parameter_with_state"};
// These, and those of tensors that reel does not have.
constexpr std::string_view kRebuildAny = "torch._utils._rebuild_";
constexpr std::string_view kScriptedList = "torch.jit._pickle.";
constexpr std::string_view kDict[] = {"collections.OrderedDict"};
// What has no tensors in it.
constexpr std::string_view kValues[] = {
    "torch.Size",      "torch.device",     "torch.float64",       "torch.float32",    "torch.float16",
    "torch.bfloat16",  "torch.int64",      "torch.int32",         "torch.int16",      "torch.int8",
    "torch.uint64",    "torch.uint32",     "torch.uint16",        "torch.uint8",      "torch.bool",
    "torch.complex64", "torch.complex128", "torch.float8_e4m3fn", "torch.float8_e5m2"};

template <class Names>
bool among(std::string_view name, const Names& names) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}
bool is_scripted(std::string_view global) { return global.starts_with("__torch__."); }
const StorageType* storage_type(std::string_view global) {
  const auto found = std::find_if(std::begin(kStorageTypes), std::end(kStorageTypes),
                                  [&](const StorageType& type) { return type.global == global; });
  return found == std::end(kStorageTypes) ? nullptr : found;
}
bool allowed(std::string_view global) {
  return global.starts_with(kRebuildAny) || among(global, kDict) || among(global, kValues) || storage_type(global) ||
         is_scripted(global) || global.starts_with(kScriptedList);
}

class TorchFile {
 public:
  TorchFile(const InputFile& file, const LoadOptions& options)
      : file_(file), options_(options), members_(read_zip(file)), by_name_(index()), pickle_(read_pickle()) {}

  StateDict load() {
    const PickleValue& root = pickle_[pickle_.root()];
    // A single tensor is "0", as libtorch names it.
    visit(pickle_.root(), is_call(root, kRebuild) || is_call(root, kParameter) ? "0" : "", 0);
    return std::move(tensors_);
  }

 private:
  // ---- members ----

  std::unordered_map<std::string_view, const ZipEntry*> index() const {
    std::unordered_map<std::string_view, const ZipEntry*> found;
    for (const ZipEntry& entry : members_)
      REEL_CHECK(found.emplace(entry.name, &entry).second, what(entry), " appears twice");
    return found;
  }
  const ZipEntry* find_member(const std::string& name) const {
    const auto found = by_name_.find(folder_ + name);
    return found == by_name_.end() ? nullptr : found->second;
  }
  std::string what(const ZipEntry& member) const {
    return file_.path().string() + ": '" + member.name.substr(0, 200) + "'";
  }
  // The whole of a stored member, read by `read(source)`.
  template <class Read>
  auto read_member(const ZipEntry& member, const Read& read) const {
    REEL_CHECK(!member.deflated, what(member), " is compressed, which torch.save's are not");
    Source source(file_, what(member), member.begin, member.end, false);
    auto result = read(source);
    REEL_CHECK(!options_.verify || source.crc() == member.crc, what(member),
               ": its data are damaged, or were written without checksums; {.verify = false} reads them all the same");
    return result;
  }
  static std::string read_text(Source& source) {
    std::string text(static_cast<size_t>(source.max_remaining()), '\0');
    source.read_exactly(text.data(), static_cast<int64_t>(text.size()));
    return text;
  }

  Pickle read_pickle() {
    constexpr std::string_view kPickle = "data.pkl";
    const auto found = std::find_if(members_.begin(), members_.end(), [&](const ZipEntry& entry) {
      return entry.name.ends_with(kPickle) && entry.name.find('/') == entry.name.size() - kPickle.size() - 1;
    });
    REEL_CHECK(found != members_.end(), file_.path().string(),
               ": a zip file without a data.pkl, so not of torch.save; load_npz reads those of NumPy");
    folder_ = found->name.substr(0, found->name.size() - kPickle.size());
    if (const ZipEntry* order = find_member("byteorder")) {
      REEL_CHECK(order->size <= 16, what(*order), " has ", order->size, " bytes");
      const std::string text = read_member(*order, read_text);
      REEL_CHECK(text == "little", what(*order), " is ", text,
                 ": files of big-endian machines are not read; torch.load and torch.save it on this one");
    }
    REEL_CHECK(found->size <= kMaxPickle, what(*found), " has ", found->size, " bytes, more than ", kMaxPickle,
               ": save tensors, not lists of numbers");
    return Pickle(what(*found), read_member(*found, read_text), allowed);
  }

  // ---- values ----

  template <class Names>
  bool is_call(const PickleValue& value, const Names& names) const {
    return value.kind == PickleValue::kCall && among(pickle_[value.items[0]].text, names);
  }
  const std::vector<int>& arguments(const PickleValue& call, size_t least) const {
    const PickleValue& arguments = pickle_[call.items[1]];
    if (arguments.items.size() < least)
      pickle_.fail(call, pickle_[call.items[0]].text, " with ", arguments.items.size(), " arguments");
    return arguments.items;
  }

  // Adds the tensors in the value, whose path is `path`.
  void visit(int number, const std::string& path, int depth) {
    const PickleValue& value = pickle_[number];
    if (depth > kMaxDepth) pickle_.fail(value, "more than ", kMaxDepth, " levels of dicts and lists");
    // Parts that are shared may be visited often; a file that means it has room for more than that.
    if (++visited_ > 4 * pickle_.size() + 1000) pickle_.fail(value, "it refers to its own parts over and over");
    const auto child = [&](const std::string& name) { return path.empty() ? name : path + "." + name; };
    switch (value.kind) {
      case PickleValue::kDict:
        for (size_t i = 0; i < value.items.size(); i += 2)
          visit(value.items[i + 1], child(key(value.items[i])), depth + 1);
        return;
      case PickleValue::kSequence:
        for (size_t i = 0; i < value.items.size(); ++i) visit(value.items[i], child(std::to_string(i)), depth + 1);
        return;
      case PickleValue::kCall: return visit_call(value, number, path, depth);
      case PickleValue::kPersistent: pickle_.fail(value, "'", path, "' is a bare storage: save a tensor");
      default: return;  // a number, a text
    }
  }
  void visit_call(const PickleValue& call, int number, const std::string& path, int depth) {
    const std::string_view function = pickle_[call.items[0]].text;
    if (among(function, kRebuild)) return add(call, number, path);
    if (among(function, kParameter) || function.starts_with(kScriptedList))
      return visit(arguments(call, 1)[0], path, depth + 1);
    if (function.starts_with(kRebuildAny) && loaded_name(path, options_))
      pickle_.fail(call, "'", path, "' is a tensor of a kind that reel does not have (", function, ")");
    if (among(function, kDict)) {
      if (!pickle_[call.items[1]].items.empty()) pickle_.fail(call, function, " with arguments");
      if (call.contents >= 0) visit(call.contents, path, depth + 1);
    }
    if (is_scripted(function) && call.state >= 0) visit(call.state, path, depth + 1);
  }
  std::string key(int number) const {
    const PickleValue& value = pickle_[number];
    if (value.kind == PickleValue::kInt) return std::to_string(value.number);
    if (value.kind != PickleValue::kString) pickle_.fail(value, "a key that is neither text nor a whole number");
    return std::string(value.text);
  }

  void add(const PickleValue& call, int number, const std::string& path) {
    const auto name = loaded_name(path, options_);
    if (!name) return;
    if (!names_.insert(*name).second) pickle_.fail(call, "'", *name, "' is given twice");
    auto found = made_.find(number);
    if (found == made_.end()) found = made_.emplace(number, make(call, path)).first;
    tensors_.emplace_back(*name, found->second);
  }

  std::vector<int64_t> integers(int number) const {
    const PickleValue& value = pickle_[number];
    if (value.kind != PickleValue::kSequence || value.items.size() > kMaxDims)
      pickle_.fail(value, "sizes and strides are no tuple of at most ", kMaxDims, " numbers");
    std::vector<int64_t> numbers;
    for (const int item : value.items) numbers.push_back(integer(item));
    return numbers;
  }
  int64_t integer(int number) const {
    const PickleValue& value = pickle_[number];
    if (value.kind != PickleValue::kInt || value.number < 0) pickle_.fail(value, "no whole number from 0 on");
    return value.number;
  }

  // Tensors share memory as they did when they were saved, but for those whose elements are in another order.
  Tensor make(const PickleValue& call, const std::string& path) {
    const std::vector<int>& given = arguments(call, 4);
    const Tensor& storage = storage_of(given[0], path);
    const int64_t offset = integer(given[1]);
    std::vector<int64_t> sizes = integers(given[2]);
    const std::vector<int64_t> strides = integers(given[3]);
    if (sizes.size() != strides.size())
      pickle_.fail(call, "'", path, "' has ", sizes.size(), " sizes and ", strides.size(), " strides");
    const Shape shape(sizes);
    if (shape.numel() == 0) return empty(shape, {.dtype = storage.dtype(), .device = kCPU});
    // What repeats is expanded at the end and takes no memory.
    for (size_t d = 0; d < sizes.size(); ++d)
      if (strides[d] == 0) sizes[d] = 1;
    int64_t last = offset, count = 1;
    bool too_far = false, row_major = true;
    for (size_t d = sizes.size(); d-- > 0;) {
      int64_t reach;
      row_major &= sizes[d] == 1 || strides[d] == count;
      too_far |= __builtin_mul_overflow(sizes[d] - 1, strides[d], &reach) ||
                 __builtin_add_overflow(last, reach, &last) || __builtin_mul_overflow(count, sizes[d], &count);
    }
    if (too_far || last >= storage.numel() || count > storage.numel())
      pickle_.fail(call, "'", path, "' of shape ", shape, " with strides ", Shape(strides), " from ", offset,
                   " on lies outside of its storage of ", storage.numel(), " elements");
    if (row_major) return storage.narrow(0, offset, count).view(Shape(sizes)).expand(shape);
    copied_ += count * size_of(storage.dtype());
    if (copied_ > 8 * file_.size()) pickle_.fail(call, "its tensors take up far more memory than the file");
    Tensor at = full(std::vector<int64_t>(sizes.size(), 1), offset, {.dtype = kInt64, .device = kCPU});
    for (size_t d = 0; d < sizes.size(); ++d) {
      std::vector<int64_t> along(sizes.size(), 1);
      along[d] = sizes[d];
      at = at + (arange(sizes[d], {.dtype = kInt64, .device = kCPU}) * strides[d]).view(Shape(along));
    }
    return storage.index_select(0, at.flatten()).view(Shape(sizes)).expand(shape);
  }

  // ("storage", class, key, location, elements)
  const Tensor& storage_of(int number, const std::string& path) {
    const PickleValue& value = pickle_[number];
    if (value.kind != PickleValue::kPersistent) pickle_.fail(value, "'", path, "' has no storage");
    const PickleValue& id = pickle_[value.items[0]];
    const auto is = [&](size_t i, PickleValue::Kind kind) { return pickle_[id.items[i]].kind == kind; };
    if (id.kind != PickleValue::kSequence || id.items.size() < 5 || !is(1, PickleValue::kGlobal) ||
        !is(2, PickleValue::kString))
      pickle_.fail(id, "the storage of '", path, "' is not described as torch.save does");
    const std::string_view type_name = pickle_[id.items[1]].text;
    const StorageType* type = storage_type(type_name);
    if (!type || !type->element) pickle_.fail(id, "'", path, "': reel has no dtype for a ", type_name);
    const std::string member_name = "data/" + std::string(pickle_[id.items[2]].text);
    const ZipEntry* member = find_member(member_name);
    if (!member) pickle_.fail(id, "the storage of '", path, "', ", member_name, ", is not in the file");
    const int64_t elements = integer(id.items[4]);
    if (member->size % type->element->bytes || member->size / type->element->bytes != elements)
      pickle_.fail(id, "the storage of '", path, "' has ", member->size, " bytes in the file, not ", elements,
                   " elements of ", type->element->bytes);
    auto [found, is_new] = storages_.try_emplace({member->name, type_name});
    if (is_new)
      found->second = read_member(*member, [&](Source& source) {
        return read_elements(source, *type->element, std::vector{elements}, "'" + path + "'");
      });
    return found->second;
  }

  const InputFile& file_;
  const LoadOptions& options_;
  const std::vector<ZipEntry> members_;
  const std::unordered_map<std::string_view, const ZipEntry*> by_name_;
  std::string folder_;  // "net/"
  const Pickle pickle_;
  std::map<std::pair<std::string, std::string_view>, Tensor> storages_;  // by member and type
  std::map<int, Tensor> made_;                                           // by their calls
  StateDict tensors_;
  std::unordered_set<std::string> names_;
  size_t visited_ = 0;
  int64_t copied_ = 0;  // bytes
};

std::string beginning(const InputFile& file) {
  std::string bytes(static_cast<size_t>(std::min<int64_t>(file.size(), kLegacy.size())), '\0');
  file.read(bytes.data(), static_cast<int64_t>(bytes.size()), 0);
  return bytes;
}

}  // namespace

bool is_torch_file(const InputFile& file) {
  const std::string bytes = beginning(file);
  return bytes.starts_with(kZip) || bytes == kLegacy;
}

StateDict load_torch(const InputFile& file, const LoadOptions& options) {
  REEL_CHECK(
      beginning(file) != kLegacy, file.path().string(),
      ": the old format of torch.save (before PyTorch 1.6) is not read: torch.load and torch.save it with a newer one");
  return TorchFile(file, options).load();
}

}  // namespace reel::io
