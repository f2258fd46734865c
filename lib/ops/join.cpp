#include <array>

#include "lib/autograd/tape.h"
#include "lib/core/tensor_impl.h"
#include "lib/ops/internal.h"
#include "reel/ops.h"

namespace reel {
namespace {

// ---- parts of a result ----------------------------------------------------------------------------------------------

/// The part start … start + size - 1 of y along dim.
View part_of(const View& y, int dim, int64_t start, int64_t size) {
  Shape shape = y.shape;
  shape[dim] = size;
  return make_view(y.as<char>() + start * y.strides[dim] * size_of(y.dtype), shape, y.strides, y.dtype);
}

/// Up to this many inputs are recorded without the heap.
constexpr size_t kFew = 4;

template <class Rule>
void record_join(const char* name, const Tensor& y, std::span<const Tensor> tensors, Rule rule) {
  if (tensors.size() > kFew) return record(name, {&y, 1}, tensors, std::move(rule));
  const Tensor *out = &y, *ins[kFew];
  for (size_t i = 0; i < tensors.size(); ++i) ins[i] = &tensors[i];
  record_always(name, {&out, 1}, {ins, tensors.size()}, std::move(rule));
}

template <class Sizes>
void record_cat(const Tensor& y, std::span<const Tensor> tensors, int dim, Sizes sizes) {
  const int count = static_cast<int>(tensors.size());
  for (int i = 0; i < count; ++i) sizes[i] = view_of(tensors[i]).shape[dim];
  record_join("cat", y, tensors, [dim, count, sizes = std::move(sizes)](Backward& back) {
    int64_t start = 0;
    for (int i = 0; i < count; start += sizes[i++])
      if (back.needs(i)) back.set(i, back.grad().narrow(dim, start, sizes[i]));
  });
}

/// The dtype of the joined tensor, after a look at all that is joined.
DType joined_type(const char* op, std::span<const Tensor> tensors) {
  REEL_CHECK(!tensors.empty(), op, ": no tensors");
  const View& first = view_of(tensors[0], op);
  DType dtype = first.dtype;
  for (const Tensor& x : tensors) {
    const View& view = view_of(x, op);
    REEL_CHECK(x.device() == tensors[0].device(), op, ": tensors on ", tensors[0].device(), " and ", x.device());
    if (view.dtype != dtype) dtype = promote_types(dtype, view.dtype);
  }
  return dtype;
}

}  // namespace

// ---- cat, stack and their opposites ---------------------------------------------------------------------------------

Tensor cat(std::span<const Tensor> tensors, int64_t dim) {
  const DType dtype = joined_type("cat", tensors);
  Shape shape = view_of(tensors[0]).shape;
  REEL_CHECK(!shape.empty(), "cat: 0-d tensors cannot be joined; stack them");
  const int d = wrap_dim(dim, shape.size(), "cat");
  for (size_t i = 1; i < tensors.size(); ++i) {
    const Shape& other = view_of(tensors[i]).shape;
    bool fits = other.size() == shape.size();
    for (int e = 0; fits && e < shape.size(); ++e) fits = e == d || other[e] == shape[e];
    REEL_CHECK(fits, "cat: shapes ", tensors[0].shape(), " and ", other, " differ in more than dimension ", d);
    REEL_CHECK(!__builtin_add_overflow(shape[d], other[d], &shape[d]), "cat: too many elements");
  }
  const Tensor y = make_tensor(shape, dtype, tensors[0].device());
  const View& whole = view_of(y);
  const Backend& kernels = backend_of(y);
  int64_t start = 0;
  for (const Tensor& x : tensors) {
    const View& from = view_of(x);
    kernels.copy(from, part_of(whole, d, start, from.shape[d]));
    start += from.shape[d];
  }
  if (recording(tensors) && is_floating_point(dtype)) {
    if (tensors.size() <= kFew)
      record_cat(y, tensors, d, std::array<int64_t, kFew>());
    else
      record_cat(y, tensors, d, std::vector<int64_t>(tensors.size()));
  }
  return y;
}

Tensor stack(std::span<const Tensor> tensors, int64_t dim) {
  const DType dtype = joined_type("stack", tensors);
  const Shape& each = view_of(tensors[0]).shape;
  for (const Tensor& x : tensors)
    REEL_CHECK(view_of(x).shape == each, "stack: shapes ", each, " and ", x.shape(), " differ");
  Shape shape = each;
  const int d = wrap_dim(dim, each.size() + 1, "stack");
  shape.insert(d, static_cast<int64_t>(tensors.size()));
  const Tensor y = make_tensor(shape, dtype, tensors[0].device());
  const View& whole = view_of(y);
  Strides strides = whole.strides;
  strides.erase(d);
  for (size_t i = 0; i < tensors.size(); ++i) {
    char* at = whole.as<char>() + static_cast<int64_t>(i) * whole.strides[d] * size_of(dtype);
    backend_of(y).copy(view_of(tensors[i]), make_view(at, each, strides, dtype));
  }
  if (recording(tensors) && is_floating_point(dtype))
    record_join("stack", y, tensors, [d, count = static_cast<int>(tensors.size())](Backward& back) {
      for (int i = 0; i < count; ++i)
        if (back.needs(i)) back.set(i, back.grad().select(d, i));
    });
  return y;
}

std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim) {
  const View& view = view_of(x, "split");
  const int d = wrap_dim(dim, view.shape.size(), "split");
  REEL_CHECK(!view.shape.empty(), "split: a 0-d tensor cannot be split");
  int64_t left = view.shape[d];
  for (const int64_t size : sizes) {
    REEL_CHECK(size >= 0 && size <= left, "split: sizes ", Shape(sizes), " do not add up to ", view.shape[d],
               ", the size of dimension ", d);
    left -= size;
  }
  REEL_CHECK(left == 0, "split: the sizes add up to ", view.shape[d] - left, ", but dimension ", d, " has size ",
             view.shape[d]);
  std::vector<Tensor> parts;
  parts.reserve(sizes.size());
  int64_t start = 0;
  for (const int64_t size : sizes) parts.push_back(x.narrow(d, start, size)), start += size;
  return parts;
}

