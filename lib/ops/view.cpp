#include <algorithm>
#include <numeric>

#include "lib/ops/internal.h"

namespace reel {

// ---- views of everything --------------------------------------------------------------------------------------------

namespace {

// The same elements under another shape, whose gradient is reshaped back.
Tensor reshaped(const char* name, const Tensor& x, const Shape& shape, const Strides& strides) {
  return call("reshape", {x}, {}, [&](const Tensor& x) {
    const Tensor y = alias(x, view_of(x).data, shape, strides);
    if (recording(x))
      record(name, y, inputs(x),
             [shape = view_of(x).shape](Backward& back) { back.set(0, back.grad().reshape(shape)); });
    return y;
  });
}

// x itself; without recording a view, which like all views that are made there has no history.
Tensor whole_view(const Tensor& x) {
  const View& view = view_of(x);
  return grad_enabled() || !needs_grad(x) ? x : alias(x, view.data, view.shape, view.strides);
}

// A requested shape with its -1 filled in.
Shape infer(const char* op, const Shape& requested, int64_t numel, const Shape& have) {
  Shape shape = requested;
  int unknown = -1;
  int64_t known = 1;
  for (int d = 0; d < shape.size(); ++d) {
    if (shape[d] == -1) {
      REEL_CHECK(unknown < 0, op, ": more than one -1 in ", requested);
      unknown = d;
    } else {
      REEL_CHECK(shape[d] >= 0, op, ": negative size in ", requested);
      REEL_CHECK(!__builtin_mul_overflow(known, shape[d], &known), op, ": shape ", requested, " is too large");
    }
  }
  if (unknown >= 0 && known != 0 && numel % known == 0) shape[unknown] = numel / known;
  REEL_CHECK((unknown < 0 ? known == numel : known != 0 && numel % known == 0), op, ": shape ", have, " has ", numel,
             " elements, which do not fit ", requested);
  return shape;
}

// Strides that show x's elements under `shape`, if there are any: each group of x's dimensions that is laid out as one
// must be filled by a group of new ones.
bool view_strides(const View& x, const Shape& shape, Strides& strides) {
  strides = shape;
  if (x.contiguous || x.numel == 0) {
    strides = contiguous_strides(shape);
    return true;
  }
  int d = shape.size() - 1;
  int64_t group = 1, base = 0;
  bool open = false;
  for (int o = x.shape.size() - 1; o >= 0; --o) {
    if (!open) base = x.strides[o], group = 1, open = true;
    group *= x.shape[o];
    const bool last = o == 0 || (x.shape[o - 1] != 1 && x.strides[o - 1] != group * base);
    if (!last) continue;
    int64_t filled = 1;
    while (d >= 0 && (filled < group || shape[d] == 1)) {
      strides[d] = filled * base;
      filled *= shape[d];
      --d;
    }
    if (filled != group) return false;
    open = false;
  }
  return d < 0;
}

}  // namespace

Tensor Tensor::view(const Shape& requested) const {
  const View& x = view_of(*this, "view");
  const Shape shape = infer("view", requested, x.numel, x.shape);
  Strides strides;
  REEL_CHECK(view_strides(x, shape, strides), "view: shape ", x.shape, " with strides ", x.strides,
             " cannot be seen as ", shape, " without a copy; use reshape");
  return reshaped("view", *this, shape, strides);
}

Tensor Tensor::reshape(const Shape& requested) const {
  const View& x = view_of(*this, "reshape");
  const Shape shape = infer("reshape", requested, x.numel, x.shape);
  Strides strides;
  if (view_strides(x, shape, strides)) return reshaped("reshape", *this, shape, strides);
  return reshaped("reshape", clone(), shape, contiguous_strides(shape));
}

Tensor Tensor::flatten(int64_t start_dim, int64_t end_dim) const {
  const View& x = view_of(*this, "flatten");
  if (x.shape.empty()) return reshape({1});
  const int from = wrap_dim(start_dim, x.shape.size(), "flatten"), to = wrap_dim(end_dim, x.shape.size(), "flatten");
  REEL_CHECK(from <= to, "flatten: start_dim ", start_dim, " comes after end_dim ", end_dim);
  if (from == to) return *this;
  Shape shape;
  for (int d = 0; d < x.shape.size(); ++d)
    if (d > from && d <= to)
      shape[shape.size() - 1] *= x.shape[d];
    else
      shape.push_back(x.shape[d]);
  return reshape(shape);
}

Tensor Tensor::permute(const Shape& dims) const {
  const View& x = view_of(*this, "permute");
  REEL_CHECK(dims.size() == x.shape.size(), "permute: ", dims, " for a tensor of ", x.shape.size(), " dimensions");
  Shape shape = x.shape, inverse = x.shape;
  Strides strides = x.strides;
  unsigned seen = 0;
  for (int d = 0; d < dims.size(); ++d) {
    const int from = wrap_dim(dims[d], dims.size(), "permute");
    REEL_CHECK(!(seen >> from & 1), "permute: dimension ", from, " twice in ", dims);
    seen |= 1u << from;
    shape[d] = x.shape[from], strides[d] = x.strides[from], inverse[from] = d;
  }
  return call("permute", {*this}, {{"dims", dims}}, [&](const Tensor& x) {
    const Tensor y = alias(x, view_of(x).data, shape, strides);
    if (recording(x))
      record("permute", y, inputs(x), [inverse](Backward& back) { back.set(0, back.grad().permute(inverse)); });
    return y;
  });
}

Tensor Tensor::transpose(int64_t dim0, int64_t dim1) const {
  const View& x = view_of(*this, "transpose");
  const int rank = x.shape.size(), a = wrap_dim(dim0, rank, "transpose"), b = wrap_dim(dim1, rank, "transpose");
  if (a == b) return whole_view(*this);
  Shape order = x.shape;
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[a], order[b]);
  return permute(order);
}

