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

#include "lib/autograd/grad_accumulator.h"
#include "lib/tensor/tensor_impl.h"
#include "reel/autograd.h"
#include "reel/tensor.h"

// The tape: what ops record and the engine (engine.h) traverses. An op with result y of inputs a, b ends with
//
//   if (recording(a, b))
//     record("mul", y, inputs(a, b), [a = SavedTensor(a), b = SavedTensor(b)](Backward& back) {
//       if (back.needs(0)) back.set(0, back.grad() * back.get(b));
//       if (back.needs(1)) back.set(1, back.grad() * back.get(a));
//     });
//   return y;
//
// The rule is stored inside the node, which comes from the allocator's thread-local lists: recording allocates nothing
// from the heap. Rules do without broadcasting, casts and accumulation: Backward (backward.h) sums what they set to the
// shape of the input, casts it, and adds it up.
namespace reel {

class Backward;
class AccumulateGrad;

// ---- nodes ----------------------------------------------------------------------------------------------------------

/// Where the gradient of one input goes: an output of the node that computed it, a leaf, or (empty) nowhere.
struct Edge {
  Node* node = nullptr;
  TensorImpl* leaf = nullptr;  // counted by retain_for_graph
  uint32_t output = 0;
  explicit operator bool() const { return node || leaf; }
  bool operator==(const Edge&) const = default;
};

/// The accumulator comes first: it shares a cache line with the first sizes of the shape.
struct NodeOutput {
  GradAccumulator grad;
  GradMetadata metadata;
};

/// The rarely needed parts of a node.
struct NodeExtras {
  struct Hook {
    int64_t id;
    uint32_t output;
    GradHook hook;
  };
  std::vector<std::shared_ptr<const Hook>> hooks;
  std::vector<TensorImpl*> retaining;  // outputs with retain_grad; they unlink themselves
  std::string trace;                   // anomaly mode: where the op was recorded
};

/// One recorded op. Counts are not atomic: a graph belongs to one thread at a time. Behind this header lie, in one
/// block, the rule, the outputs and the edges.
struct Node {
  const char* name;
  const struct RuleType* type;
  uint64_t sequence;          // per thread; the thread's number is in the upper bits
  uint64_t pass = 0;          // the last traversal that met this node, for which the marks below are valid
  uint32_t refs = 0;          // tensors that are outputs, and edges
  uint32_t dependencies = 0;  // edges of this pass that have not delivered a gradient yet
  uint32_t bytes;             // of the block
  uint32_t num_inputs;
  NodeExtras* extras = nullptr;
  uint16_t num_outputs, rule_bytes;
  bool released = false;  // rule and edges are gone
  bool needed = true;     // in this pass: leads to a target
  bool target = false;    // in this pass: its outputs' gradients are returned
  bool watched = false;   // see lib/tensor/watch.h