std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim) {
  const View& view = view_of(x, "split");
  const int d = wrap_dim(dim, view.shape.size(), "split");
  REEL_CHECK(!view.shape.empty(), "split: a 0-d tensor cannot be split");
  REEL_CHECK(size > 0, "split: the size must be positive, got ", size);
  std::vector<Tensor> parts;
  int64_t start = 0;
  do {
    const int64_t length = std::min(size, view.shape[d] - start);
    parts.push_back(x.narrow(d, start, length));
    start += length;
  } while (start < view.shape[d]);
  return parts;
}

std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim) {
  REEL_CHECK(chunks > 0, "chunk: the number of chunks must be positive, got ", chunks);
  const int64_t size = x.size(dim);
  return split(x, std::max<int64_t>(1, size / chunks + (size % chunks != 0)), dim);
}

// ---- other orders and parts of the elements -------------------------------------------------------------------------

Tensor flip(const Tensor& x, const Dims& dims) {
  const View& view = view_of(x, "flip");
  View mirrored = view;
  unsigned seen = 0;
  for (const int64_t dim : dims.dims) {
    const int d = wrap_dim(dim, view.shape.size(), "flip");
    REEL_CHECK(!(seen >> d & 1), "flip: dimension ", dim, " is named twice in ", dims.dims);
    seen |= 1u << d;
    if (view.numel == 0 || view.shape.empty()) continue;
    mirrored.data = mirrored.as<char>() + (view.shape[d] - 1) * view.strides[d] * size_of(view.dtype);
    mirrored.strides[d] = -view.strides[d];
    mirrored.contiguous = mirrored.contiguous && view.shape[d] == 1;
  }
  const Tensor y = make_tensor(view.shape, view.dtype, x.device());
  backend_of(x).copy(mirrored, view_of(y));
  if (recording(x)) record("flip", y, inputs(x), [dims](Backward& back) { back.set(0, flip(back.grad(), dims)); });
  return y;
}

Tensor roll(const Tensor& x, int64_t shift, int64_t dim) {
  const View& view = view_of(x, "roll");
  const int d = wrap_dim(dim, view.shape.size(), "roll");
  if (view.numel == 0 || view.shape.empty()) return x.clone();
  const int64_t size = view.shape[d], last = (shift % size + size) % size;
  return cat({x.narrow(d, size - last, last), x.narrow(d, 0, size - last)}, d);
}

Tensor repeat(const Tensor& x, const Shape& repeats) {
  Shape shape = view_of(x, "repeat").shape, times = repeats;
  while (shape.size() < times.size()) shape.insert(0, 1);
  while (times.size() < shape.size()) times.insert(0, 1);
  Tensor y = x.reshape(shape);
  for (int d = shape.size() - 1; d >= 0; --d) {
    REEL_CHECK(times[d] >= 0, "repeat: negative count in ", repeats);
    if (times[d] == 1) continue;
    int64_t outer = 1, inner = 1;
    for (int e = 0; e < shape.size(); ++e) (e < d ? outer : inner) *= shape[e];
    REEL_CHECK(!__builtin_mul_overflow(shape[d], times[d], &shape[d]), "repeat: too many elements");
    y = y.reshape({outer, 1, inner}).expand({outer, times[d], inner}).reshape(shape);
  }
  return TensorImpl::of(y)->storage == TensorImpl::of(x)->storage ? y.clone() : y;
}

