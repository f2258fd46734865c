#include <algorithm>
#include <optional>

#include "lib/autograd/autocast.h"
#include "lib/autograd/backward.h"
#include "lib/autograd/saved_log.h"
#include "lib/autograd/subgraph.h"
#include "reel/autograd.h"
#include "reel/base/detail/no_suspend_guard.h"
#include "reel/random.h"

// Ops of the user's own, and checkpointing.
namespace reel {

namespace {

void set_all(Backward& back, const char* name, std::vector<Tensor> grads, size_t count) {
  REEL_CHECK(grads.size() == count, name, ": its rule returned ", grads.size(), " gradients for ", count, " inputs");
  for (size_t i = 0; i < count; ++i) back.check_device(static_cast<int>(i), grads[i]);
  for (size_t i = 0; i < count; ++i) back.set(static_cast<int>(i), std::move(grads[i]));
}

// A tensor without other handles, so that it can be given a history.
Tensor own(const Tensor& output) {
  const bool owned = is_exclusive(output) && !needs_grad(output) && !TensorImpl::of(output)->base;
  return owned ? output : output.detach();
}

// The first of `others` that shares y's memory, nullptr if none does.
const Tensor* sharing(const Tensor& y, std::span<const Tensor> others) {
  for (const Tensor& other : others)
    if (other.defined() && !other.is_same(y) && TensorImpl::of(other)->storage == TensorImpl::of(y)->storage)
      return &other;
  return nullptr;
}

// y, which an op has just been recorded for, shares memory with a tensor from before the op. In-place changes of y are
// refused: they would change that tensor without its learning of it. So is the use of y after a change of `source`.
void mark_alias(const Tensor& y, const Tensor* source) {
  TensorImpl* impl = TensorImpl::of(y);
  impl->in_place = InPlace::kAliasesInput;
  if (source) set_base(impl, TensorImpl::of(*source));
}

}  // namespace

// ---- the short form -------------------------------------------------------------------------------------------------

Tensor custom_op(const char* name, const Tensor& output, std::vector<Tensor> inputs,
                 std::function<std::vector<Tensor>(const Tensor&)> rule) {
  view_of(output, name);
  REEL_CHECK(rule, name, ": no rule");
  const Tensor y = output.detach();
  if (is_floating_point(y.dtype()) && recording(inputs)) {
    record(name, {&y, 1}, inputs,
           [name, count = inputs.size(), rule = std::move(rule), autocast = op_modes.autocast](Backward& back) {
             const AutocastScope as_forward(autocast);
             set_all(back, name, rule(back.grad()), count);
           });
    SavedTensorLog::add(y);  // what its derivative does there is not known
  }
  if (const Tensor* input = needs_grad(y) ? sharing(y, inputs) : nullptr) mark_alias(y, input);
  return y;
}

// ---- the long form --------------------------------------------------------------------------------------------------

struct detail::FunctionRule {
  const char* name;
  size_t count;
  std::function<std::vector<Tensor>(FunctionContext&, const std::vector<Tensor>&)> backward;
  FunctionContext context;
  struct Kept {
    SavedTensor saved;
    std::optional<View> output;  // where its elements are, if it is an output
  };
  std::vector<Kept> kept;
  DType autocast = op_modes.autocast;

  void operator()(Backward& back) {
    const AutocastScope as_forward(autocast);
    std::vector<Tensor> grads;
    for (uint32_t i = 0; i < back.num_outputs(); ++i) grads.push_back(back.grad_or_zeros(static_cast<int>(i)));
    context.saved_.clear();
    for (const Kept& k : kept)
      context.saved_.push_back(k.output ? back.get_output(k.saved, *k.output) : back.get(k.saved));
    context.needs_.resize(count);
    for (size_t i = 0; i < count; ++i) context.needs_[i] = back.needs(static_cast<int>(i));
    struct Clear {  // holding the op's own output would be a cycle of references
      std::vector<Tensor>& saved;
      ~Clear() { saved.clear(); }
    } clear{context.saved_};
    std::vector<Tensor> result = backward(context, grads);
    set_all(back, name, std::move(result), count);
  }
};

std::vector<Tensor> detail::apply_function(const char* name, std::vector<Tensor> inputs, const FunctionForm& form) {
  const bool recorded = recording(inputs);
  FunctionRule rule{.name = name, .count = inputs.size(), .backward = form.backward, .context = {}, .kept = {}};
  for (const Tensor& input : inputs) rule.context.needs_.push_back(recorded && needs_grad(input));
  std::vector<Tensor> outputs = no_grad([&] {
    const detail::NoSuspendGuard no_suspend;
    return form.forward(rule.context, inputs);
  });
  std::vector<Tensor> to_save = std::move(rule.context.to_save_);
  std::vector<Tensor> results;
  for (const Tensor& output : outputs) {
    view_of(output, name);
    results.push_back(own(output));
  }
  if (!recorded) return results;
  // Outputs without gradients (integers) stay out of the record.
  std::vector<Tensor> differentiable;
  std::vector<int> number(results.size(), -1);
  for (size_t i = 0; i < results.size(); ++i)
    if (is_floating_point(results[i].dtype())) {
      number[i] = static_cast<int>(differentiable.size());
      differentiable.push_back(results[i]);
    }
  if (differentiable.empty()) return results;
  for (const Tensor& tensor : to_save) {
    const auto at = std::find_if(outputs.begin(), outputs.end(), [&](const Tensor& y) { return y.is_same(tensor); });
    const int index = at == outputs.end() ? -1 : number[static_cast<size_t>(at - outputs.begin())];
    if (index < 0)
      rule.kept.push_back({SavedTensor(tensor), {}});
    else
      rule.kept.push_back({SavedTensor::output_storage(tensor, static_cast<uint32_t>(index)), view_of(tensor)});
  }
  record(name, differentiable, inputs, std::move(rule));
  for (const Tensor& y : differentiable) {
    SavedTensorLog::add(y);
    const Tensor* input = sharing(y, inputs);
    if (input || sharing(y, results)) mark_alias(y, input);
  }
  return results;
}

// ---- checkpointing --------------------------------------------------------------------------------------------------

namespace {

// What f returns when it is recorded, each output by a node of the recording (an input or parameter that f passes on
// gets one).
std::vector<Tensor> run_recorded(const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& f,
                                 const std::vector<Tensor>& inputs, uint64_t since, DType autocast) {
  const AutocastScope scope(autocast);  // parameters are cast within, so that the graph ends at themselves
  const detail::NoSuspendGuard no_suspend;
  std::vector<Tensor> outputs = f(inputs);
  for (Tensor& y : outputs) {
    view_of(y, "checkpoint");
    if (!needs_grad(y)) continue;
    const Node* node = TensorImpl::of(y)->node;
    if (!node || !recorded_here_since(*node, since)) y = y.view(y.shape());
  }
  return outputs;
}

struct CheckpointRule {
  std::function<std::vector<Tensor>(const std::vector<Tensor>&)> f;
  std::vector<SavedTensor> inputs;
  std::vector<Edge> ends;  // the node's edges as they were recorded, for comparison only: a checkpoint around this one
                           // redirects the node's own during its pass
  GeneratorState random;
  DType autocast = op_modes.autocast;

