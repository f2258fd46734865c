#include <atomic>

#include "lib/autograd/engine.h"
#include "lib/device/device.h"
#include "reel/autograd.h"

// What users call: backward(), grad(), and Tensor's members for gradients, history and hooks.
namespace reel {

// ---- gradients of outputs -------------------------------------------------------------------------------------------

namespace {

// The gradient to start from: the one given, or 1.
Tensor seed_of(const Tensor& output, const Tensor& given, const char* op) {
  REEL_CHECK(output.defined(), op, ": undefined tensor");
  REEL_CHECK(needs_grad(output), op, ": the tensor, ", output.dtype(), " ", output.shape(),
             ", neither requires grad nor depends on a tensor that does");
  if (given.defined()) return given_gradient(given, metadata_of(TensorImpl::of(output)), op, "a gradient");
  REEL_CHECK(output.numel() == 1, op, ": a gradient must be given for a tensor of more than one element, shape ",
             output.shape());
  return ones(output.shape(), {.dtype = output.dtype(), .device = output.device()});
}

// Orders the pass after the stream that made `output`, since the forward pass may have run on another stream.
void follow_forward(const Tensor& output) {
  const Storage& storage = *TensorImpl::of(output)->storage;
  if (storage.device == kCPU || !storage.block || capturing()) return;
  runtime(storage.device).follow_block(storage.block, storage.device.index);
}

std::vector<Tensor> start(std::span<const Tensor> outputs, std::span<const Tensor> grad_outputs,
                          std::span<const Edge> targets, GradOptions options, const char* op) {
  REEL_CHECK(grad_outputs.empty() || grad_outputs.size() == outputs.size(), op, ": ", outputs.size(), " outputs but ",
             grad_outputs.size(), " gradients");
  EdgeList roots;
  std::vector<Tensor> seeds;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].defined()) follow_forward(outputs[i]);
    seeds.push_back(seed_of(outputs[i], grad_outputs.empty() ? Tensor() : grad_outputs[i], op));
    roots.add(outputs[i]);
  }
  return run_backward(roots.edges, std::move(seeds), targets, options.retain_graph, options.create_graph);
}

}  // namespace

void backward(TensorList outputs, TensorList grad_outputs, GradOptions options) {
  start(outputs, grad_outputs, {}, options, "backward");
}

void Tensor::backward(const Tensor& grad, GradOptions options) const {
  reel::backward({this, 1}, {&grad, grad.defined() ? size_t{1} : 0}, options);
}

std::vector<Tensor> grad(TensorList outputs, TensorList inputs, TensorList grad_outputs, GradOptions options) {
  REEL_CHECK(!inputs.empty(), "grad: no inputs");
  EdgeList targets;
  for (size_t i = 0; i < inputs.size(); ++i) {
    REEL_CHECK(needs_grad(inputs[i]), "grad: input ", i, " does not require grad");
    targets.add(inputs[i]);
  }
  std::vector<Tensor> found = start(outputs, grad_outputs, targets.edges, options, "grad");
  for (size_t i = 0; i < inputs.size(); ++i)
    REEL_CHECK(found[i].defined() || options.allow_unused, "grad: no output depends on input ", i, ", shape ",
               inputs[i].shape(), "; allow_unused = true gives an undefined gradient for it");
  return found;
}

// ---- members of Tensor ----------------------------------------------------------------------------------------------

bool Tensor::requires_grad() const { return view_of(*this, "requires_grad"), needs_grad(*this); }

bool Tensor::is_leaf() const {
  view_of(*this, "is_leaf");
  update_view_history(TensorImpl::of(*this));
  return !TensorImpl::of(*this)->node;
}

Tensor& Tensor::requires_grad_(bool value) {
  const View& view = view_of(*this, "requires_grad_");
  REEL_CHECK(is_leaf(), "requires_grad_: only leaves can be changed; detach() gives one");
  REEL_CHECK(!value || reel::is_floating_point(view.dtype), "requires_grad_: a tensor of ", view.dtype,
             " has no gradient, only floating point ones do");
  TensorImpl* impl = TensorImpl::of(*this);
  if (value) {
    accumulate_grad_of(impl);
    if (impl->base) leave_base(impl);
  }
  impl->requires_grad = value;
  return *this;
}

