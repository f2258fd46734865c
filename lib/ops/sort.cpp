#include <cmath>
#include <limits>

#include "lib/ops/internal.h"

namespace reel {

// ---- order ----------------------------------------------------------------------------------------------------------

namespace {

View swap_dims(View view, int a, int b) {
  if (a == b) return view;
  std::swap(view.shape[a], view.shape[b]);
  std::swap(view.strides[a], view.strides[b]);
  view.contiguous = is_contiguous(view.shape, view.strides) || view.numel == 0;
  return view;
}

/// x as the kernels want it: what is sorted lies along the last dimension.
View rows_of(const View& x, int d) { return x.shape.empty() ? x : swap_dims(x, d, x.shape.size() - 1); }

/// Returns whether the elements along d are one that is repeated.
bool is_repeated(const View& x, int d) { return !x.shape.empty() && x.shape[d] > 1 && x.strides[d] == 0; }
/// Returns the first k elements in order along d where all are equal.
ValuesIndices first_equals(const Tensor& x, int d, int64_t k) {
  return no_grad([&] {
    const Tensor values = x.narrow(d, 0, k).clone();
    Shape line;
    line.resize(values.dim(), 1);
    line[d] = k;
    const Tensor positions = arange(0, k, 1, {.dtype = kInt64, .device = x.device()}).view(line);
    return ValuesIndices{values, positions.expand(values.shape()).contiguous()};
  });
}

ValuesIndices sorted_along(const Tensor& x, int d, int64_t k, bool descending) {
  const View& view = view_of(x);
  const int last = std::max(0, view.shape.size() - 1);
  const View rows = rows_of(view, d);
  Shape shape = rows.shape;
  if (!shape.empty()) shape[last] = k;
  Tensor values = make_tensor(shape, view.dtype, x.device()), order = make_tensor(shape, kInt64, x.device());
  kernels_of(x).sort(descending, rows, view_of(values), view_of(order));
  if (d != last) {
    const auto back = [&](const Tensor& all) { return no_grad([&] { return all.transpose(d, last).contiguous(); }); };
    values = back(values);
    order = back(order);
  }
  return {values, order};
}

/// The first k elements in order along d, contiguous.
ValuesIndices ranked(Op op, const Tensor& x, int d, int64_t k, bool descending) {
  return call(op, {x}, {{"dim", d}, {"k", k}, {"descending", descending}}, [&](const Tensor& x) {
    const View& view = view_of(x);
    const auto [values, order] = is_repeated(view, d) ? first_equals(x, d, k) : sorted_along(x, d, k, descending);
    if (recording(x))
      record(op, values, inputs(x), [shape = view.shape, order = SavedTensor(order), d](Backward& back) {
        const Tensor& g = back.grad();
        back.set(0, scatter_add(zeros(shape, {.dtype = g.dtype(), .device = g.device()}), d, back.get(order), g));
      });
    return ValuesIndices{values, order};
  });
}

int64_t size_along(const Shape& shape, int d) { return shape.empty() ? 1 : shape[d]; }

/// What lies at `indices`, which have size 1 along d.
ValuesIndices picked(const Tensor& x, int d, const Tensor& indices, bool keepdim) {
  const Tensor values = gather(x, d, indices);
  if (keepdim || x.dim() == 0) return {values, indices};
  return {values.squeeze(d), indices.squeeze(d)};
}

ValuesIndices nth(const Tensor& x, int d, int64_t k, bool nan_wins, bool keepdim) {
  if (is_tracing() && !x.dim()) [[unlikely]]
    return {x.clone(), zeros({}, {.dtype = kInt64, .device = x.device()})};
  if (is_tracing()) [[unlikely]]  // exports have the first ones, of which this is the last
    return picked(x, d, ranked("topk", x, d, k + 1, false).indices.narrow(d, k, 1), keepdim);
  const View rows = rows_of(view_of(x), d);
  Shape shape = rows.shape;
  if (!shape.empty()) shape[shape.size() - 1] = 1;
  const Tensor indices = make_tensor(shape, kInt64, x.device());
  kernels_of(x).kthvalue(k, nan_wins, rows, view_of(indices));
  return picked(x, d, shape.empty() ? indices : indices.transpose(d, -1).contiguous(), keepdim);
}

}  // namespace

ValuesIndices sort(const Tensor& x, int64_t dim, bool descending) {
  const Shape& shape = view_of(x, "sort").shape;
  const int d = wrap_dim(dim, shape.size(), "sort");
  return ranked("sort", x, d, size_along(shape, d), descending);
}

Tensor argsort(const Tensor& x, int64_t dim, bool descending) {
  const Shape& shape = view_of(x, "argsort").shape;
  const int d = wrap_dim(dim, shape.size(), "argsort");
  return no_grad([&] { return ranked("argsort", x, d, size_along(shape, d), descending).indices; });
}

ValuesIndices topk(const Tensor& x, int64_t k, int64_t dim, bool largest) {
  const Shape& shape = view_of(x, "topk").shape;
  const int d = wrap_dim(dim, shape.size(), "topk");
  const int64_t size = size_along(shape, d);
  REEL_CHECK(k >= 0 && k <= size, "topk: k = ", k, " of dimension ", d, " of size ", size);
  return ranked("topk", x, d, k, largest);
}

ValuesIndices kthvalue(const Tensor& x, int64_t k, int64_t dim, bool keepdim) {
  const Shape& shape = view_of(x, "kthvalue").shape;
  const int d = wrap_dim(dim, shape.size(), "kthvalue");
  const int64_t size = size_along(shape, d);
  REEL_CHECK(k >= 1 && k <= size, "kthvalue: k = ", k, " of dimension ", d, " of size ", size);
  return nth(x, d, k - 1, false, keepdim);
}

ValuesIndices median(const Tensor& x, int64_t dim, bool keepdim) {
  const Shape& shape = view_of(x, "median").shape;
  const int d = wrap_dim(dim, shape.size(), "median");
  const int64_t size = size_along(shape, d);
  REEL_CHECK(size > 0, "median: nothing to take it of, shape ", shape);
  return nth(x, d, (size - 1) / 2, true, keepdim);
}
Tensor median(const Tensor& x) {
  REEL_CHECK(view_of(x, "median").numel > 0, "median: nothing to take it of, shape ", x.shape());
  const Tensor y = no_grad([&] { return median(ravel(x), 0).values.clone(); });  // no view: it may be changed in place
  if (recording(x))
    record("median", y, inputs(x), [x = SavedTensor(x), y = SavedTensor::output(y)](Backward& back) {
      const Tensor equals = no_grad([&] {
        const Tensor in = back.get(x), out = back.get(y);
        return (in == out) | ((in != in) & (out != out));  // NaN is equal to NaN
      });
      back.set(0, where(equals, back.grad() / sum(equals), 0));
    });
  return y;
}

ValuesIndices mode(const Tensor& x, int64_t dim, bool keepdim) {
  const Shape& shape = view_of(x, "mode").shape;
  const int d = wrap_dim(dim, shape.size(), "mode");
  if (shape.empty()) return {x.clone(), zeros({}, {.dtype = kInt64, .device = x.device()})};
  REEL_CHECK(shape[d] > 0, "mode: nothing to take it of, shape ", shape);
  const Tensor indices = no_grad([&] {
    const auto [sorted, order] = sort(x, d);
    // How many equals have been seen at each place of the order is largest at the end of the longest run.
    const int64_t n = shape[d];
    Shape line;
    line.resize(shape.size(), 1);
    line[d] = n;
    const Tensor place = arange(0, n, 1, {.dtype = kInt64, .device = x.device()}).view(line);
    const Tensor begins = sorted.narrow(d, 1, n - 1) != sorted.narrow(d, 0, n - 1);
    const Tensor first = zeros_like(sorted.narrow(d, 0, 1), {.dtype = kInt64, .device = x.device()});
    const Tensor begin = cummax(cat({first, where(begins, place.narrow(d, 1, n - 1), 0)}, d), d).values;
    return gather(order, d, argmax(place - begin, d, true));
  });
  return picked(x, d, indices, keepdim);
}

namespace {
Tensor quantile_of(const Tensor& x, const Tensor& q, std::optional<int64_t> dim, bool keepdim) {
  const Shape& shape = view_of(x).shape;
  if (!dim || shape.empty()) {
    REEL_CHECK(x.numel() > 0, "quantile: nothing to take it of, shape ", shape);
    Shape kept = q.shape();
    for (int d = 0; keepdim && d < shape.size(); ++d) kept.push_back(1);
    if (dim) wrap_dim(*dim, 0, "quantile");
    const Tensor flat = ravel(x);
    return quantile(flat, q, 0, false).reshape(kept);
  }
  const int d = wrap_dim(*dim, shape.size(), "quantile");
  const int64_t n = shape[d];
  REEL_CHECK(n > 0, "quantile: nothing to take it of, shape ", shape);
  const Tensor wanted = no_grad([&] { return ravel(q.to(kFloat64)).to(x.device()); });
  REEL_CHECK(all((wanted >= 0) & (wanted <= 1)).item<bool>(), "quantile: q must be in [0, 1], got ", q.to_string());
  const auto [low, high, weight] = no_grad([&] {
    const Tensor rank = wanted * static_cast<double>(n - 1), below = floor(rank);
    Shape line;
    line.resize(shape.size(), 1);
    line[d] = wanted.numel();
    return std::tuple(below.to(kInt64), ceil(rank).to(kInt64), (rank - below).to(x.dtype()).view(line));
  });
  const Tensor sorted = sort(x, d).values, a = index_select(sorted, d, low), b = index_select(sorted, d, high);
  const Tensor last = sorted.narrow(d, n - 1, 1);  // NaN, if there is one
  // Not a + 0 (b - a) where a is infinite, nor ∞ - ∞ where b is no other infinity.
  const Tensor at_infinity = isinf(a) & ((a == b) | !isinf(b));
  const Tensor y = where(last != last, last, where((weight == 0) | at_infinity, a, a + weight * (b - a)));
  if (q.dim() == 0) return keepdim ? y : y.squeeze(d);
  const Tensor moved = movedim(y, d, 0);  // the quantiles come first
  return keepdim ? moved.unsqueeze(d + 1) : moved;
}
}  // namespace

Tensor quantile(const Tensor& x, const Tensor& q, std::optional<int64_t> dim, bool keepdim) {
  REEL_CHECK(is_floating_point(view_of(x, "quantile").dtype), "quantile: ", x.dtype(),
             " tensors have no quantile; convert to a floating point type first");
  REEL_CHECK(view_of(q, "quantile").shape.size() <= 1, "quantile: q must be a number or a vector, got shape ",
             q.shape());
  return call("quantile", {x}, {}, [&](const Tensor& x) { return quantile_of(x, q, dim, keepdim); });
}
Tensor quantile(const Tensor& x, double q, std::optional<int64_t> dim, bool keepdim) {
  return quantile(x, full({}, q, {.dtype = kFloat64}), dim, keepdim);
}

// ---- distinct values ------------------------------------------------------------------------------------------------

namespace {

/// The distinct ones among the slices of `sorted` along dimension 0, equals being neighbours; `order` says where each
/// slice stood, undefined if there.
Unique distinct(const Tensor& sorted, const Tensor& order, const UniqueOptions& options) {
  const int64_t n = sorted.size(0);
  const TensorOptions whole{.dtype = kInt64, .device = sorted.device()};
  Tensor begins = ones({n}, {.dtype = kBool, .device = sorted.device()});
  if (n > 1) {
    const Tensor differ = sorted.narrow(0, 1, n - 1) != sorted.narrow(0, 0, n - 1);
    begins.narrow(0, 1, n - 1).copy_(differ.dim() > 1 ? any(differ.flatten(1), 1) : differ);
  }
  const Tensor at = nonzero(begins), first = at.view({at.size(0)});
  Unique result{index_select(sorted, 0, first), {}, {}};
  if (options.inverse) {
    const Tensor place = cumsum(begins, 0) - 1;
    result.inverse = order.defined() ? empty({n}, whole).scatter_(0, order, place) : place;
  }
  if (options.counts) result.counts = diff(first, 1, 0, {}, full({1}, n, whole));
  return result;
}

template <class Order>
Unique distinct_of(const char* op, const Tensor& x, const UniqueOptions& options, Order order_of) {
  const View& view = view_of(x, op);
  NoGrad guard;
  if (!options.dim) {
    const auto [sorted, order] = order_of(ravel(x));
    Unique result = distinct(sorted, order, options);
    if (options.inverse) result.inverse = result.inverse.reshape(view.shape);
    return result;
  }
  REEL_CHECK(!view.shape.empty(), op, ": a 0-d tensor has no slices");
  const int d = wrap_dim(*options.dim, view.shape.size(), op);
  const Tensor slices = movedim(x, d, 0).contiguous();
  const auto [sorted, order] = order_of(slices);
  Unique result = distinct(sorted, order, options);
  result.values = movedim(result.values, 0, d).contiguous();
  return result;
}

}  // namespace

Unique unique(const Tensor& x, UniqueOptions options) {
  return distinct_of("unique", x, options, [](const Tensor& slices) {
    if (slices.dim() == 1) {
      const auto [sorted, order] = sort(slices, 0);
      return std::pair(sorted, order);
    }
    const int64_t n = slices.size(0);
    const Tensor rows = slices.reshape({n, n ? slices.numel() / n : 0});
    const Tensor order = make_tensor({n}, kInt64, slices.device());
    kernels_of(slices).lexsort(view_of(rows), view_of(order));
    return std::pair(index_select(slices, 0, order), order);
  });
}

Unique unique_consecutive(const Tensor& x, UniqueOptions options) {
  return distinct_of("unique_consecutive", x, options,
                     [](const Tensor& slices) { return std::pair(slices, Tensor()); });
}

// ---- counting and placing -------------------------------------------------------------------------------------------

Tensor bincount(const Tensor& x, const Tensor& weights, int64_t min_length) {
  const Tensor ids = to_ids("bincount", x, x);
  REEL_CHECK(ids.dim() == 1, "bincount: expected a vector, got shape ", ids.shape());
  REEL_CHECK(min_length >= 0, "bincount: a length of ", min_length);
  int64_t bad, length = min_length;
  if (kernels_of(ids).check_bounds("bincount", view_of(ids), 0, std::numeric_limits<int64_t>::max(), &bad))
    detail::fail("bincount: cannot count ", bad);
  if (ids.numel()) length = std::max(length, max(ids).item<int64_t>() + 1);
  if (!weights.defined())
    return zeros({length}, {.dtype = kInt64, .device = x.device()})
        .index_add_(0, ids, full({}, 1, {.dtype = kInt64, .device = x.device()}).expand(ids.shape()));
  REEL_CHECK(weights.shape() == ids.shape(), "bincount: weights of shape ", weights.shape(), " for ", ids.numel(),
             " numbers");
  const Tensor summed = weights.is_floating_point() ? to_compute(weights) : weights.to(kFloat64);
  const Tensor start = zeros({length}, {.dtype = summed.dtype(), .device = x.device()});
  return index_add(start, 0, ids, summed).to(weights.is_floating_point() ? weights.dtype() : kFloat64);
}

Tensor histc(const Tensor& x, int64_t bins, double min, double max) {
  REEL_CHECK(is_floating_point(view_of(x, "histc").dtype), "histc: a tensor of ", x.dtype(),
             "; convert it to a floating point type first");
  REEL_CHECK(bins > 0, "histc: ", bins, " bins");
  REEL_CHECK(min <= max, "histc: a range from ", min, " to ", max);
  NoGrad guard;
  Tensor flat = to_compute(ravel(x));
  if (min == max && flat.numel()) min = reel::min(flat).item<double>(), max = reel::max(flat).item<double>();
  if (min == max) min -= 1, max += 1;
  REEL_CHECK(std::isfinite(min) && std::isfinite(max), "histc: the range from ", min, " to ", max, " is not finite");
  const Tensor inside = (flat >= min) & (flat <= max);
  const double count = static_cast<double>(bins),
               most = flat.dtype() == kFloat64 ? std::numeric_limits<double>::max() : std::numeric_limits<float>::max();
  if (max / 2 - min / 2 >= most / 2 / count) {  // the products below would overflow
    const double scale = std::ldexp(1., -2 - std::ilogb(count));
    flat = flat.to(kFloat64) * scale, min *= scale, max *= scale;
  }
  // Elements outside of the range are counted behind the last bin.
  const Tensor bin = where(inside, minimum(((flat - min) * count / (max - min)).to(kInt64), bins - 1), bins);
  const TensorOptions whole{.dtype = kInt64, .device = x.device()};
  const Tensor counts = zeros({bins + 1}, whole).index_add_(0, bin, full({}, 1, whole).expand(bin.shape()));
  return counts.narrow(0, 0, bins).to(x.dtype());
}

namespace {

Tensor search(const char* op, const Tensor& sorted, const Tensor& values, bool right) {
  const Shape &in = view_of(sorted, op).shape, &of = view_of(values, op).shape;
  bool fits = in.size() == 1 || (in.size() == of.size() && !in.empty());
  for (int d = 0; fits && in.size() > 1 && d < in.size() - 1; ++d) fits = in[d] == of[d];
  REEL_CHECK(fits, op, ": values of shape ", of, " in a sorted tensor of shape ", in);
  REEL_CHECK(sorted.device() == values.device(), op, ": values on ", values.device(), " in a tensor on ",
             sorted.device());
  const DType dtype = promote_types(sorted.dtype(), values.dtype());
  NoGrad guard;
  const Tensor from = sorted.to(dtype).contiguous(), wanted = values.to(dtype).contiguous();
  const Tensor positions = make_tensor(of, kInt64, values.device());
  kernels_of(values).searchsorted(right, view_of(from), view_of(wanted), view_of(positions));
  return positions;
}

}  // namespace

Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right) {
  return search("searchsorted", sorted, values, right);
}
Tensor bucketize(const Tensor& x, const Tensor& boundaries, bool right) {
  REEL_CHECK(view_of(boundaries, "bucketize").shape.size() == 1,
             "bucketize: expected a vector of boundaries, got shape ", boundaries.shape());
  return search("bucketize", boundaries, x, right);
}

}  // namespace reel
