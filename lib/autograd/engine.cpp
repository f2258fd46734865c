#include <memory>
#include <mutex>

#include "lib/autograd/autocast.h"
#include "lib/autograd/pending.h"
#include "lib/autograd/tape.h"
#include "lib/autograd/trace.h"
#include "lib/core/profile.h"
#include "lib/device.h"

// backward() in two steps. Count: one sweep from the roots gives every node, and every leaf, the number of edges that
// will deliver to it (`due`). Deliver: a node whose last gradient has arrived runs its rule, which passes gradients on,
// and is released. A leaf whose last gradient has arrived is final at once: its hooks fire while the rest of the walk
// goes on. Both steps use stacks on the heap, kept from walk to walk; nothing recurses.
namespace reel {

/// What a walk knows of a leaf.
struct LeafNote {
  uint64_t walk = 0;
  uint32_t due = 0;
  bool target = false;
  GradSlot slot;
};

struct Walk {
  uint64_t id = 0;
  bool retain_graph = false, all_leaves = true;
  std::vector<LeafNote> notes;  // by LeafGrad::id
  std::vector<Node*> ready;     // each with a reference
  std::span<const Edge> targets;
  std::vector<Tensor> found;  // what reached the targets

  struct Frame {
    Node* node;
    uint32_t edge;
  };
  std::vector<Frame> stack;

