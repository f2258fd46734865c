#include "lib/nn/hooks.h"

#include <algorithm>
#include <atomic>

#include "lib/base/op_modes.h"
#include "reel/autograd.h"

namespace reel::nn {

// ---- registration ---------------------------------------------------------------------------------------------------

namespace internal {

void ModuleParts::check_layer(const char* op, const Module& module) {
  REEL_CHECK(module.is_layer(), op, ": ", module.label(),
             " is not an nn::Layer, so no call would run it; write `struct ", module.name(), " : nn::Layer<",
             module.name(), ">` and call the module, net(x) instead of net.forward(x)");
}

Hooks& ModuleParts::make_hooks(Module& module) {
  if (!module.hooks_) module.hooks_ = std::make_shared<Hooks>(), module.hooks_->module = &module;
  return *module.hooks_;
}

void ModuleParts::drop_empty_hooks(Module& module) {
  const Hooks& hooks = *module.hooks_;
  if (hooks.before.empty() && hooks.after.empty() && hooks.backward.empty() && hooks.computed.empty())
    module.hooks_.reset();
}

}  // namespace internal

using internal::ModuleParts;

namespace {
std::atomic<int64_t> last_id{0};  // shared by all kinds of hooks: remove_hook has the number alone

template <class Hook>
int64_t add_hook(const char* op, Module& module, internal::Hooks::List<Hook> internal::Hooks::*list, Hook hook) {
  REEL_CHECK(hook, op, ": the hook is empty");
  ModuleParts::check_layer(op, module);
  auto& hooks = ModuleParts::make_hooks(module).*list;
  hooks.emplace_back(++last_id, std::make_shared<const Hook>(std::move(hook)));
  return hooks.back().first;
}
}  // namespace

int64_t Module::register_forward_pre_hook(ForwardPreHook hook) {
  return add_hook("register_forward_pre_hook", *this, &internal::Hooks::before, std::move(hook));
}
int64_t Module::register_forward_hook(ForwardHook hook) {
  return add_hook("register_forward_hook", *this, &internal::Hooks::after, std::move(hook));
}
int64_t Module::register_full_backward_hook(FullBackwardHook hook) {
  return add_hook("register_full_backward_hook", *this, &internal::Hooks::backward, std::move(hook));
}

void Module::remove_hook(int64_t id) {
  if (!hooks_) return;
  const auto remove = [&](auto& list) { std::erase_if(list, [&](const auto& hook) { return hook.first == id; }); };
  remove(hooks_->before), remove(hooks_->after), remove(hooks_->backward);
  ModuleParts::drop_empty_hooks(*this);
}

namespace internal {

// ---- backward hooks -------------------------------------------------------------------------------------------------

// Two identity ops, before and behind a module: the one behind gets the outputs' gradients, then
// the one before of the inputs', and calls the hooks.
struct HookedCall::Backward {
  std::shared_ptr<Hooks> hooks;
  size_t num_inputs = 0;
  bool has_inputs = false;
  std::vector<Tensor> grad_outputs;

  void run(std::vector<Tensor>& grad_inputs) {
    const std::vector<Tensor> arrived = std::exchange(grad_outputs, {});
    if (arrived.empty()) return;  // gradients that did not come through the outputs, such as those of a second backward
    for (const auto& [id, hook] : std::vector(hooks->backward)) {
      if (!hooks->module) return;
      (*hook)(*hooks->module, grad_inputs, arrived);
      REEL_CHECK(grad_inputs.size() == num_inputs, "backward hook: of ", num_inputs, " gradients it left ",
                 grad_inputs.size());
    }
  }
};

namespace {

std::vector<size_t> positions_with_grad(const std::vector<Tensor>& tensors) {
  std::vector<size_t> result;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].defined() && tensors[i].requires_grad()) result.push_back(i);
  return result;
}

// Replaces the tensors at these positions by aliases; their gradients go through f, which sees those of all positions.
void watch(const char* name, std::vector<Tensor>& tensors, const std::vector<size_t>& at,
           std::function<void(std::vector<Tensor>& grads)> f) {
  std::vector<Tensor> watched;
  for (size_t i : at) watched.push_back(tensors[i]);
  const auto backward = [f = std::move(f), at, count = tensors.size()](FunctionContext&,
                                                                       const std::vector<Tensor>& arrived) {
    std::vector<Tensor> grads(count), result;
    for (size_t i = 0; i < at.size(); ++i) grads[at[i]] = arrived[i];
    f(grads);
    for (size_t i : at) result.push_back(grads[i]);
    return result;
  };
  const auto pass_on = [](FunctionContext&, const std::vector<Tensor>& inputs) { return inputs; };
  watched = reel::detail::apply_function(name, std::move(watched), {pass_on, backward});
  for (size_t i = 0; i < at.size(); ++i) tensors[at[i]] = watched[i];
}

}  // namespace

