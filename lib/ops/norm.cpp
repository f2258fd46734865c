#include "reel/ops/norm.h"

#include <limits>

#include "lib/device/kernels/norm.h"
#include "lib/ops/internal.h"

namespace reel {
namespace {

// ---- what all of them are -------------------------------------------------------------------------------------------

/// x as [outer, groups, channels, inner]. Statistics are of the rows (outer, group) or, by channel, of the groups.
struct Frame {
  bool by_channel = false;
  int64_t outer = 1, groups = 1, channels = 1, inner = 1;
  Shape shape() const { return {outer, groups, channels, inner}; }
  Dims averaged() const { return by_channel ? Dims{0, 2, 3} : Dims{2, 3}; }
  int64_t statistics() const { return by_channel ? groups : outer * groups; }
  int64_t count() const { return by_channel ? outer * inner : channels * inner; }
};

/// float64, one of each for each statistic.
struct Statistics {
  Tensor mean, variance;
};

struct Kind {
  const char* op;
  double eps;
  bool center = true;  // false: the mean is taken to be 0
  bool given = false;  // the moments are constants
};

const void* data_of(const Tensor& x) { return x.defined() ? view_of(x).data : nullptr; }

Norm describe(const Kind& kind, const Frame& frame, bool parameters, const Tensor& x, const Tensor& weight,
              const Statistics& moments) {
  Norm norm{};
  norm.eps = kind.eps;
  norm.center = kind.center;
  norm.given = kind.given;
  norm.dtype = x.dtype();
  norm.outer = frame.outer;
  norm.groups = frame.groups;
  norm.channels = frame.channels;
  norm.inner = frame.inner;
  norm.x = data_of(x);
  norm.weight = data_of(weight);
  norm.mean = view_of(moments.mean).as<double>();
  norm.variance = view_of(moments.variance).as<double>();
  if (!parameters) norm.inner *= norm.channels, norm.channels = 1;  // longer runs
  return norm;
}

struct NormRule {
  Kind kind;
  Frame frame;
  Shape parameter_shape;  // empty if there is neither weight nor bias
  bool wide;              // they are float32, x is of a half type
  SavedTensor x, weight, mean, variance;

  void operator()(Backward& back) { back.create_graph() ? composed(back) : fused(back); }

  void composed(Backward& back) {
    const Tensor w =
        weight.defined() ? to_compute(back.get(weight)).reshape({1, frame.groups, frame.channels, 1}) : Tensor();
    const Tensor whole = to_compute(back.get(x)), in = whole.reshape(frame.shape());
    const Tensor g = to_compute(back.grad()).reshape(frame.shape());
    const Dims dims = frame.averaged();
    const auto of_groups = [&](const Tensor& moment) { return moment.to(in.dtype()).reshape({1, frame.groups, 1, 1}); };
    const Tensor d = kind.given ? in - of_groups(back.get(mean)) : kind.center ? in - reel::mean(in, dims, true) : in;
    const Tensor v = kind.given ? of_groups(back.get(variance)) : reel::mean(square(d), dims, true);
    const Tensor rstd = rsqrt(v + kind.eps), z = d * rstd;
    if (back.needs(0)) {
      const Tensor h = w.defined() ? g * w : g;
      Tensor gx = h;
      if (!kind.given) {
        gx = gx - z * reel::mean(h * z, dims, true);
        if (kind.center) gx = gx - reel::mean(h, dims, true);
      }
      back.set(0, (gx * rstd).reshape(whole.shape()));
    }
    if (back.needs(1)) back.set(1, sum(g * z, {0, 3}).reshape(back.get(weight).shape()));
    if (back.needs(2)) back.set(2, sum(g, {0, 3}).reshape(parameter_shape));
  }

