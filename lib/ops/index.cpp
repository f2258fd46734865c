#include <numeric>

#include "lib/ops/internal.h"

namespace reel {
namespace {

// ---- checks ---------------------------------------------------------------------------------------------------------

void check_ids(const char* op, const Tensor& x, const Tensor& ids) {
  REEL_CHECK(view_of(ids, op).dtype == kInt64, op, ": indices must be int64, got ", ids.dtype(),
             "; to(kInt64) converts");
  REEL_CHECK(ids.device() == x.device(), op, ": the tensor is on ", x.device(), ", its indices on ", ids.device());
}

void check_range(const char* op, const Tensor& ids, int64_t low, int64_t size, int dim) {
  int64_t bad;
  if (backend_of(ids).find_out_of_range(view_of(ids), low, size, &bad))
    detail::fail(op, ": index ", bad, " is out of range for dimension ", dim, " of size ", size);
}

/// For gather and scatter: index has x's rank and, but for `dim`, no larger sizes. Returns dim, counted from 0.
int check_index(const char* op, const Tensor& x, int64_t dim, const Tensor& index) {
  const Shape& shape = view_of(x, op).shape;
  check_ids(op, x, index);
  const Shape& of_index = view_of(index).shape;
  const int d = wrap_dim(dim, shape.size(), op);
  REEL_CHECK(of_index.size() == shape.size(), op, ": an index of shape ", of_index, " for a tensor of shape ", shape);
  for (int e = 0; e < shape.size(); ++e)
    REEL_CHECK(e == d || of_index[e] <= shape[e], op, ": the index's shape ", of_index, " exceeds ", shape,
               " in dimension ", e);
  check_range(op, index, 0, shape.empty() ? 1 : shape[d], d);
  return d;
}

Tensor zeros_of(const Shape& shape, const Tensor& like) {
  return zeros(shape, {.dtype = like.dtype(), .device = like.device()});
}

// ---- slices along one dimension -------------------------------------------------------------------------------------

Tensor select_slices(const char* op, const Tensor& x, int dim, const Tensor& ids);

/// Zeros of `shape` with the slices of g added at ids along dim.
Tensor add_slices(const Tensor& g, const Shape& shape, int dim, const Tensor& ids) {
  const Tensor y = zeros_of(shape, g), dense = g.contiguous();
  backend_of(y).index_add(view_of(y), dim, view_of(ids), view_of(dense));
  if (recording(g))
    record("index_add", y, inputs(g), [dim, ids = Saved(ids)](Backward& back) {
      back.set(0, select_slices("index_select", back.grad(), dim, back.get(ids)));
    });
  return y;
}

/// Delivers g, the gradient of the slices at ids along dim of a tensor of `shape`: as rows, which the engine collects,
/// where it can. (No rows would be no gradient at all, instead of zeros.)
void give_slices(Backward& back, const Tensor& g, const Shape& shape, int dim, const Tensor& ids, bool sparse) {
  if (dim == 0 && view_of(g).numel && !back.create_graph())
    back.set_rows(0, ids, g, sparse);
  else
    back.set(0, add_slices(g, shape, dim, ids));
}

/// The slices of x at the 1-d ids along dim; the ids have been checked, negative ones count back.
Tensor select_slices(const char* op, const Tensor& x, int dim, const Tensor& ids) {
  const View& view = view_of(x);
  Shape shape = view.shape;
  shape[dim] = view_of(ids).numel;
  const Tensor y = make_tensor(shape, view.dtype, x.device());
  backend_of(x).index_select(view, dim, view_of(ids), view_of(y));
  if (recording(x))
    record(op, y, inputs(x), [shape = view.shape, dim, ids = Saved(ids)](Backward& back) {
      give_slices(back, back.grad(), shape, dim, back.get(ids), false);
    });
  return y;
}

/// x with the slices at ids along dim replaced by those of `source`, which has x's dtype and fits.
Tensor put_slices(const Tensor& x, int dim, const Tensor& ids, const Tensor& source) {
  const Tensor y = no_grad([&] { return x.clone(); });
  backend_of(y).index_copy(view_of(y), dim, view_of(ids), view_of(source));
  if (is_floating_point(x.dtype()) && recording(x, source))
    record("index_put", y, inputs(x, source), [dim, ids = Saved(ids), shape = view_of(source).shape](Backward& back) {
      const Tensor at = back.get(ids);
      if (back.needs(0)) back.set(0, put_slices(back.grad(), dim, at, zeros_of(shape, back.grad())));
      if (back.needs(1)) back.set(1, select_slices("index_select", back.grad(), dim, at));
    });
  return y;
}

}  // namespace

Tensor index_select(const Tensor& x, int64_t dim, const Tensor& ids) {
  const Shape& shape = view_of(x, "index_select").shape;
  check_ids("index_select", x, ids);
  REEL_CHECK(!shape.empty(), "index_select: a 0-d tensor has nothing to select from");
  REEL_CHECK(view_of(ids).shape.size() <= 1, "index_select: indices must be 1-d, got shape ", ids.shape());
  const int d = wrap_dim(dim, shape.size(), "index_select");
  check_range("index_select", ids, 0, shape[d], d);
  return select_slices("index_select", x, d, ids);
}

Tensor embedding(const Tensor& weight, const Tensor& ids, bool sparse) {
  const View& rows = view_of(weight, "embedding");
  check_ids("embedding", weight, ids);
  REEL_CHECK(!rows.shape.empty(), "embedding: the weight needs a dimension of rows, got a 0-d tensor");
  check_range("embedding", ids, 0, rows.shape[0], 0);
  const Tensor dense = ids.contiguous();
  const View& at = view_of(dense);
  Shape shape = at.shape, flat = rows.shape;
  flat[0] = at.numel;
  for (int d = 1; d < rows.shape.size(); ++d) shape.push_back(rows.shape[d]);
  const Tensor y = make_tensor(shape, rows.dtype, weight.device());
  backend_of(y).index_select(rows, 0, make_view(at.data, {at.numel}, {1}, kInt64),
                             make_view(view_of(y).data, flat, contiguous_strides(flat), rows.dtype));
  if (recording(weight))
    record("embedding", y, inputs(weight), [whole = rows.shape, ids = Saved(dense), sparse](Backward& back) {
      const Tensor at = back.get(ids);
      Shape flat = whole;
      flat[0] = at.numel();
      const Tensor g = back.grad().reshape(flat), list = at.dim() == 1 ? at : at.reshape({flat[0]});
      give_slices(back, g, whole, 0, list, sparse);
    });
  return y;
}

// ---- single elements along one dimension ----------------------------------------------------------------------------

Tensor gather(const Tensor& x, int64_t dim, const Tensor& index) {
  const int d = check_index("gather", x, dim, index);
  const View& view = view_of(x);
  const Tensor y = make_tensor(view_of(index).shape, view.dtype, x.device());
  backend_of(x).gather(view, d, view_of(index), view_of(y));
  if (recording(x))
    record("gather", y, inputs(x), [shape = view.shape, d, index = Saved(index)](Backward& back) {
      back.set(0, scatter_add(zeros_of(shape, back.grad()), d, back.get(index), back.grad()));
    });
  return y;
}

namespace {

/// The part of a source that an index uses, in x's dtype.
Tensor source_for(const char* op, const Tensor& x, const Tensor& index, const Tensor& source) {
  const Shape &wanted = view_of(index).shape, &got = view_of(source, op).shape;
  if (TensorImpl::of(source)->number) return source.to(x.dtype()).to(x.device()).expand(wanted);
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

}  // namespace

Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source) {
  const int d = check_index("scatter", x, dim, index);
  const Tensor from = source_for("scatter", x, index, source), y = no_grad([&] { return x.clone(); });
  backend_of(y).scatter(false, view_of(y), d, view_of(index), view_of(from));
  if (is_floating_point(x.dtype()) && recording(x, from))
    record("scatter", y, inputs(x, from), [d, index = Saved(index)](Backward& back) {
      const Tensor at = back.get(index);
      if (back.needs(0)) back.set(0, scatter(back.grad(), d, at, zeros_of(at.shape(), back.grad())));
      if (back.needs(1)) back.set(1, gather(back.grad(), d, at));
    });
  return y;
}

Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source) {
  const int d = check_index("scatter_add", x, dim, index);
  const Tensor from = source_for("scatter_add", x, index, source), y = no_grad([&] { return x.clone(); });
  backend_of(y).scatter(true, view_of(y), d, view_of(index), view_of(from));
  if (is_floating_point(x.dtype()) && recording(x, from))
    record("scatter_add", y, inputs(x, from), [d, index = Saved(index)](Backward& back) {
      back.set(0, back.grad());
      if (back.needs(1)) back.set(1, gather(back.grad(), d, back.get(index)));
    });
  return y;
}