  LeafNote& note(const TensorImpl* leaf) {
    const uint32_t at = leaf->leaf->id;
    if (at >= notes.size()) notes.resize(at + 1);
    LeafNote& note = notes[at];
    if (note.walk != id) note.walk = id, note.due = 0, note.target = false;
    return note;
  }
  void count(std::span<const Edge> roots);
  void visit(Node* node);
  void run(std::span<const Edge> roots, std::vector<Tensor> grads);
  void arrive(const Edge& edge);
  void deliver(Node* node);
  void prepare_outputs(Node& node);
  void finish_leaf(TensorImpl* leaf, LeafNote& note);
  void abandon();
};

namespace {

constexpr size_t kMostKept = 1 << 16;  // frames that a thread keeps from walk to walk
std::atomic<uint64_t> walks{0};
std::mutex leaf_mutexes[64];  // several threads' walks may end at one leaf

GradShape shape_of(const TensorImpl* impl) { return {impl->view.dtype, impl->device(), impl->view.shape}; }

// Walks nest: a rule may start another (checkpoint does). Each depth has its notes and stacks.
struct Walks {
  std::vector<std::unique_ptr<Walk>> all;
  size_t depth = 0;
};
thread_local Walks my_walks;

// Edges with references of their own.
struct Edges {
  std::vector<Edge> list;
  ~Edges() {
    for (Edge& edge : list) drop_edge(edge);
  }
};

// Is a walk around this one still at work on what it has met? Its notes on the nodes must not be overwritten.
bool busy_elsewhere(uint64_t walk) {
  for (size_t d = 0; d + 1 < my_walks.depth; ++d)
    if (my_walks.all[d]->id == walk) return true;
  return false;
}

bool has_nan(const Tensor& tensor) {
  if (!is_floating_point(tensor.dtype())) return false;
  const Tensor values = tensor.detach().to(kCPU).to(kFloat64).contiguous();
  const double* data = values.data<double>();
  for (int64_t i = 0; i < values.numel(); ++i)
    if (data[i] != data[i]) return true;
  return false;
}

}  // namespace

// ---- count ----------------------------------------------------------------------------------------------------------

// First meeting of a node: everything behind it is still to be counted.
void Walk::visit(Node* node) {
  REEL_CHECK(!node->released, "backward: the graph of '", node->name,
             "' has been freed by an earlier backward; give that one retain_graph = true");
  REEL_CHECK(!busy_elsewhere(node->walk), "backward: '", node->name, "' is part of the walk that called this one");
  node->walk = id;
  node->due = 0;
  node->needed = all_leaves;
  stack.push_back({node, 0});
}

// Depth first, so that a node is left only when everything behind it is known: with targets, `needed` says that a
// target lies there, and only edges into needed nodes will deliver.
void Walk::count(std::span<const Edge> roots) {
  for (const Edge& target : targets)
    if (target.leaf) note(target.leaf).target = true;
  for (const Edge& root : roots) {
    if (!root.node || root.node->walk == id) continue;
    visit(root.node);
    while (!stack.empty()) {
      Frame& top = stack.back();
      Node* node = top.node;
      if (top.edge < node->num_inputs) {
        const Edge& edge = node->edges()[top.edge];
        if (edge.node && edge.node->walk != id) {
          visit(edge.node);  // and look at this edge again
          continue;
        }
        ++top.edge;
        if (all_leaves) {
          if (edge.node)
            ++edge.node->due;
          else if (edge.leaf)
            ++note(edge.leaf).due;
        } else if (edge.leaf) {
          LeafNote& leaf = note(edge.leaf);
          if (leaf.target) ++leaf.due, node->needed = true;
        } else if (edge.node && (edge.node->needed || edge.node->target)) {
          node->needed = true;
          ++edge.node->due;
        }
      } else {
        stack.pop_back();
      }
    }
  }
}

// ---- deliver --------------------------------------------------------------------------------------------------------

void Walk::run(std::span<const Edge> roots, std::vector<Tensor> grads) {
  const profile::Span span("backward", profile::Kind::kRule);
  count(roots);
  // A root delivers its seed as an edge would. Each root holds one turn, so that none is ready before all have theirs.
  for (const Edge& root : roots) {
    if (root.node)
      ++root.node->due;
    else if (root.leaf)
      ++note(root.leaf).due;
  }
  for (size_t i = 0; i < roots.size(); ++i) {
    const Edge& root = roots[i];
    if (root.node)
      add_grad(root.node->outputs()[root.output].slot, std::move(grads[i]));
    else if (root.leaf)
      add_grad(note(root.leaf).slot, std::move(grads[i]));
  }
  for (const Edge& root : roots) arrive(root);
  while (!ready.empty()) {
    Node* node = ready.back();
    ready.pop_back();
    deliver(node);
    drop_node(node);
  }
}

// One delivery to the end of this edge is over.
void Walk::arrive(const Edge& edge) {
  if (edge.leaf) {
    LeafNote& leaf = note(edge.leaf);
    if (leaf.due && --leaf.due == 0) finish_leaf(edge.leaf, leaf);
  } else if (edge.node && edge.node->due && --edge.node->due == 0) {
    ++edge.node->refs;
    ready.push_back(edge.node);
  }
}

void Walk::deliver(Node* node) {
  try {
    prepare_outputs(*node);
    bool arrived = false;
    for (uint32_t i = 0; i < node->num_outputs; ++i) arrived |= node->outputs()[i].slot.grad.defined();
    if (arrived && node->needed) {
      const profile::Span span(node->name, profile::Kind::kRule);
      Backward back(*node, *this);
      node->type->run(*node, back);
    }
    for (uint32_t i = 0; i < node->num_outputs; ++i) node->outputs()[i].slot.grad.reset();
    for (uint32_t i = 0; i < node->num_inputs; ++i) arrive(node->edges()[i]);
  } catch (...) {
    ready.push_back(node);  // abandon() starts from here
    throw;
  }
  if (node->needed && !retain_graph && !node->type->lasting) release_node(node);
}

// All gradients of the outputs have arrived: add up what is pending, let the hooks see it, keep what is asked for.
void Walk::prepare_outputs(Node& node) {
  for (uint32_t i = 0; i < node.num_outputs; ++i) {
    NodeOutput& out = node.outputs()[i];
    if (out.slot.pending) out.slot.grad = finish(out.slot, out, false).dense;
    Tensor& grad = out.slot.grad;
    if (!grad.defined()) continue;
    if (node.extras) {
      // A hook may add and remove hooks, so each is called as a copy.
      for (size_t h = 0; h < node.extras->hooks.size(); ++h) {
        const NodeExtras::Hook hook = node.extras->hooks[h];
        if (hook.output != i) continue;
        if (Tensor changed = hook.hook(grad); changed.defined()) {
          REEL_CHECK(changed.shape() == out.shape, node.name, ": a hook returned a gradient of shape ", changed.shape(),
                     " for a tensor of shape ", out.shape);
          grad = changed.to(out.dtype);
        }
      }
      for (TensorImpl* keeper : node.extras->keepers)
        if (keeper->output == i && all_leaves) {
          Tensor& kept = leaf_grad(keeper).grad;
          kept = kept.defined() ? accumulate(kept, grad) : grad.clone();
        }
    }
    if (!all_leaves)
      for (size_t t = 0; t < targets.size(); ++t)
        if (targets[t].node == &node && targets[t].output == i) found[t] = grad;
  }
}

namespace {

// leaf's gradient += final. Under the leaf's mutex.
void add_final(TensorImpl* leaf, FinalGrad final) {
  LeafGrad& mine = *leaf->leaf;
  if (final.rows.ids.defined()) {
    accumulate_rows(mine.grad, mine.rows, final.rows, leaf->view.shape);
    return;
  }
  // The seed of backward() and saved tensors may come this far; a leaf's gradient is nobody else's.
  const bool shared = !is_exclusive(final.dense) || !final.dense.is_contiguous();
  if (shared) final.dense = final.dense.clone();
  if (mine.rows.ids.defined()) {
    if (!is_exclusive(final.dense)) final.dense = final.dense.clone();
    accumulate_rows(final.dense, mine.rows, std::exchange(mine.rows, {}), leaf->view.shape);
  }
  if (!mine.grad.defined())
    mine.grad = std::move(final.dense);
  else if (grad_mode)
    mine.grad = accumulate(mine.grad, final.dense);
  else
    mine.grad.add_(final.dense);
}

void settle_locked(TensorImpl* leaf) {
  LeafGrad& mine = *leaf->leaf;
  if (mine.held.empty()) return;
  NoGrad guard;
  use_here(mine.held);
  add_final(leaf, finish(mine.held, shape_of(leaf), true));
}

std::mutex& mutex_of(const LeafGrad& leaf) { return leaf_mutexes[leaf.id % std::size(leaf_mutexes)]; }

}  // namespace

void settle(TensorImpl* impl) {
  if (!impl->leaf) return;
  std::lock_guard lock(mutex_of(*impl->leaf));
  settle_locked(impl);
}

void Walk::finish_leaf(TensorImpl* leaf, LeafNote& note) {
  LeafGrad& mine = *leaf->leaf;
  const bool target = note.target;
  if (!target && !all_leaves) {
    clear(note.slot);
    return;
  }
  // Nobody is looking: let it wait for more. Not in a captured graph, whose replays do not know of what waits.
  if (!target && mine.hooks.empty() && note.slot.pending && !cuda::capturing()) {
    std::lock_guard lock(mutex_of(mine));
    if (!absorb(mine.held, note.slot, shape_of(leaf))) settle_locked(leaf);
    if (!note.slot.grad.defined()) return;
  }
  // Hooks may walk in their turn and move the notes: from here on only local copies.
  FinalGrad final = finish(note.slot, shape_of(leaf), !target);
  if (!final.defined()) return;
  for (size_t i = 0; i < mine.hooks.size(); ++i) {
    if (!mine.hooks[i].before) continue;
    if (final.rows.ids.defined()) {  // a hook sees a dense gradient
      accumulate_rows(final.dense = zeros_like(TensorImpl::share(leaf).detach()), final.rows, final.rows,
                      leaf->view.shape);
      final.rows = {};
    }
    const GradHook before = mine.hooks[i].before;  // a copy: a hook may add and remove hooks
    if (Tensor changed = before(final.dense); changed.defined()) {
      REEL_CHECK(changed.shape() == leaf->view.shape, "backward: a hook returned a gradient of shape ", changed.shape(),
                 " for a leaf of shape ", leaf->view.shape);
      final.dense = changed.to(leaf->view.dtype);
    }
  }
  if (target) {
    for (size_t t = 0; t < targets.size(); ++t)
      if (targets[t].leaf == leaf) found[t] = final.dense;
    return;
  }
  {
    std::lock_guard lock(mutex_of(mine));
    add_final(leaf, std::move(final));
  }
  for (size_t i = 0; i < mine.hooks.size(); ++i)
    if (const auto after = mine.hooks[i].after) after(TensorImpl::share(leaf));
}

// An exception has ended the walk: no gradient may stay behind for the next one.
void Walk::abandon() {
  std::vector<Node*> stack = ready;
  while (!stack.empty()) {
    Node* node = stack.back();
    stack.pop_back();
    if (node->walk != id) continue;
    node->walk = 0;
    for (uint32_t i = 0; i < node->num_outputs; ++i) clear(node->outputs()[i].slot);
    if (node->released) continue;
    for (uint32_t i = 0; i < node->num_inputs; ++i)
      if (node->edges()[i].node) stack.push_back(node->edges()[i].node);
  }
  for (LeafNote& leaf : notes) clear(leaf.slot);
  for (Node* node : std::exchange(ready, {})) drop_node(node);
}

std::vector<Tensor> walk_graph(std::span<const Edge> roots, std::vector<Tensor> grads, std::span<const Edge> targets,
                               bool retain_graph, bool create_graph) {
  Walks& walks_here = my_walks;
  if (walks_here.depth == walks_here.all.size()) walks_here.all.push_back(std::make_unique<Walk>());
  Walk& walk = *walks_here.all[walks_here.depth];
  struct Depth {
    size_t& depth;
    explicit Depth(size_t& d) : depth(d) { ++depth; }
    ~Depth() { --depth; }
  } deeper(walks_here.depth);
  const GradMode mode(create_graph);
  const AutocastScope no_autocast(kFloat32);
  walk.id = walks.fetch_add(1, std::memory_order_relaxed) + 1;
  walk.retain_graph = retain_graph || create_graph;
  walk.all_leaves = targets.empty();
  walk.targets = targets;
  walk.found.assign(targets.size(), {});
  walk.stack.clear();
  struct Marks {
    std::span<const Edge> targets;
    void set(bool value) const {
      for (const Edge& target : targets)
        if (target.node) target.node->target = value;
    }
    explicit Marks(std::span<const Edge> t) : targets(t) { set(true); }
    ~Marks() { set(false); }
  } marks(targets);
  try {
    walk.run(roots, std::move(grads));
  } catch (...) {
    for (const Edge& root : roots)
      if (root.node) ++root.node->refs, walk.ready.push_back(root.node);
    walk.abandon();
    throw;
  }
  // A graph of a million ops is rare: its stacks are not kept.
  if (walk.stack.capacity() > kMostKept) walk.stack = {};
  if (walk.ready.capacity() > kMostKept) walk.ready = {};
  return std::move(walk.found);
}

// ---- walks within rules ---------------------------------------------------------------------------------------------

namespace {

// Calls f on every edge that leads from the nodes recorded since to something else.
template <class F>
void for_each_leaving(std::span<const Tensor> outputs, uint64_t since, F f) {
  std::vector<Node*> stack;
  const uint64_t mark = walks.fetch_add(1, std::memory_order_relaxed) + 1;
  auto visit = [&](const Tensor& output) {
    Node* node = tracked(output) ? TensorImpl::of(output)->node : nullptr;
    if (node && recorded_here_since(*node, since) && node->walk != mark) node->walk = mark, stack.push_back(node);
  };
  for (const Tensor& output : outputs) visit(output);
  while (!stack.empty()) {
    Node* node = stack.back();
    stack.pop_back();
    for (uint32_t i = 0; i < node->num_inputs; ++i) {
      Edge& edge = node->edges()[i];
      if (edge.node && recorded_here_since(*edge.node, since)) {
        if (edge.node->walk != mark) edge.node->walk = mark, stack.push_back(edge.node);
      } else if (edge) {
        f(edge);
      }
    }
  }
}

bool same(const Edge& a, const Edge& b) { return a.node == b.node && a.leaf == b.leaf && a.output == b.output; }

// A leaf of the shape that gradients for this edge have.
Tensor stand_in(const Edge& edge) {
  const GradShape shape = edge.node ? static_cast<GradShape>(edge.node->outputs()[edge.output]) : shape_of(edge.leaf);
  const Tensor one = make_tensor({}, shape.dtype, shape.device);
  const View view = expand_view(view_of(one), shape.shape);
  return alias(one, view.data, view.shape, view.strides).detach().requires_grad_();
}

}  // namespace

std::vector<Edge> boundary(std::span<const Tensor> outputs, uint64_t since) {
  std::vector<Edge> edges;
  for_each_leaving(outputs, since, [&](const Edge& edge) {
    for (const Edge& known : edges)
      if (same(known, edge)) return;
    edges.push_back(edge);
    if (edge.node) ++edge.node->refs;
    if (edge.leaf) edge.leaf->refs.fetch_add(1, std::memory_order_relaxed);
  });
  return edges;
}

std::vector<Tensor> inner_grad(std::span<const Tensor> outputs, std::vector<Tensor> grads, uint64_t since,
                               std::span<const Edge> edges, bool create_graph) {
  // For the time of the walk the leaving edges end at leaves of our own.
  std::vector<Tensor> ends;
  for (const Edge& edge : edges) ends.push_back(edge ? stand_in(edge) : Tensor());
  struct Detour {
    Edge* place;
    Edge original;
  };
  struct Detours {
    std::vector<Detour> all;
    ~Detours() {
      for (const Detour& detour : all) {
        drop_edge(*detour.place);
        *detour.place = detour.original;
      }
    }
  } detours;
  for_each_leaving(outputs, since, [&](Edge& edge) {
    for (size_t i = 0; i < edges.size(); ++i)
      if (same(edges[i], edge)) {
        detours.all.push_back({&edge, edge});
        edge = edge_to(ends[i]);
        return;
      }
  });
  Edges roots, targets;
  std::vector<Tensor> seeds;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!grads[i].defined() || !tracked(outputs[i])) continue;
    roots.list.push_back(edge_to(outputs[i]));
    seeds.push_back(std::move(grads[i]));
  }
  for (const Tensor& end : ends) targets.list.push_back(end.defined() ? edge_to(end) : Edge{});
  return walk_graph(roots.list, std::move(seeds), targets.list, true, create_graph);
}

