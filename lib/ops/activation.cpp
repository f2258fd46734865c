#include "reel/ops/activation.h"

#include "lib/ops/pointwise.h"
#include "lib/scalar.h"

namespace reel {

Tensor relu(const Tensor& x) { return unary<scalar::Relu>("relu", x); }
Tensor hardtanh(const Tensor& x, double min_val, double max_val) {
  REEL_CHECK(min_val <= max_val, "hardtanh: min_val ", min_val, " is greater than max_val ", max_val);
  return unary("hardtanh", x, scalar::Clamp{min_val, max_val});
}
Tensor relu6(const Tensor& x) { return unary("relu6", x, scalar::Clamp{0, 6}); }
Tensor leaky_relu(const Tensor& x, double negative_slope) {
  return unary("leaky_relu", x, scalar::LeakyRelu{negative_slope});
}
Tensor prelu(const Tensor& x, const Tensor& weight) {
  if (const Lower low{}) return prelu(low(x), low(weight));
  const View &xv = view_of(x, "prelu"), &wv = view_of(weight, "prelu");
  if (wv.numel == 1) return binary<scalar::Prelu>("prelu", x, weight.reshape({}));
  REEL_CHECK(wv.shape.size() == 1 && xv.shape.size() >= 2 && wv.shape[0] == xv.shape[1], "prelu: a weight of shape ",
             wv.shape, " for x of shape ", xv.shape,
             "; there must be one slope, or one for each channel (dimension 1)");
  Shape channels;
  channels.resize(xv.shape.size() - 1, 1);
  channels[0] = wv.numel;
  return binary<scalar::Prelu>("prelu", x, weight.view(channels));
}
Tensor rrelu(const Tensor& x, double lower, double upper, bool training) {
  REEL_CHECK(lower <= upper, "rrelu: the range of slopes [", lower, ", ", upper, "] is empty");
  if (!training) return leaky_relu(x, (lower + upper) / 2);
  const View& view = view_of(x, "rrelu");
  const DType dtype = is_floating_point(view.dtype) ? view.dtype : kFloat32;
  return where(x > 0, x, x * make_tensor(view.shape, dtype, x.device()).uniform_(lower, upper));
}
Tensor elu(const Tensor& x, double alpha) { return unary("elu", x, scalar::Elu{alpha}); }
Tensor selu(const Tensor& x) {
  return unary("selu", x, scalar::Elu{.alpha = 1.6732632423543772, .scale = 1.0507009873554805});
}
Tensor celu(const Tensor& x, double alpha) {
  REEL_CHECK(alpha != 0, "celu: alpha is 0");
  return unary("celu", x, scalar::Elu{.alpha = alpha, .input_scale = 1 / alpha});
}
Tensor gelu(const Tensor& x) { return unary<scalar::Gelu>("gelu", x); }
Tensor gelu_tanh(const Tensor& x) { return unary<scalar::GeluTanh>("gelu_tanh", x); }
Tensor silu(const Tensor& x) { return unary<scalar::Silu>("silu", x); }
Tensor mish(const Tensor& x) { return unary<scalar::Mish>("mish", x); }
Tensor logsigmoid(const Tensor& x) { return unary<scalar::LogSigmoid>("logsigmoid", x); }
Tensor hardsigmoid(const Tensor& x) {
  view_of(x, "hardsigmoid");
  const Tensor y = hardtanh(to_compute(x) + 3, 0, 6) / 6;  // half types would round the corners away
  return is_half(x.dtype()) ? y.to(x.dtype()) : y;
}
Tensor hardswish(const Tensor& x) { return unary<scalar::Hardswish>("hardswish", x); }
Tensor softsign(const Tensor& x) { return x / (1 + abs(x)); }
Tensor tanhshrink(const Tensor& x) {
  view_of(x, "tanhshrink");
  const Tensor wide = to_compute(x);  // a difference of near equals
  const Tensor y = wide - tanh(wide);
  return is_half(x.dtype()) ? y.to(x.dtype()) : y;
}
Tensor hardshrink(const Tensor& x, double lambda) { return where(abs(x.detach()) <= lambda, 0, x); }
Tensor softshrink(const Tensor& x, double lambda) {
  REEL_CHECK(lambda >= 0, "softshrink: lambda ", lambda, " is negative");
  return where(abs(x.detach()) <= lambda, 0, x - lambda * sign(x.detach()));
}
Tensor threshold(const Tensor& x, double threshold, Scalar value) { return where(x.detach() <= threshold, value, x); }
Tensor softplus(const Tensor& x, double beta, double threshold) {
  if (const Raise raise{}) return softplus(raise(x), beta, threshold);
  REEL_CHECK(beta > 0, "softplus: beta ", beta, " is not positive");
  return unary("softplus", x, scalar::Softplus{beta, threshold});
}

Tensor glu(const Tensor& x, int64_t dim) {
  const int d = wrap_dim(dim, view_of(x, "glu").shape.size(), "glu");
  REEL_CHECK(x.dim() > 0 && x.size(d) % 2 == 0, "glu: dimension ", d, " of x, shape ", x.shape(), ", cannot be halved");
  const int64_t half = x.size(d) / 2;
  return x.narrow(d, 0, half) * sigmoid(x.narrow(d, half, half));
}

Tensor softmin(const Tensor& x, int64_t dim) { return softmax(-x, dim); }

Tensor gumbel_softmax(const Tensor& logits, double tau, bool hard, int64_t dim) {
  if (const Raise raise{}) return gumbel_softmax(raise(logits), tau, hard, dim);
  const DType dtype = view_of(logits, "gumbel_softmax").dtype;
  REEL_CHECK(reel::is_floating_point(dtype), "gumbel_softmax: logits of ", dtype, ", not floating point");
  REEL_CHECK(tau > 0, "gumbel_softmax: the temperature tau must be positive, got ", tau);
  Tensor waits = make_tensor(logits.shape(), to_compute(logits.detach()).dtype(), logits.device());
  const Tensor soft = softmax((logits - log(waits.exponential_())) / tau, dim).to(dtype);
  if (!hard) return soft;
  const Tensor top = argmax(soft.detach(), dim, true);
  const Tensor choice = scatter(zeros_like(soft.detach()), dim, top, ones_like(top).to(dtype));
  return choice - soft.detach() + soft;
}

}  // namespace reel
