#include <limits>

#include "lib/device/kernels/enums.h"
#include "lib/ops/scan.h"

namespace reel {

// ---- sums and products ----------------------------------------------------------------------------------------------

namespace {

Tensor scanned(ScanOp op, const Tensor& x, int d) {
  const Tensor y = make_tensor(view_of(x).shape, view_of(x).dtype, x.device());
  kernels_of(x).scan(op, view_of(x), d, view_of(y));
  return y;
}

/// The sum over the elements from each one on.
Tensor sum_from(const Tensor& x, int d) { return flip(cumsum(flip(x, d), d), d); }

/// s[i] = g[i] + x[i + 1] s[i + 1]. In each round a sum, and the product of the elements of x behind its first, comes
/// to span twice as many elements.
Tensor weighted_sum_from(const Tensor& g, const Tensor& x, int d) {
  const int64_t n = x.dim() ? x.size(d) : 1;
  if (n < 2) return g;
  Tensor sums = g, products = x.narrow(d, 1, n - 1);
  for (int64_t span = 1; span < n; span *= 2) {
    const int64_t open = n - span, next = open - span;  // the last `span` sums are complete
    sums = cat({sums.narrow(d, 0, open) + products * sums.narrow(d, span, open), sums.narrow(d, open, span)}, d);
    if (next > 0) products = products.narrow(d, 0, next) * products.narrow(d, span, next);
  }
  return sums;
}

/// x with dimension d last, at least 1-d; and the way back.
Tensor last(const Tensor& x, int d) { return x.dim() ? x.transpose(d, -1) : x.reshape({1}); }
Tensor back_from_last(const Tensor& x, int d, const Shape& shape) {
  return shape.empty() ? x.reshape({}) : x.transpose(d, -1);
}

}  // namespace

Tensor cumsum(const Tensor& x, int64_t dim) {
  const View& view = view_of(x, "cumsum");
  const int d = wrap_dim(dim, view.shape.size(), "cumsum");
  if (!is_floating_point(view.dtype) && view.dtype != kInt64) return cumsum(x.to(kInt64), dim);
  return call("cumsum", {x}, {{"dim", d}}, [&](const Tensor& x) {
    const Tensor y = scanned(ScanOp::kSum, x, d);
    if (recording(x)) record("cumsum", y, inputs(x), [d](Backward& back) { back.set(0, sum_from(back.grad(), d)); });
    return y;
  });
}

Tensor cumprod(const Tensor& x, int64_t dim) {
  const View& view = view_of(x, "cumprod");
  const int d = wrap_dim(dim, view.shape.size(), "cumprod");
  if (!is_floating_point(view.dtype) && view.dtype != kInt64) return cumprod(x.to(kInt64), dim);
  return call("cumprod", {x}, {{"dim", d}}, [&](const Tensor& x) {
    const Tensor y = scanned(ScanOp::kProd, x, d);
    // The derivative of y[k] by x[i], for k >= i, is the product of the others: y[k] / x[i] where that is exact.
    if (recording(x))
      record("cumprod", y, inputs(x), [x = SavedTensor(x), y = SavedTensor::output(y), d](Backward& back) {
        const Tensor in = back.get(x), out = back.get(y), &g = back.grad();
        back.set(0, can_divide_product(out) ? sum_from(g * out, d) / in
                                            : exclusive_cumprod(in, d) * weighted_sum_from(g, in, d));
      });
    return y;
  });
}

Tensor exclusive_cumprod(const Tensor& x, int64_t dim) {
  if (x.dim() == 0 || x.numel() == 0) return ones_like(x);
  const Tensor one = ones_like(x.narrow(dim, 0, 1));
  const int64_t n = x.size(dim);
  return n == 1 ? one : cat({one, cumprod(x.narrow(dim, 0, n - 1), dim)}, dim);
}

bool can_divide_product(const Tensor& y) { return is_readable(y) && all((y != 0) & isfinite(y)).item<bool>(); }

Tensor logcumsumexp(const Tensor& x, int64_t dim) {
  const View& view = view_of(x, "logcumsumexp");
  const int d = wrap_dim(dim, view.shape.size(), "logcumsumexp");
  REEL_CHECK(is_floating_point(view.dtype), "logcumsumexp: a tensor of ", view.dtype,
             "; convert it to a floating point type first");
  return call("logcumsumexp", {x}, {{"dim", d}}, [&](const Tensor& x) {
    const Tensor y = scanned(ScanOp::kLogSumExp, x, d);
    if (recording(x))
      record("logcumsumexp", y, inputs(x), [x = SavedTensor(x), y = SavedTensor::output(y), d](Backward& back) {
        const Tensor in = back.get(x), out = back.get(y), &g = back.grad();
        if (!back.create_graph()) {
          const Tensor gx = make_tensor(in.shape(), in.dtype(), in.device());
          kernels_of(in).logcumsumexp_grad(view_of(g), view_of(in), view_of(out), d, view_of(gx));
          return back.set(0, gx);
        }
        // exp(x[i] - y[k]), where k >= i and y[k] is not -infinity, for all i and k.
        const Tensor xs = last(in, d).unsqueeze(-1), ys = last(out, d).unsqueeze(-2);
        const Tensor counts = no_grad([&] {
          const Tensor real = (ys != -std::numeric_limits<double>::infinity()).expand((xs - ys).shape());
          return logical_and(triu(ones_like(real)), real);
        });
        // An infinite gradient of what does not count is none.
        const Tensor share = where(counts, exp(where(counts, xs - ys, 0)) * last(g, d).unsqueeze(-2), 0);
        back.set(0, back_from_last(sum(share, -1), d, in.shape()));
      });
    return y;
  });
}

// ---- extremes -------------------------------------------------------------------------------------------------------

namespace {

ValuesIndices extreme_so_far(Op op, bool largest, const Tensor& x, int64_t dim) {
  const View& view = view_of(x, op);
  const int d = wrap_dim(dim, view.shape.size(), op);
  return call(op, {x}, {{"dim", d}}, [&](const Tensor& x) {
    const View& view = view_of(x);
    const Tensor y = make_tensor(view.shape, view.dtype, x.device());
    const Tensor indices = make_tensor(view.shape, kInt64, x.device());
    kernels_of(x).cum_extreme(largest, view, d, view_of(y), view_of(indices));
    if (recording(x))
      record(op, y, inputs(x), [indices = SavedTensor(indices), d](Backward& back) {
        back.set(0, scatter_add(zeros_like(back.grad()), d, back.get(indices), back.grad()));
      });
    return ValuesIndices{y, indices};
  });
}

}  // namespace

ValuesIndices cummax(const Tensor& x, int64_t dim) { return extreme_so_far("cummax", true, x, dim); }
ValuesIndices cummin(const Tensor& x, int64_t dim) { return extreme_so_far("cummin", false, x, dim); }

// ---- differences ----------------------------------------------------------------------------------------------------

Tensor diff(const Tensor& x, int64_t n, int64_t dim, const Tensor& prepend, const Tensor& append) {
  const Shape& shape = view_of(x, "diff").shape;
  REEL_CHECK(!shape.empty(), "diff: a 0-d tensor has no neighbours");
  REEL_CHECK(n >= 0, "diff: taken ", n, " times");
  const int d = wrap_dim(dim, shape.size(), "diff");
  if (n == 0) return x.clone();
  Tensor y = x;
  if (prepend.defined()) y = cat({prepend, y}, d);
  if (append.defined()) y = cat({y, append}, d);
  for (; n > 0 && y.size(d) > 0; --n) {
    const int64_t rest = y.size(d) - 1;
    const Tensor before = y.narrow(d, 0, rest), after = y.narrow(d, 1, rest);
    y = y.dtype() == kBool ? after != before : after - before;
  }
  return y;
}

}  // namespace reel
