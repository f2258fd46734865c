#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "lib/autograd/tape.h"

// Gradients through a part of the graph, for rules that differentiate by recording their op anew: a checkpoint's, and
// that of a fused layer under create_graph. The backward pass that runs such a rule is still at work on the nodes
// beyond the part, so the traversal within must end before it meets them.
namespace reel {

/// The edges that leave the part of the graph behind `outputs` which this thread has recorded since next_sequence() was
/// `since`. Each once, with a reference of its own.
EdgeList subgraph_edges(std::span<const Tensor> outputs, uint64_t since);

/// The gradients that arrive at these edges for the gradients `grads` of the outputs; undefined where none arrives.
std::vector<Tensor> subgraph_grad(std::span<const Tensor> outputs, std::vector<Tensor> grads, uint64_t since,
                                  std::span<const Edge> edges, bool create_graph);

}  // namespace reel
