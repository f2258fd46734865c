#include "lib/ops/internal.h"

namespace reel {
namespace {

// ---- softmax along the last dimension of contiguous rows ------------------------------------------------------------

Tensor softmax_rows(bool log, const Tensor& x) {
  const View& xv = view_of(x);
  Tensor y = make_tensor(xv.shape, xv.dtype, x.device());
  backend_of(y).softmax(log, xv, view_of(y));
  if (recording(x))
    record(log ? "log_softmax" : "softmax", y, inputs(x), [log, y = Saved::output(y)](Backward& back) {
      const Tensor g = back.grad().contiguous(), yt = back.get(y);
      if (back.create_graph()) {
        back.set(0, log ? g - exp(yt) * sum(g, -1, true) : yt * (g - sum(g * yt, -1, true)));
        return;
      }
      Tensor gx = make_tensor(g.shape(), g.dtype(), g.device());
      backend_of(g).softmax_grad(log, view_of(g), view_of(yt), view_of(gx));
      back.set(0, std::move(gx));
    });
  return y;
}

Tensor softmax_along(const char* op, bool log, const Tensor& x, int64_t dim) {
  const View& xv = view_of(x, op);
  const int d = wrap_dim(dim, xv.shape.size(), op);
  REEL_CHECK(is_floating_point(xv.dtype), op, ": a tensor of ", xv.dtype,
             "; convert it to a floating point type first");
  if (is_half(xv.dtype)) return softmax_along(op, log, x.to(kFloat32), dim).to(xv.dtype);
  if (xv.shape.empty()) return softmax_rows(log, x.reshape({1})).reshape({});
  if (d == xv.shape.size() - 1) return softmax_rows(log, x.contiguous());
  return softmax_rows(log, x.transpose(d, -1).contiguous()).transpose(d, -1);
}

Tensor reduced(const Tensor& losses, Reduction reduction) {
  return reduction == kMean ? mean(losses) : reduction == kSum ? sum(losses) : losses;
}

// Targets of n rows of `classes` scores.
void check_targets(const char* op, const Tensor& target, int64_t n, int64_t classes) {
  const View& view = view_of(target, op);
  REEL_CHECK(view.dtype == kInt64, op, ": the target is ", view.dtype, ", not int64");
  REEL_CHECK(view.numel == n && view.shape.size() <= 1, op, ": ", n, " rows of scores but a target of shape ",
             view.shape);
  int64_t bad = 0;
  REEL_CHECK(!backend_of(target).find_out_of_range(view, 0, classes, &bad), op, ": target ", bad,
             " is out of range for ", classes, " classes");
}

}  // namespace

Tensor softmax(const Tensor& x, int64_t dim) { return softmax_along("softmax", false, x, dim); }
Tensor log_softmax(const Tensor& x, int64_t dim) { return softmax_along("log_softmax", true, x, dim); }

// ---- classes --------------------------------------------------------------------------------------------------------

Tensor nll_loss(const Tensor& log_probs, const Tensor& target, Reduction reduction) {
  const View& view = view_of(log_probs, "nll_loss");
  REEL_CHECK(view.shape.size() == 1 || view.shape.size() == 2, "nll_loss: log probabilities of shape ", view.shape,
             ", not [n, classes]");
  const Tensor rows = view.shape.size() == 1 ? log_probs.unsqueeze(0) : log_probs;
  check_targets("nll_loss", target, rows.size(0), rows.size(1));
  const Tensor losses = -gather(rows, 1, target.reshape({rows.size(0), 1})).squeeze(1);
  return view.shape.size() == 1 ? losses.reshape({}) : reduced(losses, reduction);
}

Tensor cross_entropy(const Tensor& logits, const Tensor& target, Reduction reduction) {
  const View& view = view_of(logits, "cross_entropy");
  REEL_CHECK(is_floating_point(view.dtype), "cross_entropy: ", view.dtype, " logits");
  if (is_half(view.dtype)) return cross_entropy(logits.to(kFloat32), target, reduction).to(view.dtype);
  REEL_CHECK(view.shape.size() == 1 || view.shape.size() == 2, "cross_entropy: logits of shape ", view.shape,
             ", not [n, classes]");
  if (view.shape.size() == 1) return cross_entropy(logits.unsqueeze(0), target, kSum);
  const Tensor x = logits.contiguous();
  const int64_t n = view.shape[0], classes = view.shape[1];
  REEL_CHECK(classes > 0, "cross_entropy: no classes, logits of shape ", view.shape);
  check_targets("cross_entropy", target, n, classes);
  const Tensor ids = target.contiguous();
  Tensor losses = make_tensor({n}, view.dtype, x.device());
  Tensor probs = make_tensor({n, classes}, view.dtype, x.device());
  backend_of(x).cross_entropy(view_of(x), view_of(ids), view_of(losses), view_of(probs));

  const double scale = reduction == kMean ? 1.0 / static_cast<double>(n) : 1.0;
  Tensor y = losses;
  if (reduction != kNoReduction) {
    NoGrad guard;
    y = n == 1 ? losses.view({}) : reduced(losses, reduction);
  }
  if (recording(x))
    record("cross_entropy", y, inputs(x),
           [x = Saved(x), probs = Saved(probs), ids = Saved(ids), scale](Backward& back) {
             const Tensor p = back.get(probs), t = back.get(ids);
             Tensor g = back.grad().expand({p.size(0)});
             if (scale != 1) g = g * scale;
             if (back.create_graph()) {
               back.set(0, g.unsqueeze(1) * (softmax(back.get(x), 1) - one_hot(t, p.size(1)).to(p.dtype())));
               return;
             }
             Tensor gx = make_tensor(p.shape(), p.dtype(), p.device());
             g = g.contiguous();
             backend_of(p).cross_entropy_grad(view_of(g), view_of(p), view_of(t), view_of(gx));
             back.set(0, std::move(gx));
           });
  return y;
}

// ---- differences and probabilities ----------------------------------------------------------------------------------

namespace {
void check_same_shape(const char* op, const Tensor& input, const Tensor& target) {
  REEL_CHECK(view_of(input, op).shape == view_of(target, op).shape, op, ": input of shape ", input.shape(),
             " and target of shape ", target.shape());
}
}  // namespace

Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  check_same_shape("mse_loss", input, target);
  return reduced(square(input - target), reduction);
}

