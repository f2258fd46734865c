// This file folds batch norms of a graph into the convolutions in front of them, and joins ReLUs with convolutions and
// products.
#include <algorithm>
#include <map>
#include <set>

#include "lib/nn/fold.h"
#include "lib/onnx/graph.h"
#include "reel/autograd.h"

namespace reel::onnx {
namespace {

/// A Fuser knows who computes and who reads the values of a graph.
class Fuser {
 public:
  explicit Fuser(Graph& graph) : graph_(graph), readers_(graph.values.size()) {
    for (const Node& node : graph.nodes)
      for (const int input : node.inputs)
        if (input >= 0) ++readers_[input];
    for (const Port& output : graph.outputs) readers_[output.value] += 2;  // it has to stay
  }

  void run() {
    std::map<int, size_t> makers;  // the nodes that compute values, if these are fused with what follows
    std::set<size_t> gone;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      Node& node = graph_.nodes[i];
      const auto maker = node.inputs.empty() ? makers.end() : makers.find(node.inputs[0]);
      const bool follows = maker != makers.end() && readers_[node.inputs[0]] == 1;
      if (follows && (joins_relu(graph_.nodes[maker->second], node) || folds(graph_.nodes[maker->second], node))) {
        Node& front = graph_.nodes[maker->second];
        front.outputs[0] = node.outputs[0];
        makers.emplace(node.outputs[0], maker->second);
        gone.insert(i);
      } else if (node.op == "Conv" || node.op == "ConvTranspose" || node.op == "Gemm") {
        makers.emplace(node.outputs[0], i);
      }
    }
    std::vector<Node> kept;
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      if (!gone.contains(i)) kept.push_back(std::move(graph_.nodes[i]));
    graph_.nodes = std::move(kept);
  }

 private:
  static bool joins_relu(Node& front, const Node& node) {
    if (node.op != "Relu" || (front.op != "Conv" && front.op != "Gemm") || front.has_relu) return false;
    return front.has_relu = true;
  }

  bool folds(Node& front, const Node& norm) {
    const bool plain = norm.op == "BatchNormalization" && front.op != "Gemm" && norm.inputs.size() == 5 &&
                       !front.has_relu &&
                       std::all_of(norm.outputs.begin() + 1, norm.outputs.end(), [](int value) { return value < 0; }) &&
                       front.inputs.size() >= 2;
    if (!plain) return false;
    int64_t groups = 1;
    double eps = 1e-5;
    for (const Attribute& attribute : front.attributes)
      if (attribute.name == "group") groups = attribute.integer;
    for (const Attribute& attribute : norm.attributes) {
      if (attribute.name == "epsilon") eps = attribute.number;
      if (attribute.name == "spatial" && attribute.integer != 1) return false;
    }
    const int out_dim = front.op == "Conv" ? 0 : 1;
    Initializer* const weight = own(front.inputs[1]);
    const bool has_bias = front.inputs.size() > 2 && front.inputs[2] >= 0;
    Initializer* const bias = has_bias ? own(front.inputs[2]) : nullptr;
    if (!weight || (has_bias && !bias) || groups < 1 || weight->tensor.dim() < 3) return false;
    const int64_t channels = weight->tensor.size(out_dim) * (out_dim == 0 ? 1 : groups);
    std::vector<Tensor> parts;
    for (size_t i = 1; i < 5; ++i) {
      const Initializer* const part = find(norm.inputs[i]);
      if (!part || part->tensor.shape() != Shape{channels} || part->tensor.dtype() != weight->tensor.dtype())
        return false;
      parts.push_back(part->tensor);
    }
    if (bias && (bias->tensor.shape() != Shape{channels} || bias->tensor.dtype() != weight->tensor.dtype()))
      return false;
    if (out_dim == 1 && weight->tensor.size(0) % groups != 0) return false;
    const nn::internal::Folded folded = nn::internal::fold_batch_norm(
        weight->tensor, bias ? bias->tensor : Tensor(), out_dim, groups, {parts[2], parts[3], parts[0], parts[1], eps});
    weight->tensor = folded.weight;
    if (bias)
      bias->tensor = folded.bias;
    else
      add_bias(front, *weight, folded.bias);
    return true;
  }

  void add_bias(Node& front, const Initializer& weight, const Tensor& bias) {
    std::string name =
        weight.name.ends_with("weight") ? weight.name.substr(0, weight.name.size() - 6) : weight.name + "_";
    name += "bias";
    const int value = static_cast<int>(graph_.values.size());
    graph_.values.push_back(name);
    readers_.push_back(1);
    front.inputs.resize(3, -1);
    front.inputs[2] = value;
    graph_.initializers.push_back({.name = name, .value = value, .tensor = bias});
  }

  Initializer* find(int value) {
    const auto found = std::find_if(graph_.initializers.begin(), graph_.initializers.end(),
                                    [&](const Initializer& initializer) { return initializer.value == value; });
    return found == graph_.initializers.end() || !found->tensor.is_floating_point() ? nullptr : &*found;
  }
  /// Returns an initializer that one node alone reads.
  Initializer* own(int value) { return value >= 0 && readers_[value] == 1 ? find(value) : nullptr; }

  Graph& graph_;
  std::vector<int> readers_;  // how many there are of each value
};

}  // namespace

void fuse(Graph& graph) {
  NoGrad guard;
  Fuser(graph).run();
  for (Node& node : graph.nodes) node.last_used.clear();
  prune(graph);
}

}  // namespace reel::onnx