  void* rule() { return this + 1; }
  NodeOutput* outputs() { return reinterpret_cast<NodeOutput*>(reinterpret_cast<char*>(this + 1) + rule_bytes); }
  Edge* edges() { return reinterpret_cast<Edge*>(outputs() + num_outputs); }
};

/// How to treat the rule inside a node.
struct RuleType {
  void (*run)(Node&, Backward&);
  void (*destroy)(Node&);
  bool saves_nothing;  // it keeps no tensor alive, so a pass need not release the node, and later passes may visit it
  bool withholds;      // it may give an input no gradient although its outputs have some
};

/// Rules that declare `static constexpr bool kSavesNothing = true`.
template <class Rule>
concept SavesNothing = requires {
  Rule::kSavesNothing;
};

/// Rules that declare `static constexpr bool kWithholds = true`.
template <class Rule>
concept Withholds = requires {
  Rule::kWithholds;
};

/// Drops a reference; frees the node, and what hangs on it, without recursion.
void drop_node(Node* node);
/// Destroys rule and edges: saved tensors go, history ends here.
void release_node(Node* node);

// ---- history of tensors ---------------------------------------------------------------------------------------------

/// The gradient and hooks of a leaf (leaf.h), made at the first call.
AccumulateGrad& accumulate_grad_of(TensorImpl* impl);
/// Frees them, and what hangs on them, without recursion.
void free_accumulate_grad(AccumulateGrad* grad);

// Saved tensors and edges refer to tensors, too, and are counted apart from handles. In `h.copy_(h * w)` the new
// history of h leads to the product, which has saved h: a cycle of references. Without a handle to h, its history is of
// use only to what has saved h since; when nothing has, drop_unusable_history ends it, which frees the graph. What was
// saved before is of an older version, which Backward::get refuses.

constexpr uint64_t kGraphRef = uint64_t{1} << 32;
inline void retain_for_graph(TensorImpl* impl) { impl->refs.fetch_add(kGraphRef, std::memory_order_relaxed); }
/// `outdated`: the reference is from before the history was last replaced, if it was.
void release_for_graph(TensorImpl* impl, bool outdated);
/// For a tensor without handles, or whose only handle is about to go, and with this many graph references.
void drop_unusable_history(TensorImpl* impl, uint32_t graph_refs);
/// To be called when an op was recorded as the new history of impl, before the storage is changed.
inline void history_replaced(TensorImpl* impl) {
  impl->history_version = impl->storage->version.load(std::memory_order_relaxed) + 1;
  impl->outdated.store(impl->graph_refs(), std::memory_order_relaxed);
}

/// Records a view's history anew after an in-place change through its base.
void rebuild_view_history(TensorImpl* impl);
inline void update_view_history(TensorImpl* impl) {
  if (impl->base && impl->history_version != impl->base->history_version) rebuild_view_history(impl);
}
/// Does a gradient flow into this tensor?
inline bool needs_grad(const Tensor& tensor) {
  if (!tensor.defined()) return false;
  TensorImpl* impl = TensorImpl::of(tensor);
  update_view_history(impl);
  return impl->node || impl->requires_grad;
}
extern constinit thread_local bool grad_mode;  // grad_enabled(), without a call
/// Will an op on these be recorded?
template <std::same_as<Tensor>... Tensors>
bool recording(const Tensors&... tensors) {
  return (needs_grad(tensors) || ...) && grad_mode;
}
bool recording(std::span<const Tensor> tensors);

/// The sequence number of the next op that this thread records.
uint64_t next_sequence();
/// True if the thread that got `sequence` from next_sequence() has recorded the node, and has done so since.
bool recorded_here_since(const Node& node, uint64_t sequence);

/// The edge to a tensor, with references of its own.
inline Edge edge_to(const Tensor& tensor) {
  if (!needs_grad(tensor)) return {};
  TensorImpl* impl = TensorImpl::of(tensor);
  if (impl->node) {
    ++impl->node->refs;
    return {.node = impl->node, .output = impl->output};
  }
  accumulate_grad_of(impl);
  retain_for_graph(impl);
  return {.leaf = impl};
}
inline void drop_edge(Edge& edge) {
  if (edge.node) drop_node(edge.node);
  if (edge.leaf) release_for_graph(edge.leaf, edge.leaf->node != nullptr);
  edge = {};
}
/// Edges with references of their own.
struct EdgeList {
  std::vector<Edge> edges;
  EdgeList() = default;
  EdgeList(EdgeList&&) = default;
  EdgeList& operator=(EdgeList&&) = delete;
  ~EdgeList() {
    for (Edge& edge : edges) drop_edge(edge);
  }
  void add(const Tensor& tensor) {
    edges.emplace_back();  // which may throw: before there is a reference that would be lost
    edges.back() = edge_to(tensor);
  }
};

// ---- saved tensors --------------------------------------------------------------------------------------------------

/// A tensor that a rule needs. It keeps the storage's version at this time, and Backward::get throws if an in-place
/// change has made another. The op's own output is saved as storage only: holding the tensor, which holds the node,
/// would be a cycle of references. Of a view a copy without its base is saved, since a later history of the base may
/// lead to the op.
class SavedTensor {
 public:
  SavedTensor() = default;
  explicit SavedTensor(const Tensor& input);
  /// Saves the op's own output y, number `index`, which is row-major.
  static SavedTensor output(const Tensor& y, uint32_t index = 0);
  /// Saves an output of any layout, which Backward::get_output is to be given.
  static SavedTensor output_storage(const Tensor& y, uint32_t index);
  SavedTensor(SavedTensor&& other) noexcept { swap(other); }
  SavedTensor& operator=(SavedTensor&& other) noexcept { return swap(other), *this; }
  SavedTensor(const SavedTensor& other);
  ~SavedTensor();
  bool defined() const { return impl_ || storage_; }