Tensor Tensor::t() const {
  REEL_CHECK(view_of(*this, "t").shape.size() <= 2, "t: a tensor of shape ", shape(),
             "; transpose names two dimensions");
  return dim() < 2 ? whole_view(*this) : transpose(0, 1);
}

Tensor Tensor::squeeze() const {
  const View& x = view_of(*this, "squeeze");
  Shape shape;
  Strides strides;
  for (int d = 0; d < x.shape.size(); ++d)
    if (x.shape[d] != 1) shape.push_back(x.shape[d]), strides.push_back(x.strides[d]);
  return reshaped("squeeze", *this, shape, strides);
}

Tensor Tensor::squeeze(int64_t dim) const {
  const View& x = view_of(*this, "squeeze");
  const int d = wrap_dim(dim, x.shape.size(), "squeeze");
  if (x.shape.empty() || x.shape[d] != 1) return whole_view(*this);
  Shape shape = x.shape;
  Strides strides = x.strides;
  shape.erase(d), strides.erase(d);
  return reshaped("squeeze", *this, shape, strides);
}

Tensor Tensor::unsqueeze(int64_t dim) const {
  const View& x = view_of(*this, "unsqueeze");
  const int d = wrap_dim(dim, x.shape.size() + 1, "unsqueeze");
  Shape shape = x.shape;
  Strides strides = x.strides;
  strides.insert(d, d < x.shape.size() ? x.shape[d] * x.strides[d] : 1);
  shape.insert(d, 1);
  return reshaped("unsqueeze", *this, shape, strides);
}

Tensor Tensor::expand(const Shape& requested) const {
  const View& x = view_of(*this, "expand");
  const int lead = requested.size() - x.shape.size();
  REEL_CHECK(lead >= 0, "expand: shape ", x.shape, " has more dimensions than ", requested);
  Shape shape = requested;
  for (int d = 0; d < shape.size(); ++d) {
    if (d >= lead && shape[d] == -1) shape[d] = x.shape[d - lead];
    REEL_CHECK(shape[d] >= 0 && (d < lead || x.shape[d - lead] == 1 || x.shape[d - lead] == shape[d]), "expand: shape ",
               x.shape, " does not expand to ", requested);
  }
  return expand_to(*this, shape);
}

// ---- views of parts -------------------------------------------------------------------------------------------------

// Traces have positions as the caller wrote them: -1 is not the same as size - 1, nor 32 the same as a size that is
// less.
constexpr int64_t kEnd = INT64_MAX;

Tensor Tensor::narrow(int64_t dim, int64_t start, int64_t length) const {
  const Shape& sizes = view_of(*this, "narrow").shape;
  const int d = wrap_dim(dim, sizes.size(), "narrow");
  REEL_CHECK(!sizes.empty() && start >= -sizes[d] && length >= 0, "narrow: start ", start, ", length ", length,
             " for shape ", sizes);
  const int64_t given = start;
  if (start < 0) start += sizes[d];
  REEL_CHECK(start <= sizes[d] - length, "narrow: start ", start, " + length ", length, " exceeds size ", sizes[d],
             " of dimension ", d);
  const int64_t stop = given < 0 && given + length == 0 ? kEnd : given + length;
  return call("slice", {*this}, {{"dim", d}, {"start", given}, {"stop", stop}, {"step", 1}}, [&](const Tensor& x) {
    return region_view("narrow", x, [=](const StridedLayout& whole) {
      StridedLayout part = whole;
      part.offset += start * whole.strides[d];
      part.shape[d] = length;
      return part;
    });
  });
}

Tensor Tensor::slice(int64_t dim, std::optional<int64_t> start, std::optional<int64_t> stop, int64_t step) const {
  const Shape& sizes = view_of(*this, "slice").shape;
  const int d = wrap_dim(dim, sizes.size(), "slice");
  REEL_CHECK(!sizes.empty(), "slice: a 0-d tensor cannot be sliced");
  REEL_CHECK(step > 0, "slice: step ", step, " is not positive");
  const int64_t size = sizes[d];
  const auto bound = [size](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size); };
  const int64_t from = bound(start.value_or(0)), to = std::max(from, bound(stop.value_or(size)));
  return call("slice", {*this},
              {{"dim", d}, {"start", start.value_or(0)}, {"stop", stop.value_or(kEnd)}, {"step", step}},
              [&](const Tensor& x) {
                return region_view("slice", x, [=](const StridedLayout& whole) {
                  StridedLayout part = whole;
                  part.offset += from * whole.strides[d];
                  part.shape[d] = from < to ? (to - from - 1) / step + 1 : 0;
                  if (part.shape[d] > 1) part.strides[d] *= step;
                  return part;
                });
              });
}

Tensor Tensor::select(int64_t dim, int64_t index) const {
  const Shape& sizes = view_of(*this, "select").shape;
  REEL_CHECK(!sizes.empty(), "select: a 0-d tensor has no element ", index);
  const int d = wrap_dim(dim, sizes.size(), "select");
  REEL_CHECK(index >= -sizes[d] && index < sizes[d], "select: index ", index, " is out of range for dimension ", d,
             " of size ", sizes[d]);
  const int64_t at = index < 0 ? index + sizes[d] : index;
  return call("select", {*this}, {{"dim", d}, {"index", index}}, [&](const Tensor& x) {
    return region_view("select", x, [=](const StridedLayout& whole) {
      StridedLayout part = whole;
      part.offset += at * whole.strides[d];
      part.shape.erase(d), part.strides.erase(d);
      return part;
    });
  });
}

}  // namespace reel
