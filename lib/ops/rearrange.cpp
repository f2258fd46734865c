#include <algorithm>
#include <limits>

#include "lib/ops/internal.h"
#include "lib/ops/pointwise.h"

// The rearranging part of join.h.
namespace reel {

// ---- other orders and parts of the elements -------------------------------------------------------------------------

Tensor flip(const Tensor& x, const Dims& dims) {
  view_of(x, "flip");
  return call("flip", {x}, {{"dims", dims.dims}}, [&](const Tensor& x) {
    const View& view = view_of(x);
    if (const auto order = memory_order(view.shape, {&view})) {
      Dims permuted = dims;
      for (int64_t& dim : permuted.dims) dim = order->inverse[wrap_dim(dim, view.shape.size(), "flip")];
      return order->undo(flip(order->apply(x), permuted));
    }
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
    kernels_of(x).copy(mirrored, view_of(y));
    if (recording(x)) record("flip", y, inputs(x), [dims](Backward& back) { back.set(0, flip(back.grad(), dims)); });
    return y;
  });
}

Tensor roll(const Tensor& x, int64_t shift, int64_t dim) {
  const View& view = view_of(x, "roll");
  const int d = wrap_dim(dim, view.shape.size(), "roll");
  if (view.numel == 0 || view.shape.empty()) return x.clone();
  return call("roll", {x}, {{"shift", shift}, {"dim", d}}, [&](const Tensor& x) {
    const int64_t size = view_of(x).shape[d], last = (shift % size + size) % size;
    return cat({x.narrow(d, size - last, last), x.narrow(d, 0, size - last)}, d);
  });
}

Tensor fliplr(const Tensor& x) {
  REEL_CHECK(view_of(x, "fliplr").shape.size() >= 2, "fliplr: expected at least two dimensions, got shape ", x.shape());
  return flip(x, 1);
}
Tensor flipud(const Tensor& x) {
  REEL_CHECK(view_of(x, "flipud").shape.size() >= 1, "flipud: expected at least one dimension, got shape ", x.shape());
  return flip(x, 0);
}

Tensor rot90(const Tensor& x, int64_t k, const Dims& dims) {
  const int rank = view_of(x, "rot90").shape.size();
  REEL_CHECK(dims.dims.size() == 2, "rot90: expected two dimensions, got ", dims.dims);
  const int from = wrap_dim(dims.dims[0], rank, "rot90"), to = wrap_dim(dims.dims[1], rank, "rot90");
  REEL_CHECK(from != to, "rot90: dimension ", from, " is named twice in ", dims.dims);
  switch ((k % 4 + 4) % 4) {
    case 1: return flip(x, to).transpose(from, to);
    case 2: return flip(x, {from, to});
    case 3: return flip(x, from).transpose(from, to);
    default: return x.clone();
  }
}

Tensor tile(const Tensor& x, const Shape& repeats) { return repeat(x, repeats); }

namespace {

/// x and a dimension of it; the flat x where there is none.
std::pair<Tensor, int> along_or_flat(const char* op, const Tensor& x, std::optional<int64_t> dim) {
  const View& view = view_of(x, op);
  if (!dim || view.shape.empty()) return {x.reshape({view.numel}), wrap_dim(dim.value_or(0), 1, op)};
  return {x, wrap_dim(*dim, view.shape.size(), op)};
}

}  // namespace

Tensor repeat_interleave(const Tensor& input, int64_t repeats, std::optional<int64_t> dim) {
  const auto [x, d] = along_or_flat("repeat_interleave", input, dim);
  REEL_CHECK(repeats >= 0, "repeat_interleave: ", repeats, " repeats");
  Shape wide = x.shape(), result = x.shape();
  REEL_CHECK(!__builtin_mul_overflow(result[d], repeats, &result[d]), "repeat_interleave: too many elements");
  wide.insert(d + 1, repeats);
  const Tensor from = d + 1 == x.dim() ? x.contiguous() : x;  // what lies apart is better not read for each repeat
  return from.unsqueeze(d + 1).expand(wide).clone().view(result);
}

Tensor repeat_interleave(const Tensor& input, const Tensor& repeats, std::optional<int64_t> dim) {
  const auto [x, d] = along_or_flat("repeat_interleave", input, dim);
  const Tensor counts = to_ids("repeat_interleave", x, repeats);
  const Shape& shape = counts.shape();
  if (counts.numel() == 1) return repeat_interleave(x, counts.item<int64_t>(), d);
  REEL_CHECK(shape.size() == 1 && shape[0] == x.size(d), "repeat_interleave: repeats of shape ", shape,
             " for dimension ", d, " of size ", x.size(d));
  int64_t bad;
  if (kernels_of(x).check_bounds("repeat_interleave", view_of(counts), 0, std::numeric_limits<int64_t>::max(), &bad))
    detail::fail("repeat_interleave: ", bad, " repeats");
  const Tensor ends = cumsum(counts, 0);  // of numbers that are not negative: the first sum that wraps is negative
  REEL_CHECK(
      !kernels_of(x).check_bounds("repeat_interleave", view_of(ends), 0, std::numeric_limits<int64_t>::max(), &bad),
      "repeat_interleave: too many elements");
  // The number of lines that end before each place, those of 0 repeats included, is the line that it repeats.
  const int64_t total = shape[0] ? ends[-1].item<int64_t>() : 0;
  const TensorOptions whole{.dtype = kInt64, .device = x.device()};
  const Tensor ended = index_add(zeros({total + 1}, whole), 0, ends, full({}, 1, whole).expand(shape));
  return index_select(x, d, cumsum(ended.narrow(0, 0, total), 0));
}

Tensor repeat(const Tensor& x, const Shape& repeats) {
  Shape shape = view_of(x, "repeat").shape, times = repeats;
  while (shape.size() < times.size()) shape.insert(0, 1);
  while (times.size() < shape.size()) times.insert(0, 1);
  // A repeated dimension of the result becomes two, one of times[d] and one of shape[d] elements; its neighbours that
  // are not repeated are one. Three at a time, as there may be kMaxDims.
  Shape parts, sizes, result, later = times;
  int repeated = 0;
  for (int d = shape.size() - 1; d >= 0; --d) {
    int64_t size;
    REEL_CHECK(times[d] >= 0, "repeat: negative count in ", repeats);
    REEL_CHECK(!__builtin_mul_overflow(shape[d], times[d], &size), "repeat: too many elements");
    if (times[d] != 1 && ++repeated > 3) {
      size = shape[d], times[d] = 1;
    } else {
      later[d] = 1;
    }
    result.insert(0, size);
    const bool before_repeated = d + 1 < shape.size() && times[d + 1] != 1;
    if (parts.empty() || before_repeated)
      parts.insert(0, shape[d]), sizes.insert(0, shape[d]);
    else
      parts[0] *= shape[d], sizes[0] *= shape[d];
    if (times[d] != 1) parts.insert(0, 1), sizes.insert(0, times[d]);
  }
  const Tensor y = x.reshape(parts).expand(sizes).clone().view(result);
  return repeated > 3 ? repeat(y, later) : y;
}

namespace {

/// The columns of x's last two dimensions, and for each of its rows the column on the diagonal.
std::pair<Tensor, Tensor> columns_of(const char* op, const Tensor& x, int64_t diagonal) {
  REEL_CHECK(view_of(x, op).shape.size() >= 2, op, ": expected a matrix or a batch of them, got shape ", x.shape());
  const int64_t rows = x.size(-2), columns = x.size(-1), first = std::clamp(diagonal, -rows, columns);
  const bool fits = std::max(rows, columns) < std::numeric_limits<int32_t>::max() / 2;
  const TensorOptions options{.dtype = fits ? kInt32 : kInt64, .device = x.device()};
  return {arange(0, columns, 1, options), arange(first, first + rows, 1, options).unsqueeze(1)};
}
Tensor zero_like(const Tensor& x) { return zeros({}, {.dtype = x.dtype(), .device = x.device()}); }

}  // namespace

Tensor tril(const Tensor& x, int64_t diagonal) {
  const auto [column, last] = columns_of("tril", x, diagonal);
  return where(column <= last, x, zero_like(x));
}
Tensor triu(const Tensor& x, int64_t diagonal) {
  const auto [column, first] = columns_of("triu", x, diagonal);
  return where(column >= first, x, zero_like(x));
}

Tensor diagonal(const Tensor& x, int64_t offset, int64_t dim0, int64_t dim1) {
  const Shape& shape = view_of(x, "diagonal").shape;
  const int row = wrap_dim(dim0, shape.size(), "diagonal"), column = wrap_dim(dim1, shape.size(), "diagonal");
  REEL_CHECK(row != column, "diagonal: dimensions ", dim0, " and ", dim1, " of shape ", shape, " are the same");
  const int64_t down = std::min(shape[row], offset < 0 ? -std::max(offset, -std::numeric_limits<int64_t>::max()) : 0);
  const int64_t right = std::min(shape[column], std::max<int64_t>(offset, 0));
  const int64_t count = std::min(shape[row] - down, shape[column] - right);
  return call("diagonal", {x}, {{"offset", offset}, {"row", row}, {"column", column}}, [&](const Tensor& x) {
    return region_view("diagonal", x, [=](const StridedLayout& whole) {
      StridedLayout part = whole;
      if (count) part.offset += down * whole.strides[row] + right * whole.strides[column];
      part.shape.push_back(count);
      part.strides.push_back(whole.strides[row] + whole.strides[column]);
      for (const int d : {std::max(row, column), std::min(row, column)}) part.shape.erase(d), part.strides.erase(d);
      return part;
    });
  });
}

Tensor diag(const Tensor& x, int64_t diagonal) {
  const Shape& shape = view_of(x, "diag").shape;
  REEL_CHECK(shape.size() == 1 || shape.size() == 2, "diag: expected a vector or a matrix, got shape ", shape);
  if (shape.size() == 2) return reel::diagonal(x, diagonal).clone();
  int64_t n = shape[0];
  const bool fits = diagonal < 0 ? !__builtin_sub_overflow(n, diagonal, &n) : !__builtin_add_overflow(n, diagonal, &n);
  REEL_CHECK(fits, "diag: the matrix of ", shape[0], " elements on diagonal ", diagonal, " is too large");
  return embed(x, {n, n}, diagonal < 0 ? -diagonal * n : diagonal, {n + 1});
}

// ---- other shapes ---------------------------------------------------------------------------------------------------

Tensor ravel(const Tensor& x) { return x.reshape({view_of(x, "ravel").numel}); }

Tensor unflatten(const Tensor& x, int64_t dim, const Shape& sizes) {
  const Shape& have = view_of(x, "unflatten").shape;
  const int d = wrap_dim(dim, have.size(), "unflatten");
  REEL_CHECK(!have.empty() && !sizes.empty(), "unflatten: dimension ", dim, " of shape ", have, " into ", sizes);
  int64_t known = 1;
  int unknown = -1;
  for (int i = 0; i < sizes.size(); ++i)
    if (sizes[i] == -1 && unknown < 0)
      unknown = i;
    else
      REEL_CHECK(sizes[i] >= 0 && !__builtin_mul_overflow(known, sizes[i], &known), "unflatten: sizes ", sizes);
  Shape parts = sizes;
  if (unknown >= 0 && known) parts[unknown] = have[d] / known;
  REEL_CHECK((unknown < 0 || known) && parts.numel() == have[d], "unflatten: sizes ", sizes, " for dimension ", d,
             " of size ", have[d]);
  Shape shape = have;
  shape.erase(d);
  for (int i = 0; i < parts.size(); ++i) shape.insert(d + i, parts[i]);
  return x.view(shape);
}

Tensor movedim(const Tensor& x, const Dims& source, const Dims& destination) {
  const int rank = view_of(x, "movedim").shape.size(), count = source.dims.size();
  REEL_CHECK(count == destination.dims.size(), "movedim: dimensions ", source.dims, " to places ", destination.dims);
  Shape order;
  order.resize(rank, -1);
  unsigned moved = 0;
  for (int i = 0; i < count; ++i) {
    const int from = wrap_dim(source.dims[i], rank, "movedim"), to = wrap_dim(destination.dims[i], rank, "movedim");
    REEL_CHECK(!(moved >> from & 1), "movedim: dimension ", from, " is named twice in ", source.dims);
    REEL_CHECK(rank == 0 || order[to] < 0, "movedim: place ", to, " is named twice in ", destination.dims);
    moved |= 1u << from;
    if (rank) order[to] = from;
  }
  for (int d = 0, next = 0; d < rank; ++d) {
    if (order[d] >= 0) continue;
    while (moved >> next & 1) ++next;
    order[d] = next++;
  }
  return x.permute(order);
}

std::vector<Tensor> broadcast_tensors(TensorList tensors) {
  Shape shape;
  for (const Tensor& x : tensors)
    shape = broadcast_shapes(shape, view_of(x, "broadcast_tensors").shape, "broadcast_tensors");
  std::vector<Tensor> results;
  for (const Tensor& x : tensors) results.push_back(x.shape() == shape ? x : x.expand(shape));
  return results;
}

Tensor atleast_1d(const Tensor& x) { return view_of(x, "atleast_1d").shape.empty() ? x.unsqueeze(0) : x; }
Tensor atleast_2d(const Tensor& x) {
  return view_of(x, "atleast_2d").shape.size() < 2 ? atleast_1d(x).unsqueeze(0) : x;
}
Tensor atleast_3d(const Tensor& x) {
  return view_of(x, "atleast_3d").shape.size() < 3 ? atleast_2d(x).unsqueeze(-1) : x;
}

// ---- combining elements ---------------------------------------------------------------------------------------------

std::vector<Tensor> meshgrid(TensorList tensors, GridIndexing indexing) {
  REEL_CHECK(!tensors.empty(), "meshgrid: no tensors");
  Shape grid;
  for (const Tensor& x : tensors) {
    REEL_CHECK(view_of(x, "meshgrid").shape.size() <= 1, "meshgrid: expected vectors, got shape ", x.shape());
    grid.push_back(x.numel());
  }
  const int rank = grid.size();
  std::vector<Tensor> results;
  for (int d = 0; d < rank; ++d) {
    Shape column = grid;
    for (int e = 0; e < rank; ++e)
      if (e != d) column[e] = 1;
    const Tensor whole = tensors[static_cast<size_t>(d)].reshape(column).expand(grid);
    results.push_back(indexing == kXY && rank > 1 ? whole.transpose(0, 1) : whole);
  }
  return results;
}

Tensor cartesian_prod(TensorList tensors) {
  REEL_CHECK(!tensors.empty(), "cartesian_prod: no tensors");
  for (const Tensor& x : tensors)
    REEL_CHECK(view_of(x, "cartesian_prod").shape.size() == 1, "cartesian_prod: expected vectors, got shape ",
               x.shape());
  if (tensors.size() == 1) return tensors[0];
  std::vector<Tensor> columns = meshgrid(tensors);
  for (Tensor& column : columns) column = ravel(column);
  return stack(columns, 1);
}

Tensor combinations(const Tensor& x, int64_t r, bool with_replacement) {
  REEL_CHECK(view_of(x, "combinations").shape.size() == 1, "combinations: expected a vector, got shape ", x.shape());
  REEL_CHECK(r >= 0 && r <= kMaxDims, "combinations: of ", r, " elements; 0 to ", kMaxDims, " are possible");
  if (r == 0) return empty({0}, {.dtype = x.dtype(), .device = x.device()});
  const Tensor all = arange(0, x.numel(), 1, {.dtype = kInt64, .device = x.device()});
  const std::vector<Tensor> places(static_cast<size_t>(r), all);
  Tensor ids = r == 1 ? all.unsqueeze(1) : cartesian_prod(places);
  if (r > 1) {
    const Tensor left = ids.narrow(1, 0, r - 1), right = ids.narrow(1, 1, r - 1);
    ids = ids.index({reel::all(with_replacement ? left <= right : left < right, 1)});
  }
  return x.index({ids});
}

}  // namespace reel
