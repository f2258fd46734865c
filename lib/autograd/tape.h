#pragma once
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lib/core/tensor_impl.h"
#include "reel/autograd.h"
#include "reel/tensor.h"

// The tape: what ops record and the engine (engine.cpp) walks. An op with result y of inputs a, b ends with
//
//   if (recording(a, b))
//     record("mul", y, inputs(a, b), [a = Saved(a), b = Saved(b)](Backward& back) {
//       if (back.needs(0)) back.set(0, back.grad() * back.get(b));
//       if (back.needs(1)) back.set(1, back.grad() * back.get(a));
//     });
//   return y;
//
// The rule is stored inside the node, which comes from the allocator's thread-local lists: recording allocates nothing
// from the heap. Rules know nothing of broadcasting, dtypes or accumulation: the engine sums what they set to the
// shape of the input, casts it, and adds it up.
namespace reel {

class Backward;
struct Pending;

// ---- nodes ----------------------------------------------------------------------------------------------------------

/// Where the gradient of one input goes: an output of the node that computed it, a leaf, or (empty) nowhere.
struct Edge {
  Node* node = nullptr;
  TensorImpl* leaf = nullptr;  // holds a reference
  uint32_t output = 0;
  explicit operator bool() const { return node || leaf; }
};

/// A gradient that is being added up. Parts of it may still be pending: see Pending in engine.cpp.
struct GradSlot {
  Tensor grad;
  Pending* pending = nullptr;
  bool empty() const { return !grad.defined() && !pending; }
};

/// What the engine has to know of a tensor in order to take gradients for it.
struct GradShape {
  DType dtype;
  Device device;
  Shape shape;
};

struct HasSlot {
  GradSlot slot;
};
/// The slot comes first: it shares a cache line with the shape's first sizes.
struct NodeOutput : HasSlot, GradShape {};

/// The rarely needed parts of a node.
struct NodeExtras {
  struct Hook {
    int64_t id;
    uint32_t output;
    GradHook hook;
  };
  std::vector<Hook> hooks;
  std::vector<TensorImpl*> keepers;  // outputs with retain_grad; they unlink themselves
  std::string trace;                 // anomaly mode: where the op was recorded
};

/// One recorded op. Counts are not atomic: a graph belongs to one thread at a time. Behind this header lie, in one
/// block, the rule, the outputs and the edges.
struct Node {
  const char* name;
  const struct RuleType* type;
  uint64_t sequence;  // per thread; the thread's number is in the upper bits
  uint64_t walk = 0;  // the last walk that met this node
  uint32_t refs = 0;  // tensors that are outputs, and edges
  uint32_t due = 0;   // edges of this walk that have not delivered yet
  uint32_t bytes;     // of the block
  uint32_t num_inputs;
  NodeExtras* extras = nullptr;
  uint16_t num_outputs, rule_bytes;
  bool released = false;  // rule and edges are gone
  bool needed = true;     // in this walk: leads to what is asked for
  bool target = false;    // in this walk: is asked for
  bool watched = false;   // see lib/core/watch.h

