#include "reel/ops/distance.h"

#include "lib/ops/internal.h"
#include "reel/autograd.h"

namespace reel {
namespace {

/// f(a, b) in the type that distances are computed in; the result has the type that a and b promote to.
template <class F>
Tensor in_float(Op op, const Tensor& a, const Tensor& b, const F& f) {
  view_of(a, op), view_of(b, op);
  return call(op, {a, b}, {}, [&](const Tensor& a, const Tensor& b) {
    const DType dtype = result_type(a, b), wide = compute_dtype(dtype);
    REEL_CHECK(is_floating_point(dtype), op, ": ", a.dtype(), " and ", b.dtype(),
               " tensors, neither of a floating point type");
    return f(a.to(wide), b.to(wide)).to(dtype);
  });
}

/// Row by row of x where all differences at once would take much room; backward takes them anew.
Tensor distances(const Tensor& x, const Tensor& y, double p) {
  const auto block = [p](const Tensor& a, const Tensor& b) {
    const Tensor gaps = a.unsqueeze(-2) - b.unsqueeze(-3);
    return gaps.size(-1) ? norm(gaps, p, -1) : sum(gaps, -1);
  };
  constexpr int64_t kAtOnce = int64_t{1} << 18;  // elements: they stay in the cache
  const int64_t m = x.size(-2), row = std::max(x.numel() / std::max<int64_t>(m, 1) * y.size(-2), y.numel());
  if (row * m <= kAtOnce) return block(x, y);
  const int64_t rows = std::max<int64_t>(kAtOnce / row, 1);
  std::vector<Tensor> parts;
  for (int64_t i = 0; i < m; i += rows) {
    const Tensor some = x.narrow(-2, i, std::min(rows, m - i));
    parts.push_back(
        checkpoint([block](const std::vector<Tensor>& in) { return std::vector{block(in[0], in[1])}; }, {some, y})[0]);
  }
  return cat(parts, -2);
}

}  // namespace

Tensor cosine_similarity(const Tensor& a, const Tensor& b, int64_t dim, double eps) {
  return in_float("cosine_similarity", a, b, [&](const Tensor& x, const Tensor& y) {
    const Shape shape = broadcast_shapes(x.shape(), y.shape(), "cosine_similarity");
    const auto length = [&](const Tensor& v) { return clamp(norm(v.expand(shape), 2, dim, true), eps); };
    return sum(x / length(x) * (y / length(y)), dim);
  });
}

Tensor pairwise_distance(const Tensor& a, const Tensor& b, const PairwiseDistanceOptions& options) {
  return in_float("pairwise_distance", a, b, [&](const Tensor& x, const Tensor& y) {
    return norm(x - y + options.eps, options.p, -1, options.keepdim);
  });
}

Tensor cdist(const Tensor& a, const Tensor& b, double p) {
  return in_float("cdist", a, b, [&](const Tensor& x, const Tensor& y) {
    REEL_CHECK(x.dim() >= 2 && y.dim() >= 2 && x.size(-1) == y.size(-1), "cdist: vectors of shape ", x.shape(), " and ",
               y.shape(), ", not […, m, d] and […, n, d]");
    return distances(x, y, p);
  });
}

Tensor pdist(const Tensor& x, double p) {
  const Shape& shape = view_of(x, "pdist").shape;
  REEL_CHECK(shape.size() == 2, "pdist: vectors of shape ", shape, ", not [n, d]");
  REEL_CHECK(is_floating_point(x.dtype()), "pdist: a tensor of ", x.dtype(),
             "; convert it to a floating point type first");
  if (shape[0] < 2) return sum(x.narrow(0, 0, 0), 1);  // not by way of its distance to itself, which may be NaN
  const Tensor pairs = triu_indices(shape[0], shape[0], 1).to(x.device());
  return index_select(cdist(x, x, p).flatten(), 0, pairs[0] * shape[0] + pairs[1]);
}

}  // namespace reel
