#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

#include "lib/device/kernels/enums.h"

#include "lib/ops/index.h"

namespace reel {

// ---- checks ---------------------------------------------------------------------------------------------------------

// Ids of the host's go to x's GPU by one copy, which does not wait, so that programs need not move them.
Tensor to_ids(const char* op, const Tensor& x, const Tensor& ids) {
  const DType dtype = view_of(ids, op).dtype;
  REEL_CHECK(dtype == kInt64 || dtype == kInt32 || dtype == kUInt8, op,
             ": indices must be int64 (or int32 or uint8), got ", dtype, "; to(kInt64) converts");
  const Device from = ids.device(), to = x.device();
  REEL_CHECK(from == to || from == kCPU, op, ": the tensor is on ", to, ", its indices on ", from);
  return ids.to(kInt64).to(to);
}

void check_range(const char* op, const Tensor& ids, int64_t low, int64_t size, int dim) {
  int64_t bad;
  if (kernels_of(ids).check_bounds(op, view_of(ids), low, size, &bad)) fail_range({.op = op, .bad = bad}, size, dim);
}
void fail_range(const IdCheck& check, int64_t size, int dim) {
  detail::fail(check.op, ": index ", check.bad, " is out of range for dimension ", dim, " of size ", size);
}

Tensor value_for(const char* op, const Tensor& x, const Tensor& value) {
  const DType from = view_of(value, op).dtype, to = view_of(x, op).dtype;
  if (from != to && view_of(value).shape.empty() && is_readable(value))
    check_fits(op, is_floating_point(from) ? Scalar(value.item<double>()) : Scalar(value.item<int64_t>()), to);
  return value.to(to);
}

namespace {

/// A dimension, counted from 0, and positions along it.
struct Positions {
  int dim;
  Tensor ids;
};

/// For gather and scatter: index has x's rank and, but for `dim`, no larger sizes. Without `check` the kernel checks
/// the ids.
Positions element_positions(const char* op, const Tensor& x, int64_t dim, const Tensor& index, bool check = true) {
  const Shape& shape = view_of(x, op).shape;
  const Tensor ids = to_ids(op, x, index);
  const Shape& of_index = view_of(ids).shape;
  const int d = wrap_dim(dim, shape.size(), op);
  REEL_CHECK(of_index.size() == shape.size(), op, ": an index of shape ", of_index, " for a tensor of shape ", shape);
  for (int e = 0; e < shape.size(); ++e)
    REEL_CHECK(e == d || of_index[e] <= shape[e], op, ": the index's shape ", of_index, " exceeds ", shape,
               " in dimension ", e);
  if (check) check_range(op, ids, 0, shape.empty() ? 1 : shape[d], d);
  return {d, ids};
}

/// For whole slices: the ids are a vector.
Positions slice_positions(const char* op, const Tensor& x, int64_t dim, const Tensor& index, bool check = true) {
  const Shape& shape = view_of(x, op).shape;
  const Tensor ids = to_ids(op, x, index);
  REEL_CHECK(view_of(ids).shape.size() <= 1, op, ": indices must be 1-d, got shape ", ids.shape());
  const int d = wrap_dim(dim, shape.size(), op);
  if (check) check_range(op, ids, 0, shape[d], d);
  return {d, ids};
}

Tensor zeros_of(const Shape& shape, const Tensor& like) {
  return zeros(shape, {.dtype = like.dtype(), .device = like.device()});
}

// ---- slices along one dimension -------------------------------------------------------------------------------------

/// Zeros of `shape` with the slices of g added at ids along dim.
Tensor collect_slices(const Tensor& g, const Shape& shape, int dim, const Tensor& ids) {
  const Tensor y = zeros_of(shape, g), dense = g.contiguous();
  kernels_of(y).index_add(view_of(y), dim, view_of(ids), view_of(dense));
  if (recording(g))
    record("index_add", y, inputs(g), [dim, ids = SavedTensor(ids)](Backward& back) {
      back.set(0, select_slices("index_select", back.grad(), dim, back.get(ids)));
    });
  return y;
}

/// Delivers g, the gradient of the slices at ids along dim of a tensor of `shape`: as rows, which the engine collects,
/// where it can. (No rows would be no gradient at all, instead of zeros.)
void give_slices(Backward& back, const Tensor& g, const Shape& shape, int dim, const Tensor& ids) {
  if (dim == 0 && view_of(g).numel && !back.create_graph())
    back.set_rows(0, ids, g, false);
  else
    back.set(0, collect_slices(g, shape, dim, ids));
}

}  // namespace

Tensor select_slices(const char* op, const Tensor& x, int dim, const Tensor& ids, bool check, bool distinct) {
  return call("index_select", {x, ids}, {{"dim", dim}}, [&](const Tensor& x, const Tensor& ids) {
    const View& view = view_of(x);
    Shape shape = view.shape;
    shape[dim] = view_of(ids).numel;
    const Tensor y = make_tensor(shape, view.dtype, x.device());
    IdCheck range{.op = op};
    if (kernels_of(x).index_select(view, dim, view_of(ids), view_of(y), check ? &range : nullptr))
      fail_range(range, view.shape[dim], dim);
    if (recording(x))
      record(op, y, inputs(x), [shape = view.shape, dim, ids = SavedTensor(ids), distinct](Backward& back) {
        const Tensor g = back.grad();
        if (distinct)
          back.set(0, put_slices(zeros_of(shape, g), dim, back.get(ids), g));
        else
          give_slices(back, g, shape, dim, back.get(ids));
      });
    return y;
  });
}

Tensor put_slices(const Tensor& x, int dim, const Tensor& ids, const Tensor& source) {
  return call("index_copy", {x, ids, source}, {{"dim", dim}},
              [&](const Tensor& x, const Tensor& ids, const Tensor& source) {
                const Tensor y = no_grad([&] { return clone_in_order(x); });
                kernels_of(y).index_copy(view_of(y), dim, view_of(ids), view_of(source));
                if (is_floating_point(x.dtype()) && recording(x, source))
                  record("index_put", y, inputs(x, source),
                         [dim, ids = SavedTensor(ids), shape = view_of(source).shape](Backward& back) {
                           const Tensor at = back.get(ids);
                           if (back.needs(0))
                             back.set(0, put_slices(back.grad(), dim, at, zeros_of(shape, back.grad())));
                           if (back.needs(1)) back.set(1, select_slices("index_select", back.grad(), dim, at));
                         });
                return y;
              });
}

Tensor add_slices(const Tensor& x, int dim, const Tensor& ids, const Tensor& source) {
  return call("index_add", {x, ids, source}, {{"dim", dim}},
              [&](const Tensor& x, const Tensor& ids, const Tensor& source) {
                const Tensor y = no_grad([&] { return clone_in_order(x); });
                kernels_of(y).index_add(view_of(y), dim, view_of(ids), view_of(source));
                if (is_floating_point(x.dtype()) && recording(x, source))
                  record("index_add", y, inputs(x, source), [dim, ids = SavedTensor(ids)](Backward& back) {
                    back.set(0, back.grad());
                    if (back.needs(1)) back.set(1, select_slices("index_select", back.grad(), dim, back.get(ids)));
                  });
                return y;
              });
}

// A 0-d tensor has one slice, itself: below, it is taken as a vector of one element.

Tensor index_select(const Tensor& x, int64_t dim, const Tensor& ids) {
  if (view_of(x, "index_select").shape.empty()) {
    REEL_CHECK(view_of(ids, "index_select").numel == 1, "index_select: ", ids.numel(), " slices of a 0-d tensor");
    return index_select(x.reshape({1}), dim, ids).reshape({});
  }
  const auto [d, at] = slice_positions("index_select", x, dim, ids, false);
  return select_slices("index_select", x, d, at, true);
}

namespace {

/// The slices that go to the positions: of x's dtype and their shape; a single element may be 0-d. A number or 0-d
/// tensor is repeated if `fill`.
Tensor slices_for(const char* op, const Tensor& x, const Positions& to, const Tensor& source, bool fill = false) {
  Shape wanted = view_of(x).shape;
  wanted[to.dim] = view_of(to.ids).numel;
  const Shape& got = view_of(source, op).shape;
  REEL_CHECK(source.device() == x.device() || (fill && got.empty()), op, ": the tensor is on ", x.device(),
             ", its source on ", source.device());
  if (fill) {
    REEL_CHECK(got.empty(), op, ": the value must be a number or a 0-d tensor, got shape ", got);
    return value_for(op, x, source).to(x.device()).expand(wanted);
  }
  REEL_CHECK(source.dtype() == x.dtype(), op, ": a ", source.dtype(), " source for a tensor of ", x.dtype(), "");
  if (got.empty() && wanted == Shape{1}) return source.reshape({1});
  REEL_CHECK(got == wanted, op, ": a source of shape ", got, ", not ", wanted);
  return source;
}

Tensor scaled(const char* op, const Tensor& source, Scalar alpha) {
  REEL_CHECK(source.is_floating_point() || !alpha.is_floating_point(), op, ": a factor alpha of ", alpha.to<double>(),
             " for tensors of ", source.dtype(), "; it must be an integer");
  check_fits(op, alpha, source.dtype());
  return alpha.to<double>() == 1 ? source : (source * Tensor(alpha)).to(source.dtype());
}

Tensor& put_in_place(const char* op, Tensor& self, const Positions& to, const Tensor& source) {
  return rewrite(
      op, self, to.ids, source, [&] { return put_slices(self, to.dim, to.ids, source); },
      [&] { kernels_of(self).index_copy(view_of(self), to.dim, view_of(to.ids), view_of(source)); });
}

}  // namespace

Tensor index_add(const Tensor& x, int64_t dim, const Tensor& ids, const Tensor& source, Scalar alpha) {
  if (view_of(x, "index_add").shape.empty()) return index_add(x.reshape({1}), dim, ids, source, alpha).reshape({});
  const Positions to = slice_positions("index_add", x, dim, ids);
  return add_slices(x, to.dim, to.ids, scaled("index_add", slices_for("index_add", x, to, source), alpha));
}
Tensor& TensorMethods::index_add_(int64_t dim, const Tensor& ids, const Tensor& source, Scalar alpha) {
  if (view_of(self(this), "index_add_").shape.empty()) {
    self(this).view({1}).index_add_(dim, ids, source, alpha);
    return self(this);
  }
  const Positions to = slice_positions("index_add_", self(this), dim, ids);
  const Tensor from = scaled("index_add_", slices_for("index_add_", self(this), to, source), alpha);
  return rewrite(
      "index_add_", self(this), to.ids, from, [&] { return add_slices(self(this), to.dim, to.ids, from); },
      [&] { kernels_of(self(this)).index_add(view_of(self(this)), to.dim, view_of(to.ids), view_of(from)); });
}

Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& ids, const Tensor& source) {
  if (view_of(x, "index_copy").shape.empty()) return index_copy(x.reshape({1}), dim, ids, source).reshape({});
  const Positions to = slice_positions("index_copy", x, dim, ids);
  return put_slices(x, to.dim, to.ids, slices_for("index_copy", x, to, source));
}
Tensor& TensorMethods::index_copy_(int64_t dim, const Tensor& ids, const Tensor& source) {
  if (view_of(self(this), "index_copy_").shape.empty()) {
    self(this).view({1}).index_copy_(dim, ids, source);
    return self(this);
  }
  const Positions to = slice_positions("index_copy_", self(this), dim, ids);
  return put_in_place("index_copy_", self(this), to, slices_for("index_copy_", self(this), to, source));
}