  void fused(Backward& back) {
    const Tensor in = back.get(x), g = back.grad().contiguous();
    const Tensor w = weight.defined() ? back.get(weight) : Tensor();
    const Statistics moments{back.get(mean), back.get(variance)};
    Norm norm = describe(kind, frame, !parameter_shape.empty(), in, w, moments);
    norm.grad_y = data_of(g);
    norm.wide_parameters = wide;
    Tensor gx, gw, gb;
    if (back.needs(0)) gx = make_tensor(in.shape(), in.dtype(), in.device()), norm.grad_x = view_of(gx).data;
    norm.grads_dtype = wide ? compute_dtype(in.dtype()) : in.dtype();
    const auto wanted = [&](int input, Tensor& total, void*& at) {
      if (!back.needs(input)) return;
      const TensorOptions options{.dtype = norm.grads_dtype, .device = in.device()};
      total = in.numel() ? empty(parameter_shape, options) : zeros(parameter_shape, options);
      at = view_of(total).data;
    };
    wanted(1, gw, norm.grad_weight);
    wanted(2, gb, norm.grad_bias);
    const KernelTable& kernels = kernels_of(in);
    if (in.numel()) frame.by_channel ? kernels.channel_norm_grad(norm) : kernels.row_norm_grad(norm);
    back.set(0, std::move(gx));
    back.set(1, std::move(gw));
    back.set(2, std::move(gb));
  }
};

/// x normalised; fills in moments or, where they are given, uses them.
Tensor normalized(const Kind& kind, const Frame& frame, const Tensor& x_in, const Tensor& weight_in,
                  const Tensor& bias_in, Statistics& moments) {
  check_device(kind.op, x_in, {&weight_in, &bias_in});
  const bool wide = (weight_in.defined() && weight_in.dtype() != x_in.dtype()) ||
                    (bias_in.defined() && bias_in.dtype() != x_in.dtype());
  const auto dense = [wide](const Tensor& t) { return t.defined() ? (wide ? to_compute(t) : t).contiguous() : t; };
  const Tensor x = x_in.contiguous(), weight = dense(weight_in), bias = dense(bias_in);
  const View& view = view_of(x);
  const Tensor y = make_tensor(view.shape, view.dtype, x.device());
  if (!kind.given)
    for (Tensor* moment : {&moments.mean, &moments.variance})
      *moment = make_tensor({frame.statistics()}, kFloat64, x.device());
  if (view.numel) {
    Norm norm = describe(kind, frame, weight.defined() || bias.defined(), x, weight, moments);
    norm.bias = data_of(bias);
    norm.wide_parameters = wide;
    norm.y = view_of(y).data;
    frame.by_channel ? kernels_of(x).channel_norm(norm) : kernels_of(x).row_norm(norm);
  }
  if (recording(x, weight, bias)) {
    const Shape shape = weight.defined() ? weight.shape() : bias.defined() ? bias.shape() : Shape();
    record(kind.op, y, inputs(x, weight, bias),
           NormRule{kind, frame, shape, wide, SavedTensor(x), saved_if(weight.defined(), weight),
                    SavedTensor(moments.mean), SavedTensor(moments.variance)});
  }
  return y;
}

// ---- what is refused or converted -----------------------------------------------------------------------------------

void check_float(const char* op, const View& x) {
  REEL_CHECK(is_floating_point(x.dtype), op, ": a tensor of ", x.dtype, "; convert it to a floating point type first");
}

/// The weight or bias must go with an x of `dtype`.
void check_parameter(const char* op, const char* what, const Tensor& t, const Shape& shape, DType dtype) {
  if (!t.defined()) return;
  const View& view = view_of(t);
  REEL_CHECK(view.shape == shape, op, ": a ", what, " of shape ", view.shape, "; it should be ", shape);
  REEL_CHECK(view.dtype == dtype || view.dtype == compute_dtype(dtype), op, ": x is ", dtype, " and the ", what, " ",
             view.dtype);
}

const char* layout_of(bool channels_last) { return channels_last ? "[n, …, channels]" : "[n, channels, …]"; }

void check_channels(const char* op, const View& x, bool channels_last = false) {
  check_float(op, x);
  REEL_CHECK(x.shape.size() >= 2, op, ": x of shape ", x.shape, ", not ", layout_of(channels_last));
}

/// Running statistics are both there, of one number a channel, or both not.
void check_running(const char* op, const Tensor& x, const Tensor& mean, const Tensor& variance, int64_t channels,
                   bool channels_last = false) {
  check_device(op, x, {&mean, &variance});
  REEL_CHECK(mean.defined() == variance.defined(), op, ": of running_mean and running_var one is undefined");
  for (const auto& [name, t] : {std::pair("running_mean", &mean), std::pair("running_var", &variance)})
    REEL_CHECK(!t->defined() || (t->shape() == Shape{channels} && t->is_floating_point()), op, ": ", name, " is ",
               t->dtype(), " ", t->shape(), ", not one floating-point number for each of ", channels, " channels of x ",
               x.shape(), ", ", layout_of(channels_last));
}

/// A running statistic that training moves must be one that can be, before anything is computed.
void check_moves(const char* what, const Tensor& running) {
  NoGrad guard;
  if (running.defined()) check_in_place(what, running);
}

int64_t product_from(const Shape& shape, int first) {
  int64_t product = 1;
  for (int d = first; d < shape.size(); ++d) product *= shape[d];
  return product;
}

/// Moves the running statistics towards the moments of `count` elements each, if there are any.
void move_running(const Tensor& running_mean, const Tensor& running_var, const Statistics& moments, int64_t count,
                  double momentum) {
  if (count == 0) return;
  const double unbiased = static_cast<double>(count) / static_cast<double>(count - 1);
  kernels_of(running_mean)
      .move_running(view_of(moments.mean), view_of(moments.variance), unbiased, momentum, view_of(running_mean),
                    view_of(running_var));
  for (const Tensor* running : {&running_mean, &running_var}) TensorImpl::of(*running)->storage->changed();
}

/// Running statistics as they are now: later batches will move them.
Statistics current(const Tensor& running_mean, const Tensor& running_var) {
  NoGrad guard;
  const auto copy = [](const Tensor& t) {
    Tensor now = make_tensor(t.shape(), kFloat64, t.device());
    return now.copy_(t);
  };
  return {copy(running_mean), copy(running_var)};
}

}  // namespace

// ---- by channel -----------------------------------------------------------------------------------------------------

Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
                  const Tensor& bias, bool training, double momentum, double eps, bool channels_last) {
  constexpr Op op = "batch_norm";
  view_of(x, op);
  if (channels_last && is_tracing() && x.dim() > 2) [[unlikely]]
    return with_channels_in_front(x, static_cast<int>(x.dim()) - 2, [&](const Tensor& front) {
      return batch_norm(front, running_mean, running_var, weight, bias, training, momentum, eps);
    });
  return call(training ? Op("batch_norm(training)") : op, {x, running_mean, running_var, weight, bias}, {{"eps", eps}},
              [&](const Tensor& x, const Tensor&, const Tensor&, const Tensor& weight, const Tensor& bias) {
                const View& view = view_of(x);
                check_channels(op, view, channels_last);
                const int64_t channels = channels_last ? view.shape.back() : view.shape[1];
                check_running(op, x, running_mean, running_var, channels, channels_last);
                check_parameter(op, "weight", weight, {channels}, view.dtype);
                check_parameter(op, "bias", bias, {channels}, view.dtype);
                Frame frame{.by_channel = true, .outer = view.shape[0], .groups = channels};
                if (channels_last)
                  for (int d = 1; d < view.shape.size() - 1; ++d) frame.outer *= view.shape[d];
                else
                  frame.inner = product_from(view.shape, 2);
                REEL_CHECK(training || running_mean.defined(), op, ": running statistics are needed when not training");
                if (training)
                  check_moves("batch_norm: running_mean", running_mean),
                      check_moves("batch_norm: running_var", running_var);
                REEL_CHECK(!training || frame.count() != 1, op,
                           ": more than one value for each channel is needed in training, got x ", view.shape,
                           "; to predict, call eval()");
                Statistics moments = training ? Statistics() : current(running_mean, running_var);
                const Tensor y = normalized({op, eps, true, !training}, frame, x, weight, bias, moments);
                if (training && running_mean.defined())
                  move_running(running_mean, running_var, moments, frame.count(), momentum);
                return y;
              });
}