  void* rule() { return this + 1; }
  NodeOutput* outputs() { return reinterpret_cast<NodeOutput*>(reinterpret_cast<char*>(this + 1) + rule_bytes); }
  Edge* edges() { return reinterpret_cast<Edge*>(outputs() + num_outputs); }
};

/// How to treat the rule inside a node.
struct RuleType {
  void (*run)(Node&, Backward&);
  void (*destroy)(Node&);
  bool lasting;  // it keeps no tensor alive, so that a walk need not release the node, and others may come by
};

template <class Rule>
concept Lasting = requires {
  Rule::kLasting;
};

/// Drops a reference; frees the node, and what hangs on it, without recursion.
void drop_node(Node* node);
/// Destroys rule and edges: saved tensors go, history ends here.
void release_node(Node* node);

// ---- leaves ---------------------------------------------------------------------------------------------------------

/// Gradient and hooks of a leaf (and the kept gradient of a non-leaf with retain_grad).
struct LeafGrad {
  uint32_t id;  // small and unique among the living: a walk finds its notes on this leaf at notes[id]
  Tensor grad;
  RowSparse rows;
  GradSlot held;  // of past walks, not yet part of grad or rows: see settle
  struct Hook {
    int64_t id;
    GradHook before;                           // gets the final gradient of a walk
    std::function<void(const Tensor&)> after;  // called when it has been added to grad
  };
  std::vector<Hook> hooks;
  LeafGrad();
  ~LeafGrad();
};
LeafGrad& leaf_grad(TensorImpl* impl);
/// Brings grad and rows up to date with what past walks have left pending. Whoever reads them calls this first.
void settle(TensorImpl* impl);

// ---- history of tensors ---------------------------------------------------------------------------------------------

/// Brings the history of a view up to date after an in-place change through its base (inplace.cpp).
void refresh_history(TensorImpl* impl);
inline void fresh_history(TensorImpl* impl) {
  if (impl->base && impl->rewrites_seen != impl->base->rewrites) refresh_history(impl);
}
/// Does a gradient flow into this tensor?
inline bool tracked(const Tensor& tensor) {
  if (!tensor.defined()) return false;
  TensorImpl* impl = TensorImpl::of(tensor);
  fresh_history(impl);
  return impl->node || impl->requires_grad;
}
extern constinit thread_local bool grad_mode;  // grad_enabled(), without a call
/// Will an op on these be recorded?
template <std::same_as<Tensor>... Tensors>
bool recording(const Tensors&... tensors) {
  return (tracked(tensors) || ...) && grad_mode;
}
bool recording(std::span<const Tensor> tensors);

/// The number that the next op recorded by this thread gets, and whether a node was recorded by the thread that asked
/// for `sequence`, and not before.
uint64_t next_sequence();
bool recorded_here_since(const Node& node, uint64_t sequence);

/// The edge to a tensor, with references of its own.
inline Edge edge_to(const Tensor& tensor) {
  if (!tracked(tensor)) return {};
  TensorImpl* impl = TensorImpl::of(tensor);
  if (impl->node) {
    ++impl->node->refs;
    return {.node = impl->node, .output = impl->output};
  }
  leaf_grad(impl);
  impl->refs.fetch_add(1, std::memory_order_relaxed);
  return {.leaf = impl};
}
inline void drop_edge(Edge& edge) {
  if (edge.node) drop_node(edge.node);
  if (edge.leaf) TensorImpl::wrap(edge.leaf).reset();
  edge = {};
}

// ---- saved tensors --------------------------------------------------------------------------------------------------

/// A tensor that a rule needs. It remembers the version of the storage, and Backward::get refuses a changed one. The
/// op's own output is saved as storage only: holding the tensor, which holds the node, would be a cycle.
class Saved {
 public:
  Saved() = default;
  explicit Saved(const Tensor& input);
  static Saved output(const Tensor& y, uint32_t index = 0);
  Saved(Saved&& other) noexcept { swap(other); }
  Saved& operator=(Saved&& other) noexcept { return swap(other), *this; }
  Saved(const Saved& other);
  ~Saved();
  bool defined() const { return impl_ || storage_; }

 private:
  friend class Backward;
  void swap(Saved& other) {
    std::swap(impl_, other.impl_), std::swap(storage_, other.storage_);
    std::swap(version_, other.version_), std::swap(index_, other.index_);
  }
  TensorImpl* impl_ = nullptr;
  Storage* storage_ = nullptr;
  uint32_t version_ = 0, index_ = 0;
};
/// Saved(tensor) if it is wanted, nothing otherwise.
inline Saved saved_if(bool wanted, const Tensor& tensor) { return wanted ? Saved(tensor) : Saved(); }
/// In the place of a Saved that a rule never reads. The tags keep several of them from needing addresses of their own.
template <int tag>
struct NotSaved {
  NotSaved(Saved&&) {}
};

// ---- what a rule sees -----------------------------------------------------------------------------------------------

/// One node's turn in a walk. While a rule runs, recording is on exactly when create_graph() is.
class Backward {
 public:
  Backward(Node& node, struct Walk& walk) : node_(node), walk_(walk) {}