// ---- what a rule delivers -------------------------------------------------------------------------------------------

bool Backward::wanted(const Edge& edge) const {
  if (walk_.all_leaves) return static_cast<bool>(edge);
  if (edge.leaf) return walk_.note(edge.leaf).target;
  return edge.node && (edge.node->needed || edge.node->target);
}

GradSlot& Backward::slot(const Edge& edge, GradShape& shape) const {
  if (edge.node) {
    NodeOutput& out = edge.node->outputs()[edge.output];
    shape = out;
    return out.slot;
  }
  shape = shape_of(edge.leaf);
  return walk_.note(edge.leaf).slot;
}

void Backward::set(int input, Tensor g) {
  const Edge& edge = node_.edges()[input];
  if (!g.defined() || !wanted(edge)) return;
  const Shape& shape = edge.node ? edge.node->outputs()[edge.output].shape : edge.leaf->view.shape;
  const DType dtype = edge.node ? edge.node->outputs()[edge.output].dtype : edge.leaf->view.dtype;
  if (!(g.shape() == shape)) {
    bool fits = g.dim() >= shape.size();
    for (int d = 1; fits && d <= shape.size(); ++d)
      fits = shape[shape.size() - d] == 1 || shape[shape.size() - d] == g.shape()[static_cast<int>(g.dim()) - d];
    REEL_CHECK(fits, node_.name, ": its rule returned a gradient of shape ", g.shape(), " for input ", input,
               " of shape ", shape);
    g = sum_to(g, shape);
  }
  if (g.dtype() != dtype) {
    REEL_CHECK(g.is_floating_point(), node_.name, ": its rule returned a ", g.dtype(), " gradient for input ", input);
    g = g.to(dtype);
  }
  if (shape.empty()) {  // which may come from the CPU, whatever device the other inputs are on
    const Device device = edge.node ? edge.node->outputs()[edge.output].device : edge.leaf->device();
    if (g.device() != device) g = g.to(device);
  }
  if (anomaly_mode()) check_number(input, g);
  add_grad(edge.node ? edge.node->outputs()[edge.output].slot : walk_.note(edge.leaf).slot, std::move(g));
}

