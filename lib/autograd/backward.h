#pragma once
#include "lib/autograd/tape.h"

namespace reel {

struct GraphTask;

/// What a rule sees: the gradients of its node's outputs, and where to put those of its inputs. While a rule runs,
/// recording is on exactly when create_graph() is.
class Backward {
 public:
  Backward(Node& node, GraphTask& task) : node_(node), task_(task) {}

  /// The gradient of an output: undefined if none arrived (only for ops with several outputs).
  const Tensor& grad(int output = 0) const { return node_.outputs()[output].grad.dense(); }
  Tensor grad_or_zeros(int output) const;
  const GradMetadata& output(int i) const { return node_.outputs()[i].metadata; }
  uint32_t num_outputs() const { return node_.num_outputs; }
  /// Is the gradient of this input needed?
  bool needs(int input) const { return needs(node_.edges()[input]); }
  bool create_graph() const { return grad_mode; }
  /// May this node be visited again? If not, a rule may overwrite what it has saved for itself.
  bool retains_graph() const;
  /// Returns which of `rows` rows, those of the calls of a group or equally many for each of them, belong to calls that
  /// take part in this pass, as int64 on the device of the results: undefined if all do.
  Tensor rows_in_pass(int64_t rows) const;

  /// A saved tensor; an Error if it was changed in place since it was saved.
  Tensor get(const SavedTensor& saved) const;
  template <int tag>
  Tensor get(const NotSaved<tag>&) const {
    return {};
  }
  /// Returns a saved tensor that is not an output of this op. Each edge of `now`, a copy of `recorded`, that leads to
  /// the saved tensor is changed to lead to the returned one.
  Tensor get(const SavedTensor& saved, std::span<const Edge> recorded, std::span<Edge> now) const;
  /// An output of this op that lies in its storage as `elements` does; get() is for outputs that fill theirs,
  /// row-major.
  Tensor get_output(const SavedTensor& saved, const View& elements) const;
  /// Its elements only, which is cheaper: `room` is for a View that has to be made. nullptr if nothing is saved.
  const View* view(const SavedTensor& saved, View& room) const;
  template <int tag>
  const View* view(const NotSaved<tag>&, View&) const {
    return nullptr;
  }
  /// A tensor like grad() to write an input's gradient to: grad() itself where no other handle shares it, so the rule
  /// must be about to read each of its elements for the last time.
  Tensor take_grad_buffer() const;

  /// The gradient of an input, of the input's shape or one that it was broadcast to, in any float dtype. Undefined is
  /// zero.
  void set(int input, Tensor grad);
  /// Throws if g, which a rule of the user's gives for the input, is on another device than that.
  void check_device(int input, const Tensor& g) const;
  /// The gradient gᵀ x of a weight [out, in] for g [n, out] and x [n, in]. Small products of all uses of the weight are
  /// collected and multiplied as one. Only without create_graph.
  /// With `column_sums` the result may be the sums of g's columns, if they cost next to nothing.
  Tensor set_product(int input, const Tensor& g, const Tensor& x, bool column_sums = false);
  /// The gradient `values` [n, …] of the rows ids [n] of a matrix; collected like products. A leaf whose uses are all
  /// `sparse` gets a sparse gradient. Values that are moved in are not copied. Only without create_graph.
  void set_rows(int input, const Tensor& ids, Tensor values, bool sparse);
  /// The gradient g of the part of a contiguous input that a view with this offset (in elements) and g's shape and
  /// these strides shows. Only without create_graph.
  void set_region(int input, int64_t offset, const Strides& strides, const Tensor& g);

 private:
  bool needs(const Edge& edge) const;
  Tensor linked(Tensor saved) const;
  GradAccumulator& accumulator(const Edge& edge) const;
  void check_version(const SavedTensor& saved) const;
  void check_nan(int input, const Tensor& g) const;
  Node& node_;
  GraphTask& task_;
};

}  // namespace reel
