#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lib/onnx/writer/dynamic.h"
#include "lib/onnx/writer/graph.h"
#include "lib/onnx/writer/model_file.h"
#include "reel/ops.h"

namespace reel::onnx::writer {

using Name = std::string;  // of a value in the file; empty for one that is left out
using Names = std::vector<Name>;
using Attributes = std::vector<NodeAttribute>;

/// Writes the nodes of a graph, one traced op after the other.
class Emitter {
 public:
  Emitter(const Graph& graph, const std::vector<std::pair<std::string, Tensor>>& named, Names inputs,
          std::vector<std::vector<std::string>> dynamic);
  void emit_all();
  /// The outputs become those of the file, under these names.
  ModelFile finish(const Names& outputs) &&;

  // ---- the op that is written ----
  const std::string& op() const { return op_->name; }
  size_t count() const { return op_->inputs.size(); }
  size_t results() const { return op_->outputs.size(); }
  bool has_result(size_t output) const { return op_->outputs[output] >= 0; }
  bool has(size_t input) const { return input < count() && op_->inputs[input] >= 0; }
  Name in(size_t input);                          ///< Empty if the input is undefined.
  const Tensor& tensor(size_t input) const;       ///< In the first run.
  const Tensor& result(size_t output = 0) const;  ///< In the first run.
  Shape shape(size_t input) const { return tensor(input).shape(); }
  int rank(size_t input) const { return static_cast<int>(tensor(input).dim()); }
  DType dtype(size_t input) const { return tensor(input).dtype(); }
  bool fixed(size_t input) const { return graph_.fixed[static_cast<size_t>(op_->inputs[input])]; }
  Number size(size_t input, int64_t dim) const;  ///< In each run.
  Number result_size(int64_t dim, size_t output = 0) const;
  std::vector<Number> result_sizes(size_t output = 0) const;

  /// Attributes that must be the same in all runs; an Error that names the op and both values otherwise.
  int64_t integer(const char* name) const;
  double real(const char* name) const;
  std::vector<int64_t> list(const char* name) const;
  std::vector<int64_t> list(const char* name, size_t run) const;  ///< In that run.
  bool flag(const char* name) const { return integer(name) != 0; }
  /// One that need not.
  Number number(const char* name) const;

  void set(Name name, size_t output = 0);
  [[noreturn]] void fail(const std::string& why) const;

  // ---- what it is written with ----
  Names nodes(const char* type, Names inputs, size_t outputs, Attributes attributes = {});
  Name node(const char* type, Names inputs, Attributes attributes = {}) {
    return nodes(type, std::move(inputs), 1, std::move(attributes))[0];
  }
  /// node(), as the op's result.
  void is(const char* type, Names inputs, Attributes attributes = {}) {
    set(node(type, std::move(inputs), std::move(attributes)));
  }
  Name constant(const Tensor& tensor);
  Name scalar(double value, DType dtype);
  Name ints(const std::vector<int64_t>& list);  ///< int64 [n]
  /// int64 [n] of numbers that are constants or are computed from sizes. `what` they are, for messages.
  Name sizes(const std::vector<Number>& numbers, const char* what);
  Name cast(const Name& x, DType from, DType to);
  Name transposed(const Name& x, std::vector<int64_t> order) {
    return node("Transpose", {x}, {{"perm", std::move(order)}});
  }
  Name reshaped(const Name& x, const std::vector<int64_t>& shape) { return node("Reshape", {x, ints(shape)}); }
  Name unsqueezed(const Name& x, std::vector<int64_t> dims) { return node("Unsqueeze", {x, ints(dims)}); }
  Name squeezed(const Name& x, std::vector<int64_t> dims) { return node("Squeeze", {x, ints(dims)}); }
  Name sliced(const Name& x, int64_t dim, int64_t from, int64_t to) {
    return node("Slice", {x, ints({from}), ints({to}), ints({dim})});
  }
  /// The op's result brought to its shape and type, where `x` broadcasts to it.
  Name expanded(const Name& x, const std::vector<Number>& shape);

 private:
  struct Source {  // of a size
    int value;
    int dim;
    Number sizes;
    std::string name = {};  // of the dynamic dimension
  };
  /// A Formula is factor · product of sizes / divisor + term.
  struct Formula {
    std::vector<const Source*> sizes;
    int64_t factor, divisor, term;
  };
  bool is_constant(const Number& number) const;
  Name name_of(int value, const std::string& reader);
  Name fold_constant(int value, const std::string& reader);
  Name size_of(const Source& source);
  Name written(const Formula& formula);
  static std::string show(const Formula& formula);
  /// int64 [1]; empty if nothing is found.
  Name resolve(const Number& number);
  Source source(int value, int dim) const;
  std::vector<Source> named_sources() const;
  std::vector<Source> own_sources() const;
  const TraceAttribute& attribute(const char* name, size_t run) const;

  const Graph& graph_;
  const std::vector<std::vector<std::string>> dynamic_;  // names of the inputs' dimensions; empty for constants
  ModelFile file_;
  const TracedOp* op_ = nullptr;
  size_t op_number_ = 0;
  std::vector<Name> names_;  // of values, as far as they have been written
  std::vector<std::pair<std::string, Tensor>> named_;
  std::map<std::pair<int, int>, Name> sizes_;
  std::map<std::string, Name> constants_;  // by their elements
  std::map<std::string, int> used_;        // how often a name has been asked for
  Name unique(const std::string& wish);
};

/// Writes an op's nodes.
using Emit = void (*)(Emitter&);
/// nullptr for an op that is not exported.
Emit emit_of(std::string_view op);

// The tables of which it is made.
using EmitTable = std::map<std::string_view, Emit>;
const EmitTable& pointwise_ops();
const EmitTable& shape_ops();
const EmitTable& reduction_ops();
const EmitTable& dense_ops();
const EmitTable& index_ops();
const EmitTable& recurrent_ops();

}  // namespace reel::onnx::writer
