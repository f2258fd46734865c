// This file runs the call of an op in the modes of its thread.
#include "lib/ops/call.h"

#include <algorithm>
#include <array>

#include "lib/autograd/autocast.h"
#include "reel/tensor/detail/batching.h"

namespace reel {

batching::internal::BatchScheduler* batching::internal::scheduler() {
  auto* const current = static_cast<BatchScheduler*>(fiber_waits.scheduler);
  return current && current->has_others() ? current : nullptr;
}

namespace detail {
namespace {

/// NewInputs hold the tensors that take the place of a call's inputs. Up to kFew of them need no memory of the heap.
class NewInputs {
 public:
  explicit NewInputs(size_t count) : count_(count) {
    if (count > kFew) many_.resize(count), pointers_.resize(count);
  }
  Tensor* tensors() { return count_ > kFew ? many_.data() : few_.data(); }
  Inputs inputs() {
    const Tensor** const list = count_ > kFew ? pointers_.data() : few_pointers_.data();
    for (size_t i = 0; i < count_; ++i) list[i] = tensors() + i;
    return {list, count_};
  }

 private:
  static constexpr size_t kFew = 8;
  const size_t count_;
  std::array<Tensor, kFew> few_;
  std::array<const Tensor*, kFew> few_pointers_;
  std::vector<Tensor> many_;
  std::vector<const Tensor*> pointers_;
};

// ---- tracing --------------------------------------------------------------------------------------------------------

TraceAttribute to_trace(const Attribute& attribute) {
  switch (attribute.kind) {
    case Attribute::Kind::kInteger: return {attribute.name, attribute.integer};
    case Attribute::Kind::kReal: return {attribute.name, attribute.real};
    default: return {attribute.name, attribute.list()};
  }
}

void run_traced(const OpInfo& info, Inputs inputs, std::span<const Attribute> attributes, OpCall& call) {
  std::vector<Tensor> list;
  for (const Tensor* x : inputs) list.push_back(*x);
  std::vector<TraceAttribute> written;
  for (const Attribute& attribute : attributes) written.push_back(to_trace(attribute));
  TracedCall traced(info.name, list, std::move(written));
  call.run(inputs);
  traced.finish(call.results());
}

void run_computed(const OpInfo& info, Inputs inputs, std::span<const Attribute> attributes, OpCall& call) {
  if (!is_tracing() || info.trace == Trace::kParts) return call.run(inputs);
  if (info.trace == Trace::kRefused) OpTrace::current()->fail(std::string(info.name) + ": " + info.not_exported);
  run_traced(info, inputs, attributes, call);
}

// ---- half types -----------------------------------------------------------------------------------------------------

/// Returns the half type that all floating-point inputs have, none if there are others. 0-d inputs count only where all
/// are 0-d, since they do not decide the dtype of a result.
std::optional<DType> half_type_of(Inputs inputs) {
  std::optional<DType> half;
  const auto is_0d = [](const Tensor* x) { return !x->defined() || view_of(*x).shape.empty(); };
  const bool all_0d = std::all_of(inputs.begin(), inputs.end(), is_0d);
  for (const Tensor* x : inputs) {
    if (!x->defined() || !is_floating_point(view_of(*x).dtype) || (!all_0d && is_0d(x))) continue;
    const DType dtype = view_of(*x).dtype;
    if (!is_half(dtype) || (half && *half != dtype)) return {};
    half = dtype;
  }
  return half;
}

void run_widened(const OpInfo& info, Inputs inputs, std::span<const Attribute> attributes, OpCall& call) {
  const std::optional<DType> half = info.compute == Compute::kFloat32 ? half_type_of(inputs) : std::nullopt;
  if (!half) return run_computed(info, inputs, attributes, call);
  NewInputs wide(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& x = *inputs[i];
    wide.tensors()[i] = x.defined() && view_of(x).dtype == *half ? x.to(kFloat32) : x;
  }
  run_computed(info, wide.inputs(), attributes, call);
  for (Tensor& y : call.results())
    if (y.defined() && view_of(y).dtype == kFloat32) y = y.to(*half);
}

// ---- autocast -------------------------------------------------------------------------------------------------------

void run_cast(const OpInfo& info, Inputs inputs, std::span<const Attribute> attributes, OpCall& call) {
  if (info.autocast == CastPolicy::kNone) return run_widened(info, inputs, attributes, call);
  const AutocastOff off;  // the ops that this one is made of are not cast again
  if (!off) return run_widened(info, inputs, attributes, call);
  NewInputs cast(inputs.size());
  cast_inputs(info.autocast, off.type(), inputs, cast.tensors());
  run_widened(info, cast.inputs(), attributes, call);
}

// ---- batching -------------------------------------------------------------------------------------------------------

/// A BatchedOp is a call that others may join: those with equal attributes and the same inputs that are no rows.
class BatchedOp final : public batching::internal::Call {
 public:
  BatchedOp(const OpInfo& info, Inputs inputs, std::span<const Attribute> attributes, OpCall& call)
      : Call(Kind::kRows, &info, typeid(BatchedOp), weight_of(info, inputs)),
        info_(info),
        inputs_(inputs),
        attributes_(attributes),
        call_(call) {
    for (size_t i = 0; i < inputs.size(); ++i)
      if (info.has_rows(i)) add(inputs[i]);
  }

