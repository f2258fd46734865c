#include "lib/autograd/tape.h"

#include <mutex>

#include "lib/autograd/pending.h"
#include "lib/autograd/trace.h"

namespace reel {
namespace {

// ---- the thread's tape ----------------------------------------------------------------------------------------------

struct Tape;
// Counters outlive their threads: the next thread that starts takes one over.
struct Tapes {
  std::mutex mutex;
  std::vector<Tape*> all, unused;
};
Tapes& tapes() {
  static Tapes* const tapes = new Tapes;
  return *tapes;
}
struct Tape {
  uint64_t next_sequence;
  std::atomic<int64_t> live{0};  // written by its thread alone
  Node* dying = nullptr;         // linked through `walk`
  bool draining = false;

  void count(int64_t n) { live.store(live.load(std::memory_order_relaxed) + n, std::memory_order_relaxed); }
};
constexpr int kThreadShift = 40;

thread_local Tape* my_tape = nullptr;
[[gnu::noinline]] Tape& start_tape() {
  std::lock_guard lock(tapes().mutex);
  if (tapes().unused.empty()) {
    tapes().all.push_back(new Tape{.next_sequence = (tapes().all.size() << kThreadShift) + 1});
    tapes().unused.push_back(tapes().all.back());
  }
  my_tape = tapes().unused.back();
  tapes().unused.pop_back();
  // Nodes may still be dropped after this, by other thread-local objects; then a new tape is started, and kept.
  thread_local struct Return {
    ~Return() {
      std::lock_guard lock(tapes().mutex);
      tapes().unused.push_back(std::exchange(my_tape, nullptr));
    }
  } give_back;
  (void)give_back;
  return *my_tape;
}
Tape& tape() { return my_tape ? *my_tape : start_tape(); }

}  // namespace

constinit thread_local bool grad_mode = true;

bool grad_enabled() { return grad_mode; }
GradMode::GradMode(bool enabled) : before_(std::exchange(grad_mode, enabled)) {}
GradMode::~GradMode() { grad_mode = before_; }

int64_t live_nodes() {
  std::lock_guard lock(tapes().mutex);
  int64_t live = 0;
  for (const Tape* t : tapes().all) live += t->live.load(std::memory_order_relaxed);
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

void leave_node(TensorImpl* t) {
  Node* old = std::exchange(t->node, nullptr);
  if (!old) return;
  if (t->keeps_grad && old->extras) std::erase(old->extras->keepers, t);
  drop_node(old);
}

void keep_grad(Node* node, TensorImpl* t) {
  if (!node->extras) node->extras = new NodeExtras;
  node->extras->keepers.push_back(t);
}

void release_node(Node* node) {
  if (node->released) return;
  node->released = true;
  node->type->destroy(*node);
  Edge* edges = node->edges();
  for (uint32_t i = 0; i < node->num_inputs; ++i) drop_edge(edges[i]);
}

void drop_node(Node* node) {
  if (--node->refs) return;
  Tape& mine = tape();
  node->walk = reinterpret_cast<uint64_t>(std::exchange(mine.dying, node));
  if (mine.draining) return;
  mine.draining = true;
  while (Node* next = mine.dying) {
    mine.dying = reinterpret_cast<Node*>(next->walk);
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
    if (tracked(tensor)) return true;
  return false;
}

// ---- leaves ---------------------------------------------------------------------------------------------------------

namespace {
struct LeafIds {
  std::mutex mutex;
  std::vector<uint32_t> unused;
  uint32_t next = 0;
};
LeafIds& leaf_ids() {
  static LeafIds* const ids = new LeafIds;
  return *ids;
}
std::mutex leaf_grad_mutex;
}  // namespace

LeafGrad::LeafGrad() {
  LeafIds& ids = leaf_ids();
  std::lock_guard lock(ids.mutex);
  if (ids.unused.empty()) {
    id = ids.next++;
  } else {
    id = ids.unused.back();
    ids.unused.pop_back();
  }
}
LeafGrad::~LeafGrad() {
  discard(held);
  std::lock_guard lock(leaf_ids().mutex);
  leaf_ids().unused.push_back(id);
}

LeafGrad& leaf_grad(TensorImpl* impl) {
  if (!impl->leaf) {
    std::lock_guard lock(leaf_grad_mutex);
    if (!impl->leaf) impl->leaf = new LeafGrad;
  }
  return *impl->leaf;
}

// ---- saved tensors --------------------------------------------------------------------------------------------------

Saved::Saved(const Tensor& input) : impl_(TensorImpl::of(input)) {
  if (!impl_) return;
  storage_ = impl_->storage;
  version_ = storage_->version.load();
  impl_->refs.fetch_add(1, std::memory_order_relaxed);
}
Saved Saved::output(const Tensor& y, uint32_t index) {
  Saved saved;
  saved.storage_ = TensorImpl::of(y)->storage;
  saved.storage_->retain();
  saved.version_ = saved.storage_->version.load();
  saved.index_ = index;
  return saved;
}
Saved::Saved(const Saved& other)
    : impl_(other.impl_), storage_(other.storage_), version_(other.version_), index_(other.index_) {
  if (impl_)
    impl_->refs.fetch_add(1, std::memory_order_relaxed);
  else if (storage_)
    storage_->retain();
}
Saved::~Saved() {
  if (impl_)
    TensorImpl::wrap(impl_).reset();
  else if (storage_)
    storage_->drop();
}

void Backward::check_version(const Saved& saved) const {
  const Storage* now = saved.impl_ ? saved.impl_->storage : saved.storage_;
  const uint32_t version = now->version.load(std::memory_order_relaxed);
  REEL_CHECK(now == saved.storage_ && version == saved.version_, node_.name,
             ": a tensor that its gradient needs was changed in place after it was used: ",
             saved.impl_ ? saved.impl_->view.dtype : output(saved.index_).dtype, " ",
             saved.impl_ ? saved.impl_->view.shape : output(saved.index_).shape, " had version ", saved.version_,
             " then and has version ", version, " now; change a clone() instead");
}

const View* Backward::view(const Saved& saved, View& room) const {
  if (!saved.defined()) return nullptr;
  check_version(saved);
  if (saved.impl_) return &saved.impl_->view;
  const GradShape& out = output(saved.index_);
  room = make_view(saved.storage_->data, out.shape, contiguous_strides(out.shape), out.dtype);
  room.host = out.device == kCPU;
  return &room;
}

Tensor Backward::take_room() const {
  const Tensor& g = grad();
  const TensorImpl* impl = TensorImpl::of(g);
  const bool plain = impl->view.contiguous && !impl->number && !impl->requires_grad && !tracked(g) && !impl->base;
  if (plain && is_exclusive(g)) return g;
  return make_tensor(g.shape(), g.dtype(), g.device());
}

Tensor Backward::get(const Saved& saved) const {
  if (!saved.defined()) return {};
  check_version(saved);
  if (saved.impl_) return TensorImpl::share(saved.impl_);
  const GradShape& out = output(saved.index_);
  TensorImpl* impl = TensorImpl::make();
  impl->storage = saved.storage_;
  impl->storage->retain();
  impl->view = make_view(impl->storage->data, out.shape, contiguous_strides(out.shape), out.dtype);
  impl->view.host = out.device == kCPU;
  if (create_graph()) {
    impl->node = &node_;
    impl->output = saved.index_;
    ++node_.refs;
  }
  return TensorImpl::wrap(impl);
}

Tensor Backward::grad_or_zeros(int i) const {
  if (grad(i).defined()) return grad(i);
  const GradShape& out = output(i);
  return zeros(out.shape, {.dtype = out.dtype, .device = out.device});
}

}  // namespace reel