// ---- by row ---------------------------------------------------------------------------------------------------------

Tensor instance_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
                     const Tensor& bias, bool use_input_stats, double momentum, double eps) {
  constexpr Op op = "instance_norm";
  const View& view = view_of(x, op);
  check_channels(op, view);
  if (!use_input_stats) return batch_norm(x, running_mean, running_var, weight, bias, false, momentum, eps);
  return call(running_mean.defined() ? Op("instance_norm(training)") : op, {x, weight, bias}, {{"eps", eps}},
              [&](const Tensor& x, const Tensor& weight, const Tensor& bias) {
                const View& view = view_of(x);
                const int64_t n = view.shape[0], channels = view.shape[1];
                check_running(op, x, running_mean, running_var, channels);
                check_parameter(op, "weight", weight, {channels}, view.dtype);
                check_parameter(op, "bias", bias, {channels}, view.dtype);
                const Frame frame{.outer = n, .groups = channels, .inner = product_from(view.shape, 2)};
                REEL_CHECK(frame.inner != 1, op,
                           ": more than one value for each channel of an example is needed, got x ", view.shape);
                check_moves("instance_norm: running_mean", running_mean),
                    check_moves("instance_norm: running_var", running_var);
                Statistics moments;
                const Tensor y = normalized({op, eps}, frame, x, weight, bias, moments);
                if (running_mean.defined() && n > 0 && frame.inner > 0) {
                  NoGrad guard;
                  const auto over_examples = [&](const Tensor& moment) {
                    return mean(moment.reshape({n, channels}), 0);
                  };
                  const Statistics means{over_examples(moments.mean), over_examples(moments.variance)};
                  move_running(running_mean, running_var, means, frame.count(), momentum);
                }
                return y;
              });
}

