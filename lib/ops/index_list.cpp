#include "lib/ops/index.h"

#include <algorithm>

// x.index({…}) and x.index_put_({…}, value): NumPy's indexing.
namespace reel {

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
        REEL_CHECK(here.dtype() == kInt64 || here.dtype() == kInt32, op, ": a tensor of ", here.dtype(),
                   " is no index; int64, int32 and bool ones are");
        add_lookup(here.to(kInt64));
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

/// Merges the lookups. A dimension that repeats one slice is reduced to it if the result is `only_read`.
Lookup merge(const char* op, const Indexing& indexing, bool only_read) {
  auto lookups = indexing.lookups;
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
  // In the order of memory, dimensions are merged without a copy.
  const Strides strides = view_of(one.tensor).strides;
  const bool drops = only_read && count > 1 && !recording(one.tensor);
  if (drops || std::none_of(lookups.begin(), lookups.end(), [&](const auto& a) { return strides[a.dim] == 0; }))
    std::stable_sort(lookups.begin(), lookups.end(),
                     [&](const auto& a, const auto& b) { return strides[a.dim] > strides[b.dim]; });
  for (int i = 0; i < count; ++i) one.order.insert(one.dim + i, lookups[i].dim);
  bool moved = false;
  for (int d = 0; d < rank; ++d) moved = moved || one.order[d] != d;
  if (moved) one.tensor = one.tensor.permute(one.order);
  const auto is_dropped = [&](int i) { return drops && strides[lookups[i].dim] == 0; };
  for (int i = 0; i < count; ++i)
    if (is_dropped(i)) one.tensor = one.tensor.narrow(one.dim + i, 0, 1);
  one.sizes = one.tensor.shape();

  Shape merged = one.sizes;
  for (int i = 1; i < count; ++i) merged[one.dim] *= merged[one.dim + 1], merged.erase(one.dim + 1);
  if (count > 1) one.tensor = one.tensor.reshape(merged);
  for (int i = 0; i < count; ++i) {
    const Tensor& ids = lookups[i].ids;
    const int64_t size = one.sizes[one.dim + i];
    if (count == 1)
      one.ids = ids;
    else if (!is_dropped(i))
      one.ids = (i ? one.ids * size : Tensor(0)) + where(ids < 0, ids + size, ids);
    else if (i == 0)
      one.ids = zeros({}, {.dtype = kInt64, .device = ids.device()});
  }
  one.ids = one.ids.expand(one.shape).reshape({one.shape.numel()});
  return one;
}

}  // namespace

Tensor Tensor::index(const std::vector<TensorIndex>& indices) const {
  const Indexing indexing = read("index", *this, indices);
  if (indexing.lookups.empty())  // without recording a view, as all views that are made there
    return grad_enabled() || !indexing.view.is_same(*this) ? indexing.view : expand_to(*this, shape());
  const Lookup lookup = merge("index", indexing, true);
  const Tensor y = select_slices("index", lookup.tensor, lookup.dim, lookup.ids);
  const Tensor shaped = lookup.shape.size() == 1 ? y : y.reshape(lookup.result());
  return indexing.place == lookup.dim ? shaped : shaped.permute(lookup.moved_to(indexing.place));
}

Tensor index_put(const Tensor& x, const std::vector<TensorIndex>& indices, const Tensor& value, bool accumulate) {
  Tensor y = x.clone();
  return y.index_put_(indices, value, accumulate);
}

Tensor& TensorMethods::index_put_(const std::vector<TensorIndex>& indices, const Tensor& value, bool accumulate) {
  constexpr const char* op = "index_put_";
  Tensor& x = self(this);
  check_in_place(op, x);
  Indexing indexing = read(op, x, indices);
  Tensor& view = indexing.view;
  const bool joins = accumulate || !indexing.lookups.empty();  // otherwise it is a copy_, which converts
  REEL_CHECK(!joins || x.is_floating_point() || !is_floating_point(view_of(value, op).dtype) ||
                 TensorImpl::of(value)->is_wrapped_number,
             op, ": a ", value.dtype(), " value for a tensor of ", x.dtype(), "; to(", x.dtype(), ") converts it");
  if (indexing.lookups.empty()) {
    const bool is_number = TensorImpl::of(value)->is_wrapped_number;
    const Tensor fitting = accumulate || is_number ? value_for(op, x, value) : value;
    assign_in_place(op, view, accumulate ? view + fitting : fitting);
    return x;
  }
  const Tensor* mask = indices.size() == 1 ? &std::get<Tensor>(indices[0].value) : nullptr;
  if (mask && !accumulate && mask->dtype() == kBool && mask->shape() == x.shape() && view_of(value, op).numel == 1)
    return masked_fill_(mask->to(x.device()), value.reshape({}));

  const Lookup lookup = merge(op, indexing, false);
  const Shape order = lookup.moved_to(indexing.place);
  Shape wanted = order;
  const Shape result = lookup.result();
  for (int d = 0; d < order.size(); ++d) wanted[d] = result[static_cast<int>(order[d])];
  REEL_CHECK(broadcast_shapes(wanted, view_of(value, op).shape, op) == wanted, op, ": a value of shape ", value.shape(),
             " for a place of shape ", wanted);
  const Tensor source =
      value_for(op, x, value).to(x.device()).expand(wanted).permute(inverse(order)).reshape(lookup.flat());

  const bool is_part = TensorImpl::of(lookup.tensor)->storage == TensorImpl::of(x)->storage;
  if (!recording(x, source) && !is_tracing() && is_part && !shares_memory(source, x) && !shares_memory(lookup.ids, x)) {
    const auto write = accumulate ? kernels_of(x).index_add : kernels_of(x).index_copy;
    write(view_of(lookup.tensor), lookup.dim, view_of(lookup.ids), view_of(source));
    TensorImpl::of(x)->storage->changed();
    return x;
  }
  const Tensor changed = (accumulate ? add_slices : put_slices)(lookup.tensor, lookup.dim, lookup.ids, source);
  const View &part = view_of(view), &all = view_of(x);
  const bool whole = part.data == all.data && part.shape == all.shape && part.strides == all.strides;
  // A write to all of x is traced, one into a view of it is not.
  assign_in_place(op, whole ? x : view, changed.reshape(lookup.sizes).permute(inverse(lookup.order)));
  return x;
}

}  // namespace reel
