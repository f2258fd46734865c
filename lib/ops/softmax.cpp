#include "lib/ops/internal.h"

namespace reel {
namespace {

Tensor gradient_of(bool log, const Tensor& g, const Tensor& y, int64_t dim) {
  return log ? g - exp(y) * sum(g, dim, true) : y * (g - sum(g * y, dim, true));
}

Tensor softmax_of(bool log, const Tensor& x, int dim) {
  const View& xv = view_of(x);
  Tensor y = make_tensor(xv.shape, xv.dtype, x.device());
  kernels_of(y).softmax(log, xv, dim, view_of(y));
  if (recording(x))
    record(log ? "log_softmax" : "softmax", y, inputs(x), [log, dim, y = SavedTensor::output(y)](Backward& back) {
      const Tensor g = back.grad().contiguous(), yt = back.get(y);
      if (back.create_graph()) return back.set(0, gradient_of(log, to_compute(g), to_compute(yt), dim).to(g.dtype()));
      Tensor gx = make_tensor(g.shape(), g.dtype(), g.device());
      kernels_of(g).softmax_grad(log, view_of(g), view_of(yt), dim, view_of(gx));
      back.set(0, std::move(gx));
    });
  return y;
}

Tensor softmax_along(Op op, bool log, const Tensor& x, int64_t dim) {
  const View& xv = view_of(x, op);
  const int d = wrap_dim(dim, xv.shape.size(), op);
  REEL_CHECK(is_floating_point(xv.dtype), op, ": a tensor of ", xv.dtype,
             "; convert it to a floating point type first");
  return call(op, {x}, {{"dim", d}}, [&](const Tensor& x) {
    if (view_of(x).shape.empty()) return softmax_of(log, x.reshape({1}), 0).reshape({});
    return softmax_of(log, x.contiguous(), d);
  });
}

}  // namespace

Tensor softmax(const Tensor& x, int64_t dim) { return softmax_along("softmax", false, x, dim); }
Tensor log_softmax(const Tensor& x, int64_t dim) { return softmax_along("log_softmax", true, x, dim); }

Tensor softmin(const Tensor& x, int64_t dim) { return softmax(-x, dim); }

Tensor gumbel_softmax(const Tensor& logits, double tau, bool hard, int64_t dim) {
  return call("gumbel_softmax", {logits}, {}, [&](const Tensor& logits) {
    const DType dtype = view_of(logits, "gumbel_softmax").dtype;
    REEL_CHECK(reel::is_floating_point(dtype), "gumbel_softmax: logits of ", dtype, ", not floating point");
    REEL_CHECK(tau > 0, "gumbel_softmax: the temperature tau must be positive, got ", tau);
    Tensor exponential = make_tensor(logits.shape(), to_compute(logits.detach()).dtype(), logits.device());
    const Tensor soft = softmax((logits - log(exponential.exponential_())) / tau, dim).to(dtype);
    if (!hard) return soft;
    const Tensor top = argmax(soft.detach(), dim, true);
    const Tensor choice = scatter(zeros_like(soft.detach()), dim, top, ones_like(top).to(dtype));
    return choice - soft.detach() + soft;
  });
}

}  // namespace reel
