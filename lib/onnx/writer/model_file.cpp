#include "lib/onnx/writer/model_file.h"

#include <optional>
#include <protozero/pbf_writer.hpp>

#include "lib/io/elements.h"
#include "lib/io/file.h"
#include "lib/onnx/schema.h"
#include "reel/version.h"

namespace reel::onnx::writer {
namespace {

using protozero::pbf_writer;

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

void add_attribute(pbf_writer& node, const NodeAttribute& from) {
  pbf_writer to(node, node::kAttribute);
  to.add_string(attribute::kName, from.name);
  const auto type = [&](attribute::Type number) { to.add_int32(attribute::kType, number); };
  std::visit(
      Overloaded{[&](int64_t number) { to.add_int64(attribute::kI, number), type(attribute::kIntType); },
                 [&](float number) { to.add_float(attribute::kF, number), type(attribute::kFloatType); },
                 [&](const std::string& text) { to.add_bytes(attribute::kS, text), type(attribute::kStringType); },
                 [&](const std::vector<int64_t>& list) {
                   for (const int64_t number : list) to.add_int64(attribute::kInts, number);
                   type(attribute::kIntsType);
                 },
                 [&](const std::vector<std::string>& list) {
                   for (const std::string& text : list) to.add_bytes(attribute::kStrings, text);
                   type(attribute::kStringsType);
                 }},
      from.value);
}

void add_node(pbf_writer& graph, const Node& from, size_t number) {
  pbf_writer to(graph, graph::kNode);
  for (const std::string& input : from.inputs) to.add_string(node::kInput, input);
  for (const std::string& output : from.outputs) to.add_string(node::kOutput, output);
  to.add_string(node::kName, from.type + "_" + std::to_string(number));
  to.add_string(node::kOpType, from.type);
  for (const NodeAttribute& attribute : from.attributes) add_attribute(to, attribute);
}

void add_port(pbf_writer& graph, Field field, const Port& from) {
  pbf_writer to(graph, field);
  to.add_string(value_info::kName, from.name);
  pbf_writer type(to, value_info::kType), tensor(type, type::kTensorType);
  tensor.add_int32(tensor_type::kElemType, element_type(from.dtype));
  if (from.dims.empty()) tensor.add_message(tensor_type::kShape, "", 0);  // an empty writer leaves nothing
  pbf_writer shape(tensor, tensor_type::kShape);
  for (const auto& size : from.dims)
    std::visit(Overloaded{[&](int64_t number) {
                            if (number < 0) return shape.add_message(shape::kDim, "", 0);
                            pbf_writer(shape, shape::kDim).add_int64(dimension::kDimValue, number);
                          },
                          [&](const std::string& name) {
                            pbf_writer(shape, shape::kDim).add_string(dimension::kDimParam, name);
                          }},
               size);
}

/// The elements of initializers, in a file of their own.
class ExternalData {
 public:
  explicit ExternalData(const std::filesystem::path& path) : file_(path), name_(path.filename().string()) {}
  void add(pbf_writer& tensor, const Tensor& dense) {
    constexpr int64_t kPage = 4096;  // where a reader may map it
    static const char padding[kPage] = {};
    const int64_t gap = (kPage - end_ % kPage) % kPage, bytes = io::byte_count(dense);
    file_.write(padding, gap);
    end_ += gap;
    const auto entry = [&](const char* key, const std::string& value) {
      pbf_writer pair(tensor, tensor::kExternalData);
      pair.add_string(string_entry::kKey, key);
      pair.add_string(string_entry::kValue, value);
    };
    entry("location", name_), entry("offset", std::to_string(end_)), entry("length", std::to_string(bytes));
    tensor.add_int32(tensor::kDataLocation, tensor::kExternal);
    file_.write(io::bytes_of(dense), bytes);
    end_ += bytes;
  }
  void commit() { file_.commit(); }

 private:
  io::AtomicFile file_;
  const std::string name_;
  int64_t end_ = 0;
};

void add_initializer(pbf_writer& graph, const std::string& name, const Tensor& from, ExternalData* external) {
  constexpr int64_t kSmall = 1024;  // bytes that stay with the graph: shapes and numbers, which readers look into
  const Tensor dense = from.contiguous();
  pbf_writer to(graph, graph::kInitializer);
  for (const int64_t size : dense.shape()) to.add_int64(tensor::kDims, size);
  to.add_int32(tensor::kDataType, element_type(dense.dtype()));
  to.add_string(tensor::kName, name);
  if (external && io::byte_count(dense) > kSmall)
    external->add(to, dense);
  else
    to.add_bytes(tensor::kRawData, static_cast<const char*>(io::bytes_of(dense)),
                 static_cast<size_t>(io::byte_count(dense)));
}

}  // namespace

int element_type(DType dtype) {
  switch (dtype) {
    case kBool: return data_type::kBool;
    case kUInt8: return data_type::kUint8;
    case kInt32: return data_type::kInt32;
    case kInt64: return data_type::kInt64;
    case kFloat16: return data_type::kFloat16;
    case kBFloat16: return data_type::kBfloat16;
    case kFloat32: return data_type::kFloat;
    default: return data_type::kDouble;
  }
}

void ModelFile::write(const std::filesystem::path& file, int64_t external_above) const {
  int64_t bytes = 0;
  for (const auto& [key, tensor] : initializers) bytes += io::byte_count(tensor);
  std::optional<ExternalData> external;
  if (bytes > external_above) external.emplace(std::filesystem::path(file) += ".data");
  std::string data;
  pbf_writer model(data);
  model.add_int64(model::kIrVersion, kIrVersion);
  model.add_string(model::kProducerName, "reel");
  model.add_string(model::kProducerVersion, version());
  if (!doc.empty()) model.add_string(model::kDocString, doc);
  {
    pbf_writer opset(model, model::kOpsetImport);
    opset.add_string(opset::kDomain, "");
    opset.add_int64(opset::kVersion, kOpset);
  }
  {
    pbf_writer graph(model, model::kGraph);
    graph.add_string(graph::kName, name);
    if (!graph_doc.empty()) graph.add_string(graph::kDocString, graph_doc);
    for (size_t i = 0; i < nodes.size(); ++i) add_node(graph, nodes[i], i);
    for (const auto& [key, tensor] : initializers) add_initializer(graph, key, tensor, external ? &*external : nullptr);
    for (const Port& port : inputs) add_port(graph, graph::kInput, port);
    for (const Port& port : outputs) add_port(graph, graph::kOutput, port);
  }
  io::AtomicFile to(file);
  to.write(data.data(), static_cast<int64_t>(data.size()));
  if (external) external->commit();
  to.commit();
}

}  // namespace reel::onnx::writer