void Backward::check_number(int input, const Tensor& g) const {
  if (has_nan(g))
    detail::fail("backward: NaN in the gradient of input ", input, " of '", node_.name, "', recorded",
                 node_.extras && !node_.extras->trace.empty() ? "\n" + node_.extras->trace : " outside anomaly mode");
}

Tensor Backward::set_product(int input, const Tensor& g, const Tensor& x, bool sums_wanted) {
  const Edge& edge = node_.edges()[input];
  if (!wanted(edge)) return {};
  GradShape shape;
  GradSlot& target = slot(edge, shape);
  const Tensor gd = g.contiguous(), xd = x.contiguous();
  if (anomaly_mode()) {
    GradSlot alone;
    add_product(alone, shape, view_of(gd), view_of(xd));
    check_number(input, finish(alone, shape, false).dense);
  }
  return add_product(target, shape, view_of(gd), view_of(xd), sums_wanted);
}

void Backward::set_rows(int input, const Tensor& ids, const Tensor& values, bool sparse) {
  const Edge& edge = node_.edges()[input];
  if (!wanted(edge)) return;
  GradShape shape;
  if (anomaly_mode()) check_number(input, values);
  GradSlot& target = slot(edge, shape);
  const Tensor rows = values.to(shape.dtype);
  if (!sparse && shape.device != kCPU) {  // nothing that the host would have to wait for
    add_rows_at_once(target, shape, view_of(ids), view_of(rows));
    return;
  }
  add_rows(target, shape, ids, view_of(rows), sparse);
}