namespace {
/// Each position once if the gradient of the value, the sum of those of the slices that hold it, is wanted.
Positions fill_positions(const char* op, const Tensor& x, int64_t dim, const Tensor& ids, const Tensor& value) {
  Positions to = slice_positions(op, x, dim, ids);
  if (recording(value)) to.ids = unique(to.ids).values;
  return to;
}
}  // namespace

Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& ids, const Tensor& value) {
  if (view_of(x, "index_fill").shape.empty()) return index_fill(x.reshape({1}), dim, ids, value).reshape({});
  const Positions to = fill_positions("index_fill", x, dim, ids, value);
  return put_slices(x, to.dim, to.ids, slices_for("index_fill", x, to, value, true));
}
Tensor& TensorMethods::index_fill_(int64_t dim, const Tensor& ids, const Tensor& value) {
  if (view_of(self(this), "index_fill_").shape.empty()) {
    self(this).view({1}).index_fill_(dim, ids, value);
    return self(this);
  }
  const Positions to = fill_positions("index_fill_", self(this), dim, ids, value);
  return put_in_place("index_fill_", self(this), to, slices_for("index_fill_", self(this), to, value, true));
}

// ---- single elements along one dimension ----------------------------------------------------------------------------

Tensor gather(const Tensor& x, int64_t dim, const Tensor& index) {
  const Positions to = element_positions("gather", x, dim, index, false);
  return call("gather", {x, to.ids}, {{"dim", to.dim}}, [d = to.dim](const Tensor& x, const Tensor& at) {
    const View& view = view_of(x);
    const Tensor y = make_tensor(view_of(at).shape, view.dtype, x.device());
    IdCheck range{.op = "gather"};
    if (kernels_of(x).gather(view, d, view_of(at), view_of(y), &range))
      fail_range(range, view.shape.empty() ? 1 : view.shape[d], d);
    if (recording(x))
      record("gather", y, inputs(x), [shape = view.shape, d, at = SavedTensor(at)](Backward& back) {
        back.set(0, scatter_add(zeros_of(shape, back.grad()), d, back.get(at), back.grad()));
      });
    return y;
  });
}

