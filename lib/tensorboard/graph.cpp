#include "lib/tensorboard/graph.h"

#include <algorithm>
#include <map>
#include <protozero/pbf_writer.hpp>
#include <set>

#include "lib/autograd/tape.h"
#include "lib/autograd/trace.h"
#include "lib/nn/dry_run.h"
#include "lib/tensorboard/schema.h"

namespace reel::tensorboard {
namespace {

using nn::internal::CallRecorder, nn::internal::DryRun;

// TensorBoard groups what "/" separates, as modules are by "." in paths.
std::string scope_of(std::string path) {
  std::replace(path.begin(), path.end(), '.', '/');
  return path;
}

class Graph {
 public:
  Graph(nn::Module& model, const std::vector<Tensor>& inputs) {
    for (const auto& [path, parameter] : model.named_parameters()) name_leaf(parameter, scope_of(path), "Parameter");
    for (size_t i = 0; i < inputs.size(); ++i) name_leaf(inputs[i], "input_" + std::to_string(i), "Input");
  }

  void add_ops(const std::vector<Tensor>& outputs, const CallRecorder& calls) {
    auto nodes = nodes_behind(outputs);
    std::reverse(nodes.begin(), nodes.end());
    int number = 0;
    for (const Node* node : nodes) {
      const nn::Module* const caller = calls.caller_of(node->sequence);
      ops_[node] = (caller ? scope_of(caller->path()) + "/" : "") + node->name + "_" + std::to_string(number++);
    }
    for (Node* node : nodes) {
      std::vector<std::string> sources;
      for (uint32_t i = 0; i < node->num_inputs; ++i) sources.push_back(source_of(node->edges()[i]));
      std::vector<Shape> shapes;
      for (uint32_t i = 0; i < node->num_outputs; ++i) shapes.push_back(node->outputs()[i].metadata.shape);
      add_node(ops_[node], node->name, sources, shapes);
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      TensorImpl* const impl = TensorImpl::of(outputs[i]);
      const Edge edge{.node = impl->node, .leaf = impl->node ? nullptr : impl, .output = impl->output};
      add_node("output_" + std::to_string(i), "Output", {source_of(edge)}, {outputs[i].shape()});
    }
  }

  std::string finish() && {
    protozero::pbf_writer graph(data_);
    protozero::pbf_writer versions(graph, graph::kVersions);
    versions.add_int32(graph::kProducer, graph::kProducerVersion);
    versions.commit();
    return std::move(data_);
  }

 private:
  void name_leaf(const Tensor& leaf, const std::string& name, const char* op) {
    leaves_[TensorImpl::of(leaf)] = name;
    add_node(name, op, {}, {leaf.shape()});
  }
  std::string source_of(const Edge& edge) {
    if (edge.node) return ops_[edge.node] + (edge.output ? ":" + std::to_string(edge.output) : "");
    if (!edge.leaf) return {};
    // A leaf that requires grad and is neither parameter nor input: what nn::check reports.
    const auto [leaf, is_new] =
        leaves_.try_emplace(edge.leaf, "used_but_not_registered/tensor_" + std::to_string(leaves_.size()));
    if (is_new) add_node(leaf->second, "UsedButNotRegistered", {}, {edge.leaf->view.shape});
    return leaf->second;
  }
  void add_node(const std::string& name, const char* op, const std::vector<std::string>& sources,
                const std::vector<Shape>& shapes) {
    using protozero::pbf_writer;
    pbf_writer graph(data_);
    pbf_writer node(graph, graph::kNode);
    node.add_string(graph::kName, name);
    node.add_string(graph::kOp, op);
    for (const std::string& source : sources)
      if (!source.empty()) node.add_string(graph::kInput, source);
    pbf_writer attribute(node, graph::kAttr);
    attribute.add_string(kKey, "_output_shapes");
    pbf_writer value(attribute, kMapped), list(value, graph::kList);
    for (const Shape& sizes : shapes) {
      pbf_writer shape(list, graph::kListShape);
      for (const int64_t size : sizes) pbf_writer(shape, tensor::kDim).add_int64(tensor::kDimSize, size);
    }
  }

  std::string data_;
  std::map<const Node*, std::string> ops_;
  std::map<const TensorImpl*, std::string> leaves_;
};

}  // namespace

std::string graph_of(nn::Module& model, TensorList inputs,
                     const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& run) {
  std::vector<Tensor> leaves;  // of their own, so that ops on them are recorded
  for (const Tensor& input : inputs) {
    REEL_CHECK(input.defined(), "add_graph: input ", leaves.size(), " is undefined");
    leaves.push_back(input.is_floating_point() ? input.detach().requires_grad_() : input);
  }
  DryRun dry_run(model);
  EnableGrad guard;
  const CallRecorder calls(dry_run, model);
  const std::vector<Tensor> outputs = run(leaves);
  Graph graph(model, leaves);
  graph.add_ops(outputs, calls);
  return std::move(graph).finish();
}

}  // namespace reel::tensorboard
