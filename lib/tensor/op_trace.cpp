#include "lib/tensor/op_trace.h"

#include <algorithm>

#include "lib/tensor/profile.h"
#include "lib/tensor/tensor_impl.h"

namespace reel {
namespace {

thread_local OpTrace* current_trace = nullptr;

/// Nothing is written down while it lives.
class Suspended {
 public:
  Suspended() : before_(is_tracing()) { op_modes.set(OpModes::kTracing, false); }
  ~Suspended() { op_modes.set(OpModes::kTracing, before_); }
  Suspended(const Suspended&) = delete;
  Suspended& operator=(const Suspended&) = delete;

 private:
  const bool before_;
};

uint32_t version_of(const TensorImpl* impl) { return impl->storage->version.load(std::memory_order_relaxed); }

/// Do both show the same elements in the same order?
bool same_elements(const View& a, const View& b) {
  return a.data == b.data && a.dtype == b.dtype && a.shape == b.shape && a.strides == b.strides;
}

}  // namespace

OpTrace::OpTrace(const char* caller, std::span<const Tensor> inputs) : caller_(caller) {
  REEL_CHECK(!current_trace, caller, ": called while another trace of this thread goes on");
  for (const Tensor& input : inputs) inputs_.push_back(add(input, true, -1, false));
  profile::use_stand_ins();
  current_trace = this;
  op_modes.set(OpModes::kTracing, true);
}
OpTrace::~OpTrace() {
  op_modes.set(OpModes::kTracing, false);
  current_trace = nullptr;
  profile::release_stand_ins();
}
OpTrace* OpTrace::current() { return current_trace; }
void OpTrace::fail(const std::string& message) const { detail::fail(caller_, ": ", message); }

int OpTrace::add(const Tensor& tensor, bool derived, int op, bool is_view) {
  const TensorImpl* const impl = TensorImpl::of(tensor);
  const int value = static_cast<int>(values_.size());
  values_.push_back({tensor, version_of(impl), derived, op});
  auto [known, added] = known_.insert_or_assign(impl, Known{value, version_of(impl), is_view});
  if (added) sharing_[impl->storage].push_back(impl);
  return value;
}

/// -1 if it is none that is known, or has been changed since.
int OpTrace::find(const Tensor& tensor) const {
  const TensorImpl* const impl = TensorImpl::of(tensor);
  const auto current = [&](const Known& known) { return known.version == version_of(impl); };
  if (const auto known = known_.find(impl); known != known_.end() && current(known->second)) return known->second.value;
  const auto sharing = sharing_.find(impl->storage);
  if (sharing == sharing_.end()) return -1;
  for (const TensorImpl* other : sharing->second)
    if (const auto known = known_.find(other);
        known != known_.end() && current(known->second) && same_elements(other->view, impl->view))
      return known->second.value;
  return -1;
}

bool OpTrace::shares_derived_memory(const Tensor& tensor) const {
  const auto sharing = sharing_.find(TensorImpl::of(tensor)->storage);
  return sharing != sharing_.end() && std::any_of(sharing->second.begin(), sharing->second.end(), [&](const auto* t) {
           const auto known = known_.find(t);
           return known != known_.end() && values_[static_cast<size_t>(known->second.value)].derived;
         });
}

int OpTrace::value_of(const char* op, const Tensor& tensor) {
  if (!tensor.defined()) return -1;
  if (const int value = find(tensor); value >= 0) return value;
  if (shares_derived_memory(tensor))
    fail(std::string(op) +
         ": reads a view of memory that was changed through another tensor, or a view that no op "
         "has made; change a clone() of it");
  return add(tensor, false, -1, false);
}

void OpTrace::forget(const Storage* storage) {
  const auto sharing = sharing_.find(storage);
  if (sharing == sharing_.end()) return;
  for (const TensorImpl* impl : sharing->second)
    if (const auto known = known_.find(impl); known != known_.end()) {
      keep_elements(known->second.value);
      known_.erase(known);
    }
  sharing_.erase(sharing);
}

void OpTrace::keep_elements(int number) {
  Value& value = values_[static_cast<size_t>(number)];
  kept_.push_back(value.tensor);
  const Suspended suspended;
  value.tensor = value.tensor.clone();
  value.version = version_of(TensorImpl::of(value.tensor));
}

void OpTrace::check_written(const char* op, const Tensor& tensor) {
  const auto known = known_.find(TensorImpl::of(tensor));
  if (known == known_.end() ? shares_derived_memory(tensor) : known->second.is_view)
    fail(std::string(op) +
         ": writes into a view of another tensor, which cannot be exported; write into a clone() of "
         "it, or use an op that returns its result");
  if (known != known_.end()) keep_elements(known->second.value);  // ops before this one have read them
}

// ---- ops ------------------------------------------------------------------------------------------------------------

TracedCall::TracedCall(const char* op, std::span<const Tensor> inputs, std::vector<TraceAttribute> attributes)
    : trace_(*current_trace), inputs_(inputs.begin(), inputs.end()) {
  op_.name = op;
  op_.attributes = std::move(attributes);
  for (const Tensor& input : inputs) {
    const int value = trace_.value_of(op, input);
    op_.inputs.push_back(value);
    if (value >= 0) derived_ = derived_ || trace_.values_[static_cast<size_t>(value)].derived;
  }
  op_modes.set(OpModes::kTracing, false);
}
TracedCall::~TracedCall() { op_modes.set(OpModes::kTracing, true); }

void TracedCall::finish(std::span<const Tensor> outputs) {
  const int number = static_cast<int>(trace_.ops_.size());
  const auto is_input = [&](const Tensor& t) {
    return std::any_of(inputs_.begin(), inputs_.end(),
                       [&](const Tensor& input) { return input.defined() && input.is_same(t); });
  };
  if (outputs.size() == 1 && outputs[0].defined() && is_input(outputs[0])) return;  // nothing was done
  for (const Tensor& output : outputs) {
    if (!output.defined()) {
      op_.outputs.push_back(-1);
      continue;
    }
    const Storage* const storage = TensorImpl::of(output)->storage;
    const bool is_view = std::any_of(inputs_.begin(), inputs_.end(), [&](const Tensor& input) {
      return input.defined() && TensorImpl::of(input)->storage == storage;
    });
    op_.outputs.push_back(trace_.add(output, derived_, number, is_view));
  }
  trace_.ops_.push_back(std::move(op_));
}

void TracedCall::writes(const char* op, const Tensor& self) { trace_.check_written(op, self); }
void TracedCall::finish_in_place(const Tensor& self) {
  op_.outputs.push_back(trace_.add(self, derived_, static_cast<int>(trace_.ops_.size()), false));
  trace_.ops_.push_back(std::move(op_));
}

// ---- what escapes ---------------------------------------------------------------------------------------------------

void kernel_outside_of_trace(const char* kernel, std::span<const void* const> addresses, bool opaque) {
  if (std::string_view(kernel) == "check_bounds") return;  // whether an index is one is for the model's run to say
  OpTrace& trace = *current_trace;
  const auto refuse = [&] {
    trace.fail(std::string("an op computes with the kernel ") + kernel +
               ", of which ONNX has no counterpart that is exported");
  };
  if (opaque) refuse();
  std::vector<const Storage*> touched;
  for (const auto& [storage, sharing] : trace.sharing_) {
    const auto* const begin = static_cast<const char*>(storage->data);
    for (const void* address : addresses)
      if (address >= begin && address < begin + std::max<size_t>(storage->bytes, 1)) touched.push_back(storage);
  }
  for (const Storage* storage : touched) {
    if (!trace.sharing_.contains(storage)) continue;
    for (const TensorImpl* impl : trace.sharing_.at(storage))
      if (const auto known = trace.known_.find(impl);
          known != trace.known_.end() && trace.values_[static_cast<size_t>(known->second.value)].derived)
        refuse();
    trace.forget(storage);  // it may have been written
  }
}

void host_reads(const char* op, const Tensor& tensor) {
  OpTrace& trace = *current_trace;
  const int value = trace.find(tensor);
  if (value >= 0 ? trace.values_[static_cast<size_t>(value)].derived : trace.shares_derived_memory(tensor))
    trace.fail(std::string(op) + ": the model reads a value that depends on its inputs, a " + name_of(tensor.dtype()) +
               " " + tensor.shape().to_string() +
               "; what it does then would be the same for all inputs in the exported graph");
  if (value >= 0 && std::string_view(op) != "item") trace.forget(TensorImpl::of(tensor)->storage);
}

void note_size_read(const Tensor& tensor, int dim) {
  OpTrace& trace = *current_trace;
  const int value = trace.find(tensor);
  if (value >= 0 && trace.values_[static_cast<size_t>(value)].derived) trace.size_reads_.emplace(value, dim);
}

}  // namespace reel