namespace {

/// The part of a source that an index uses, in x's dtype.
Tensor source_for(const char* op, const Tensor& x, const Tensor& index, const Tensor& source) {
  const Shape &wanted = view_of(index).shape, &got = view_of(source, op).shape;
  if (TensorImpl::of(source)->is_wrapped_number) return value_for(op, x, source).to(x.device()).expand(wanted);
  REEL_CHECK(source.dtype() == x.dtype(), op, ": a ", source.dtype(), " source for a tensor of ", x.dtype(), "");
  REEL_CHECK(source.device() == x.device(), op, ": the tensor is on ", x.device(), ", its source on ", source.device());
  REEL_CHECK(got.size() == wanted.size(), op, ": a source of shape ", got, " for an index of shape ", wanted);
  Tensor part = source;
  for (int d = 0; d < wanted.size(); ++d) {
    REEL_CHECK(got[d] >= wanted[d], op, ": the source's shape ", got, " is smaller than the index's, ", wanted);
    if (got[d] != wanted[d]) part = part.narrow(d, 0, wanted[d]);
  }
  return part;
}

/// x with `from` joined to it at the positions. Not recorded.
Tensor scattered(ScatterOp op, const Tensor& x, const Positions& to, const Tensor& from) {
  constexpr Op kNames[] = {"scatter", "scatter_add", "scatter_mul", "scatter_max", "scatter_min"};
  return call(kNames[static_cast<int>(op)], {x, to.ids, from}, {{"dim", to.dim}},
              [&](const Tensor& x, const Tensor& ids, const Tensor& from) {
                const Tensor y = no_grad([&] { return x.clone(); });
                kernels_of(y).scatter(op, view_of(y), to.dim, view_of(ids), view_of(from));
                return y;
              });
}

Tensor put_elements(const Tensor& x, const Positions& to, const Tensor& from) {
  const Tensor y = scattered(ScatterOp::kReplace, x, to, from);
  if (is_floating_point(x.dtype()) && recording(x, from))
    record("scatter", y, inputs(x, from), [d = to.dim, at = SavedTensor(to.ids)](Backward& back) {
      const Tensor ids = back.get(at);
      if (back.needs(0)) back.set(0, scatter(back.grad(), d, ids, 0));
      if (back.needs(1)) back.set(1, gather(back.grad(), d, ids));
    });
  return y;
}

Tensor add_elements(const Tensor& x, const Positions& to, const Tensor& from) {
  const Tensor y = scattered(ScatterOp::kAdd, x, to, from);
  if (is_floating_point(x.dtype()) && recording(x, from))
    record("scatter_add", y, inputs(x, from), [d = to.dim, at = SavedTensor(to.ids)](Backward& back) {
      back.set(0, back.grad());
      if (back.needs(1)) back.set(1, gather(back.grad(), d, back.get(at)));
    });
  return y;
}

}  // namespace

Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source) {
  const Positions to = element_positions("scatter", x, dim, index);
  return put_elements(x, to, source_for("scatter", x, to.ids, source));
}
Tensor& TensorMethods::scatter_(int64_t dim, const Tensor& index, const Tensor& source) {
  const Positions to = element_positions("scatter_", self(this), dim, index);
  const Tensor from = source_for("scatter_", self(this), to.ids, source);
  return rewrite(
      "scatter_", self(this), to.ids, from, [&] { return put_elements(self(this), to, from); },
      [&] {
        kernels_of(self(this))
            .scatter(ScatterOp::kReplace, view_of(self(this)), to.dim, view_of(to.ids), view_of(from));
      });
}

Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source) {
  return call("scatter_add(promoted)", {x, source}, {}, [&](const Tensor& x, const Tensor& source) {
    const Positions to = element_positions("scatter_add", x, dim, index);
    return add_elements(x, to, source_for("scatter_add", x, to.ids, source));
  });
}
Tensor& TensorMethods::scatter_add_(int64_t dim, const Tensor& index, const Tensor& source) {
  const Positions to = element_positions("scatter_add_", self(this), dim, index);
  const Tensor from = source_for("scatter_add_", self(this), to.ids, source);
  return rewrite(
      "scatter_add_", self(this), to.ids, from, [&] { return add_elements(self(this), to, from); },
      [&] {
        kernels_of(self(this)).scatter(ScatterOp::kAdd, view_of(self(this)), to.dim, view_of(to.ids), view_of(from));
      });
}