// ---- a call ---------------------------------------------------------------------------------------------------------

HookedCall::HookedCall(const Module& module, std::vector<Tensor> inputs)
    : module_(module), hooks_(module.hooks_), inputs_(std::move(inputs)) {
  if (in_joined_call) throw NotJoinable();
  const size_t count = inputs_.size();
  for (const auto& [id, hook] : std::vector(hooks_->before)) {
    (*hook)(*hooks_->module, inputs_);
    REEL_CHECK(inputs_.size() == count, "forward pre-hook: of ", count, " inputs it left ", inputs_.size());
  }
  if (!hooks_->backward.empty() && grad_enabled()) {
    const std::vector<size_t> at = positions_with_grad(inputs_);
    backward_ = std::make_shared<Backward>();
    backward_->hooks = hooks_;
    backward_->num_inputs = count;
    backward_->has_inputs = !at.empty();
    if (!at.empty())
      watch("module_inputs", inputs_, at, [state = backward_](std::vector<Tensor>& grads) { state->run(grads); });
  }
  if (!hooks_->computed.empty()) no_suspend_ = std::make_shared<reel::detail::NoSuspendGuard>();
  for (const Computed& computed : hooks_->computed) shown_.push_back(computed.value());
  for (size_t i = 0; i < shown_.size(); ++i) std::swap(hooks_->computed[i].handle(), shown_[i]);
  ++hooks_->depth;
}

// A member shows what it showed to the call around this one; behind the outermost, the values without their history,
// which would keep the graph alive.
HookedCall::~HookedCall() {
  --hooks_->depth;
  for (size_t i = 0; i < std::min(shown_.size(), hooks_->computed.size()); ++i) {
    Tensor& member = hooks_->computed[i].handle();
    member = hooks_->depth ? shown_[i] : member.detach();
  }
}

void HookedCall::rethrow() const { module_.rethrow_with_path(); }

std::vector<Tensor> HookedCall::finish(std::vector<Tensor> outputs) {
  const size_t count = outputs.size();
  for (const auto& [id, hook] : std::vector(hooks_->after)) {
    (*hook)(*hooks_->module, inputs_, outputs);
    REEL_CHECK(outputs.size() == count, "forward hook: of ", count, " outputs it left ", outputs.size());
  }
  if (!backward_) return outputs;
  REEL_CHECK(count, "full backward hook: forward of ", module_.name(),
             " gives no Tensors that hooks find, so their gradients cannot be seen");
  const std::vector<size_t> at = positions_with_grad(outputs);
  if (at.empty()) return outputs;
  watch("module_outputs", outputs, at, [state = backward_](std::vector<Tensor>& grads) {
    state->grad_outputs = grads;
    if (state->has_inputs) return;
    std::vector<Tensor> none(state->num_inputs);
    state->run(none);
  });
  return outputs;
}

void HookedCall::finish_in_place(const std::vector<Tensor>& outputs) {
  const std::vector<Tensor> after = finish(outputs);
  for (size_t i = 0; i < outputs.size(); ++i)
    REEL_CHECK(after[i].is_same(outputs[i]), "hook: forward of ", module_.name(),
               " returns a reference, so hooks (full backward hooks do) cannot replace what it gives");
}

}  // namespace internal
}  // namespace reel::nn
