#include "reel/ops/distance.h"

#include "lib/ops/internal.h"

namespace reel {
namespace {

/// f(a, b) in the type that distances are computed in; the result has the type that a and b promote to.
template <class F>
Tensor in_float(const char* op, const Tensor& a, const Tensor& b, const F& f) {
  view_of(a, op), view_of(b, op);
  const DType dtype = result_type(a, b), wide = is_half(dtype) ? kFloat32 : dtype;
  REEL_CHECK(is_floating_point(dtype), op, ": ", a.dtype(), " and ", b.dtype(),
             " tensors, neither of a floating point type");
  return f(a.to(wide), b.to(wide)).to(dtype);
}

}  // namespace

Tensor cosine_similarity(const Tensor& a, const Tensor& b, int64_t dim, double eps) {
  return in_float("cosine_similarity", a, b, [&](const Tensor& x, const Tensor& y) {
    const Shape shape = broadcast_shapes(x.shape(), y.shape(), "cosine_similarity");
    const auto length = [&](const Tensor& v) { return clamp(norm(v.expand(shape), 2, dim), eps); };
    return sum(x * y, dim) / (length(x) * length(y));
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
    return norm(x.unsqueeze(-2) - y.unsqueeze(-3), p, -1);
  });
}

}  // namespace reel