// ---- several elements at one place ----------------------------------------------------------------------------------

namespace {

/// x where nothing is scattered to, or where it counts; `start` elsewhere.
Tensor without_self(const Tensor& x, const Positions& to, bool include_self, const Tensor& start) {
  return include_self ? x : scatter(x, to.dim, to.ids, start);
}

Tensor mean_at(const Tensor& x, const Positions& to, const Tensor& from, bool include_self) {
  const Tensor total = add_elements(without_self(x, to, include_self, 0), to, from);
  const Tensor count = no_grad([&] {
    const Tensor own = without_self(ones_like(x), to, include_self, 0);
    return maximum(scatter_add(own, to.dim, to.ids, 1), 1);
  });
  return x.is_floating_point() ? total / count : floor_divide(total, count).to(x.dtype());
}

Tensor product_at(const Tensor& x, const Positions& to, const Tensor& from, bool include_self) {
  const Tensor start = no_grad([&] { return without_self(x, to, include_self, 1); });
  const Tensor y = scattered(ScatterOp::kMul, start, to, from);
  // The derivative by a factor is the product of the others: y divided by it, but where it is 0. Such a factor, if it
  // is its place's only one, is left out of another product.
  if (recording(x, from))
    record("scatter_reduce", y, inputs(x, from),
           [x = SavedTensor(x), from = SavedTensor(from), y = SavedTensor::output(y), d = to.dim,
            at = SavedTensor(to.ids), include_self](Backward& back) {
             const Tensor own = back.get(x), factors = back.get(from), g = back.grad();
             const Positions to{d, back.get(at)};
             const Tensor zero = no_grad([&] { return own == 0; });
             if (back.needs(0)) {
               const Tensor safe = where(zero, 1, own);
               const Tensor others = product_at(safe, to, factors, include_self) / safe;
               back.set(0, without_self(g * others, to, include_self, 0));
             }
             if (back.needs(1)) {
               const Tensor none = no_grad([&] { return factors == 0; });
               const Tensor only = no_grad([&] {
                 const Tensor count = without_self(zero.to(kInt64), to, include_self, 0);
                 return logical_and(none, gather(scatter_add(count, d, to.ids, none.to(kInt64)), d, to.ids) == 1);
               });
               const Tensor others = product_at(own, to, where(only, 1, factors), include_self);
               const Tensor by_division = gather(g * back.get(y), d, to.ids) / where(none, 1, factors);
               back.set(1, where(only, gather(g * others, d, to.ids), by_division));
             }
           });
  return y;
}

/// Where a is b, NaN as NaN: elements that are an extreme share its gradient.
Tensor is_same(const Tensor& a, const Tensor& b) { return logical_or(a == b, logical_and(isnan(a), isnan(b))); }

Tensor extreme_at(ScatterOp op, const Tensor& x, const Positions& to, const Tensor& from, bool include_self) {
  // Any of the sources will do as a start.
  const Tensor start = no_grad([&] { return without_self(x, to, include_self, from); });
  const Tensor y = scattered(op, start, to, from);
  if (recording(x, from))
    record("scatter_reduce", y, inputs(x, from),
           [x = SavedTensor(x), from = SavedTensor(from), y = SavedTensor::output(y), d = to.dim,
            at = SavedTensor(to.ids), include_self](Backward& back) {
             const Positions to{d, back.get(at)};
             const auto [self_wins, source_wins, ties] = no_grad([&] {
               const Tensor best = back.get(y), own = back.get(x), others = back.get(from);
               const Tensor self = without_self(is_same(own, best).to(best.dtype()), to, include_self, 0);
               const Tensor source = is_same(others, gather(best, d, to.ids)).to(best.dtype());
               return std::tuple(self, source, scatter_add(self, d, to.ids, source));
             });
             // What has not won gets 0 of a gradient that is NaN, too.
             const Tensor share = back.grad() / ties;
             if (back.needs(0)) back.set(0, where(self_wins != 0, share, 0));
             if (back.needs(1)) back.set(1, where(source_wins != 0, gather(share, d, to.ids), 0));
           });
  return y;
}

}  // namespace