void Backward::set_region(int input, int64_t offset, const Strides& strides, const Tensor& g) {
  const Edge& edge = node_.edges()[input];
  if (!wanted(edge)) return;
  if (anomaly_mode()) check_number(input, g);
  GradShape shape;
  add_region(slot(edge, shape), shape, offset, strides, g);
}

// ---- the user's calls -----------------------------------------------------------------------------------------------

namespace {

// The gradient to start from: the one given, or 1.
Tensor seed_of(const Tensor& output, const Tensor& given, const char* op) {
  REEL_CHECK(output.defined(), op, ": undefined tensor");
  REEL_CHECK(tracked(output), op, ": the tensor, ", output.dtype(), " ", output.shape(),
             ", neither requires grad nor depends on a tensor that does");
  if (given.defined()) {
    REEL_CHECK(given.shape() == output.shape(), op, ": the gradient's shape ", given.shape(), " is not the tensor's, ",
               output.shape());
    return given.to(output.dtype());
  }
  REEL_CHECK(output.numel() == 1, op, ": a gradient must be given for a tensor of more than one element, shape ",
             output.shape());
  return ones(output.shape(), {.dtype = output.dtype(), .device = output.device()});
}

std::vector<Tensor> start(std::span<const Tensor> outputs, std::span<const Tensor> grad_outputs,
                          std::span<const Edge> targets, GradOptions options, const char* op) {
  REEL_CHECK(grad_outputs.empty() || grad_outputs.size() == outputs.size(), op, ": ", outputs.size(), " outputs but ",
             grad_outputs.size(), " gradients");
  Edges roots;
  std::vector<Tensor> seeds;
  for (size_t i = 0; i < outputs.size(); ++i) {
    seeds.push_back(seed_of(outputs[i], grad_outputs.empty() ? Tensor() : grad_outputs[i], op));
    roots.list.push_back(edge_to(outputs[i]));
  }
  return walk_graph(roots.list, std::move(seeds), targets, options.retain_graph, options.create_graph);
}

}  // namespace

void backward(std::span<const Tensor> outputs, std::span<const Tensor> grad_outputs, GradOptions options) {
  start(outputs, grad_outputs, {}, options, "backward");
}

void Tensor::backward(const Tensor& grad, bool retain_graph, bool create_graph) const {
  reel::backward({this, 1}, {&grad, grad.defined() ? size_t{1} : 0},
                 {.retain_graph = retain_graph, .create_graph = create_graph});
}

std::vector<Tensor> grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                         std::span<const Tensor> grad_outputs, GradOptions options) {
  REEL_CHECK(!inputs.empty(), "grad: no inputs");
  Edges targets;
  for (size_t i = 0; i < inputs.size(); ++i) {
    REEL_CHECK(tracked(inputs[i]), "grad: input ", i, " does not require grad");
    targets.list.push_back(edge_to(inputs[i]));
  }
  std::vector<Tensor> found = start(outputs, grad_outputs, targets.list, options, "grad");
  for (size_t i = 0; i < inputs.size(); ++i)
    REEL_CHECK(found[i].defined() || options.allow_unused, "grad: no output depends on input ", i, ", shape ",
               inputs[i].shape(), "; allow_unused = true gives an undefined gradient for it");
  return found;
}

}  // namespace reel
