#include "lib/autograd/engine.h"

#include <algorithm>
#include <atomic>
#include <memory>

#include "lib/autograd/autocast.h"
#include "lib/autograd/backward.h"
#include "lib/autograd/gradient_ops.h"
#include "lib/autograd/small_sums.h"
#include "lib/base/per_thread.h"
#include "lib/tensor/profile.h"
#include "reel/base/detail/no_suspend_guard.h"

// A backward pass has two steps. The first traverses the graph from the roots, and gives every node and every leaf the
// number of edges that will deliver a gradient to it: its dependencies. In the second a node whose last gradient has
// arrived runs its rule, which passes gradients on, and is released. A leaf is final as soon as its last gradient has
// arrived: its hooks run while the rest of the pass goes on, so that communication can overlap with it. Both steps
// use stacks on the heap, kept from pass to pass; nothing recurses, so a graph may be a million nodes deep.
//
// Passes nest: a rule or a hook may start another one (a checkpoint's does). Each depth has a GraphTask of its own. A
// node holds the marks of one pass only, so a nested pass must not meet nodes that an outer one is still at work on;
// it throws if it does, and rules that differentiate a part of their own graph cut it out first (subgraph.h).
namespace reel {
namespace {

constexpr size_t kMaxKeptFrames = 1 << 16;  // of the stacks that a thread keeps from pass to pass
std::atomic<uint64_t> passes{0};

struct TaskStack {
  std::vector<std::unique_ptr<GraphTask>> tasks;
  size_t depth = 0;
};
constinit thread_local PerThread<TaskStack> my_tasks;

[[noreturn, gnu::cold]] void fail_freed(const Node& node) {
  detail::fail("backward: the graph of '", node.name,
               "' has been freed by an earlier backward; give that one retain_graph = true, or detach() what is "
               "carried over from the step before");
}

// Is this the id of a pass around the innermost one?
bool is_outer_pass(uint64_t pass) {
  for (size_t d = 0; d + 1 < my_tasks->depth; ++d)
    if (my_tasks->tasks[d]->id == pass) return true;
  return false;
}

}  // namespace

GraphTask& running_pass() { return *my_tasks->tasks[my_tasks->depth - 1]; }

uint64_t new_pass() { return passes.fetch_add(1, std::memory_order_relaxed) + 1; }

// ---- counting -------------------------------------------------------------------------------------------------------

// Visits a node for the first time. A freed node is an Error, except behind a node that withholds gradients: there it
// may be that of another example of a map, which no gradient reaches.
void GraphTask::enter(Node* node) {
  const auto withholds = [](const Frame& frame) { return frame.node->type->withholds; };
  if (node->released && std::none_of(stack.rbegin(), stack.rend(), withholds)) fail_freed(*node);
  REEL_CHECK(!is_outer_pass(node->pass), "backward: '", node->name,
             "' is part of the backward pass that runs this one");
  node->pass = id;
  node->dependencies = 0;
  node->needed = all_leaves;
  ++num_nodes;
  stack.push_back({node, 0});
}

// Depth first, so that everything behind a node is counted before the node is left. With targets, that decides whether
// the node is `needed`: only edges to needed nodes will deliver, and are counted.
void GraphTask::count_dependencies(std::span<const Edge> roots) {
  for (const Edge& target : targets)
    if (target.leaf) state_of(target.leaf).target = true;
  for (const Edge& root : roots) {
    if (!root.node || root.node->pass == id) continue;
    enter(root.node);
    while (!stack.empty()) {
      Frame& top = stack.back();
      Node* node = top.node;
      if (top.edge < node->num_inputs) {
        const Edge& edge = node->edges()[top.edge];
        if (edge.node && edge.node->pass != id) {
          enter(edge.node);  // this edge is counted when the frame is on top again
          continue;
        }
        ++top.edge;
        if (all_leaves) {
          if (edge.node)
            ++edge.node->dependencies;
          else if (edge.leaf)
            ++state_of(edge.leaf).dependencies;
        } else if (edge.leaf) {
          LeafState& leaf = state_of(edge.leaf);
          if (leaf.target) ++leaf.dependencies, node->needed = true;
        } else if (edge.node && (edge.node->needed || edge.node->target)) {
          node->needed = true;
          ++edge.node->dependencies;
        }
      } else {
        stack.pop_back();
      }
    }
  }
}

// ---- delivering -----------------------------------------------------------------------------------------------------

void GraphTask::run(std::span<const Edge> roots, std::vector<Tensor> grads) {
  const profile::Span span("backward", profile::Kind::kRule);
  count_dependencies(roots);
  ready.reserve(2 * num_nodes + roots.size());
  counted = true;
  // A root's gradient is delivered as an edge would. All roots are counted first, so that none is ready before each has
  // its gradient: one may lie behind another.
  for (const Edge& root : roots) {
    if (root.node)
      ++root.node->dependencies;
    else if (root.leaf)
      ++state_of(root.leaf).dependencies;
  }
  if (!observed.empty()) [[unlikely]]
    begin_following();
  for (size_t i = 0; i < roots.size(); ++i) {
    const Edge& root = roots[i];
    if (root.node)
      root.node->outputs()[root.output].grad.add(std::move(grads[i]));
    else if (root.leaf)
      state_of(root.leaf).grad.add(std::move(grads[i]));
  }
  for (const Edge& root : roots) edge_delivered(root);
  while (!ready.empty()) {
    Node* node = ready.back();
    ready.pop_back();
    run_node(node);
    drop_node(node);
  }
  if (!following.empty()) [[unlikely]]
    end_following();
}

// The end of this edge has one dependency less.
void GraphTask::edge_delivered(const Edge& edge) {
  if (edge.leaf) {
    LeafState& leaf = state_of(edge.leaf);
    if (leaf.dependencies && --leaf.dependencies == 0) finish_leaf(edge.leaf, leaf);
  } else if (edge.node && edge.node->dependencies && --edge.node->dependencies == 0) {
    ++edge.node->refs;
    ready.push_back(edge.node);
  }
}

void GraphTask::run_node(Node* node) {
  bool arrived = false;
  try {
    finish_outputs(*node);
    for (uint32_t i = 0; i < node->num_outputs; ++i) arrived |= node->outputs()[i].grad.dense().defined();
    if (arrived && node->needed) {
      if (node->released) fail_freed(*node);
      const profile::Span span(node->name, profile::Kind::kRule);
      Backward back(*node, *this);
      node->type->run(*node, back);
    }
    for (uint32_t i = 0; i < node->num_outputs; ++i) node->outputs()[i].grad.clear();
    for (uint32_t i = 0; i < node->num_inputs; ++i) edge_delivered(node->edges()[i]);
  } catch (...) {
    ready.push_back(node);  // abandon() starts from here
    throw;
  }
  if (node->needed && !retain_graph && !node->type->saves_nothing &&
      (kept_groups.empty() || (arrived && !in_kept_group(*node))))
    release_node(node);
}

// All gradients of the outputs have arrived: compute what is pending, run the hooks, keep what retain_grad and the
// targets want. There may be as many of these as there are outputs: no scheduler within a scheduler.
void GraphTask::finish_outputs(Node& node) {
  NodeOutput* outputs = node.outputs();
  if (node.num_outputs > 1 && !node.extras) sum_small_outputs({outputs, node.num_outputs});
  for (uint32_t i = 0; i < node.num_outputs; ++i) outputs[i].grad.materialize(outputs[i].metadata);
  if (node.extras) {
    for_each_hook(node.extras->hooks, [&](const NodeExtras::Hook& hook) {
      NodeOutput& out = outputs[hook.output];
      if (!out.grad.dense().defined()) return;
      if (const Tensor changed = hook.hook(out.grad.dense()); changed.defined())
        out.grad.replace(given_gradient(changed, out.metadata, node.name, "a hook's gradient"));
    });
    for (TensorImpl* tensor : node.extras->retaining)
      if (const Tensor& g = outputs[tensor->output].grad.dense(); all_leaves && g.defined())
        accumulate_grad_of(tensor).retain(g);
  }
  for (size_t t = 0; t < targets.size(); ++t)
    if (targets[t].node == &node && outputs[targets[t].output].grad.dense().defined())
      found[t] = outputs[targets[t].output].grad.dense();
}

void GraphTask::finish_leaf(TensorImpl* leaf, LeafState& state) {
  if (all_leaves) {
    const bool has_grad = !state.grad.empty();
    leaf->leaf->accumulate(leaf, state.grad);
    if (!following.empty()) [[unlikely]]
      leaf_arrived(*leaf->leaf, has_grad);
    return;
  }
  if (!state.target) return state.grad.clear();
  FinalGrad grad = state.grad.take(metadata_of(leaf), false);
  if (!grad.defined()) return;
  leaf->leaf->run_hooks(leaf, grad);
  for (size_t t = 0; t < targets.size(); ++t)
    if (targets[t].leaf == leaf) found[t] = grad.dense;
}

// ---- groups of calls ------------------------------------------------------------------------------------------------

void GraphTask::keep_group(const RowGroup::Ref& group) {
  const auto before = [&](const RowGroup::Ref& kept) { return kept->first_sequence() <= group->first_sequence(); };
  const auto at = std::find_if_not(kept_groups.rbegin(), kept_groups.rend(), before).base();
  if (at == kept_groups.end() || at->get() != group.get()) kept_groups.insert(at, group);
}

const RowGroup::Ref* GraphTask::group_of(const Node& node) const {
  const auto behind = [&](const RowGroup::Ref& kept) { return kept->first_sequence() > node.sequence; };
  const auto at = std::partition_point(kept_groups.begin(), kept_groups.end(), behind);
  return at != kept_groups.end() && (*at)->holds(node) ? &*at : nullptr;
}

bool GraphTask::in_kept_group(const Node& node) const {
  const RowGroup::Ref* const group = group_of(node);
  return group && !(*group)->complete(id);
}

// ---- observers ------------------------------------------------------------------------------------------------------

void GraphTask::begin_following() {
  for (const AccumulateGrad* leaf : observed) {
    auto at = std::find_if(following.begin(), following.end(),
                           [&](const Following& f) { return f.observer == leaf->observer; });
    if (at == following.end()) at = following.insert(at, {leaf->observer, {}});
    at->reached.push_back(leaf->slot);
  }
  for (Following& f : following) f.begun = f.observer->begin(f.reached);
  std::erase_if(following, [](const Following& f) { return !f.begun; });
}

void GraphTask::leaf_arrived(const AccumulateGrad& leaf, bool has_grad) {
  for (const Following& f : following)
    if (f.observer == leaf.observer) return f.observer->arrived(leaf.slot, has_grad);
}

void GraphTask::end_following() {
  for (Following& f : following) {
    f.observer->end();
    f.begun = false;
  }
  following.clear();
}

void GraphTask::fail_following() noexcept {
  for (const Following& f : following)
    if (f.begun) f.observer->failed();
  following.clear();
}

// ---- errors ---------------------------------------------------------------------------------------------------------

// An exception has ended the pass: no gradient may stay behind for the next one. They are at the nodes that are ready,
// at roots and behind both. Nodes of another pass, where the error may lie, are left alone.
void GraphTask::abandon(std::span<const Edge> roots) noexcept {
  const size_t held = ready.size();
  if (counted)
    for (const Edge& root : roots)
      if (root.node && root.node->pass == id) root.node->pass = 0, ready.push_back(root.node);
  for (size_t i = 0; i < ready.size(); ++i) {
    Node* const node = ready[i];
    if (i < held && std::exchange(node->pass, 0) != id) continue;  // it is in the list once more
    for (uint32_t o = 0; o < node->num_outputs; ++o) node->outputs()[o].grad.clear();
    if (node->released) continue;
    for (uint32_t e = 0; e < node->num_inputs; ++e)
      if (Node* const input = node->edges()[e].node; input && input->pass == id)
        input->pass = 0, ready.push_back(input);
  }
  for (LeafState& leaf : leaves) leaf.grad.clear();
  found.clear();
  ready.resize(held);
  for (Node* node : std::exchange(ready, {})) drop_node(node);
}

std::vector<Tensor> run_backward(std::span<const Edge> roots, std::vector<Tensor> grads, std::span<const Edge> targets,
                                 bool retain_graph, bool create_graph) {
  TaskStack& mine = *my_tasks;
  if (mine.depth == mine.tasks.size()) mine.tasks.push_back(std::make_unique<GraphTask>());
  GraphTask& task = *mine.tasks[mine.depth];
  struct Nesting {
    size_t& depth;
    explicit Nesting(size_t& d) : depth(d) { ++depth; }
    ~Nesting() { --depth; }
  } nesting(mine.depth);
  const GradMode mode(create_graph);
  const AutocastScope no_autocast(kFloat32);
  const detail::NoSuspendGuard no_suspend;
  task.id = new_pass();
  task.retain_graph = retain_graph || create_graph;
  task.all_leaves = targets.empty();
  task.targets = targets;
  task.found.assign(targets.size(), {});
  task.stack.clear(), task.observed.clear(), task.following.clear();
  task.num_nodes = 0, task.counted = false;
  struct TargetMarks {
    std::vector<Node*> marked;  // not by a pass around this one, which goes on with its own
    explicit TargetMarks(std::span<const Edge> targets) {
      for (const Edge& target : targets)
        if (target.node && !target.node->target) marked.push_back(target.node), target.node->target = true;
    }
    ~TargetMarks() {
      for (Node* node : marked) node->target = false;
    }
  } marks(targets);
  try {
    task.run(roots, std::move(grads));
  } catch (...) {
    task.abandon(roots);
    task.fail_following();
    task.kept_groups.clear();
    throw;
  }
  task.kept_groups.clear();
  // A graph of a million ops is rare: its stacks are not kept.
  if (task.stack.capacity() > kMaxKeptFrames) task.stack = std::vector<GraphTask::Frame>();
  if (task.ready.capacity() > kMaxKeptFrames) task.ready = std::vector<Node*>();
  return std::move(task.found);
}

}  // namespace reel