Tensor scatter_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, Reduce reduce,
                      bool include_self) {
  const Positions to = element_positions("scatter_reduce", x, dim, index);
  return call("scatter_reduce", {x, source_for("scatter_reduce", x, to.ids, source)}, {},
              [&](const Tensor& x, const Tensor& from) {
                REEL_CHECK(reduce != Reduce::kMean || x.dtype() != kBool,
                           "scatter_reduce: bools have no mean; convert them first");
                switch (reduce) {
                  case Reduce::kSum: return add_elements(without_self(x, to, include_self, 0), to, from);
                  case Reduce::kMean: return mean_at(x, to, from, include_self);
                  case Reduce::kProd: return product_at(x, to, from, include_self);
                  case Reduce::kMax: return extreme_at(ScatterOp::kMax, x, to, from, include_self);
                  case Reduce::kMin: return extreme_at(ScatterOp::kMin, x, to, from, include_self);
                }
                detail::fail("scatter_reduce: no such reduction");
              });
}
Tensor& TensorMethods::scatter_reduce_(int64_t dim, const Tensor& index, const Tensor& source, Reduce reduce,
                                       bool include_self) {
  Tensor& x = self(this);
  check_in_place("scatter_reduce_", x);
  view_of(source, "scatter_reduce_");
  // The rules save x and source, which the change must not reach.
  const auto kept = [&, recorded = recording(x, source)](const Tensor& tensor) {
    return recorded && TensorImpl::of(tensor)->storage == TensorImpl::of(x)->storage ? tensor.clone() : tensor;
  };
  return assign_in_place("scatter_reduce_", x,
                         reel::scatter_reduce(kept(x), dim, index, kept(source), reduce, include_self));
}