  void run(std::span<const Tensor> rows) override {
    std::array<const Tensor*, kMaxEntries> list;
    size_t next = 0;
    for (size_t i = 0; i < inputs_.size(); ++i) list[i] = info_.has_rows(i) ? &rows[next++] : inputs_[i];
    run_cast(info_, Inputs(list).first(inputs_.size()), attributes_, call_);
  }
  std::vector<Tensor> outputs() const override {
    const std::span<const Tensor> all = call_.results();
    return {all.begin(), all.end()};
  }
  void set_result_from_group(const Call&, std::span<std::vector<Tensor>> outputs, size_t at) override {
    const std::span<Tensor> own = call_.results();
    for (size_t i = 0; i < own.size(); ++i) own[i] = std::move(outputs[i][at]);
  }
  bool same_arguments(const Call& other) const override {
    const auto& call = static_cast<const BatchedOp&>(other);
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (!info_.has_rows(i) && !inputs_[i]->is_same(*call.inputs_[i])) return false;
    return std::equal(attributes_.begin(), attributes_.end(), call.attributes_.begin(), call.attributes_.end());
  }
  std::string label() const override {
    return weight ? detail::concat(info_.name, " ", static_cast<const TensorImpl*>(weight)->view.shape) : info_.name;
  }

 private:
  /// Returns the first input that has no rows, nullptr if all have.
  static const TensorImpl* weight_of(const OpInfo& info, Inputs inputs) {
    for (size_t i = 0; i < inputs.size(); ++i)
      if (!info.has_rows(i) && inputs[i]->defined()) return TensorImpl::of(*inputs[i]);
    return nullptr;
  }
  const OpInfo& info_;
  const Inputs inputs_;
  const std::span<const Attribute> attributes_;
  OpCall& call_;
};

/// Returns true for a parameter of at most two dimensions: examples have it in common, and it has no rows of theirs.
bool is_weight(const Tensor& x) {
  return x.defined() && TensorImpl::of(x)->requires_grad && view_of(x).shape.size() <= 2;
}

bool may_be_batched(const OpInfo& info, Inputs inputs, std::span<const Attribute> attributes) {
  const auto dims_of_first = [&] { return inputs[0]->defined() ? view_of(*inputs[0]).shape.size() : 0; };
  if (inputs.size() > batching::internal::Call::kMaxEntries) return false;
  switch (info.batch) {
    case BatchPolicy::kRows: return true;
    case BatchPolicy::kRowsByWeight: return is_weight(*inputs.back()) && dims_of_first() == 2;
    case BatchPolicy::kRowsBeforeRank: return std::cmp_greater(dims_of_first(), attributes[0].list().size());
    case BatchPolicy::kRowsOnGpu: return inputs[0]->defined() && inputs[0]->device() != kCPU;
    default: return false;
  }
}

}  // namespace

void run_in_modes(const OpInfo& info, Inputs inputs, std::span<const Attribute> attributes, OpCall& call) {
  if (batching::internal::BatchScheduler* const scheduler = batching::internal::scheduler()) {
    if (may_be_batched(info, inputs, attributes)) {
      BatchedOp batched(info, inputs, attributes, call);
      if (scheduler->wait(batched)) return;
      const NoSuspendGuard no_suspend;
      return run_cast(info, inputs, attributes, call);
    }
    if (scheduler->reports())
      scheduler->note(info.name,
                      info.batch == BatchPolicy::kNo ? "it is not batched" : "its arguments do not allow it");
  }
  run_cast(info, inputs, attributes, call);
}

}  // namespace detail
}  // namespace reel
