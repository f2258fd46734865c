#include <algorithm>
#include <map>
#include <protozero/pbf_reader.hpp>
#include <unordered_map>
#include <unordered_set>

#include "lib/io/elements.h"
#include "lib/io/source.h"
#include "lib/onnx/graph.h"

namespace reel::onnx {
namespace {

using protozero::pbf_reader, protozero::pbf_wire_type, protozero::tag_and_type;

// A field and how it is encoded; with another encoding it is skipped.
constexpr uint32_t integer(Field field) { return tag_and_type(field, pbf_wire_type::varint); }
constexpr uint32_t bytes(Field field) { return tag_and_type(field, pbf_wire_type::length_delimited); }
constexpr uint32_t fixed32(Field field) { return tag_and_type(field, pbf_wire_type::fixed32); }
constexpr uint32_t fixed64(Field field) { return tag_and_type(field, pbf_wire_type::fixed64); }

struct ElementType {
  int type;
  io::Element element;
};
// What has the same values and the same arithmetic as a dtype of reel.
constexpr ElementType kElementTypes[] = {
    {data_type::kFloat, {io::Element::kFloat, 4}},    {data_type::kDouble, {io::Element::kFloat, 8}},
    {data_type::kFloat16, {io::Element::kFloat, 2}},  {data_type::kBfloat16, {io::Element::kBrainFloat, 2}},
    {data_type::kInt64, {io::Element::kSigned, 8}},   {data_type::kInt32, {io::Element::kSigned, 4}},
    {data_type::kUint8, {io::Element::kUnsigned, 1}}, {data_type::kBool, {io::Element::kBool, 1}}};

const io::Element* find_element(int64_t type) {
  for (const ElementType& known : kElementTypes)
    if (known.type == type) return &known.element;
  return nullptr;
}
std::string refusal_of(int64_t type, const std::string& what) {
  return what + " is of type " + type_name(type) + ", which reel has no tensors of";
}

std::string in_quotes(std::string_view name) { return "'" + std::string(name.substr(0, 200)) + "'"; }

class Reader {
 public:
  explicit Reader(const std::filesystem::path& path) : file_(path), bytes_(static_cast<size_t>(file_.size()), '\0') {
    file_.read(bytes_.data(), file_.size(), 0);
  }

  Graph read() {
    std::string_view graph;
    int64_t ir_version = 0;
    fields(bytes_, [&](pbf_reader& field) {
      switch (field.tag_and_type()) {
        case integer(model::kIrVersion): ir_version = field.get_int64(); break;
        case bytes(model::kOpsetImport): read_opset(view(field)); break;
        case bytes(model::kGraph): graph = view(field); break;
        default: field.skip();
      }
    });
    REEL_CHECK(ir_version > 0 && graph.data(), name(), ": not an ONNX model: it has no ",
               graph.data() ? "ir_version" : "graph");
    REEL_CHECK(graph_.opset, name(), ": it does not say which opset of ai.onnx it needs");
    REEL_CHECK(graph_.opset >= kFirstOpset && graph_.opset <= kLastOpset, name(), ": it needs opset ", graph_.opset,
               "; those from ", kFirstOpset, " to ", kLastOpset, " are read (torch.onnx.export(…, opset_version=17))");
    read_graph(graph);
    return std::move(graph_);
  }

 private:
  std::string name() const { return file_.path().string(); }
  int64_t offset(std::string_view part) const { return part.data() - bytes_.data(); }
  template <class... Parts>
  [[noreturn]] void fail_at(std::string_view part, const Parts&... parts) const {
    detail::fail(name(), ": byte ", offset(part), ": ", parts...);
  }

  // visit(field) for each field of a message; it takes or skips the field.
  template <class Visit>
  void fields(std::string_view message, const Visit& visit) const {
    pbf_reader reader(message.data(), message.size());
    try {
      while (reader.next()) visit(reader);
    } catch (const protozero::exception& error) {
      const std::string_view rest(reader.data().data(), reader.length());
      const bool zip = message.starts_with("PK\x03\x04");
      fail_at(rest, "not a protocol buffer: ", error.what(), zip ? "; io::load reads .pt files" : "");
    }
  }
  static std::string_view view(pbf_reader& field) {
    const protozero::data_view view = field.get_view();
    return {view.data(), view.size()};
  }
  static std::string text(pbf_reader& field) { return std::string(view(field)); }
  template <class T, class Range>
  static void append(std::vector<T>& to, const Range& range) {
    to.insert(to.end(), range.begin(), range.end());
  }