// ---- with broadcasting, and of the flat tensor ----------------------------------------------------------------------

namespace {

/// The shape of an index that broadcasts to x's shape in every dimension but d.
Shape along_shape(const char* op, const Tensor& x, const Tensor& index, int d) {
  const Shape& got = view_of(index, op).shape;
  REEL_CHECK(got.size() == x.dim(), op, ": an index of shape ", got, " for a tensor of shape ", x.shape());
  Shape wanted = x.shape();
  if (!wanted.empty()) wanted[d] = got[d];
  return wanted;
}

}  // namespace

Tensor take_along_dim(const Tensor& x, const Tensor& index, int64_t dim) {
  const int d = wrap_dim(dim, view_of(x, "take_along_dim").shape.size(), "take_along_dim");
  const Shape shape = broadcast_shapes(along_shape("take_along_dim", x, index, d), index.shape(), "take_along_dim");
  Shape whole = shape;
  if (!whole.empty()) whole[d] = x.shape()[d];
  return gather(x.expand(whole), d, index.expand(shape));
}

Tensor put_along_dim(const Tensor& x, const Tensor& index, const Tensor& values, int64_t dim) {
  const int d = wrap_dim(dim, view_of(x, "put_along_dim").shape.size(), "put_along_dim");
  const Shape shape = along_shape("put_along_dim", x, index, d);
  const bool number = TensorImpl::of(values) && TensorImpl::of(values)->is_wrapped_number;
  return scatter(x, d, index.expand(shape), number ? values : values.expand(shape));
}

namespace {

/// Returns a 1-d tensor of x's elements in the order of memory, where that needs no copy, and changes the ids, which
/// are positions in x, to positions in it. A dimension that repeats one slice is reduced to it.
Tensor flatten_in_order(const Tensor& x, Tensor& ids) {
  const View& view = view_of(x);
  const int rank = view.shape.size();
  Shape order = view.shape, steps = view.shape;
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return view.strides[static_cast<int>(a)] > view.strides[static_cast<int>(b)];
  });
  Tensor sorted = x.permute(order);
  int64_t step = 1;
  for (int i = rank - 1; i >= 0; --i) {
    const int d = static_cast<int>(order[i]);
    const bool drops = view.strides[d] == 0;
    if (drops) sorted = sorted.narrow(i, 0, 1);
    steps[d] = drops ? 0 : step;
    step *= sorted.size(i);
  }
  const Tensor dense = ids.contiguous(), places = make_tensor(view_of(ids).shape, kInt64);
  const int64_t* const from = view_of(dense).as<const int64_t>();
  int64_t* const to = view_of(places).as<int64_t>();
  for (int64_t i = 0; i < ids.numel(); ++i) {
    auto rest = static_cast<uint64_t>(from[i] < 0 ? from[i] + view.numel : from[i]);
    for (int d = rank - 1; d >= 0; --d) {
      const auto size = static_cast<uint64_t>(view.shape[d]);
      to[i] = (d == rank - 1 ? 0 : to[i]) + static_cast<int64_t>(rest % size) * steps[d];
      rest /= size;
    }
  }
  ids = places;
  return sorted.reshape({step});
}

}  // namespace

