#pragma once
#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

#include "lib/onnx/graph.h"
#include "reel/ops.h"

namespace reel::onnx {

/// A node while it is linked: its attributes, each of which must be read by the op, or else is not known.
struct Context {
  const Node& node;
  int64_t opset;
  const std::vector<bool>& is_weight;  // of values

  bool has(const char* name) const { return find(name, 0); }
  bool reads_weight(size_t i) const { return is_weight[node.inputs[i]]; }
  int64_t integer(const char* name, int64_t otherwise) const;
  double number(const char* name, double otherwise) const;
  /// Returns a text that is one of `known`. Another one is an Error that lists these.
  std::string choice(const char* name, const char* otherwise, std::initializer_list<std::string_view> known) const;
  std::string text(const char* name) const;           // any text: the caller checks it; empty if there is none
  std::string joined_texts(const char* name) const;   // a list of strings, joined by spaces
  bool flag(const char* name, bool otherwise) const;  // 0 or 1
  std::vector<int64_t> integers(const char* name, std::vector<int64_t> otherwise = {}) const;
  std::vector<double> numbers(const char* name) const;
  Tensor tensor(const char* name) const;
  void ignore(const char* name) const { find(name, 0); }
  /// A value that the op can only have one of.
  void require(bool supported, const char* what) const {
    REEL_CHECK(supported, node.label(), ": ", what, " is not supported");
  }

 private:
  const Attribute* find(const char* name, int type, int other_type = 0) const;
};

/// How an op is read: the least and largest number of inputs (-1: any), and what makes a Run of a node.
struct Op {
  int min_inputs, max_inputs;
  Run (*make)(const Context&);
};
using OpTable = std::unordered_map<std::string, Op>;

/// A Run of what gives one Tensor.
template <class F>
Run gives(F f) {
  return [f](Call& call) { call.set(0, f(call)); };
}

/// The entry of a list that a node is named by.
template <class List>
const auto& entry(const List& list, const Context& n) {
  return *std::find_if(std::begin(list), std::end(list), [&](const auto& op) { return op.type == n.node.op; });
}

/// NumPy's counting from the end.
inline int64_t wrap_axis(int64_t axis, int64_t rank) {
  REEL_CHECK(axis >= -rank && axis < rank, "axis ", axis, " of a tensor with ", rank, " dimensions");
  return axis < 0 ? axis + rank : axis;
}
/// Wraps each axis of a list, which names none twice.
std::vector<int64_t> wrap_axes(std::vector<int64_t> axes, int64_t rank);
/// Throws if a file asks for a dimension, or a table of indices or weights, of more than 2^28 elements.
inline void check_extent(int64_t size) {
  REEL_CHECK(size >= 0 && size <= int64_t{1} << 28, "a size of ", size, ", which is not between 0 and 2^28");
}
inline Dims dims_of(const std::vector<int64_t>& list) {
  Dims dims;
  dims.dims = Shape(list);
  return dims;
}

/// All ops but Constant.
const OpTable& op_table();
void add_positions(OpTable& table);
void add_layers(OpTable& table);  // convolutions, pools, norms, recurrent nets, resizing

}  // namespace reel::onnx