  /// The gradient of an output: undefined if none arrived (only for ops with several outputs).
  const Tensor& grad(int output = 0) const { return node_.outputs()[output].slot.grad; }
  Tensor grad_or_zeros(int output) const;
  const GradShape& output(int i) const { return node_.outputs()[i]; }
  uint32_t num_outputs() const { return node_.num_outputs; }
  bool needs(int input) const { return wanted(node_.edges()[input]); }
  bool create_graph() const { return grad_mode; }
  Tensor get(const Saved& saved) const;
  template <int tag>
  Tensor get(const NotSaved<tag>&) const {
    return {};
  }
  /// Its elements only, which is cheaper: `room` is for a View that has to be made. nullptr if nothing is saved.
  const View* view(const Saved& saved, View& room) const;
  template <int tag>
  const View* view(const NotSaved<tag>&, View&) const {
    return nullptr;
  }
  /// A tensor like grad() to write an input's gradient to: grad() itself if nobody else looks at it, so the rule must
  /// be about to read each element for the last time.
  Tensor take_room() const;

  /// The gradient of an input, of the input's shape or one that it was broadcast to. Undefined is zero.
  void set(int input, Tensor grad);
  /// The gradient gᵀ x of a weight [out, in] for g [n, out] and x [n, in]. Small products of all uses of the weight are
  /// collected and multiplied as one. Only without create_graph.
  /// With `sums_wanted` the result may be the sums of g's columns, if they cost next to nothing.
  Tensor set_product(int input, const Tensor& g, const Tensor& x, bool sums_wanted = false);
  /// The gradient `values` [n, …] of the rows ids [n] of a matrix; collected like products. A leaf whose uses are all
  /// `sparse` gets a row-sparse gradient. Only without create_graph.
  void set_rows(int input, const Tensor& ids, const Tensor& values, bool sparse);
  /// The gradient g of the part of a contiguous input that a view with this offset (in elements) and g's shape and
  /// these strides shows. Only without create_graph.
  void set_region(int input, int64_t offset, const Strides& strides, const Tensor& g);