Tensor take(const Tensor& x, const Tensor& index) {
  const int64_t n = view_of(x, "take").numel;
  const Tensor ids = to_ids("take", x, index);
  int64_t bad;
  if (kernels_of(ids).check_bounds("take", view_of(ids), -n, n, &bad))
    detail::fail("take: index ", bad, " is out of range for ", n, " elements");
  Tensor flat = ids.reshape({ids.numel()});
  // A copy in row-major order would move all of x for a few elements.
  const View& view = view_of(x);
  const bool repeats = !recording(x) && std::find(view.strides.begin(), view.strides.end(), 0) != view.strides.end();
  const bool reorders = (is_permuted(view) || repeats) && ids.numel() < n / 8 && is_readable(ids);
  const Tensor elements = reorders ? flatten_in_order(x, flat) : x.reshape({n});
  return select_slices("take", elements, 0, flat).reshape(ids.shape());
}

// ---- masks and positions --------------------------------------------------------------------------------------------

Tensor nonzero(const Tensor& x) {
  view_of(x, "nonzero");
  return call("nonzero", {x}, {}, [](const Tensor& x) {
    const View& view = view_of(x);
    const Tensor positions = make_tensor({kernels_of(x).count_nonzero(view), view.shape.size()}, kInt64, x.device());
    kernels_of(x).nonzero(view, view_of(positions));
    return positions;
  });
}

Tensor argwhere(const Tensor& x) { return nonzero(x); }

namespace {

/// The flat positions at which a mask of `shape`, or one that broadcasts to it, is true.
Tensor positions_in(const Tensor& mask, const Shape& shape) {
  const Tensor at = nonzero(mask.expand(shape).reshape({shape.numel()}));
  return at.view({at.size(0)});
}

}  // namespace

Tensor masked_select(const Tensor& x, const Tensor& mask) {
  REEL_CHECK(view_of(mask, "masked_select").dtype == kBool, "masked_select: the mask must be bool, got ", mask.dtype());
  const Shape shape = broadcast_shapes(view_of(x, "masked_select").shape, mask.shape(), "masked_select");
  check_device("masked_select", x, {&mask});
  const Tensor flat = x.expand(shape).reshape({shape.numel()});
  return select_slices("masked_select", flat, 0, positions_in(mask, shape), false, true);
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value) {
  REEL_CHECK(view_of(mask, "masked_fill").dtype == kBool, "masked_fill: the mask must be bool, got ", mask.dtype());
  return where(mask, value_for("masked_fill", x, value), x);
}

Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source) {
  REEL_CHECK(view_of(mask, "masked_scatter").dtype == kBool, "masked_scatter: the mask must be bool, got ",
             mask.dtype());
  const Shape shape = view_of(x, "masked_scatter").shape;
  REEL_CHECK(broadcast_shapes(shape, mask.shape(), "masked_scatter") == shape, "masked_scatter: a mask of shape ",
             mask.shape(), " for a tensor of shape ", shape);
  REEL_CHECK(view_of(source, "masked_scatter").dtype == x.dtype(), "masked_scatter: a ", source.dtype(),
             " source for a tensor of ", x.dtype(), "");
  check_device("masked_scatter", x, {&mask, &source});
  const Tensor at = positions_in(mask, shape);
  const int64_t wanted = at.numel(), got = source.numel();
  REEL_CHECK(got >= wanted, "masked_scatter: the mask has ", wanted, " places, the source only ", got, " elements");
  const Tensor from = source.reshape({got}).narrow(0, 0, wanted);
  return put_slices(x.reshape({shape.numel()}), 0, at, from).reshape(shape);
}
Tensor& TensorMethods::masked_scatter_(const Tensor& mask, const Tensor& source) {
  return assign_in_place("masked_scatter_", self(this), reel::masked_scatter(self(this), mask, source));
}

