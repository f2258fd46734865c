#pragma once
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/onnx/schema.h"
#include "reel/tensor.h"

// What of an ONNX file is run: nodes in order, whose inputs and outputs are numbered values.
namespace reel::onnx {

struct Attribute {
  std::string name;
  int type = attribute::kUndefinedType;
  double number = 0;
  int64_t integer = 0;
  std::string text;
  Tensor tensor;
  std::string refusal = {};  // why `tensor` is undefined: reel has none of its type
  std::vector<double> numbers;
  std::vector<int64_t> integers;
  mutable bool used = false;
};

struct Call;
struct Node;
/// Sets the outputs of one node.
using Run = std::function<void(Call&)>;

struct Node {
  std::string op, name, domain;
  std::vector<int> inputs, outputs;  // values; -1 for those that are left out
  std::vector<Attribute> attributes;
  std::vector<int> last_used;  // values that no later node reads
  bool has_relu = false;       // a ReLU follows, and is no node of its own
  Run run;

  std::string label() const { return op + (name.empty() ? "" : " '" + name + "'"); }
};

/// An input or output of the model.
struct Port {
  std::string name;
  int value = -1;
  int type = data_type::kUndefined;  // undefined: any
  bool has_shape = false;
  std::vector<int64_t> shape;  // -1: any size
};

struct Initializer {
  std::string name;
  int value = -1;
  Tensor tensor;
  bool is_node = false;      // a Constant
  std::string refusal = {};  // why `tensor` is undefined: reel has none of its type
};

struct Graph {
  int64_t opset = 0;
  std::vector<std::string> values;  // their names
  std::vector<Node> nodes;
  std::vector<Port> inputs, outputs;
  std::vector<Initializer> initializers;
};

/// Reads a file and the files of external data beside it. `outputs` names the values to compute instead of the graph's
/// outputs; what they do not need is left out.
Graph read_graph(const std::filesystem::path& path, const std::vector<std::string>& outputs);

/// How reel calls a TensorProto.DataType; an Error that says `what` has it if reel has no such tensors.
DType dtype_of(int64_t type, const std::string& what);
/// The name of a TensorProto.DataType.
std::string type_name(int64_t type);

// ---- running --------------------------------------------------------------------------------------------------------

/// One run of a node.
struct Call {
  const Node& node;
  std::vector<Tensor>& values;
  bool training;
  Device home;    // the model's
  Device device;  // that of inputs that are not on the CPU, if there are any: where the others are moved to

  bool has(size_t i) const { return i < node.inputs.size() && node.inputs[i] >= 0; }
  const Tensor& as_is(size_t i) const;  // an input, where it is
  Tensor operator[](size_t i) const;    // an input, on `device`
  Tensor get(size_t i) const { return has(i) ? (*this)[i] : Tensor(); }
  std::vector<Tensor> inputs() const;
  std::vector<int64_t> integers(size_t i) const { return as_is(i).to_vector<int64_t>(); }
  void set(size_t i, const Tensor& output) {
    if (wants(i)) values[node.outputs[i]] = output;
  }
  bool wants(size_t i) const { return i < node.outputs.size() && node.outputs[i] >= 0; }
};

/// Finds how each node is run, and makes initializers of Constants. The Error lists all ops that are not known.
void link(Graph& graph);
/// Keeps what the outputs need, and notes who reads a value last.
void prune(Graph& graph);
/// Folds batch norms into the convolutions in front of them where no other node reads what these compute, and joins
/// ReLUs with convolutions. It is called before link.
void fuse(Graph& graph);
/// Computes what the nodes give from `values`, which has the inputs and initializers. Errors are in the name of `file`.
void run_nodes(const Graph& graph, std::vector<Tensor>& values, bool training, Device home, const std::string& file);
/// Whether an initializer that a node reads as its input i is a constant or a statistic, not a parameter.
bool is_fixed(const Node& node, size_t i);

}  // namespace reel::onnx
