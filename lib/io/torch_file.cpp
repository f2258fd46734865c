#include "lib/io/torch_file.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "lib/io/checksum.h"
#include "lib/io/elements.h"
#include "lib/io/load_options.h"
#include "lib/io/mapped_file.h"
#include "lib/io/pickle.h"
#include "lib/io/source.h"
#include "lib/io/zip.h"
#include "lib/tensor/tensor_impl.h"
#include "reel/ops.h"

// A zip file of stored members in one folder (since PyTorch 1.6): data.pkl, a pickle of whatever was saved; data/0,
// data/1, …, the storages of its tensors; byteorder, "little" or "big". In the pickle a storage is a persistent object
// ("storage", torch.FloatStorage, "0", "cpu", 6) and a tensor the call torch._utils._rebuild_tensor_v2(storage, offset,
// sizes, strides, requires_grad, hooks, metadata), whose metadata, since PyTorch 2.0, say whether the elements are
// those of the storage or their negatives. _rebuild_tensor_v3 has a dtype before the metadata, and a storage of bytes.
// _rebuild_parameter and _rebuild_from_type_v2 wrap that call. libtorch and TorchScript write modules as objects of
// classes __torch__.… whose state is a dict of their attributes. Every argument of these functions is checked: one that
// is not known here could change the tensor's values.
namespace reel::io {
namespace {

constexpr std::string_view kZip("PK\3\4", 4), kLegacy("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 14);
constexpr int64_t kMaxPickle = 16 << 20;   // a tensor takes about 150 bytes of it
constexpr int kMaxDepth = 100;             // of dicts in dicts
constexpr size_t kMaxPath = 64 << 10;      // bytes of a tensor's path,
constexpr size_t kMaxPaths = 64 << 20;     // of all paths,
constexpr int64_t kFreeCopies = 64 << 20;  // and of copies that a small file may ask for

struct StorageType {
  std::string_view global, dtype;
  std::optional<Element> element;
};
constexpr StorageType kStorageTypes[] = {{"torch.DoubleStorage", "torch.float64", Element{Element::kFloat, 8}},
                                         {"torch.FloatStorage", "torch.float32", Element{Element::kFloat, 4}},
                                         {"torch.HalfStorage", "torch.float16", Element{Element::kFloat, 2}},
                                         {"torch.BFloat16Storage", "torch.bfloat16", Element{Element::kBrainFloat, 2}},
                                         {"torch.LongStorage", "torch.int64", Element{Element::kSigned, 8}},
                                         {"torch.IntStorage", "torch.int32", Element{Element::kSigned, 4}},
                                         {"torch.ShortStorage", "torch.int16", Element{Element::kSigned, 2}},
                                         {"torch.CharStorage", "torch.int8", Element{Element::kSigned, 1}},
                                         {"torch.ByteStorage", "torch.uint8", Element{Element::kUnsigned, 1}},
                                         {"torch.BoolStorage", "torch.bool", Element{Element::kBool, 1}},
                                         {"torch.ComplexFloatStorage", "torch.complex64", {}},
                                         {"torch.ComplexDoubleStorage", "torch.complex128", {}},
                                         // Dtypes that have no storage of their own, but one of bytes.
                                         {"", "torch.uint16", Element{Element::kUnsigned, 2}},
                                         {"", "torch.uint32", Element{Element::kUnsigned, 4}}};
constexpr std::string_view kUntyped[] = {"torch.storage.UntypedStorage", "torch.UntypedStorage"};

constexpr std::string_view kRebuildV1 = "torch._utils._rebuild_tensor", kRebuildV2 = "torch._utils._rebuild_tensor_v2",
                           kRebuildV3 = "torch._utils._rebuild_tensor_v3",
                           kParameter = "torch._utils._rebuild_parameter",
                           kParameterWithState = "torch._utils._rebuild_parameter_with_state";
constexpr std::string_view kRebuild[] = {kRebuildV1, kRebuildV2, kRebuildV3};
constexpr std::string_view kFromType[] = {"torch._tensor._rebuild_from_type_v2", "torch._tensor._rebuild_from_type"};
constexpr std::string_view kTensorTypes[] = {"torch.Tensor", "torch.nn.parameter.Parameter",
                                             "torch.nn.parameter.Buffer"};
// These, and those of tensors that reel does not have.
constexpr std::string_view kRebuildAny = "torch._utils._rebuild_";
constexpr std::string_view kScriptedLists[] = {"torch.jit._pickle.build_intlist", "torch.jit._pickle.build_doublelist",
                                               "torch.jit._pickle.build_boollist", "torch.jit._pickle.build_tensorlist",
                                               "torch.jit._pickle.restore_type_tag"};
constexpr std::string_view kDict[] = {"collections.OrderedDict", "collections.defaultdict"};
// These have one argument, the list of their elements.
constexpr std::string_view kCollections[] = {"builtins.set", "builtins.frozenset", "collections.Counter"};
// What has no tensors in it.
constexpr std::string_view kValues[] = {
    "torch.Size",           "torch.device",        "torch.serialization._get_layout",
    "_codecs.encode",       "builtins.bytearray",  "builtins.complex",
    "builtins.list",        "builtins.dict",       "builtins.int",
    "builtins.float",       "torch.uint64",        "torch.complex32",
    "torch.quint8",         "torch.qint8",         "torch.qint32",
    "torch.float8_e5m2",    "torch.float8_e4m3fn", "torch.float8_e4m3fnuz",
    "torch.float8_e5m2fnuz"};

template <class Names>
bool among(std::string_view name, const Names& names) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}
bool is_scripted(std::string_view global) { return global.starts_with("__torch__."); }
// Finds the type of that name in a column of kStorageTypes.
const StorageType* find_type(std::string_view StorageType::*column, std::string_view name) {
  const auto found = std::find_if(std::begin(kStorageTypes), std::end(kStorageTypes),
                                  [&](const StorageType& type) { return type.*column == name; });
  return found == std::end(kStorageTypes) ? nullptr : found;
}
bool is_value(std::string_view global) { return among(global, kValues) || find_type(&StorageType::dtype, global); }
bool allowed(std::string_view global) {
  return global.starts_with(kRebuildAny) || among(global, kFromType) || among(global, kTensorTypes) ||
         among(global, kDict) || among(global, kCollections) || is_value(global) || among(global, kUntyped) ||
         find_type(&StorageType::global, global) || is_scripted(global) || among(global, kScriptedLists);
}

// A Path says where a value is in the dicts and lists around it, from the inside out. It becomes a text for tensors
// alone.
struct Path {
  const Path* parent = nullptr;
  int key = -1;      // the value that it has as its key in a dict,
  size_t index = 0;  // or its place in a list
};

class TorchFile {
 public:
  TorchFile(const InputFile& file, const LoadOptions& options)
      : file_(file),
        options_(options),
        mapping_(options.mmap ? std::make_shared<const MappedFile>(file) : nullptr),
        members_(read_zip(file)),
        by_name_(index()),
        pickle_(read_pickle()) {}