// ---- masks and positions --------------------------------------------------------------------------------------------

Tensor nonzero(const Tensor& x) {
  const View& view = view_of(x, "nonzero");
  const Tensor positions = make_tensor({backend_of(x).count_nonzero(view), view.shape.size()}, kInt64, x.device());
  backend_of(x).nonzero(view, view_of(positions));
  return positions;
}

Tensor masked_select(const Tensor& x, const Tensor& mask) {
  REEL_CHECK(view_of(mask, "masked_select").dtype == kBool, "masked_select: the mask must be bool, got ", mask.dtype());
  const Shape shape = broadcast_shapes(view_of(x, "masked_select").shape, mask.shape(), "masked_select");
  const Shape flat{shape.numel()};
  const Tensor at = nonzero(mask.expand(shape).reshape(flat));
  return index_select(x.expand(shape).reshape(flat), 0, at.view({at.size(0)}));
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value) {
  REEL_CHECK(view_of(mask, "masked_fill").dtype == kBool, "masked_fill: the mask must be bool, got ", mask.dtype());
  return where(mask, value.to(view_of(x, "masked_fill").dtype), x);
}

Tensor one_hot(const Tensor& ids, int64_t classes) {
  check_ids("one_hot", ids, ids);
  REEL_CHECK(classes >= -1, "one_hot: ", classes, " classes");
  REEL_CHECK(classes != -1 || ids.numel() > 0, "one_hot: the number of classes is needed where there are no ids");
  if (classes == -1) classes = max(ids).item<int64_t>() + 1;
  int64_t bad;
  if (backend_of(ids).find_out_of_range(view_of(ids), 0, classes, &bad))
    detail::fail("one_hot: index ", bad, " is out of range for ", classes, " classes");
  Shape shape = ids.shape();
  shape.push_back(classes);
  const Tensor y = zeros(shape, {.dtype = kInt64, .device = ids.device()});
  if (ids.numel()) {
    const Tensor one = ones({}, {.dtype = kInt64, .device = ids.device()}), index = ids.unsqueeze(-1);
    backend_of(y).scatter(false, view_of(y), shape.size() - 1, view_of(index),
                          expand_view(view_of(one), view_of(index).shape));
  }
  return y;
}

