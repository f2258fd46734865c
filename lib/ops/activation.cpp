#include "reel/ops/activation.h"

#include "lib/functors/activation.h"
#include "lib/functors/binary.h"
#include "lib/ops/fused.h"
#include "lib/ops/pointwise.h"

namespace reel {

Tensor relu(const Tensor& x) {
  if (is_rectified(x)) [[unlikely]]
    return x;
  return unary<functors::Relu>("relu", x);
}
void rectify(const Tensor& x) {
  const functors::Relu f;
  const View& view = view_of(x);
  kernels_of(x).unary[functors::index_of<functors::UnaryList, functors::Relu>](&f, view, view);
  TensorImpl::of(x)->rectified = true;
}
Tensor hardtanh(const Tensor& x, double min_val, double max_val) {
  REEL_CHECK(min_val <= max_val, "hardtanh: min_val ", min_val, " is greater than max_val ", max_val);
  if (is_floating_point(view_of(x, "hardtanh").dtype)) return unary("hardtanh", x, functors::Clamp{min_val, max_val});
  return clamp(x, functors::to_integer<int64_t>(min_val), functors::to_integer<int64_t>(max_val));
}
Tensor relu6(const Tensor& x) {
  return is_floating_point(view_of(x, "relu6").dtype) ? unary("relu6", x, functors::Clamp{0, 6}) : clamp(x, 0, 6);
}
Tensor leaky_relu(const Tensor& x, double negative_slope) {
  return unary("leaky_relu", x, functors::LeakyRelu{negative_slope});
}
Tensor prelu(const Tensor& x, const Tensor& weight) {
  const View &xv = view_of(x, "prelu"), &wv = view_of(weight, "prelu");
  Shape slopes;
  if (wv.numel != 1) {
    REEL_CHECK(wv.shape.size() == 1 && xv.shape.size() >= 2 && wv.shape[0] == xv.shape[1], "prelu: a weight of shape ",
               wv.shape, " for x of shape ", xv.shape,
               "; there must be one slope, or one for each channel (dimension 1)");
    slopes.resize(xv.shape.size() - 1, 1);
    slopes[0] = wv.numel;
  }
  return call("prelu(weight)", {x, weight}, {}, [&](const Tensor& x, const Tensor& weight) {
    return binary<functors::Prelu>("prelu", x, weight.reshape(slopes));
  });
}
Tensor rrelu(const Tensor& x, double lower, double upper, bool training) {
  REEL_CHECK(lower <= upper, "rrelu: the range of slopes [", lower, ", ", upper, "] is empty");
  if (!training) return leaky_relu(x, (lower + upper) / 2);
  const View& view = view_of(x, "rrelu");
  const DType dtype = is_floating_point(view.dtype) ? view.dtype : kFloat32;
  return where(x > 0, x, x * make_tensor(view.shape, dtype, x.device()).uniform_(lower, upper));
}
Tensor elu(const Tensor& x, double alpha) { return unary("elu", x, functors::Elu{alpha}); }
Tensor selu(const Tensor& x) {
  return unary("selu", x, functors::Elu{.alpha = 1.6732632423543772, .scale = 1.0507009873554805});
}
Tensor celu(const Tensor& x, double alpha) {
  REEL_CHECK(alpha != 0, "celu: alpha is 0");
  return unary("celu", x, functors::Elu{.alpha = alpha, .input_scale = 1 / alpha});
}
Tensor gelu(const Tensor& x) { return unary<functors::Gelu>("gelu", x); }
Tensor gelu_tanh(const Tensor& x) { return unary<functors::GeluTanh>("gelu_tanh", x); }
Tensor silu(const Tensor& x) { return unary<functors::Silu>("silu", x); }
Tensor mish(const Tensor& x) { return unary<functors::Mish>("mish", x); }
Tensor logsigmoid(const Tensor& x) { return unary<functors::LogSigmoid>("logsigmoid", x); }
Tensor hardsigmoid(const Tensor& x) { return unary<functors::Hardsigmoid>("hardsigmoid", x); }
Tensor hardswish(const Tensor& x) { return unary<functors::Hardswish>("hardswish", x); }
Tensor softsign(const Tensor& x) { return unary<functors::Softsign>("softsign", x); }
Tensor tanhshrink(const Tensor& x) { return unary<functors::Tanhshrink>("tanhshrink", x); }
Tensor hardshrink(const Tensor& x, double lambda) {
  if (!is_floating_point(view_of(x, "hardshrink").dtype)) return where(abs(x) <= lambda, 0, x);
  return unary("hardshrink", x, functors::Hardshrink{lambda});
}
Tensor softshrink(const Tensor& x, double lambda) {
  REEL_CHECK(lambda >= 0, "softshrink: lambda ", lambda, " is negative");
  return unary("softshrink", x, functors::Softshrink{lambda});
}
Tensor threshold(const Tensor& x, double threshold, Scalar value) {
  const DType dtype = view_of(x, "threshold").dtype;
  check_fits("threshold", value, dtype);
  if (!is_floating_point(dtype)) return where(x <= threshold, Tensor(value).to(dtype), x);
  return unary("threshold", x, functors::Threshold{threshold, value.to<double>()});
}
Tensor softplus(const Tensor& x, double beta, double threshold) {
  REEL_CHECK(beta > 0, "softplus: beta ", beta, " is not positive");
  return unary("softplus", x, functors::Softplus{beta, threshold});
}

Tensor glu(const Tensor& x, int64_t dim) {
  const int d = wrap_dim(dim, view_of(x, "glu").shape.size(), "glu");
  REEL_CHECK(x.dim() > 0 && x.size(d) % 2 == 0, "glu: dimension ", d, " of x, shape ", x.shape(), ", cannot be halved");
  const int64_t half = x.size(d) / 2;
  return x.narrow(d, 0, half) * sigmoid(x.narrow(d, half, half));
}

}  // namespace reel