  StateDict load() {
    const PickleValue& root = pickle_[pickle_.root()];
    // A single tensor is "0", as libtorch names it.
    const Path single;
    visit(pickle_.root(), is_tensor(root) ? &single : nullptr, 0);
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
    check_stored(member);
    Source source(file_, what(member), member.begin, member.end, false);
    auto result = read(source);
    if (options_.verify) verify(member, source.crc());
    return result;
  }
  void check_stored(const ZipEntry& member) const {
    REEL_CHECK(!member.deflated, what(member), " is compressed, which torch.save's are not");
  }
  void verify(const ZipEntry& member, uint32_t crc) const {
    REEL_CHECK(crc == member.crc, what(member),
               ": its data are damaged, or were written without checksums; {.verify = false} reads them all the same");
  }
  // Returns the elements of a storage, which are used where they lie if the options and the elements allow it.
  Tensor read_storage(const ZipEntry& member, Element element, const std::string& path) const {
    char* const data = mapping_ ? mapping_->data() + member.begin : nullptr;
    const std::vector sizes{member.size / element.bytes};
    if (!data || !fits_in_place(data, element))
      return read_member(member,
                         [&](Source& source) { return read_elements(source, element, sizes, "'" + path + "'"); });
    check_stored(member);
    if (options_.verify)
      verify(member, crc_of_pieces(member.size, [data](int64_t begin, int64_t size) {
               return crc_of(data + begin, static_cast<size_t>(size));
             }));
    return from_blob(data, *element.dtype(), Shape(sizes), [mapping = mapping_] {});
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
    // Where some tensors are chosen, what stands beside them is refused only when it is come to.
    const bool chooses = options_.keep || !options_.prefix.empty();
    return Pickle(what(*found), read_member(*found, read_text),
                  [chooses](std::string_view global) { return chooses || allowed(global); });
  }