  void read_opset(std::string_view message) {
    std::string domain;
    int64_t version = 0;
    fields(message, [&](pbf_reader& field) {
      switch (field.tag_and_type()) {
        case bytes(opset::kDomain): domain = text(field); break;
        case integer(opset::kVersion): version = field.get_int64(); break;
        default: field.skip();
      }
    });
    if (domain.empty() || domain == "ai.onnx") graph_.opset = version;
  }

  // ---- tensors ----

  // Returns an undefined tensor and sets `refusal` if reel has no such type: that matters only if the tensor is needed.
  Tensor read_tensor(std::string_view message, std::string& tensor_name, std::string& refusal) const {
    std::vector<int64_t> dims, integers;
    std::vector<double> numbers;
    std::map<std::string, std::string, std::less<>> external;
    std::string_view raw;
    int64_t type = 0, location = tensor::kDefault;
    bool in_strings = false;
    fields(message, [&](pbf_reader& field) {
      switch (field.tag_and_type()) {
        case integer(tensor::kDims): dims.push_back(field.get_int64()); break;
        case bytes(tensor::kDims): append(dims, field.get_packed_int64()); break;
        case integer(tensor::kDataType): type = field.get_int64(); break;
        case fixed32(tensor::kFloatData): numbers.push_back(field.get_float()); break;
        case bytes(tensor::kFloatData): append(numbers, field.get_packed_float()); break;
        case fixed64(tensor::kDoubleData): numbers.push_back(field.get_double()); break;
        case bytes(tensor::kDoubleData): append(numbers, field.get_packed_double()); break;
        case integer(tensor::kInt32Data):
        case integer(tensor::kInt64Data): integers.push_back(field.get_int64()); break;
        case bytes(tensor::kInt32Data):
        case bytes(tensor::kInt64Data): append(integers, field.get_packed_int64()); break;
        case bytes(tensor::kName): tensor_name = text(field); break;
        case bytes(tensor::kRawData): raw = view(field); break;
        case bytes(tensor::kExternalData): read_entry(view(field), external); break;
        case integer(tensor::kDataLocation): location = field.get_int64(); break;
        case bytes(tensor::kStringData):
        case bytes(tensor::kSegment): in_strings = true, field.skip(); break;
        default: field.skip();
      }
    });
    const std::string what = "tensor " + in_quotes(tensor_name);
    const io::Element* const known = find_element(type);
    if (!known) {
      refusal = refusal_of(type, name() + ": byte " + std::to_string(offset(message)) + ": " + what);
      return {};
    }
    const io::Element& element = *known;
    const DType dtype = *element.dtype();
    if (dims.size() > kMaxDims) fail_at(message, what, " has ", dims.size(), " dimensions, more than ", kMaxDims);
    for (const int64_t size : dims)
      if (size < 0) fail_at(message, what, " has the shape ", Shape(dims));
    const auto size = io::byte_count(dims, dtype);
    if (!size) fail_at(message, "the shape ", Shape(dims), " of ", what, " is too large");
    const int64_t count = *size / size_of(dtype);
    if (in_strings) fail_at(message, what, " is in segments or of strings, which is not read");
    if (location == tensor::kExternal) return read_external(external, element, dims, *size, message, what);
    if (raw.data() || count == 0) {
      if (static_cast<int64_t>(raw.size()) != *size)
        fail_at(message, what, " of shape ", Shape(dims), " and type ", type_name(type), " has ", raw.size(),
                " bytes of raw data, not ", *size);
      return read_bytes(file_, raw.data() ? offset(raw) : 0, *size, element, dims, what);
    }
    // Typed fields: small integers and the bits of halves are in int32_data.
    const bool real = dtype == kFloat32 || dtype == kFloat64;
    const size_t given = real ? numbers.size() : integers.size();
    if (static_cast<int64_t>(given) != count)
      fail_at(message, what, " of shape ", Shape(dims), " has ", given, " elements of ", type_name(type));
    if (real) return reel::tensor(numbers, dims, {.dtype = dtype, .device = kCPU});
    const int64_t low = dtype == kInt64 ? INT64_MIN : dtype == kInt32 ? INT32_MIN : 0;
    const int64_t high = dtype == kInt64   ? INT64_MAX
                         : dtype == kInt32 ? INT32_MAX
                         : is_half(dtype)  ? 0xffff
                         : dtype == kUInt8 ? 255
                                           : 1;
    for (const int64_t value : integers)
      if (value < low || value > high) fail_at(message, what, " of ", type_name(type), " has the element ", value);
    if (!is_half(dtype)) return reel::tensor(integers, dims, {.dtype = dtype, .device = kCPU});
    const std::vector<uint16_t> bits(integers.begin(), integers.end());
    return reel::tensor(bits.data(), dtype, dims, {.device = kCPU});
  }