  void operator()(Backward& back) {
    std::vector<Tensor> arguments;
    std::vector<Edge> leaving = ends;
    for (const SavedTensor& input : inputs) arguments.push_back(back.get(input, ends, leaving));
    const uint64_t since = next_sequence();
    std::vector<Tensor> outputs = enable_grad([&] {
      struct Restore {
        GeneratorState state = generator_state();
        ~Restore() { set_generator_state(state); }
      } restore;
      set_generator_state(random);
      return run_recorded(f, arguments, since, autocast);
    });
    std::vector<Tensor> differentiable, grads;
    for (const Tensor& y : outputs)
      if (needs_grad(y)) differentiable.push_back(y);
    REEL_CHECK(differentiable.size() == back.num_outputs(), "checkpoint: the second run of the function gave ",
               differentiable.size(), " outputs with gradients, the first ", back.num_outputs());
    for (size_t i = 0; i < differentiable.size(); ++i) {
      REEL_CHECK(differentiable[i].shape() == back.output(static_cast<int>(i)).shape,
                 "checkpoint: the second run of the function gave shape ", differentiable[i].shape(), ", the first ",
                 back.output(static_cast<int>(i)).shape);
      grads.push_back(back.grad(static_cast<int>(i)));
    }
    std::vector<Tensor> found = subgraph_grad(differentiable, std::move(grads), since, leaving, back.create_graph());
    for (size_t i = 0; i < found.size(); ++i) back.set(static_cast<int>(i), std::move(found[i]));
  }
};

}  // namespace

std::vector<Tensor> checkpoint(std::function<std::vector<Tensor>(const std::vector<Tensor>&)> f, TensorList list) {
  const std::vector<Tensor> inputs(list.begin(), list.end());
  if (!grad_enabled()) return f(inputs);
  const GeneratorState random = generator_state();
  std::vector<uint32_t> versions;
  for (const Tensor& input : inputs) {
    needs_grad(input);  // views bring their history up to date now, not inside f
    versions.push_back(input.defined() ? input.version() : 0);
  }
  // Recorded only to see which tensors f depends on: they are where its part of the graph ends.
  const uint64_t since = next_sequence();
  std::vector<Tensor> outputs = run_recorded(f, inputs, since, op_modes.autocast), results, differentiable, bases;
  EdgeList ends = subgraph_edges(outputs, since);
  for (const Tensor& y : outputs) {
    results.push_back(y.detach());
    if (!needs_grad(y)) continue;
    differentiable.push_back(results.back());
    TensorImpl* base = TensorImpl::of(y)->base;
    bases.push_back(base ? TensorImpl::share(base) : Tensor());
  }
  outputs.clear();  // and with them what f's rules have saved
  if (differentiable.empty()) return results;
  for (size_t i = 0; i < inputs.size(); ++i)
    REEL_CHECK(!inputs[i].defined() || inputs[i].version() == versions[i],
               "checkpoint: the function changes its input ", i,
               " in place, and would change it again when the backward pass runs it; let it change a clone()");
  CheckpointRule rule{.f = std::move(f), .inputs = {}, .ends = ends.edges, .random = random};
  for (const Tensor& input : inputs) rule.inputs.emplace_back(input);
  std::vector<const Tensor*> pointers;
  for (const Tensor& y : differentiable) pointers.push_back(&y);
  record_edges(
      "checkpoint", pointers, ends.edges.size(), [&](size_t i) { return std::exchange(ends.edges[i], {}); },
      std::move(rule));
  // Bases that f has made and forgotten go; one of them may keep what another refers to.
  for (bool again = true; std::exchange(again, false);)
    for (Tensor& base : bases)
      if (base.defined() && is_only_reference(base)) base.reset(), again = true;
  for (size_t i = 0; i < differentiable.size(); ++i) {
    if (!TensorImpl::of(differentiable[i])->storage->unique())
      mark_alias(differentiable[i], bases[i].defined() ? &bases[i] : nullptr);
  }
  return results;
}

}  // namespace reel
