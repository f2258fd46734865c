#include "lib/autograd/tape.h"

#include <mutex>

#include "lib/autograd/saved_log.h"
#include "lib/autograd/trace.h"
#include "lib/base/fork_lock.h"
#include "lib/base/per_thread.h"

namespace reel {
namespace {

// ---- the thread's tape ----------------------------------------------------------------------------------------------

// Tapes outlive their threads, since nodes may be dropped by other threads later and live_nodes() counts them; a new
// thread takes over an unused one.
struct Tape : ThreadEnd {
  explicit Tape(uint64_t first_sequence) : next_sequence(first_sequence) {}
  uint64_t next_sequence;
  std::atomic<int64_t> live{0};  // written by its thread alone
  Node* dying = nullptr;         // nodes whose last reference is gone, linked through `pass`
  bool draining = false;         // drop_node is freeing these
  Tape *next_tape = nullptr, *next_unused = nullptr;

  void count(int64_t n) { live.store(live.load(std::memory_order_relaxed) + n, std::memory_order_relaxed); }
};
constexpr int kThreadShift = 40;  // of the tape's number in a sequence number

// Never freed: nodes may outlive their thread.
struct Tapes {
  std::mutex mutex;
  uint64_t size = 0;
  Tape *all = nullptr, *unused = nullptr;
};
constinit Tapes tapes;
ForkLock tapes_lock(ForkLock::Order::kMemory, tapes.mutex);

Tape* new_tape() { return new Tape((tapes.size++ << kThreadShift) + 1); }

constinit thread_local Tape* my_tape = nullptr;
[[gnu::noinline]] Tape& start_tape() {
  std::lock_guard lock(tapes.mutex);
  if (tapes.unused) {
    my_tape = std::exchange(tapes.unused, tapes.unused->next_unused);
  } else {
    my_tape = new_tape();
    my_tape->next_tape = std::exchange(tapes.all, my_tape);
  }
  my_tape->call = [](ThreadEnd*) {
    std::lock_guard lock(tapes.mutex);
    my_tape->next_unused = std::exchange(tapes.unused, my_tape);
    my_tape = nullptr;
  };
  at_thread_end(*my_tape);
  return *my_tape;
}
Tape& tape() { return my_tape ? *my_tape : start_tape(); }

}  // namespace

constinit thread_local bool grad_mode = true;

bool grad_enabled() { return grad_mode; }
GradMode::GradMode(bool enabled) : before_(std::exchange(grad_mode, enabled)) {}
GradMode::~GradMode() { grad_mode = before_; }

int64_t live_nodes() {
  std::lock_guard lock(tapes.mutex);
  int64_t live = 0;
  for (const Tape* t = tapes.all; t; t = t->next_tape) live += t->live.load(std::memory_order_relaxed);
  return live;
}

uint64_t next_sequence() { return tape().next_sequence; }
bool recorded_here_since(const Node& node, uint64_t sequence) {
  return node.sequence >> kThreadShift == sequence >> kThreadShift && node.sequence >= sequence;
}

// ---- nodes ----------------------------------------------------------------------------------------------------------

Node* new_node(const char* name, size_t rule_bytes, size_t num_inputs, size_t num_outputs) {
  const size_t bytes = sizeof(Node) + rule_bytes + num_outputs * sizeof(NodeOutput) + num_inputs * sizeof(Edge);
  REEL_CHECK(rule_bytes < (1 << 16) && num_outputs < (1 << 16) && bytes < (1ull << 32), name,
             ": too many inputs or outputs");
  Tape& mine = tape();
  Node* node = new (allocate_cpu(bytes)) Node;
  node->name = name;
  node->sequence = mine.next_sequence++;
  node->bytes = static_cast<uint32_t>(bytes);
  node->rule_bytes = static_cast<uint16_t>(rule_bytes);
  node->num_inputs = static_cast<uint32_t>(num_inputs);
  node->num_outputs = static_cast<uint16_t>(num_outputs);
  for (size_t i = 0; i < num_outputs; ++i) new (node->outputs() + i) NodeOutput;
  mine.count(1);
  if (anomaly_mode()) (node->extras = new NodeExtras)->trace = describe_stack(stack_frames());
  if (watching) [[unlikely]]
    watch(node);
  return node;
}

void detach_history(TensorImpl* t) {
  Node* old = std::exchange(t->node, nullptr);
  if (!old) return;
  if (t->retains_grad && old->extras) std::erase(old->extras->retaining, t);
  drop_node(old);
}

void retain_output_grad(Node* node, TensorImpl* t) {
  if (!node->extras) node->extras = new NodeExtras;
  node->extras->retaining.push_back(t);
}

void drop_unusable_history(TensorImpl* impl, uint32_t graph_refs) {
  const uint32_t outdated = impl->outdated.load(std::memory_order_relaxed);
  if (outdated && outdated == graph_refs) detach_history(impl);
}

namespace {

// One graph reference less, for a tensor whose history was replaced while there were some.
[[gnu::noinline]] void count_out(TensorImpl* impl, bool outdated) {
  if (outdated) impl->outdated.fetch_sub(1, std::memory_order_relaxed);
  const bool has_handles = static_cast<uint32_t>(impl->refs.load(std::memory_order_relaxed)) != 0;
  if (!has_handles) drop_unusable_history(impl, impl->graph_refs() - 1);
}

template <class Outdated>
void release_reference(TensorImpl* impl, Outdated outdated) {
  if (impl->refs.load(std::memory_order_acquire) == kGraphRef) return detail::destroy(impl);  // it is the only one
  if (impl->outdated.load(std::memory_order_relaxed)) [[unlikely]]
    count_out(impl, outdated());
  if (impl->refs.fetch_sub(kGraphRef, std::memory_order_acq_rel) == kGraphRef) detail::destroy(impl);
}

}  // namespace

void release_for_graph(TensorImpl* impl, bool outdated) {
  release_reference(impl, [=] { return outdated; });
}

void abandon_node(Node* node, size_t edges_made) {
  for (size_t i = edges_made; i < node->num_inputs; ++i) new (node->edges() + i) Edge;
  node->refs = 1;
  drop_node(node);
}

void release_node(Node* node) {
  if (node->released) return;
  node->released = true;
  node->type->destroy(*node);
  Edge* edges = node->edges();
  for (uint32_t i = 0; i < node->num_inputs; ++i) drop_edge(edges[i]);
}

// Freeing a node may drop the last reference to the nodes before it. They are put on the list, and freed by the call
// that is first: a recursion would overflow the stack on a long graph.
void drop_node(Node* node) {
  if (--node->refs) return;
  Tape& mine = tape();
  node->pass = reinterpret_cast<uint64_t>(std::exchange(mine.dying, node));
  if (mine.draining) return;
  mine.draining = true;
  while (Node* next = mine.dying) {
    mine.dying = reinterpret_cast<Node*>(next->pass);  // NOLINT(performance-no-int-to-ptr): no pass uses a dead node
    release_node(next);
    for (uint32_t i = 0; i < next->num_outputs; ++i) next->outputs()[i].~NodeOutput();
    delete next->extras;
    if (next->watched) unwatch(next);
    release_cpu(next, next->bytes);
    mine.count(-1);
  }
  mine.draining = false;
}

bool recording(std::span<const Tensor> tensors) {
  if (!grad_enabled()) return false;
  for (const Tensor& tensor : tensors)
    if (needs_grad(tensor)) return true;
  return false;
}

// ---- saved tensors --------------------------------------------------------------------------------------------------

namespace {

// A view without its base; a leaf, whose gradients arrive at the tensor itself, as it is.
[[gnu::noinline]] TensorImpl* retain_view(TensorImpl* view) {
  update_view_history(view);
  if (view->requires_grad && !view->node) return retain_for_graph(view), view;
  TensorImpl* copy = TensorImpl::make();
  copy->refs.store(kGraphRef, std::memory_order_relaxed);
  copy->in_place = InPlace::kSaved;
  copy->is_wrapped_number = view->is_wrapped_number;
  copy->storage = view->storage;
  copy->storage->retain();
  copy->view = view->view;
  if (view->node) {
    copy->node = view->node;
    copy->output = view->output;
    ++copy->node->refs;
  }
  return copy;
}

}  // namespace

constinit thread_local std::vector<Tensor>* SavedTensorLog::current = nullptr;
void SavedTensorLog::append(const Tensor& y) { current->push_back(y); }

SavedTensor::SavedTensor(const Tensor& input) : impl_(TensorImpl::of(input)) {
  if (!impl_) return;
  SavedTensorLog::add(input);
  const TensorImpl* base = impl_->base;
  if (base && (base->node || !base->requires_grad))  // of a parameter the history is never replaced
    impl_ = retain_view(impl_);
  else
    retain_for_graph(impl_);
  storage_ = impl_->storage;
  version_ = storage_->version.load();
}
SavedTensor SavedTensor::output(const Tensor& y, uint32_t index) {
  REEL_CHECK(view_of(y).contiguous, "a rule saves an output that is not row-major");
  return output_storage(y, index);
}
SavedTensor SavedTensor::output_storage(const Tensor& y, uint32_t index) {
  SavedTensorLog::add(y);
  SavedTensor saved;
  saved.storage_ = TensorImpl::of(y)->storage;
  saved.storage_->retain();
  saved.version_ = saved.storage_->version.load();
  saved.index_ = index;
  return saved;
}
SavedTensor::SavedTensor(const SavedTensor& other)
    : impl_(other.impl_), storage_(other.storage_), version_(other.version_), index_(other.index_) {
  if (impl_)
    retain_for_graph(impl_);
  else if (storage_)
    storage_->retain();
}
SavedTensor::~SavedTensor() {
  if (impl_)
    release_reference(impl_, [this] {
      return impl_->storage != storage_ || static_cast<int32_t>(version_ - impl_->history_version) < 0;
    });
  else if (storage_)
    storage_->drop();
}

}  // namespace reel