Tensor binary_cross_entropy(const Tensor& probability, const Tensor& target, Reduction reduction) {
  check_same_shape("binary_cross_entropy", probability, target);
  const Tensor p = to_float(probability), t = target.to(p.dtype());
  REEL_CHECK(!any(logical_not(logical_and(p >= 0, p <= 1))).item<bool>(),
             "binary_cross_entropy: the input is not a probability, some element is outside [0, 1]");
  const auto losses = [](const Tensor& pt, const Tensor& tt) {
    return -(tt * clamp(log(pt), -100) + (1 - tt) * clamp(log1p(-pt), -100));
  };
  Tensor y = no_grad([&] { return losses(p, t); });
  if (recording(p, t))
    record("binary_cross_entropy", y, inputs(p, t), [p = Saved(p), t = Saved(t)](Backward& back) {
      const Tensor &g = back.grad(), pt = back.get(p), tt = back.get(t);
      // The exact slope but for the poles, as PyTorch has it.
      if (back.needs(0)) back.set(0, g * (pt - tt) / maximum((1 - pt) * pt, 1e-12));
      if (back.needs(1)) back.set(1, g * (clamp(log1p(-pt), -100) - clamp(log(pt), -100)));
    });
  return reduced(y, reduction).to(is_half(probability.dtype()) ? probability.dtype() : y.dtype());
}

Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target, Reduction reduction) {
  check_same_shape("binary_cross_entropy_with_logits", logits, target);
  // -t log σ(x) - (1 - t) log(1 - σ(x)); above 40 softplus(x) is x to the last bit of a double.
  return reduced(softplus(logits, 1, 40) - logits * target, reduction);
}

}  // namespace reel