Tensor Tensor::grad() const {
  view_of(*this, "grad");
  TensorImpl* impl = TensorImpl::of(*this);
  return impl->leaf ? impl->leaf->dense(impl) : Tensor();
}

const SparseGrad* Tensor::sparse_grad() const {
  view_of(*this, "sparse_grad");
  TensorImpl* impl = TensorImpl::of(*this);
  return impl->leaf ? impl->leaf->sparse(impl) : nullptr;
}

void Tensor::set_grad(const Tensor& grad) {
  const View& view = view_of(*this, "set_grad");
  REEL_CHECK(!grad.defined() || (grad.shape() == view.shape && grad.dtype() == view.dtype), "set_grad: a ",
             grad.dtype(), " gradient of shape ", grad.shape(), " for a tensor of ", view.dtype, " of shape ",
             view.shape);
  REEL_CHECK(!grad.defined() || grad.device() == device(), "set_grad: a gradient on ", grad.device(),
             " for a tensor on ", device());
  REEL_CHECK(!grad.defined() || !grad.is_same(*this),
             "set_grad: the tensor itself as its gradient; set a clone() of it");
  TensorImpl* impl = TensorImpl::of(*this);
  if (grad.defined() || impl->leaf) accumulate_grad_of(impl).replace(impl, grad);
}

namespace {
NodeExtras& extras_of(Node* node) {
  if (!node->extras) node->extras = new NodeExtras;
  return *node->extras;
}
std::atomic<int64_t> hook_ids{0};
template <class Hook, class... Parts>
std::shared_ptr<const Hook> shared_hook(Parts&&... parts) {
  return std::make_shared<const Hook>(Hook{std::forward<Parts>(parts)...});
}
}  // namespace

Tensor& Tensor::retain_grad() {
  REEL_CHECK(requires_grad(), "retain_grad: the tensor does not require grad");
  TensorImpl* impl = TensorImpl::of(*this);
  if (impl->node && !impl->retains_grad) {
    accumulate_grad_of(impl);
    retain_output_grad(impl->node, impl);
    impl->retains_grad = true;
  }
  return *this;
}

int64_t Tensor::register_hook(GradHook hook) {
  REEL_CHECK(requires_grad(), "register_hook: the tensor does not require grad");
  TensorImpl* impl = TensorImpl::of(*this);
  const int64_t id = ++hook_ids;
  if (impl->node)
    extras_of(impl->node).hooks.push_back(shared_hook<NodeExtras::Hook>(id, impl->output, std::move(hook)));
  else
    accumulate_grad_of(impl).hooks.push_back(shared_hook<AccumulateGrad::Hook>(id, std::move(hook), nullptr));
  return id;
}

int64_t Tensor::register_post_accumulate_grad_hook(std::function<void(const Tensor&)> hook) {
  REEL_CHECK(requires_grad() && is_leaf(), "register_post_accumulate_grad_hook: not a leaf that requires grad");
  const int64_t id = ++hook_ids;
  accumulate_grad_of(TensorImpl::of(*this))
      .hooks.push_back(shared_hook<AccumulateGrad::Hook>(id, nullptr, std::move(hook)));
  return id;
}

void Tensor::remove_hook(int64_t id) {
  view_of(*this, "remove_hook");
  TensorImpl* impl = TensorImpl::of(*this);
  const auto matches = [id](const auto& hook) { return hook->id == id; };
  size_t removed = 0;
  if (impl->leaf) removed += std::erase_if(impl->leaf->hooks, matches);
  if (impl->node && impl->node->extras) removed += std::erase_if(impl->node->extras->hooks, matches);
  REEL_CHECK(removed, "remove_hook: the tensor has no hook ", id);
}

}  // namespace reel