// ---- index lists ----------------------------------------------------------------------------------------------------

namespace {

/// An index list, read. Numbers, slices, kNone and kEllipsis have been applied to the tensor, which gave `view`; what
/// remains are index tensors for some of its dimensions.
struct Indexing {
  Tensor view;
  struct Lookup {
    int dim;  // of view
    Tensor ids;
  };
  std::vector<Lookup> lookups;
  int place = 0;  // in the result: where the lookups' common dimensions go
};

/// As NumPy does, numbers count as index tensors where there are others: next to each other they leave their dimensions
/// where they stood, else these come first.
Indexing read(const char* op, const Tensor& x, const std::vector<TensorIndex>& indices) {
  const Shape& shape = view_of(x, op).shape;
  int used = 0, ellipses = 0;
  for (const TensorIndex& index : indices) {
    if (const Tensor* ids = std::get_if<Tensor>(&index.value))
      used += view_of(*ids, op).dtype == kBool ? view_of(*ids).shape.size() : 1;
    else if (std::holds_alternative<EllipsisIndex>(index.value))
      ++ellipses;
    else
      used += !std::holds_alternative<NoneIndex>(index.value);
  }
  REEL_CHECK(ellipses <= 1, op, ": more than one ellipsis");
  REEL_CHECK(used <= shape.size(), op, ": ", used, " indices for a tensor of ", shape.size(), " dimensions");

  Indexing result{.view = x, .lookups = {}};
  Tensor& view = result.view;
  int dim = 0, source = 0;  // the next dimension of view and of x
  int first = -1;           // the result's dimensions before the first lookup
  bool gap = false, apart = false;
  const auto lookup_here = [&] {
    if (first < 0) first = dim - static_cast<int>(result.lookups.size());
    apart = apart || gap;
  };
  const auto add_lookup = [&](const Tensor& ids) {
    const int64_t size = view.size(dim);
    check_range(op, ids, -size, size, source++);
    result.lookups.push_back({dim++, ids});
  };
  for (const TensorIndex& index : indices) {
    if (const int64_t* at = std::get_if<int64_t>(&index.value)) {
      const int64_t size = shape[source];
      REEL_CHECK(*at >= -size && *at < size, op, ": index ", *at, " is out of range for dimension ", source,
                 " of size ", size);
      lookup_here();
      view = view.select(dim, *at);
      ++source;
    } else if (const Tensor* ids = std::get_if<Tensor>(&index.value)) {
      lookup_here();
      const Tensor here = ids->to(x.device());
      if (here.dtype() == kBool) {
        const Shape& mask = view_of(here).shape;
        for (int d = 0; d < mask.size(); ++d)
          REEL_CHECK(mask[d] == shape[source + d], op, ": a mask of shape ", mask, " for dimensions ", source,
                     " and on of shape ", shape);
        const Tensor positions = nonzero(mask.empty() ? here.unsqueeze(0) : here);
        if (mask.empty()) view = view.unsqueeze(dim), --source;
        for (int d = 0; d < std::max(1, mask.size()); ++d) add_lookup(positions.select(1, d));
      } else {
        REEL_CHECK(here.dtype() == kInt64, op, ": a tensor of ", here.dtype(), " is no index; int64 and bool ones are");
        add_lookup(here);
      }
    } else {
      gap = first >= 0;
      if (const Slice* slice = std::get_if<Slice>(&index.value)) {
        view = view.slice(dim, slice->start, slice->stop, slice->step);
        ++dim, ++source;
      } else if (std::holds_alternative<NoneIndex>(index.value)) {
        view = view.unsqueeze(dim++);
      } else {
        dim += shape.size() - used, source += shape.size() - used;
      }
    }
  }
  result.place = apart ? 0 : first;
  return result;
}

/// The lookups as one, along one dimension of a tensor.
struct Lookup {
  Tensor tensor;       // the view with its looked-up dimensions merged
  Shape order, sizes;  // of the view's dimensions before they were merged: how they were permuted, and what that gave
  int dim;
  Tensor ids;   // 1-d
  Shape shape;  // of the index tensors, broadcast together