Tensor group_norm(const Tensor& x, int64_t num_groups, const Tensor& weight, const Tensor& bias, double eps) {
  constexpr Op op = "group_norm";
  view_of(x, op);
  return call(op, {x, weight, bias}, {{"groups", num_groups}, {"eps", eps}},
              [&](const Tensor& x, const Tensor& weight, const Tensor& bias) {
                const View& view = view_of(x);
                check_channels(op, view);
                const int64_t channels = view.shape[1];
                REEL_CHECK(num_groups > 0 && channels % num_groups == 0, op, ": ", channels,
                           " channels cannot be divided into ", num_groups, " groups");
                REEL_CHECK(view.numel != num_groups, op, ": more than one value for each group is needed, got x ",
                           view.shape, " in ", num_groups, " groups");
                check_parameter(op, "weight", weight, {channels}, view.dtype);
                check_parameter(op, "bias", bias, {channels}, view.dtype);
                const Frame frame{.outer = view.shape[0],
                                  .groups = num_groups,
                                  .channels = channels / num_groups,
                                  .inner = product_from(view.shape, 2)};
                Statistics moments;
                return normalized({op, eps}, frame, x, weight, bias, moments);
              });
}

namespace {

/// layer_norm and rms_norm: x with the number of elements that are normalised together.
Frame last_dimensions(const char* op, const View& x, const Shape& normalized_shape) {
  check_float(op, x);
  const int lead = x.shape.size() - normalized_shape.size();
  REEL_CHECK(!normalized_shape.empty(), op, ": normalized_shape is empty");
  for (int d = 0; d < normalized_shape.size(); ++d)
    REEL_CHECK(lead >= 0 && x.shape[lead + d] == normalized_shape[d], op, ": x of shape ", x.shape,
               " does not end in normalized_shape ", normalized_shape);
  const int64_t n = normalized_shape.numel();
  return {.outer = n ? x.numel / n : 0, .channels = n};
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight, const Tensor& bias,
                  double eps) {
  constexpr Op op = "layer_norm";
  view_of(x, op);
  return call(op, {x, weight, bias}, {{"normalized_shape", normalized_shape}, {"eps", eps}},
              [&](const Tensor& x, const Tensor& weight, const Tensor& bias) {
                const View& view = view_of(x);
                const Frame frame = last_dimensions(op, view, normalized_shape);
                check_parameter(op, "weight", weight, normalized_shape, view.dtype);
                check_parameter(op, "bias", bias, normalized_shape, view.dtype);
                Statistics moments;
                return normalized({op, eps}, frame, x, weight, bias, moments);
              });
}

Tensor rms_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight, std::optional<double> eps) {
  constexpr Op op = "rms_norm";
  const double smallest =
      view_of(x, op).dtype == kFloat64 ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
  const double added = eps.value_or(smallest);
  return call(op, {x, weight}, {{"normalized_shape", normalized_shape}, {"eps", added}},
              [&](const Tensor& x, const Tensor& weight) {
                const View& view = view_of(x);
                const Frame frame = last_dimensions(op, view, normalized_shape);
                check_parameter(op, "weight", weight, normalized_shape, view.dtype);
                Statistics moments;
                return normalized({op, added, false}, frame, x, weight, {}, moments);
              });
}

// ---- composed -------------------------------------------------------------------------------------------------------

Tensor local_response_norm(const Tensor& x, int64_t size, double alpha, double beta, double k) {
  constexpr Op op = "local_response_norm";
  const View& view = view_of(x, op);
  check_channels(op, view);
  REEL_CHECK(size > 0, op, ": the size must be positive, got ", size);
  return call(op, {x}, {}, [&](const Tensor& x) {
    const View& view = view_of(x);
    if (view.numel == 0) return x.clone();
    const int64_t n = view.shape[0], channels = view.shape[1];
    // A window of channels as one of an image's rows; the padding in front is that of an odd size.
    const Tensor squares = square(x).reshape({n, 1, channels, product_from(view.shape, 2)});
    const Tensor means = avg_pool2d(squares, {size, 1}, {.stride = 1, .padding = {size / 2, 0}}).narrow(2, 0, channels);
    return x * pow(means * alpha + k, -beta).reshape(view.shape);
  });
}

Tensor normalize(const Tensor& x, double p, const Dims& dims, double eps) {
  check_float("normalize", view_of(x, "normalize"));
  return call("normalize", {x}, {}, [&](const Tensor& x) { return x / clamp(norm(x, p, dims, true), eps); });
}

}  // namespace reel