  void read_entry(std::string_view message, std::map<std::string, std::string, std::less<>>& entries) const {
    std::string key, value;
    fields(message, [&](pbf_reader& field) {
      switch (field.tag_and_type()) {
        case bytes(string_entry::kKey): key = text(field); break;
        case bytes(string_entry::kValue): value = text(field); break;
        default: field.skip();
      }
    });
    entries[key] = value;
  }

  static Tensor read_bytes(const io::InputFile& file, int64_t begin, int64_t bytes, const io::Element& element,
                           const std::vector<int64_t>& dims, const std::string& what) {
    io::Source source(file, file.path().string(), begin, begin + bytes, false);
    return io::read_elements(source, element, dims, what);
  }

  // The data are in a file of the model's folder, and not where a link or ".." leads to.
  Tensor read_external(const std::map<std::string, std::string, std::less<>>& entries, const io::Element& element,
                       const std::vector<int64_t>& dims, int64_t bytes, std::string_view message,
                       const std::string& what) const {
    const auto number = [&](const char* key, int64_t otherwise) {
      const auto found = entries.find(key);
      if (found == entries.end()) return otherwise;
      const std::string& digits = found->second;
      if (digits.empty() || digits.size() > 18 || digits.find_first_not_of("0123456789") != std::string::npos)
        fail_at(message, "the ", key, " of ", what, " in another file is ", in_quotes(digits));
      return static_cast<int64_t>(std::stoll(digits));
    };
    const auto location = entries.find("location");
    if (location == entries.end()) fail_at(message, what, " is in another file that is not named");
    const std::filesystem::path relative = location->second;
    const std::filesystem::path folder = file_.path().has_parent_path() ? file_.path().parent_path() : ".";
    std::error_code error;
    const std::filesystem::path root = std::filesystem::canonical(folder, error);
    const std::filesystem::path target = std::filesystem::canonical(folder / relative, error);
    if (error) fail_at(message, what, " is in ", in_quotes(location->second), ": ", error.message());
    const auto inside = std::mismatch(root.begin(), root.end(), target.begin(), target.end()).first == root.end();
    if (!inside || relative.is_absolute() || std::find(relative.begin(), relative.end(), "..") != relative.end())
      fail_at(message, what, " is in ", in_quotes(location->second), ", outside of the model's folder");
    const io::InputFile file(target);
    const int64_t begin = number("offset", 0), length = number("length", bytes);
    if (length != bytes || begin > file.size() - length)
      fail_at(message, what, " of shape ", Shape(dims), " has ", bytes, " bytes, but is bytes ", begin, " to ",
              begin + length, " of the ", file.size(), " in ", target.string());
    return read_bytes(file, begin, bytes, element, dims, what);
  }

  // ---- the graph ----

  int value_of(const std::string& value_name) {
    const auto [at, is_new] = numbers_.emplace(value_name, static_cast<int>(graph_.values.size()));
    if (is_new) graph_.values.push_back(value_name);
    return at->second;
  }

  void read_graph(std::string_view message) {
    fields(message, [&](pbf_reader& field) {
      switch (field.tag_and_type()) {
        case bytes(graph::kNode): read_node(view(field)); break;
        case bytes(graph::kInitializer): {
          Initializer initializer;
          initializer.tensor = read_tensor(view(field), initializer.name, initializer.refusal);
          initializer.value = value_of(initializer.name);
          graph_.initializers.push_back(std::move(initializer));
          break;
        }
        case bytes(graph::kInput): graph_.inputs.push_back(read_port(view(field))); break;
        case bytes(graph::kOutput): graph_.outputs.push_back(read_port(view(field))); break;
        case bytes(graph::kSparseInitializer): fail_at(view(field), "a sparse initializer, which is not read");
        default: field.skip();
      }
    });
  }

