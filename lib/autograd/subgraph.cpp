#include "lib/autograd/subgraph.h"

#include <algorithm>

#include "lib/autograd/engine.h"

namespace reel {
namespace {

// Calls f on every edge that leads from the nodes recorded since to something else. Nodes are marked as visited by a
// pass number, as in a backward pass.
template <class F>
void for_each_leaving(std::span<const Tensor> outputs, uint64_t since, F f) {
  std::vector<Node*> stack;
  const uint64_t pass = new_pass();
  const auto visit = [&](Node* node) {
    if (node->pass != pass) node->pass = pass, stack.push_back(node);
  };
  for (const Tensor& output : outputs) {
    Node* node = needs_grad(output) ? TensorImpl::of(output)->node : nullptr;
    if (node && recorded_here_since(*node, since)) visit(node);
  }
  while (!stack.empty()) {
    Node* node = stack.back();
    stack.pop_back();
    for (uint32_t i = 0; i < node->num_inputs; ++i) {
      Edge& edge = node->edges()[i];
      if (edge.node && recorded_here_since(*edge.node, since))
        visit(edge.node);
      else if (edge)
        f(edge);
    }
  }
}

// A leaf with the metadata of the gradients for this edge. It has one element, expanded: nothing reads its values.
Tensor placeholder(const Edge& edge) {
  const GradMetadata metadata = edge.node ? edge.node->outputs()[edge.output].metadata : metadata_of(edge.leaf);
  const Tensor one = make_tensor({}, metadata.dtype, metadata.device);
  const View view = expand_view(view_of(one), metadata.shape);
  return alias(one, view.data, view.shape, view.strides).detach().requires_grad_();
}

}  // namespace

EdgeList subgraph_edges(std::span<const Tensor> outputs, uint64_t since) {
  EdgeList list;
  for_each_leaving(outputs, since, [&](const Edge& edge) {
    if (std::find(list.edges.begin(), list.edges.end(), edge) != list.edges.end()) return;
    list.edges.push_back(edge);
    if (edge.node) ++edge.node->refs;
    if (edge.leaf) retain_for_graph(edge.leaf);
  });
  return list;
}

std::vector<Tensor> subgraph_grad(std::span<const Tensor> outputs, std::vector<Tensor> grads, uint64_t since,
                                  std::span<const Edge> edges, bool create_graph) {
  // For the time of the pass the leaving edges lead to placeholders, which are its targets.
  std::vector<Tensor> ends;
  for (const Edge& edge : edges) ends.push_back(edge ? placeholder(edge) : Tensor());
  struct Redirected {
    Edge* place;
    Edge original;
  };
  struct Redirections {
    std::vector<Redirected> all;
    ~Redirections() {
      for (const Redirected& edge : all) {
        drop_edge(*edge.place);
        *edge.place = edge.original;
      }
    }
  } redirections;
  for_each_leaving(outputs, since, [&](Edge& edge) {
    const auto at = std::find(edges.begin(), edges.end(), edge);
    if (at == edges.end()) return;
    redirections.all.push_back({&edge, edge});
    edge = edge_to(ends[static_cast<size_t>(at - edges.begin())]);
  });
  EdgeList roots, targets;
  std::vector<Tensor> seeds;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!grads[i].defined() || !needs_grad(outputs[i])) continue;
    roots.add(outputs[i]);
    seeds.push_back(std::move(grads[i]));
  }
  for (const Tensor& end : ends) targets.add(end);
  // Retained: the edges that are put back at the end lie in its nodes.
  return run_backward(roots.edges, std::move(seeds), targets.edges, true, create_graph);
}

}  // namespace reel
