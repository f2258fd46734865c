#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "lib/autograd/accumulate_grad.h"
#include "lib/autograd/row_group.h"
#include "lib/autograd/tape.h"

namespace reel {

/// A backward pass from `roots`, which get the gradients `grads`. With `targets` the gradients that reach these edges
/// are returned (undefined where none does) and no leaf is touched; without, they are added to the leaves.
std::vector<Tensor> run_backward(std::span<const Edge> roots, std::vector<Tensor> grads, std::span<const Edge> targets,
                                 bool retain_graph, bool create_graph);

struct GraphTask;
/// Returns the innermost pass of the calling thread, whose rules run.
GraphTask& running_pass();

/// A number for Node::pass that no traversal of any thread has had.
uint64_t new_pass();

/// One backward pass. The objects are kept for the next pass, with the capacity of their vectors.
struct GraphTask {
  /// What the pass keeps of a leaf; from another pass unless `pass` is this one's.
  struct LeafState {
    uint64_t pass = 0;
    uint32_t dependencies = 0;  // edges that have not delivered a gradient yet
    bool target = false;
    GradAccumulator grad;
  };

  uint64_t id = 0;  // see Node::pass
  bool retain_graph = false;
  bool all_leaves = true;         // no targets: every leaf's gradient is accumulated
  std::vector<LeafState> leaves;  // by AccumulateGrad::id()
  // All their gradients have arrived; each with a reference. Once the graph has been counted there is room for all that
  // abandon() needs: what handles a failed allocation must not allocate.
  std::vector<Node*> ready;
  size_t num_nodes = 0;  // that have been counted
  bool counted = false;  // and all of them: gradients may have been delivered
  std::span<const Edge> targets;
  std::vector<Tensor> found;              // what reached the targets
  std::vector<AccumulateGrad*> observed;  // leaves with an observer
  struct Following {
    BackwardObserver* observer;
    std::vector<uint32_t> reached;
    bool begun = false;
  };
  std::vector<Following> following;
  // The groups of which some calls do not take part in this pass: their nodes are retained for later passes. With
  // create_graph these are all groups that the pass meets. The latest comes first.
  std::vector<RowGroup::Ref> kept_groups;

  struct Frame {
    Node* node;
    uint32_t edge;
  };
  std::vector<Frame> stack;

  LeafState& state_of(const TensorImpl* leaf) {
    const uint32_t at = leaf->leaf->id();
    if (at >= leaves.size()) leaves.resize(at + 1);
    LeafState& state = leaves[at];
    if (state.pass != id) {
      state.pass = id, state.dependencies = 0, state.target = false;
      if (leaf->leaf->observer && all_leaves) [[unlikely]]
        meet(leaf->leaf);
    }
    return state;
  }

  void run(std::span<const Edge> roots, std::vector<Tensor> grads);
  void count_dependencies(std::span<const Edge> roots);
  void enter(Node* node);
  void edge_delivered(const Edge& edge);
  void run_node(Node* node);
  void finish_outputs(Node& node);
  void finish_leaf(TensorImpl* leaf, LeafState& state);
  void abandon(std::span<const Edge> roots) noexcept;
  void keep_group(const RowGroup::Ref& group);
  /// Keeps the group if need be. It is called after gradients of some of its calls have arrived.
  void meet_group(const RowGroup::Ref& group) {
    if (grad_mode || !group->complete(id)) keep_group(group);
  }
  /// Returns the group that has recorded the node, if it is one of kept_groups.
  const RowGroup::Ref* group_of(const Node& node) const;
  bool retains(const Node& node) const { return retain_graph || (!kept_groups.empty() && in_kept_group(node)); }
  bool in_kept_group(const Node& node) const;
  [[gnu::cold, gnu::noinline]] void meet(AccumulateGrad* leaf) { observed.push_back(leaf); }
  void begin_following();
  void leaf_arrived(const AccumulateGrad& leaf, bool has_grad);
  void end_following();
  void fail_following() noexcept;
};

}  // namespace reel