  // ---- values ----

  bool is_tensor(const PickleValue& value) const {
    if (value.kind != PickleValue::kCall) return false;
    const std::string_view function = pickle_[value.items[0]].text;
    return among(function, kRebuild) || among(function, kFromType) || function == kParameter ||
           function == kParameterWithState;
  }
  // Returns the arguments of a call, a tuple of `min` to `max` values.
  const std::vector<int>& arguments(const PickleValue& call, int number, size_t min, size_t max) const {
    const PickleValue& arguments = pickle_[number];
    if (arguments.kind != PickleValue::kSequence || arguments.items.size() < min || arguments.items.size() > max)
      pickle_.fail(call, pickle_[call.items[0]].text, " with ", arguments.items.size(), " arguments");
    return arguments.items;
  }
  const std::vector<int>& arguments(const PickleValue& call, size_t min, size_t max) const {
    return arguments(call, call.items[1], min, max);
  }

  // Adds the tensors in the value.
  void visit(int number, const Path* path, int depth) {
    const PickleValue& value = pickle_[number];
    if (depth > kMaxDepth) pickle_.fail(value, "more than ", kMaxDepth, " levels of dicts and lists");
    // Parts that are shared may be visited often; a file that means it has room for more than that.
    if (++visited_ > 4 * pickle_.size() + 1000) pickle_.fail(value, "it refers to its own parts over and over");
    switch (value.kind) {
      case PickleValue::kDict:
        for (size_t i = 0; i < value.items.size(); i += 2) {
          const Path child{.parent = path, .key = value.items[i]};
          visit(value.items[i + 1], &child, depth + 1);
        }
        return;
      case PickleValue::kSequence:
        for (size_t i = 0; i < value.items.size(); ++i) {
          const Path child{.parent = path, .index = i};
          visit(value.items[i], &child, depth + 1);
        }
        return;
      case PickleValue::kCall: return visit_call(value, number, path, depth);
      case PickleValue::kPersistent:
        if (chosen(path)) pickle_.fail(value, "'", text_of(path), "' is a bare storage: save a tensor");
        return;
      case PickleValue::kGlobal:
        if (!allowed(value.text) && chosen(path)) pickle_.refuse(number);
        return;
      default: return;  // a number, a text
    }
  }
  void visit_call(const PickleValue& call, int number, const Path* path, int depth) {
    const std::string_view function = pickle_[call.items[0]].text;
    if (among(function, kRebuild)) return add(call, function, call.items[1], number, path);
    if (function == kParameter) return visit(arguments(call, 3, 3)[0], path, depth + 1);
    if (function == kParameterWithState) return visit(arguments(call, 4, 4)[0], path, depth + 1);
    if (among(function, kFromType)) return visit_attributed(call, number, path);
    if (among(function, kScriptedLists)) return visit(arguments(call, 1, 2)[0], path, depth + 1);
    if (function.starts_with(kRebuildAny)) return refuse_tensor(call, function, path);
    if (among(function, kDict)) {
      if (function == kDict[0]) arguments(call, 0, 0);
      if (call.contents >= 0) visit(call.contents, path, depth + 1);
    } else if (among(function, kCollections)) {
      for (const int argument : arguments(call, 0, 1)) visit(argument, path, depth + 1);
    } else if (is_scripted(function)) {
      if (call.state >= 0) visit(call.state, path, depth + 1);
    } else if (!is_value(function) && chosen(path)) {
      pickle_.refuse(call.items[0]);
    }
  }
  // Adds a tensor with Python attributes, (function, type, its arguments, attributes), without the attributes.
  void visit_attributed(const PickleValue& call, int number, const Path* path) {
    const std::vector<int>& given = arguments(call, 4, 4);
    const std::string_view function = pickle_[given[0]].text, type = pickle_[given[1]].text;
    if (among(function, kRebuild) && among(type, kTensorTypes)) return add(call, function, given[2], number, path);
    refuse_tensor(call, among(function, kRebuild) ? type : function, path);
  }
  void refuse_tensor(const PickleValue& call, std::string_view kind, const Path* path) {
    if (chosen(path))
      pickle_.fail(call, "'", text_of(path), "' is a tensor of a kind that reel does not have (", kind, ")");
  }