  /// The shape of what is looked up, with the ids' dimensions as they are.
  Shape result() const {
    Shape all = view_of(tensor).shape;
    all.erase(dim);
    for (int d = 0; d < shape.size(); ++d) all.insert(dim + d, shape[d]);
    return all;
  }
  /// The same with the ids in one dimension.
  Shape flat() const {
    Shape all = view_of(tensor).shape;
    all[dim] = view_of(ids).numel;
    return all;
  }
  /// The order of dimensions that moves those of the ids from dim to place.
  Shape moved_to(int place) const {
    Shape moved;
    for (int d = 0; d < result().size(); ++d)
      if (d < dim || d >= dim + shape.size()) moved.push_back(d);
    for (int d = 0; d < shape.size(); ++d) moved.insert(place + d, dim + d);
    return moved;
  }
};

Shape inverse(const Shape& order) {
  Shape back = order;
  for (int d = 0; d < order.size(); ++d) back[static_cast<int>(order[d])] = d;
  return back;
}

Lookup merge(const char* op, const Indexing& indexing) {
  const auto& lookups = indexing.lookups;
  const int count = static_cast<int>(lookups.size());
  Lookup one{.tensor = indexing.view, .order = {}, .sizes = {}, .dim = lookups[0].dim, .ids = {}, .shape = {}};
  for (const auto& lookup : lookups) one.shape = broadcast_shapes(one.shape, lookup.ids.shape(), op);

  const int rank = static_cast<int>(one.tensor.dim());
  if (lookups.back().dim != one.dim + count - 1) one.dim = 0;  // not neighbours: to the front
  for (int d = 0, next = 0; d < rank; ++d) {
    if (next < count && lookups[next].dim == d)
      ++next;
    else
      one.order.push_back(d);
  }
  for (int i = 0; i < count; ++i) one.order.insert(one.dim + i, lookups[i].dim);
  bool moved = false;
  for (int d = 0; d < rank; ++d) moved = moved || one.order[d] != d;
  if (moved) one.tensor = one.tensor.permute(one.order);
  one.sizes = one.tensor.shape();

  Shape merged = one.sizes;
  for (int i = 1; i < count; ++i) merged[one.dim] *= merged[one.dim + 1], merged.erase(one.dim + 1);
  if (count > 1) one.tensor = one.tensor.reshape(merged);
  for (int i = 0; i < count; ++i) {
    const Tensor& ids = lookups[i].ids;
    const int64_t size = one.sizes[one.dim + i];
    if (count == 1)
      one.ids = ids;
    else
      one.ids = (i ? one.ids * size : Tensor(0)) + where(ids < 0, ids + size, ids);
  }
  one.ids = one.ids.reshape({one.shape.numel()});
  return one;
}

}  // namespace

