#include "lib/autograd/backward.h"

#include <numeric>

#include "lib/autograd/engine.h"
#include "lib/autograd/gradient_ops.h"
#include "lib/autograd/trace.h"

namespace reel {

// ---- saved tensors --------------------------------------------------------------------------------------------------

inline void Backward::check_version(const SavedTensor& saved) const {
  const Storage* now = saved.impl_ ? saved.impl_->storage : saved.storage_;
  const uint32_t version = now->version.load(std::memory_order_relaxed);
  REEL_CHECK(now == saved.storage_ && version == saved.version_, node_.name,
             ": a tensor that its gradient needs was changed in place after it was used: ",
             saved.impl_ ? saved.impl_->view.dtype : output(saved.index_).dtype, " ",
             saved.impl_ ? saved.impl_->view.shape : output(saved.index_).shape, " had version ", saved.version_,
             " then and has version ", version, " now; change a clone() instead");
}

const View* Backward::view(const SavedTensor& saved, View& room) const {
  if (!saved.defined()) return nullptr;
  check_version(saved);
  if (saved.impl_) return &saved.impl_->view;
  const GradMetadata& out = output(saved.index_);
  room = make_view(saved.storage_->data, out.shape, contiguous_strides(out.shape), out.dtype);
  room.host = out.device == kCPU;
  return &room;
}

Tensor Backward::get(const SavedTensor& saved) const {
  if (!saved.defined()) return {};
  check_version(saved);
  if (saved.impl_) return linked(TensorImpl::share(saved.impl_));
  View whole;
  return get_output(saved, *view(saved, whole));
}

Tensor Backward::get(const SavedTensor& saved, std::span<const Edge> recorded, std::span<Edge> now) const {
  Tensor x = get(saved);
  const TensorImpl* const from = saved.impl_;
  TensorImpl* const to = TensorImpl::of(x);
  if (!from || from->node == to->node) return x;
  for (size_t i = 0; i < recorded.size(); ++i) {
    if (recorded[i].node != from->node || recorded[i].output != from->output) continue;
    if (now[i] == recorded[i]) {
      now[i] = {.node = to->node, .output = to->output};
    } else {  // another saved tensor has the same history
      detach_history(to);
      to->node = now[i].node, to->output = static_cast<uint16_t>(now[i].output);
      ++to->node->refs;
    }
  }
  return x;
}

Tensor Backward::get_output(const SavedTensor& saved, const View& elements) const {
  check_version(saved);
  TensorImpl* impl = TensorImpl::make();
  impl->storage = saved.storage_;
  impl->storage->retain();
  impl->view = elements;
  if (create_graph()) {
    impl->node = &node_;
    impl->output = static_cast<uint16_t>(saved.index_);
    ++node_.refs;
  }
  return linked(TensorImpl::wrap(impl));
}

namespace {
/// The rule of a tensor that a group has saved and a pass with create_graph reads: it gives the gradients that arrive
/// to the calls that took part in that pass.
struct LinkRule {
  static constexpr bool kSavesNothing = true;
  RowGroup::Ref group;
  std::vector<RowGroup::Results> parts;