  // ---- paths ----

  bool chosen(const Path* path) { return loaded_name(text_of(path), options_).has_value(); }
  // Returns the path as a text, "model.fc.weight".
  std::string text_of(const Path* path) {
    std::vector<const Path*> parts;
    for (; path; path = path->parent) parts.push_back(path);
    std::string text;
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
      if (part != parts.rbegin()) text += '.';
      if ((*part)->key >= 0)
        append_key(text, (*part)->key);
      else
        text += std::to_string((*part)->index);
    }
    paths_ += text.size();
    REEL_CHECK(paths_ <= kMaxPaths, file_.path().string(), ": the paths of its tensors take more than ", kMaxPaths,
               " bytes");
    return text;
  }
  // Appends a key: a text, a whole number, or a tuple of these, "(0, 1)".
  void append_key(std::string& text, int number, bool in_tuple = false) const {
    const PickleValue& value = pickle_[number];
    if (value.kind == PickleValue::kInt) {
      text += std::to_string(value.number);
    } else if (value.kind == PickleValue::kString) {
      if (value.text.size() > kMaxPath) pickle_.fail(value, "a key of ", value.text.size(), " bytes");
      text += value.text;
    } else if (value.kind == PickleValue::kSequence && !in_tuple) {
      text += '(';
      for (const char* comma = ""; const int item : value.items) {
        text += comma;
        append_key(text, item, true);
        comma = ", ";
      }
      text += ')';
    } else {
      pickle_.fail(value, "a key that is neither text nor a whole number nor a tuple of these");
    }
    if (text.size() > kMaxPath) pickle_.fail(value, "the path of a tensor has more than ", kMaxPath, " bytes");
  }

  // ---- tensors ----