Tensor Tensor::index(const std::vector<TensorIndex>& indices) const {
  const Indexing indexing = read("index", *this, indices);
  if (indexing.lookups.empty()) return indexing.view;
  const Lookup lookup = merge("index", indexing);
  const Tensor y = select_slices("index", lookup.tensor, lookup.dim, lookup.ids);
  const Tensor shaped = lookup.shape.size() == 1 ? y : y.reshape(lookup.result());
  return indexing.place == lookup.dim ? shaped : shaped.permute(lookup.moved_to(indexing.place));
}

Tensor& Tensor::index_put_(const std::vector<TensorIndex>& indices, const Tensor& value) {
  constexpr const char* op = "index_put_";
  check_in_place(op, *this);
  Indexing indexing = read(op, *this, indices);
  Tensor& view = indexing.view;
  if (indexing.lookups.empty()) return assign_in_place(op, view, value), *this;
  const Tensor* mask = indices.size() == 1 ? &std::get<Tensor>(indices[0].value) : nullptr;
  if (mask && mask->dtype() == kBool && mask->shape() == shape() && view_of(value, op).numel == 1)
    return masked_fill_(mask->to(device()), value.reshape({}));

  const Lookup lookup = merge(op, indexing);
  const Shape order = lookup.moved_to(indexing.place);
  Shape wanted = order;
  const Shape result = lookup.result();
  for (int d = 0; d < order.size(); ++d) wanted[d] = result[static_cast<int>(order[d])];
  REEL_CHECK(broadcast_shapes(wanted, view_of(value, op).shape, op) == wanted, op, ": a value of shape ", value.shape(),
             " for a place of shape ", wanted);
  const Tensor source = value.to(dtype()).to(device()).expand(wanted).permute(inverse(order)).reshape(lookup.flat());

  const Storage* mine = TensorImpl::of(*this)->storage;
  const bool recorded = grad_enabled() && (tracked(*this) || tracked(source));
  if (!recorded && TensorImpl::of(lookup.tensor)->storage == mine && TensorImpl::of(source)->storage != mine &&
      TensorImpl::of(lookup.ids)->storage != mine) {
    backend_of(*this).index_copy(view_of(lookup.tensor), lookup.dim, view_of(lookup.ids), view_of(source));
    TensorImpl::of(*this)->storage->changed();
    return *this;
  }
  const Tensor changed = put_slices(lookup.tensor, lookup.dim, lookup.ids, source);
  assign_in_place(op, view, changed.reshape(lookup.sizes).permute(inverse(lookup.order)));
  return *this;
}

}  // namespace reel