  void operator()(Backward& back) const {
    GraphTask& pass = running_pass();
    for (size_t i = 0; i < parts.size(); ++i) group->arrive(pass.id, i, parts[i]);
    pass.meet_group(group);
    back.set(0, back.grad());
  }
};
}  // namespace

Tensor Backward::linked(Tensor saved) const {
  if (task_.kept_groups.empty() || !create_graph()) return saved;
  const TensorImpl* const from = TensorImpl::of(saved);
  const RowGroup::Ref* const group = task_.group_of(node_);
  if (!group || !from->node || !(*group)->holds(*from->node)) return saved;
  TensorImpl* const impl = TensorImpl::make();
  impl->storage = from->storage;
  impl->storage->retain();
  impl->view = from->view;
  impl->is_wrapped_number = from->is_wrapped_number;
  const Tensor y = TensorImpl::wrap(impl);
  const std::span<const RowGroup::Results> parts = (*group)->arrived_in(task_.id);
  record("group_saved", y, inputs(saved), LinkRule{*group, {parts.begin(), parts.end()}});
  return y;
}

bool Backward::retains_graph() const { return task_.retains(node_); }

Tensor Backward::rows_in_pass(int64_t rows) const {
  const RowGroup::Ref* const group = task_.group_of(node_);
  if (!group || (*group)->complete(task_.id)) return {};
  const std::span<const int64_t> counts = (*group)->rows();
  const std::span<const RowGroup::Results> arrived = (*group)->arrived_in(task_.id);
  const int64_t all = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  if (arrived.empty() || all == 0 || rows % all != 0) return {};
  std::vector<int64_t> kept;
  int64_t row = 0;
  for (size_t call = 0; call < counts.size(); ++call)
    for (const int64_t end = row + counts[call] * (rows / all); row < end; ++row)
      if (arrived[call]) kept.push_back(row);
  return tensor(kept, {.device = output(0).device});
}

// ---- gradients of outputs -------------------------------------------------------------------------------------------

Tensor Backward::grad_or_zeros(int i) const {
  if (grad(i).defined()) return grad(i);
  const GradMetadata& out = output(i);
  return zeros(out.shape, {.dtype = out.dtype, .device = out.device});
}

Tensor Backward::take_grad_buffer() const {
  const Tensor& g = grad();
  const TensorImpl* impl = TensorImpl::of(g);
  const bool dense = impl->view.contiguous || is_permuted(impl->view);
  const bool plain = dense && !impl->is_wrapped_number && !impl->requires_grad && !needs_grad(g) && !impl->base;
  if (plain && is_exclusive(g)) return g;
  return make_like(g, g.dtype());
}

// ---- gradients of inputs --------------------------------------------------------------------------------------------

bool Backward::needs(const Edge& edge) const {
  if (task_.all_leaves) return static_cast<bool>(edge);
  if (edge.leaf) return task_.state_of(edge.leaf).target;
  return edge.node && (edge.node->needed || edge.node->target);
}

[[gnu::always_inline]] inline GradAccumulator& Backward::accumulator(const Edge& edge) const {
  return edge.node ? edge.node->outputs()[edge.output].grad : task_.state_of(edge.leaf).grad;
}

namespace {
GradMetadata metadata_of(const Edge& edge) {
  return edge.node ? edge.node->outputs()[edge.output].metadata : metadata_of(edge.leaf);
}
}  // namespace

void Backward::set(int input, Tensor g) {
  const Edge& edge = node_.edges()[input];
  if (!g.defined() || !needs(edge)) return;
  const Shape& shape = edge.node ? edge.node->outputs()[edge.output].metadata.shape : edge.leaf->view.shape;
  const DType dtype = edge.node ? edge.node->outputs()[edge.output].metadata.dtype : edge.leaf->view.dtype;
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
  if (shape.empty()) {  // a 0-d input may be on the CPU, whatever device the other inputs are on
    const Device device = edge.node ? edge.node->outputs()[edge.output].metadata.device : edge.leaf->device();
    if (g.device() != device) g = g.to(device);
  }
  if (anomaly_mode()) check_nan(input, g);
  accumulator(edge).add(std::move(g));
}

void Backward::check_device(int input, const Tensor& g) const {
  const Edge& edge = node_.edges()[input];
  if (!g.defined() || !needs(edge)) return;
  const GradMetadata target = edge.node ? edge.node->outputs()[edge.output].metadata : metadata_of(edge.leaf);
  REEL_CHECK(target.shape.empty() || g.device() == target.device, node_.name, ": its rule returned a gradient on ",
             g.device(), " for input ", input, " on ", target.device);
}

Tensor Backward::set_product(int input, const Tensor& g, const Tensor& x, bool column_sums) {
  const Edge& edge = node_.edges()[input];
  if (!needs(edge)) return {};
  const GradMetadata target = metadata_of(edge);
  const Tensor gd = g.contiguous(), xd = x.contiguous();
  if (anomaly_mode()) {  // the product is multiplied alone for the check
    GradAccumulator alone;
    alone.add_product(target, gd, xd);
    check_nan(input, alone.materialize(target));
  }
  return accumulator(edge).add_product(target, gd, xd, column_sums);
}

void Backward::set_rows(int input, const Tensor& ids, Tensor values, bool sparse) {
  const Edge& edge = node_.edges()[input];
  if (!needs(edge)) return;
  if (anomaly_mode()) check_nan(input, values);
  const GradMetadata target = metadata_of(edge);
  if (values.dtype() != target.dtype) values = values.to(target.dtype);
  accumulator(edge).add_rows(target, ids, std::move(values), sparse);
}

void Backward::set_region(int input, int64_t offset, const Strides& strides, const Tensor& g) {
  const Edge& edge = node_.edges()[input];
  if (!needs(edge)) return;
  if (anomaly_mode()) check_nan(input, g);
  accumulator(edge).add_region(metadata_of(edge), offset, strides, g);
}

// ---- anomaly mode ---------------------------------------------------------------------------------------------------

namespace {
bool has_nan(const Tensor& tensor) {
  if (!is_floating_point(tensor.dtype())) return false;
  const Tensor values = tensor.detach().to(kCPU).to(kFloat64).contiguous();
  const double* data = values.data<double>();
  for (int64_t i = 0; i < values.numel(); ++i)
    if (data[i] != data[i]) return true;
  return false;
}
}  // namespace

void Backward::check_nan(int input, const Tensor& g) const {
  if (has_nan(g))
    detail::fail("backward: NaN in the gradient of input ", input, " of '", node_.name, "', recorded",
                 node_.extras && !node_.extras->trace.empty() ? "\n" + node_.extras->trace : " outside anomaly mode");
}

}  // namespace reel
