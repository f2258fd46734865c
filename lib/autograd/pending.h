#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "lib/autograd/tape.h"

namespace reel {

// The parts of a gradient that wait to be added up together. A weight that is used at a thousand places would get a
// thousand outer products, each a pass over memory of the weight's size; instead the rows of g and x of all uses are
// packed, and multiplied by one GEMM when the pack is full or the last use is reached. Rows for an embedding matrix
// wait likewise until it is known which rows there are. What a walk leaves pending at a leaf waits there until somebody
// looks at the leaf's gradient.

/// slot.grad += g, of the target's shape and dtype.
void add_grad(GradSlot& slot, Tensor g);
/// slot.grad += gᵀ x for contiguous float g [n, out] and x [n, in]. With `sums_wanted` the result is the sums of g's
/// columns, if the product gives them along with itself.
Tensor add_product(GradSlot& slot, const GradShape& target, const View& g, const View& x, bool sums_wanted = false);
/// slot.grad[ids] += values [n, …].
void add_rows(GradSlot& slot, const GradShape& target, std::span<const int64_t> ids, const View& values, bool sparse);
/// The same for ids [n] on any device; those on a GPU are read when the slot is finished, all at once.
void add_rows(GradSlot& slot, const GradShape& target, const Tensor& ids, const View& values, bool sparse);
/// The same, into a dense gradient, for ids [n] that may lie anywhere.
void add_rows_at_once(GradSlot& slot, const GradShape& target, const View& ids, const View& values);
/// The part of slot.grad that a view shows += g.
void add_region(GradSlot& slot, const GradShape& target, int64_t offset, const Strides& strides, const Tensor& g);

/// What the slot has come to: a dense gradient or, where `sparse_wanted` and all parts agree, rows. Empties the slot.
struct FinalGrad {
  Tensor dense;
  RowSparse rows;
  bool defined() const { return dense.defined() || rows.ids.defined(); }
};
FinalGrad finish(GradSlot& slot, const GradShape& target, bool sparse_wanted);
/// Says that what has waited since an earlier walk, on another stream perhaps, is used on the current one.
void use_here(GradSlot& slot);
/// Moves what is pending in `slot` to `held`, a slot that outlives the walk, so that the products of several walks are
/// merged, too. False when so much has come together that held should be finished.
bool absorb(GradSlot& held, GradSlot& slot, const GradShape& target);
/// Forgets everything.
void clear(GradSlot& slot);
/// The same for a slot that may outlive the thread's other objects.
void discard(GradSlot& slot);

/// Distinct sorted ids with the values of equal ids added.
RowSparse coalesce(const std::vector<int64_t>& ids, const Tensor& values);
/// Adds rows to a gradient that may be undefined, dense or rows itself.
void accumulate_rows(Tensor& grad, RowSparse& rows, const RowSparse& more, const Shape& shape);

}  // namespace reel