namespace {

/// column - row for the last two dimensions of x.
Tensor distance_from_diagonal(const char* op, const Tensor& x) {
  REEL_CHECK(view_of(x, op).shape.size() >= 2, op, ": expected a matrix or a batch of them, got shape ", x.shape());
  const TensorOptions options{.device = x.device()};
  return arange(0, x.size(-1), 1, options) - arange(0, x.size(-2), 1, options).unsqueeze(1);
}
Tensor zero_like(const Tensor& x) { return zeros({}, {.dtype = x.dtype(), .device = x.device()}); }

}  // namespace

Tensor tril(const Tensor& x, int64_t diagonal) {
  return where(distance_from_diagonal("tril", x) <= diagonal, x, zero_like(x));
}
Tensor triu(const Tensor& x, int64_t diagonal) {
  return where(distance_from_diagonal("triu", x) >= diagonal, x, zero_like(x));
}

Tensor diag(const Tensor& x, int64_t diagonal) {
  const Shape& shape = view_of(x, "diag").shape;
  REEL_CHECK(shape.size() == 1 || shape.size() == 2, "diag: expected a vector or a matrix, got shape ", shape);
  const int64_t right = std::max<int64_t>(diagonal, 0), down = std::max<int64_t>(-diagonal, 0);
  // The flat positions of `count` elements of a diagonal in rows of n.
  const auto positions = [&](int64_t count, int64_t n) {
    return arange(0, count, 1, {.device = x.device()}) * (n + 1) + (down * n + right);
  };
  if (shape.size() == 1) {
    const int64_t n = shape[0] + right + down;
    const Tensor flat = zeros({n * n}, {.dtype = x.dtype(), .device = x.device()});
    return scatter_add(flat, 0, positions(shape[0], n), x).view({n, n});
  }
  const int64_t count = std::max<int64_t>(0, std::min(shape[0] - down, shape[1] - right));
  return index_select(x.reshape({shape.numel()}), 0, positions(count, shape[1]));
}

// ---- sorting --------------------------------------------------------------------------------------------------------

namespace {

View swap_dims(View view, int a, int b) {
  if (a == b) return view;
  std::swap(view.shape[a], view.shape[b]);
  std::swap(view.strides[a], view.strides[b]);
  view.contiguous = is_contiguous(view.shape, view.strides) || view.numel == 0;
  return view;
}

/// The first k elements in order along d, contiguous.
ValuesIndices ranked(const char* op, const Tensor& x, int d, int64_t k, bool descending) {
  const View& view = view_of(x);
  const int last = std::max(0, view.shape.size() - 1);
  const View rows = view.shape.empty() ? view : swap_dims(view, d, last);
  Tensor values = make_tensor(rows.shape, view.dtype, x.device()), order = make_tensor(rows.shape, kInt64, x.device());
  backend_of(x).sort(descending, rows, view_of(values), view_of(order));
  if (!view.shape.empty() && (d != last || k != view.shape[d])) {
    const auto first = [&](const Tensor& all) {
      const View part = swap_dims(part_of(view_of(all), last, 0, k), d, last);
      const Tensor y = make_tensor(part.shape, part.dtype, x.device());
      return backend_of(x).copy(part, view_of(y)), y;
    };
    values = first(values);
    order = first(order);
  }
  if (recording(x))
    record(op, values, inputs(x), [shape = view.shape, order = Saved(order), d](Backward& back) {
      const Tensor& g = back.grad();
      back.set(0, scatter_add(zeros(shape, {.dtype = g.dtype(), .device = g.device()}), d, back.get(order), g));
    });
  return {values, order};
}

}  // namespace

ValuesIndices sort(const Tensor& x, int64_t dim, bool descending) {
  const Shape& shape = view_of(x, "sort").shape;
  const int d = wrap_dim(dim, shape.size(), "sort");
  return ranked("sort", x, d, shape.empty() ? 1 : shape[d], descending);
}

ValuesIndices topk(const Tensor& x, int64_t k, int64_t dim, bool largest) {
  const Shape& shape = view_of(x, "topk").shape;
  const int d = wrap_dim(dim, shape.size(), "topk");
  const int64_t size = shape.empty() ? 1 : shape[d];
  REEL_CHECK(k >= 0 && k <= size, "topk: k = ", k, " of dimension ", d, " of size ", size);
  REEL_CHECK(!shape.empty() || k == 1, "topk: k = 0 of a 0-d tensor");
  return ranked("topk", x, d, k, largest);
}

}  // namespace reel