 private:
  void check_version(const Saved& saved) const;
  bool wanted(const Edge& edge) const;
  void check_number(int input, const Tensor& g) const;  // anomaly mode
  GradSlot& slot(const Edge& edge, GradShape& shape) const;
  Node& node_;
  struct Walk& walk_;
};

// ---- recording ------------------------------------------------------------------------------------------------------

/// A node without its rule and edges: allocated, counted, numbered.
Node* new_node(const char* name, size_t rule_bytes, size_t num_inputs, size_t num_outputs);
/// Ends t's history; with retain_grad the node must not find t any more.
void leave_node(TensorImpl* t);
/// Has node keep the gradient of its output t.
void keep_grad(Node* node, TensorImpl* t);
/// Makes y output number `index` of node.
inline void attach_output(Node* node, uint32_t index, const Tensor& y) {
  TensorImpl* impl = TensorImpl::of(y);
  if (impl->node) leave_node(impl);  // y was computed with history of its own, which this op replaces
  NodeOutput& out = node->outputs()[index];
  out.shape = impl->view.shape;
  out.dtype = impl->view.dtype;
  out.device = impl->device();
  impl->node = node;
  impl->output = index;
  impl->unrecorded_view = impl->hides_history = false;  // it has a history of its own
  ++node->refs;
  if (impl->keeps_grad) keep_grad(node, impl);
}

/// Records an op whose edges, `edge(i)` for each of `count` inputs, come with references of their own.
template <class Rule, class EdgeOf>
void record_edges(const char* name, std::span<const Tensor* const> outputs, size_t count, EdgeOf edge, Rule rule) {
  static_assert(alignof(Rule) <= alignof(void*));
  constexpr size_t rule_bytes = (sizeof(Rule) + 7) / 8 * 8;
  Node* node = new_node(name, rule_bytes, count, outputs.size());
  new (node->rule()) Rule(std::move(rule));
  static constexpr RuleType type{[](Node& n, Backward& back) { (*static_cast<Rule*>(n.rule()))(back); },
                                 [](Node& n) { static_cast<Rule*>(n.rule())->~Rule(); }, Lasting<Rule>};
  node->type = &type;
  for (size_t i = 0; i < count; ++i) new (node->edges() + i) Edge(edge(i));
  for (size_t i = 0; i < outputs.size(); ++i) attach_output(node, static_cast<uint32_t>(i), *outputs[i]);
}
/// Records an op that the caller has found to be recorded: recording(inputs…) was true.
template <class Rule>
void record_always(const char* name, std::span<const Tensor* const> outputs, std::span<const Tensor* const> inputs,
                   Rule rule) {
  record_edges(
      name, outputs, inputs.size(), [&](size_t i) { return edge_to(*inputs[i]); }, std::move(rule));
}

/// Inputs by reference, without counting: {x, weight, bias}.
template <size_t N>
struct Inputs {
  const Tensor* list[N];
};
template <class... T>
Inputs(const T&...) -> Inputs<sizeof...(T)>;
template <class... T>
Inputs<sizeof...(T)> inputs(const T&... tensors) {
  return {{&tensors...}};
}

/// Records y = op(inputs) with one output. Call it only when recording(inputs…): see the example at the top.
template <size_t N, class Rule>
void record(const char* name, const Tensor& y, const Inputs<N>& in, Rule rule) {
  const Tensor* out = &y;
  record_always(name, {&out, 1}, {in.list, N}, std::move(rule));
}
/// For a list of inputs, or of outputs.
template <class Rule>
void record(const char* name, std::span<const Tensor> outputs, std::span<const Tensor> ins, Rule rule) {
  std::vector<const Tensor*> pointers;
  for (const Tensor& y : outputs) pointers.push_back(&y);
  for (const Tensor& x : ins) pointers.push_back(&x);
  record_always(name, std::span<const Tensor* const>(pointers).first(outputs.size()),
                std::span<const Tensor* const>(pointers).subspan(outputs.size()), std::move(rule));
}

// ---- walks ----------------------------------------------------------------------------------------------------------

/// Walks the graph from `roots` with their gradients. With `targets` the gradients that reach these edges are returned
/// (undefined where none does) and no leaf is touched; without, they are added to the leaves.
std::vector<Tensor> walk_graph(std::span<const Edge> roots, std::vector<Tensor> grads, std::span<const Edge> targets,
                               bool retain_graph, bool create_graph);

/// For rules that differentiate by recording their op anew: the edges that leave the part of the graph behind
/// `outputs` that this thread has recorded since it numbered `since`. Each with a reference.
std::vector<Edge> boundary(std::span<const Tensor> outputs, uint64_t since);
/// The gradients that arrive at such edges, without touching what lies beyond them (a walk around this one may be busy
/// there). Undefined where nothing arrives.
std::vector<Tensor> inner_grad(std::span<const Tensor> outputs, std::vector<Tensor> grads, uint64_t since,
                               std::span<const Edge> edges, bool create_graph);

// ---- what the engine asks of the ops (defined in lib/ops) -----------------------------------------------------------

/// a + b, recorded if need be.
Tensor accumulate(const Tensor& a, const Tensor& b);
/// x summed to `shape`, which broadcasts to x's shape, recorded if need be.
Tensor sum_to(const Tensor& x, const Shape& shape);

}  // namespace reel