  void add(const PickleValue& call, std::string_view function, int given, int number, const Path* path) {
    const std::string whole = text_of(path);
    const auto name = loaded_name(whole, options_);
    if (!name) return;
    if (!names_.insert(*name).second) pickle_.fail(call, "'", *name, "' is given twice");
    auto found = made_.find(number);
    if (found == made_.end()) found = made_.emplace(number, make(call, function, given, whole)).first;
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

  // Returns whether the value is None, or an empty tuple or dict.
  bool is_empty(const PickleValue& value) const {
    switch (value.kind) {
      case PickleValue::kOther: return value.is_none;
      case PickleValue::kSequence:
      case PickleValue::kDict: return value.items.empty();
      case PickleValue::kCall:
        return among(pickle_[value.items[0]].text, kDict) &&
               (value.contents < 0 || pickle_[value.contents].items.empty());
      default: return false;
    }
  }
  // Returns whether the metadata of a tensor say that its elements are those of the storage negated: {"neg": True}.
  bool is_negative(const PickleValue& call, int number, const std::string& path) const {
    const PickleValue* metadata = &pickle_[number];
    if (metadata->kind == PickleValue::kCall && among(pickle_[metadata->items[0]].text, kScriptedLists))
      metadata = &pickle_[arguments(*metadata, 1, 2)[0]];
    if (is_empty(*metadata)) return false;
    if (metadata->kind != PickleValue::kDict) pickle_.fail(call, "the metadata of '", path, "' are no dict");
    bool negative = false;
    for (size_t i = 0; i < metadata->items.size(); i += 2) {
      const PickleValue &key = pickle_[metadata->items[i]], &value = pickle_[metadata->items[i + 1]];
      const bool is_flag = key.kind == PickleValue::kString && value.kind == PickleValue::kInt;
      if (is_flag && key.text == "neg")
        negative = value.number != 0;
      else if (!is_flag || value.number != 0)
        pickle_.fail(call, "'", path, "' has metadata that reel does not know: '", key.text.substr(0, 100), "'");
    }
    return negative;
  }

  // Tensors share memory as they did when they were saved, but for those whose elements are in another order, or
  // negative.
  Tensor make(const PickleValue& call, std::string_view function, int number, const std::string& path) {
    const size_t at_dtype = function == kRebuildV3 ? 6 : 5;  // where the dtype is, if there is one
    const std::vector<int>& given =
        function == kRebuildV1 ? arguments(call, number, 4, 4) : arguments(call, number, at_dtype + 1, at_dtype + 2);
    if (call.state >= 0 || call.contents >= 0)
      pickle_.fail(call, "'", path, "' is a tensor that is changed afterwards");
    if (given.size() > 4 && pickle_[given[4]].kind != PickleValue::kInt)
      pickle_.fail(call, "'", path, "': requires_grad is neither True nor False");
    if (given.size() > 5 && !is_empty(pickle_[given[5]])) pickle_.fail(call, "'", path, "' has backward hooks");
    const Tensor& storage = storage_of(given[0], path, function == kRebuildV3 ? given[6] : -1);
    const bool negative = given.size() == at_dtype + 2 && is_negative(call, given[at_dtype + 1], path);
    if (negative && !storage.is_floating_point())
      pickle_.fail(call, "'", path, "' has the negative bit, which reel reads for floating-point tensors only");
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
    if (too_far || last >= storage.numel())
      pickle_.fail(call, "'", path, "' of shape ", shape, " with strides ", Shape(strides), " from ", offset,
                   " on lies outside of its storage of ", storage.numel(), " elements");
    if (row_major && !negative) return storage.narrow(0, offset, count).view(Shape(sizes)).expand(shape);
    int64_t bytes;
    if (__builtin_mul_overflow(count, size_of(storage.dtype()), &bytes) ||
        __builtin_add_overflow(copied_, bytes, &copied_) || (copied_ - kFreeCopies) / 8 > file_.size())
      pickle_.fail(call, "its tensors take up far more memory than the file");
    char* const first = static_cast<char*>(bytes_of(storage)) + offset * size_of(storage.dtype());
    const Tensor there = alias(storage, first, Shape(sizes), Shape(strides));
    return (negative ? neg(there) : there.clone()).expand(shape);
  }

  // ("storage", class, key, location, elements); the class of one of bytes goes with the value that is the dtype.
  const Tensor& storage_of(int number, const std::string& path, int dtype) {
    const PickleValue& value = pickle_[number];
    if (value.kind != PickleValue::kPersistent) pickle_.fail(value, "'", path, "' has no storage");
    const PickleValue& id = pickle_[value.items[0]];
    const auto is = [&](size_t i, PickleValue::Kind kind) { return pickle_[id.items[i]].kind == kind; };
    if (id.kind != PickleValue::kSequence || id.items.size() != 5 || pickle_[id.items[0]].text != "storage" ||
        !is(1, PickleValue::kGlobal) || !is(2, PickleValue::kString))
      pickle_.fail(id, "the storage of '", path, "' is not described as torch.save does");
    std::string_view type_name = pickle_[id.items[1]].text;
    const bool untyped = among(type_name, kUntyped);
    if (untyped != (dtype >= 0)) pickle_.fail(id, "'", path, "': a ", type_name, " goes with another _rebuild_tensor");
    if (untyped) type_name = pickle_[dtype].text;
    const StorageType* type = find_type(untyped ? &StorageType::dtype : &StorageType::global, type_name);
    if (!type || !type->element) pickle_.fail(id, "'", path, "': reel has no dtype for a ", type_name);
    const std::string key(pickle_[id.items[2]].text.substr(0, 200)), member_name = "data/" + key;
    const ZipEntry* member = find_member(member_name);
    if (!member) pickle_.fail(id, "the storage of '", path, "', ", member_name, ", is not in the file");
    const int64_t width = type->element->bytes, given = integer(id.items[4]);
    if (member->size % width || (untyped ? member->size : member->size / width) != given)
      pickle_.fail(id, "the storage of '", path, "' has ", member->size, " bytes in the file, not ", given,
                   untyped ? " bytes for elements of " : " elements of ", width);
    auto [found, is_new] = storages_.try_emplace({member->name, type_name});
    if (is_new) found->second = read_storage(*member, *type->element, path);
    return found->second;
  }

  const InputFile& file_;
  const LoadOptions& options_;
  const std::shared_ptr<const MappedFile> mapping_;
  const std::vector<ZipEntry> members_;
  const std::unordered_map<std::string_view, const ZipEntry*> by_name_;
  std::string folder_;  // "net/"
  const Pickle pickle_;
  std::map<std::pair<std::string, std::string_view>, Tensor> storages_;  // by member and type
  std::map<int, Tensor> made_;                                           // by their calls
  StateDict tensors_;
  std::unordered_set<std::string> names_;
  size_t visited_ = 0, paths_ = 0;  // values, and bytes of paths
  int64_t copied_ = 0;              // bytes
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
