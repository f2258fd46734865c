#pragma once
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "lib/base/op_modes.h"
#include "reel/base/detail/no_suspend_guard.h"
#include "reel/tensor.h"

// Ops are written down as they run, for export: by `call` (lib/ops/call.h) and, below it, by `traced`. While a traced
// op runs nothing else is written down, so that fused ops, and what they are made of, are one op of the trace. A kernel
// that runs outside of a traced op, and a value that the host reads, are Errors where they depend on the inputs: see
// kernel_outside_of_trace and host_reads.
namespace reel {

struct TensorImpl;
struct Storage;

/// A number, text or list that an op was called with.
struct TraceAttribute {
  using Value = std::variant<int64_t, double, std::string, std::vector<int64_t>>;
  template <std::integral T>
  TraceAttribute(const char* name_, T number) : name(name_), value(static_cast<int64_t>(number)) {}
  TraceAttribute(const char* name_, double number) : name(name_), value(number) {}
  TraceAttribute(const char* name_, const char* text) : name(name_), value(std::string(text)) {}
  TraceAttribute(const char* name_, std::span<const int64_t> list)
      : name(name_), value(std::vector<int64_t>(list.begin(), list.end())) {}
  TraceAttribute(const char* name_, const Shape& shape)
      : TraceAttribute(name_, std::span(shape.begin(), static_cast<size_t>(shape.size()))) {}

  const char* name;
  Value value;
};

struct TracedOp {
  std::string name;
  std::vector<int> inputs, outputs;  // numbers of values; -1 for an undefined tensor
  std::vector<TraceAttribute> attributes;
};

/// Writes down what the calling thread's ops do for as long as it lives. Tensors that are not computed from the inputs
/// are values, too: those that a traced op made, and constants that no op made.
class OpTrace {
 public:
  struct Value {
    Tensor tensor;     // kept, so that its memory is not used again
    uint32_t version;  // of its storage, behind which `tensor` has other elements
    bool derived;      // from an input
    int op;            // which made it; -1 for inputs and constants
  };

  /// Errors begin with `caller`. An Error if the thread is traced already.
  OpTrace(const char* caller, std::span<const Tensor> inputs);
  ~OpTrace();
  OpTrace(const OpTrace&) = delete;
  OpTrace& operator=(const OpTrace&) = delete;

  const std::vector<TracedOp>& ops() const { return ops_; }
  const std::vector<Value>& values() const { return values_; }
  const std::vector<int>& inputs() const { return inputs_; }
  /// Returns the values, with dimensions, whose sizes have been read with Tensor::size() and come from inputs.
  const std::set<std::pair<int, int>>& size_reads() const { return size_reads_; }
  /// The value that a tensor is. `op` reads it.
  int value_of(const char* op, const Tensor& tensor);

  /// Of the calling thread; nullptr if it is not traced.
  static OpTrace* current();
  [[noreturn]] void fail(const std::string& message) const;

 private:
  friend class TracedCall;
  friend void kernel_outside_of_trace(const char* kernel, std::span<const void* const> addresses, bool opaque);
  friend void host_reads(const char* op, const Tensor& tensor);
  friend void note_size_read(const Tensor& tensor, int dim);
  struct Known {
    int value;
    uint32_t version;
    bool is_view;
  };

  int add(const Tensor& tensor, bool derived, int op, bool is_view);
  int find(const Tensor& tensor) const;
  bool shares_derived_memory(const Tensor& tensor) const;
  void forget(const Storage* storage);
  /// The value keeps the elements that its tensor has now.
  void keep_elements(int number);
  void check_written(const char* op, const Tensor& tensor);

  const char* const caller_;
  std::vector<TracedOp> ops_;
  std::vector<Value> values_;
  std::vector<int> inputs_;
  std::set<std::pair<int, int>> size_reads_;
  std::vector<Tensor> kept_;  // what has another value by now
  std::unordered_map<const TensorImpl*, Known> known_;
  std::unordered_map<const Storage*, std::vector<const TensorImpl*>> sharing_;
  const detail::NoSuspendGuard no_suspend_;  // the trace is the thread's
};

/// One traced op, from its head to its end.
class TracedCall {
 public:
  TracedCall(const char* op, std::span<const Tensor> inputs, std::vector<TraceAttribute> attributes);
  ~TracedCall();
  TracedCall(const TracedCall&) = delete;
  TracedCall& operator=(const TracedCall&) = delete;

  void finish(std::span<const Tensor> outputs);
  void finish(const Tensor& output) { finish(std::span(&output, 1)); }
  /// The op changes `self` in place: to be called before. An Error in the name of `op` if it is a view.
  void writes(const char* op, const Tensor& self);
  void finish_in_place(const Tensor& self);

 private:
  OpTrace& trace_;
  TracedOp op_;
  bool derived_ = false;
  std::vector<Tensor> inputs_;
};

/// f(), which returns a Tensor or a list of them, as one op.
template <class F>
auto traced(const char* op, std::span<const Tensor> inputs, std::vector<TraceAttribute> attributes, const F& f) {
  TracedCall call(op, inputs, std::move(attributes));
  auto result = f();
  call.finish(result);
  return result;
}
template <class F>
auto traced(const char* op, std::initializer_list<Tensor> inputs, std::vector<TraceAttribute> attributes, const F& f) {
  return traced(op, std::span(inputs.begin(), inputs.size()), std::move(attributes), f);
}

// ---- what escapes ---------------------------------------------------------------------------------------------------

/// A kernel runs that no traced op has called. An Error if it works on memory of derived values, or if there is memory
/// among its arguments (`opaque`) that `addresses` does not name.
void kernel_outside_of_trace(const char* kernel, std::span<const void* const> addresses, bool opaque);
/// The host reads, or may change, the elements of a tensor. An Error if they are derived.
void host_reads(const char* op, const Tensor& tensor);
/// Notes that the host reads a size: what it computes from it, and decides by it, is not written down.
void note_size_read(const Tensor& tensor, int dim);

}  // namespace reel