  void read_node(std::string_view message) {
    Node node;
    const auto value = [&](std::string_view of) { return of.empty() ? -1 : value_of(std::string(of)); };
    fields(message, [&](pbf_reader& field) {
      switch (field.tag_and_type()) {
        case bytes(node::kInput): node.inputs.push_back(value(view(field))); break;
        case bytes(node::kOutput): node.outputs.push_back(value(view(field))); break;
        case bytes(node::kName): node.name = text(field); break;
        case bytes(node::kOpType): node.op = text(field); break;
        case bytes(node::kDomain): node.domain = text(field); break;
        case bytes(node::kAttribute): node.attributes.push_back(read_attribute(view(field))); break;
        default: field.skip();
      }
    });
    if (node.op.empty() || node.outputs.empty()) fail_at(message, "a node without an op or outputs");
    graph_.nodes.push_back(std::move(node));
  }

  Attribute read_attribute(std::string_view message) const {
    Attribute a;
    std::string ignored;
    fields(message, [&](pbf_reader& field) {
      switch (field.tag_and_type()) {
        case bytes(attribute::kName): a.name = text(field); break;
        case integer(attribute::kType): a.type = field.get_enum(); break;
        case fixed32(attribute::kF): a.number = field.get_float(); break;
        case integer(attribute::kI): a.integer = field.get_int64(); break;
        case bytes(attribute::kS): a.text = text(field); break;
        case bytes(attribute::kT): a.tensor = read_tensor(view(field), ignored, a.refusal); break;
        case fixed32(attribute::kFloats): a.numbers.push_back(field.get_float()); break;
        case bytes(attribute::kFloats): append(a.numbers, field.get_packed_float()); break;
        case integer(attribute::kInts): a.integers.push_back(field.get_int64()); break;
        case bytes(attribute::kInts): append(a.integers, field.get_packed_int64()); break;
        case bytes(attribute::kStrings): (a.text += a.text.empty() ? "" : " ") += view(field); break;
        default: field.skip();
      }
    });
    return a;
  }

  Port read_port(std::string_view message) {
    Port port;
    std::string_view type;
    fields(message, [&](pbf_reader& field) {
      switch (field.tag_and_type()) {
        case bytes(value_info::kName): port.name = text(field); break;
        case bytes(value_info::kType): type = view(field); break;
        default: field.skip();
      }
    });
    fields(type, [&](pbf_reader& field) {
      if (field.tag_and_type() != bytes(type::kTensorType)) fail_at(type, in_quotes(port.name), " is not a tensor");
      fields(view(field), [&](pbf_reader& of_tensor) {
        switch (of_tensor.tag_and_type()) {
          case integer(tensor_type::kElemType): port.type = of_tensor.get_enum(); break;
          case bytes(tensor_type::kShape): read_shape(view(of_tensor), port); break;
          default: of_tensor.skip();
        }
      });
    });
    port.value = value_of(port.name);
    return port;
  }

  void read_shape(std::string_view message, Port& port) const {
    port.has_shape = true;
    fields(message, [&](pbf_reader& field) {
      if (field.tag_and_type() != bytes(shape::kDim)) return field.skip();
      int64_t size = -1;
      fields(view(field), [&](pbf_reader& of_dim) {
        if (of_dim.tag_and_type() == integer(dimension::kDimValue))
          size = of_dim.get_int64();
        else
          of_dim.skip();
      });
      port.shape.push_back(size);
    });
  }

