#include "reel/ops/distance.h"

#include <type_traits>
#include <utility>

#include "lib/functors/distance.h"
#include "lib/ops/internal.h"
#include "lib/ops/pointwise.h"
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

/// Returns distances composed of other ops, row by row of x where all differences at once would take much room;
/// backward takes them anew.
Tensor composed_distances(const Tensor& x, const Tensor& y, double p) {
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

/// Returns the gradients of the vectors x [b, m, d] and y [b, n, d] from those of all their distances [b, m, n], in
/// ops.
std::pair<Tensor, Tensor> composed_grads(double p, const Tensor& g, const Tensor& x, const Tensor& y,
                                         const Tensor& distances) {
  const Tensor gaps = x.unsqueeze(-2) - y.unsqueeze(-3), far = distances.unsqueeze(-1);
  const Tensor slopes = functors::with_norm(p, x.size(-1), [&](const auto& norm) {
    Tensor weight = norm.weight(g.unsqueeze(-1), far);
    if constexpr (std::is_same_v<std::decay_t<decltype(norm)>, functors::MaxNorm>)
      weight = weight / clamp(sum(abs(gaps) == far, -1, true), 1, {}).to(g.dtype());
    return norm.slope(weight, gaps, far) + zeros_like(gaps);
  });
  return {sum(slopes, -2), -sum(slopes, -3)};
}

/// Returns x as [b, m, d], with the leading dimensions expanded to `batch`.
Tensor as_batch(const Tensor& x, const Shape& batch) {
  Shape shape = batch;
  shape.push_back(x.size(-2)), shape.push_back(x.size(-1));
  return x.expand(shape).reshape({batch.numel(), x.size(-2), x.size(-1)}).contiguous();
}

/// Returns whether a kernel may compute distances: one for every p that is a norm's, but where ops are written down.
bool has_kernel(double p) { return p >= 0 && !is_tracing(); }

Tensor distances(const Tensor& x, const Tensor& y, double p) {
  if (!has_kernel(p)) return composed_distances(x, y, p);
  const auto leading = [](const Tensor& t) {
    return Shape(std::span(t.shape().begin(), static_cast<size_t>(t.dim() - 2)));
  };
  common_device("cdist", {&x, &y});
  const Shape batch = broadcast_shapes(leading(x), leading(y), "cdist");
  const Tensor a = as_batch(x, batch), b = as_batch(y, batch);
  const Tensor result = make_tensor({a.size(0), a.size(1), b.size(1)}, a.dtype(), a.device());
  if (!kernels_of(a).cdist(p, view_of(a), view_of(b), view_of(result))) return composed_distances(x, y, p);
  if (recording(a, b))
    record("cdist", result, inputs(a, b),
           [p, a = SavedTensor(a), b = SavedTensor(b), y = SavedTensor::output(result)](Backward& back) {
             const Tensor g = back.grad().contiguous(), at = back.get(a), bt = back.get(b), yt = back.get(y);
             if (back.create_graph()) {
               auto [ga, gb] = composed_grads(p, g, at, bt, yt);
               back.set(0, std::move(ga));
               return back.set(1, std::move(gb));
             }
             const auto grad = [&](const Tensor& g, const Tensor& a, const Tensor& b, const Tensor& y) {
               Tensor ga = make_tensor(a.shape(), a.dtype(), a.device());
               kernels_of(a).cdist_grad(p, view_of(g), view_of(a), view_of(b), view_of(y), view_of(ga));
               return ga;
             };
             if (back.needs(0)) back.set(0, grad(g, at, bt, yt));
             const auto turned = [](const Tensor& x) { return x.transpose(1, 2).contiguous(); };
             if (back.needs(1)) back.set(1, grad(turned(g), bt, at, turned(yt)));
           });
  Shape shape = batch;
  shape.push_back(x.size(-2)), shape.push_back(y.size(-2));
  return result.view(shape);
}

/// Returns the distances of all pairs of rows, by a kernel, or an undefined tensor where there is none.
Tensor distances_of_pairs(const Tensor& x, double p) {
  if (!has_kernel(p)) return {};
  const int64_t n = x.size(0);
  const Tensor a = x.contiguous().unsqueeze(0), result = make_tensor({n * (n - 1) / 2}, a.dtype(), a.device());
  if (!kernels_of(a).cdist(p, view_of(a), view_of(a), view_of(result))) return {};
  if (recording(a))
    record("pdist", result, inputs(a), [p, a = SavedTensor(a), y = SavedTensor::output(result)](Backward& back) {
      const Tensor at = back.get(a), yt = back.get(y);
      if (back.create_graph()) {
        // Only distances above the diagonal of the matrix count.
        const Tensor pairs = triu_indices(at.size(1), at.size(1), 1).to(at.device());
        const auto above = [&](const Tensor& x) {
          return index_put(zeros({at.size(1), at.size(1)}, {.dtype = x.dtype(), .device = x.device()}),
                           {pairs[0], pairs[1]}, x)
              .unsqueeze(0);
        };
        const auto [first, second] = composed_grads(p, above(back.grad()), at, at, above(yt));
        return back.set(0, first + second);
      }
      const Tensor g = back.grad().contiguous();
      Tensor ga = make_tensor(at.shape(), at.dtype(), at.device());
      kernels_of(at).cdist_grad(p, view_of(g), view_of(at), view_of(at), view_of(yt), view_of(ga));
      back.set(0, std::move(ga));
    });
  return result;
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
  return call("pdist", {x}, {}, [&](const Tensor& x) {
    const Tensor wide = to_compute(x);
    if (const Tensor y = distances_of_pairs(wide, p); y.defined()) return y.to(x.dtype());
    const int64_t n = x.size(0);
    const Tensor pairs = triu_indices(n, n, 1).to(x.device());
    return index_select(composed_distances(wide, wide, p).flatten(), 0, pairs[0] * n + pairs[1]).to(x.dtype());
  });
}

}  // namespace reel
