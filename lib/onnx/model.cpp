#include "reel/onnx/model.h"

#include <algorithm>
#include <map>
#include <set>

#include "lib/nn/hooks.h"
#include "lib/onnx/graph.h"
#include "lib/ops/fused.h"

namespace reel::onnx {

// Of parts in parts: functions of modules recurse.
constexpr int kMaxDepth = 50;

struct Model::Part : nn::Module {};

// The tensors of the file, by the numbers of their values. Parts are destroyed last.
struct Model::Weights {
  std::string file;
  std::map<std::string, std::unique_ptr<Part>> parts;  // by path
  std::set<std::string> taken;                         // paths of tensors
  std::vector<std::unique_ptr<nn::Parameter>> parameters;
  std::vector<std::unique_ptr<nn::Buffer>> buffers;
  std::vector<std::pair<int, const Tensor*>> registered;
  std::vector<std::pair<int, Tensor>> integers;
};

Model::Model(const std::filesystem::path& path, const LoadModelOptions& options)
    : graph_(std::make_unique<Graph>(read_graph(path, options.outputs))), weights_(std::make_unique<Weights>()) {
  weights_->file = path.filename().string();
  if (options.fuse_for_inference) fuse(*graph_);
  link(*graph_);
  std::set<int> fixed;
  for (const Node& node : graph_->nodes)
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (is_fixed(node, i)) fixed.insert(node.inputs[i]);
  for (Initializer& initializer : graph_->initializers) {
    const bool is_constant = initializer.tensor.dim() == 0 || fixed.count(initializer.value);
    const Kind kind = initializer.is_node ? kConstant : is_constant ? kFixed : kTrained;
    add(initializer.name, initializer.value, std::exchange(initializer.tensor, {}), kind);
  }
  eval();
  if (options.fuse_for_inference) freeze();
}

/// Keeps the weights of layers packed, and refuses training.
void Model::freeze() {
  requires_grad_(false);
  std::set<int> packed;
  for (const Node& node : graph_->nodes)
    if ((node.op == "Conv" || node.op == "ConvTranspose" || node.op == "Gemm") && node.inputs.size() > 1)
      packed.insert(node.inputs[1]);
  for (const auto& [value, tensor] : weights_->registered)
    if (packed.contains(value)) keep_packed(*tensor);
  for (nn::Module* module : modules()) nn::internal::ModuleParts::fused(*module) = true;
}

Model::Model(Model&& other) = default;
Model::~Model() = default;

// Registers a tensor under the path that its name is, if it is one and no other tensor or part has it.
void Model::add(const std::string& name, int value, const Tensor& tensor, Kind kind) {
  Weights& all = *weights_;
  if (!tensor.is_floating_point()) return all.integers.emplace_back(value, tensor), void();
  std::string path = name;
  bool valid = !path.empty() && path.front() != '.' && path.back() != '.' && path.find("..") == std::string::npos &&
               std::count(path.begin(), path.end(), '.') < kMaxDepth;
  for (size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', dot + 1))
    valid = valid && !all.taken.count(path.substr(0, dot));
  const auto used = [&] { return all.taken.count(path) || all.parts.count(path); };
  if (!valid || used()) {
    std::replace(path.begin(), path.end(), '.', '_');
    if (path.empty()) path = "unnamed";
    const std::string base = path;
    for (int i = 2; used(); ++i) path = base + "_" + std::to_string(i);
  }
  Module* part = this;
  for (size_t begin = 0, dot; (dot = path.find('.', begin)) != std::string::npos; begin = dot + 1) {
    std::unique_ptr<Part>& child = all.parts[path.substr(0, dot)];
    if (!child) {
      child = std::make_unique<Part>();
      part->register_module(path.substr(begin, dot - begin), *child);
    }
    part = child.get();
  }
  const std::string last = path.substr(path.rfind('.') + 1);
  all.taken.insert(path);
  const Tensor* held;
  if (kind == kTrained)
    held = all.parameters.emplace_back(std::make_unique<nn::Parameter>(*part, last, tensor)).get();
  else
    held = all.buffers.emplace_back(std::make_unique<nn::Buffer>(*part, last, tensor, kind == kFixed)).get();
  all.registered.emplace_back(value, held);
}

namespace {

void check_input(const Port& port, const Tensor& x) {
  REEL_CHECK(x.defined(), "onnx::Model: input '", port.name, "' is undefined");
  const DType type = dtype_of(port.type, "input '" + port.name + "'");
  REEL_CHECK(is_floating_point(type) == x.is_floating_point() && (type == kBool) == (x.dtype() == kBool),
             "onnx::Model: input '", port.name, "' is ", type, ", got ", x.dtype());
  if (!port.has_shape) return;
  bool fits = x.dim() == static_cast<int64_t>(port.shape.size());
  for (size_t i = 0; fits && i < port.shape.size(); ++i) fits = port.shape[i] < 0 || port.shape[i] == x.size(i);
  REEL_CHECK(fits, "onnx::Model: input '", port.name, "' has the shape ", x.shape(), ", the model takes ", [&] {
    std::string shape;
    for (const int64_t size : port.shape)
      shape += (shape.empty() ? "" : ", ") + (size < 0 ? "?" : std::to_string(size));
    return "[" + shape + "]";
  }());
}

std::vector<std::string> names_of(const std::vector<Port>& ports) {
  std::vector<std::string> names;
  for (const Port& port : ports) names.push_back(port.name);
  return names;
}

}  // namespace

void run_nodes(const Graph& graph, std::vector<Tensor>& values, bool training, Device home, const std::string& file) {
  for (const Node& node : graph.nodes) {
    Call call{.node = node, .values = values, .training = training, .home = home, .device = kCPU};
    for (const int input : node.inputs)
      if (input >= 0 && values[input].device() != kCPU) call.device = values[input].device();
    try {
      node.run(call);
      for (const int output : node.outputs)
        REEL_CHECK(output < 0 || values[output].defined(), "the output '", graph.values[output], "' is not computed");
    } catch (const OutOfMemoryError&) {
      throw;
    } catch (const Error& error) {
      detail::fail(file, ": ", node.label(), ": ", error.what());
    }
    for (const int value : node.last_used) values[value].reset();
  }
}

std::vector<Tensor> Model::forward(TensorList inputs) const {
  const Graph& graph = *graph_;
  REEL_CHECK(inputs.size() == graph.inputs.size(), "onnx::Model: it has ", graph.inputs.size(), " inputs, got ",
             inputs.size());
  std::vector<Tensor> values(graph.values.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_input(graph.inputs[i], inputs[i]);
    values[graph.inputs[i].value] = inputs[i];
  }
  for (const auto& [value, tensor] : weights_->registered) values[value] = *tensor;
  for (const auto& [value, tensor] : weights_->integers) values[value] = tensor;
  const Device home = !weights_->registered.empty() ? weights_->registered[0].second->device()
                      : inputs.empty()              ? kCPU
                                                    : inputs[0].device();
  run_nodes(graph, values, is_training(), home, weights_->file);
  std::vector<Tensor> outputs;
  for (const Port& port : graph.outputs) outputs.push_back(values[port.value]);
  return outputs;
}

Tensor Model::forward(const Tensor& x) const {
  REEL_CHECK(graph_->inputs.size() == 1 && graph_->outputs.size() == 1, "onnx::Model: ", weights_->file, " has ",
             graph_->inputs.size(), " inputs and ", graph_->outputs.size(),
             " outputs: call it with a list, model({x})");
  return forward(TensorList{x})[0];
}

std::vector<std::string> Model::input_names() const { return names_of(graph_->inputs); }
std::vector<std::string> Model::output_names() const { return names_of(graph_->outputs); }

std::string Model::extra_repr() const {
  std::string text =
      weights_->file + ", opset=" + std::to_string(graph_->opset) + ", nodes=" + std::to_string(graph_->nodes.size());
  for (const Port& port : graph_->inputs) text += ", input=" + port.name;
  for (const Port& port : graph_->outputs) text += ", output=" + port.name;
  return text;
}

Model load(const std::filesystem::path& path, const LoadModelOptions& options) { return Model(path, options); }

}  // namespace reel::onnx