 private:
  friend class Backward;
  void swap(SavedTensor& other) {
    std::swap(impl_, other.impl_), std::swap(storage_, other.storage_);
    std::swap(version_, other.version_), std::swap(index_, other.index_);
  }
  TensorImpl* impl_ = nullptr;
  Storage* storage_ = nullptr;
  uint32_t version_ = 0, index_ = 0;
};
/// SavedTensor(tensor) if it is wanted, nothing otherwise.
inline SavedTensor saved_if(bool wanted, const Tensor& tensor) { return wanted ? SavedTensor(tensor) : SavedTensor(); }
/// In the place of a SavedTensor that a rule never reads. Several empty members of one type would need distinct
/// addresses, and so take up room: the tags make them different types.
template <int tag>
struct NotSaved {
  NotSaved(SavedTensor&&) {}
};

// ---- recording ------------------------------------------------------------------------------------------------------

/// A node without its rule and edges: allocated, counted, numbered.
Node* new_node(const char* name, size_t rule_bytes, size_t num_inputs, size_t num_outputs);
/// Ends t's history. A node that retains the gradient of t forgets t, which may be about to die.
void detach_history(TensorImpl* t);
/// The backward pass stores the gradient of t, an output of node, in t's AccumulateGrad.
void retain_output_grad(Node* node, TensorImpl* t);
/// Makes y output number `index` of node.
inline void attach_output(Node* node, uint32_t index, const Tensor& y) {
  TensorImpl* impl = TensorImpl::of(y);
  if (impl->node) detach_history(impl);  // y was computed with history of its own, which this op replaces
  NodeOutput& out = node->outputs()[index];
  out.metadata.shape = impl->view.shape;
  out.metadata.dtype = impl->view.dtype;
  out.metadata.device = impl->device();
  impl->node = node;
  impl->output = static_cast<uint16_t>(index);
  if (impl->in_place < InPlace::kAliasesInput) impl->in_place = InPlace::kRecorded;  // it has a history of its own
  ++node->refs;
  if (impl->retains_grad) retain_output_grad(node, impl);
}

/// Frees a node whose edges could not all be made.
void abandon_node(Node* node, size_t edges_made);

/// A node whose edges, `edge(i)` for each of `count` inputs, come with references of their own. The outputs are to be
/// attached.
template <class Rule, class EdgeOf>
Node* make_node(const char* name, size_t num_outputs, size_t count, EdgeOf edge, Rule&& rule) {
  static_assert(!std::is_reference_v<Rule>);
  static_assert(alignof(Rule) <= alignof(void*));
  constexpr size_t rule_bytes = (sizeof(Rule) + 7) / 8 * 8;
  Node* node = new_node(name, rule_bytes, count, num_outputs);
  new (node->rule()) Rule(std::move(rule));
  static constexpr RuleType type{[](Node& n, Backward& back) { (*static_cast<Rule*>(n.rule()))(back); },
                                 [](Node& n) { static_cast<Rule*>(n.rule())->~Rule(); }, SavesNothing<Rule>,
                                 Withholds<Rule>};
  node->type = &type;
  size_t made = 0;
  try {
    for (; made < count; ++made) new (node->edges() + made) Edge(edge(made));
  } catch (...) {  // a view whose history cannot be recorded anew
    abandon_node(node, made);
    throw;
  }
  return node;
}
/// Records an op with such edges.
template <class Rule, class EdgeOf>
void record_edges(const char* name, std::span<const Tensor* const> outputs, size_t count, EdgeOf edge, Rule rule) {
  Node* node = make_node(name, outputs.size(), count, edge, std::move(rule));
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

}  // namespace reel