Tensor one_hot(const Tensor& index, int64_t classes) {
  const Tensor ids = to_ids("one_hot", index, index);
  REEL_CHECK(classes >= -1, "one_hot: ", classes, " classes");
  REEL_CHECK(classes != -1 || ids.numel() > 0, "one_hot: the number of classes is needed where there are no ids");
  if (classes == -1) {
    const int64_t largest = max(ids).item<int64_t>();
    REEL_CHECK(largest < std::numeric_limits<int64_t>::max(), "one_hot: index ", largest,
               " leaves no number of classes");
    classes = largest + 1;
  }
  return call("one_hot", {ids}, {{"classes", classes}}, [&](const Tensor& ids) {
    int64_t bad;
    if (kernels_of(ids).check_bounds("one_hot", view_of(ids), 0, classes, &bad))
      detail::fail("one_hot: index ", bad, " is out of range for ", classes, " classes");
    Shape shape = ids.shape();
    shape.push_back(classes);
    const Tensor y = zeros(shape, {.dtype = kInt64, .device = ids.device()});
    if (ids.numel()) {
      const Tensor one = ones({}, {.dtype = kInt64, .device = ids.device()}), index = ids.unsqueeze(-1);
      kernels_of(y).scatter(ScatterOp::kReplace, view_of(y), shape.size() - 1, view_of(index),
                            expand_view(view_of(one), view_of(index).shape));
    }
    return y;
  });
}

// ---- parts replaced -------------------------------------------------------------------------------------------------

// Returns a copy of x, of which a part becomes `source`. The gradients of both are faster where it is row-major.
static Tensor to_be_changed(const Tensor& x, const Tensor& source) {
  return recording(x, source) ? x.clone() : clone_in_order(x);
}

Tensor select_scatter(const Tensor& x, const Tensor& source, int64_t dim, int64_t index) {
  return call("select_scatter", {x, source}, {{"dim", dim}, {"index", index}},
              [&](const Tensor& x, const Tensor& source) {
                Tensor y = to_be_changed(x, source);
                y.select(dim, index).copy_(source);
                return y;
              });
}
Tensor slice_scatter(const Tensor& x, const Tensor& source, int64_t dim, std::optional<int64_t> start,
                     std::optional<int64_t> stop, int64_t step) {
  return call("slice_scatter", {x, source},
              {{"dim", dim},
               {"start", start.value_or(0)},
               {"stop", stop.value_or(std::numeric_limits<int64_t>::max())},
               {"step", step}},
              [&](const Tensor& x, const Tensor& source) {
                Tensor y = to_be_changed(x, source);
                y.slice(dim, start, stop, step).copy_(source);
                return y;
              });
}
Tensor diagonal_scatter(const Tensor& x, const Tensor& source, int64_t offset, int64_t dim0, int64_t dim1) {
  return call("diagonal_scatter", {x, source}, {{"offset", offset}, {"row", dim0}, {"column", dim1}},
              [&](const Tensor& x, const Tensor& source) {
                Tensor y = to_be_changed(x, source);
                diagonal(y, offset, dim0, dim1).copy_(source);
                return y;
              });
}

namespace {

Tensor triangle_indices(const char* op, int64_t rows, int64_t columns, bool lower, int64_t offset) {
  REEL_CHECK(rows >= 0 && columns >= 0, op, ": a matrix of ", rows, " x ", columns);
  // Row i has the columns [begin, end).
  const auto begin = [&](int64_t i) { return lower ? 0 : std::clamp<int64_t>(i + offset, 0, columns); };
  const auto end = [&](int64_t i) { return lower ? std::clamp<int64_t>(i + offset + 1, 0, columns) : columns; };
  int64_t count = 0;
  for (int64_t i = 0; i < rows; ++i) count += end(i) - begin(i);
  const Tensor indices = make_tensor({2, count}, kInt64);
  int64_t *row = view_of(indices).as<int64_t>(), *column = row + count;
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t first = begin(i), size = end(i) - first;
    row = std::fill_n(row, size, i);
    std::iota(column, column + size, first);
    column += size;
  }
  return indices;
}

}  // namespace

Tensor tril_indices(int64_t rows, int64_t columns, int64_t offset) {
  return triangle_indices("tril_indices", rows, columns, true, offset);
}
Tensor triu_indices(int64_t rows, int64_t columns, int64_t offset) {
  return triangle_indices("triu_indices", rows, columns, false, offset);
}

}  // namespace reel