  io::InputFile file_;
  std::string bytes_;
  Graph graph_;
  std::unordered_map<std::string, int> numbers_;
};

// Inputs that initializers give are none, as in files before IR version 4.
void drop_given_inputs(Graph& graph) {
  std::unordered_set<int> given;
  for (const Initializer& initializer : graph.initializers) given.insert(initializer.value);
  std::erase_if(graph.inputs, [&](const Port& port) { return given.count(port.value); });
}

// Every value has one source, and nodes come after what they read.
void check_order(const Graph& graph, const std::string& file) {
  enum State : char { kNowhere, kLater, kThere };
  std::vector<char> state(graph.values.size(), kNowhere);
  const auto define = [&](int value, State as, const char* what) {
    REEL_CHECK(state[value] == kNowhere, file, ": ", what, " ", in_quotes(graph.values[value]), " is defined twice");
    state[value] = as;
  };
  for (const Port& input : graph.inputs) define(input.value, kThere, "input");
  for (const Initializer& initializer : graph.initializers) define(initializer.value, kThere, "initializer");
  for (const Node& node : graph.nodes)
    for (const int output : node.outputs)
      if (output >= 0) define(output, kLater, "value");
  for (const Node& node : graph.nodes) {
    for (const int input : node.inputs)
      REEL_CHECK(input < 0 || state[input] == kThere, file, ": ", node.label(), " reads ",
                 in_quotes(graph.values[input]),
                 state[input] == kNowhere ? ", which nothing computes"
                                          : ", which is computed later: the nodes are not in order, or in a cycle");
    for (const int output : node.outputs)
      if (output >= 0) state[output] = kThere;
  }
  for (const Port& output : graph.outputs)
    REEL_CHECK(state[output.value] == kThere, file, ": output ", in_quotes(output.name), " is computed by nothing");
}

// For whoever looks for a value's name.
std::string last_values(const Graph& graph) {
  constexpr size_t kShown = 12;
  std::string text;
  for (size_t i = graph.nodes.size(), n = 0; i-- > 0 && n < kShown; ++n) {
    const Node& node = graph.nodes[i];
    for (const int output : node.outputs)
      if (output >= 0) text += (text.empty() ? "" : ", ") + in_quotes(graph.values[output]) + " (" + node.op + ")";
  }
  return text.empty() ? text : "; the last ones are " + text;
}

}  // namespace

void prune(Graph& graph) {
  std::vector<bool> needed(graph.values.size());
  for (const Port& output : graph.outputs) needed[output.value] = true;
  std::vector<bool> seen = needed;  // outputs are not dropped
  std::vector<Node> kept;
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    const auto is_needed = [&](int value) { return value >= 0 && needed[value]; };
    if (std::none_of(node->outputs.begin(), node->outputs.end(), is_needed)) continue;
    for (int& output : node->outputs)
      if (output >= 0 && !needed[output]) output = -1;
    for (const int input : node->inputs) {
      if (input < 0) continue;
      needed[input] = true;
      if (!seen[input]) node->last_used.push_back(input);
      seen[input] = true;
    }
    kept.push_back(std::move(*node));
  }
  std::reverse(kept.begin(), kept.end());
  graph.nodes = std::move(kept);
  std::erase_if(graph.initializers, [&](const Initializer& initializer) { return !needed[initializer.value]; });
  for (const Initializer& initializer : graph.initializers)
    if (!initializer.tensor.defined()) detail::fail(initializer.refusal);
}

std::string type_name(int64_t type) {
  return type >= 0 && type < static_cast<int64_t>(std::size(data_type::kNames)) ? data_type::kNames[type]
                                                                                : "number " + std::to_string(type);
}

DType dtype_of(int64_t type, const std::string& what) {
  const io::Element* const element = find_element(type);
  if (!element) detail::fail(refusal_of(type, what));
  return *element->dtype();
}

Graph read_graph(const std::filesystem::path& path, const std::vector<std::string>& outputs) {
  Graph graph = Reader(path).read();
  drop_given_inputs(graph);
  check_order(graph, path.string());
  if (!outputs.empty()) graph.outputs.clear();
  for (const std::string& name : outputs) {
    const auto found = std::find(graph.values.begin(), graph.values.end(), name);
    REEL_CHECK(found != graph.values.end(), path.string(), ": there is no value ", in_quotes(name), " to be an output",
               last_values(graph));
    Port& port = graph.outputs.emplace_back();
    port.name = name, port.value = static_cast<int>(found - graph.values.begin());
  }
  REEL_CHECK(!graph.outputs.empty(), path.string(), ": the graph has no outputs");
  prune(graph);
  return graph;
}

}  // namespace reel::onnx
