#include <algorithm>
#include <array>
#include <utility>

#include "lib/device/kernels/convolution.h"
#include "lib/ops/fused.h"
#include "lib/ops/internal.h"

namespace reel {
namespace {

// ---- one convolution, three ops -------------------------------------------------------------------------------------

Shape shape_of(const Convolution& form, ConvPart part) {
  Shape shape{part == kConvWeight ? form.out : form.n};
  const auto& sizes = part == kConvX ? form.x_size : part == kConvWeight ? form.kernel : form.y_size;
  for (int d = 3 - form.dims; d < 3; ++d) shape.push_back(sizes[d]);
  const int64_t channels = part == kConvX ? form.in : part == kConvWeight ? form.in / form.groups : form.out;
  shape.insert(form.channels_last[part] ? shape.size() : 1, channels);
  return shape;
}

/// The two other parts.
std::pair<ConvPart, ConvPart> operands_of(ConvPart wanted) {
  return {wanted == kConvX ? kConvWeight : kConvX, wanted == kConvY ? kConvWeight : kConvY};
}

using Parts = std::array<Tensor, 3>;  // by ConvPart

Tensor convolve(const char* op, ConvPart wanted, const Convolution& form, const Parts& parts, const Tensor& bias = {},
                bool with_relu = false);

/// convolve where the device has no kernel for channels that lie last: with copies in which they lie second.
Tensor convolve_copies(const char* op, ConvPart wanted, const Convolution& form, Parts parts, const Tensor& bias) {
  NoGrad guard;
  Convolution first = form;
  first.channels_last = {};
  for (size_t part = 0; part < 3; ++part)
    if (form.channels_last[part] && parts[part].defined()) parts[part] = channels_to_front(parts[part], form.dims);
  const Tensor result = convolve(op, wanted, first, parts, bias);
  return form.channels_last[wanted] ? channels_to_back(result, form.dims) : result;
}

/// The wanted one of x, weight and y from the two others. With t(x, weight, y) = Σ y · conv(x, weight), which is linear
/// in each of the three, it is the derivative of t by the wanted part; so the derivatives of this op by its operands
/// are the same op again, with the incoming gradient in the wanted part's place. `bias` is added for each channel.
/// With `with_relu`, which needs that y is wanted and nothing recorded, ReLU may be computed as well.
Tensor convolve(const char* op, ConvPart wanted, const Convolution& form, const Parts& parts, const Tensor& bias,
                bool with_relu) {
  const auto [pa, pb] = operands_of(wanted);
  const Tensor a = parts[pa].contiguous(), b = parts[pb].contiguous();
  const Tensor offset = bias.defined() ? bias.contiguous() : bias;
  Tensor result = make_tensor(shape_of(form, wanted), form.dtype, a.device());
  const bool nothing = !view_of(a).numel || !view_of(b).numel, fused = wanted == kConvY && !nothing;
  if (nothing)
    no_grad([&] { result.zero_(); });
  else if (view_of(result).numel) {
    Convolution call = form;
    call.data[wanted] = view_of(result).data, call.data[pa] = view_of(a).data, call.data[pb] = view_of(b).data;
    if (fused && offset.defined()) call.bias = view_of(offset).data;
    const Tensor& weight = parts[kConvWeight];
    if (weight.defined() && view_of(weight).data == call.data[kConvWeight] && !recording(a, b))
      call.packed = packed_of(weight);
    if (!kernels_of(result).convolve(wanted, call))
      result = convolve_copies(op, wanted, form, parts, fused ? offset : Tensor());
    else if (with_relu && fused)
      rectify(result);
  }
  if (offset.defined() && !fused)
    no_grad([&] {
      Shape of_channels;
      of_channels.resize(form.dims, 1);
      of_channels.insert(form.channels_last[wanted] ? form.dims : 0, view_of(offset).numel);
      result.add_(offset.view(of_channels));
    });
  if (recording(a, b, offset))
    record(op, result, inputs(a, b, offset),
           [form, wanted, a = saved_if(needs_grad(b), a), b = saved_if(needs_grad(a), b)](Backward& back) {
             static constexpr const char* kNames[] = {"conv_grad_input", "conv_grad_weight", "conv"};
             const auto [pa, pb] = operands_of(wanted);
             Parts parts;
             parts[wanted] = back.grad().contiguous();
             if (back.needs(0)) {
               parts[pb] = back.get(b);
               back.set(0, convolve(kNames[pa], pa, form, parts));
             }
             if (back.needs(1)) {
               parts[pa] = back.get(a);
               back.set(1, convolve(kNames[pb], pb, form, parts));
             }
             if (back.needs(2)) {
               Dims all_but_channels{0};
               for (int d = 0; d < form.dims; ++d)
                 all_but_channels.dims.push_back(d + (form.channels_last[wanted] ? 1 : 2));
               back.set(2, sum(parts[wanted], all_but_channels));
             }
           });
  return result;
}

// ---- the public functions -------------------------------------------------------------------------------------------

// By whether channels lie last.
constexpr const char* kShapeNames[2][3] = {{"in, l", "in, h, w", "in, d, h, w"}, {"l, in", "h, w, in", "d, h, w, in"}};

/// Numbers a dimension, at the end of an array of three.
template <int N>
void put(const char* op, const char* what, std::array<int64_t, 3>& to, const PerDim<N>& from, int64_t least) {
  for (int d = 0; d < N; ++d) {
    REEL_CHECK(from[d] >= least && from[d] <= INT32_MAX, op, ": ", what, " ", from, ", of at least ", least,
               " expected");
    to[3 - N + d] = from[d];
  }
}

Convolution blank(DType dtype, int dims) {
  return {.dtype = dtype,
          .dims = dims,
          .n = 1,
          .in = 1,
          .out = 1,
          .groups = 1,
          .x_size = {1, 1, 1},
          .kernel = {1, 1, 1},
          .y_size = {1, 1, 1},
          .stride = {1, 1, 1},
          .dilation = {1, 1, 1},
          .before = {0, 0, 0}};
}

/// From the pixel of the first kernel element to that of the last.
int64_t reach(const Convolution& form, int d) { return form.dilation[d] * (form.kernel[d] - 1) + 1; }

/// Throws unless weight and bias have x's dtype.
void check_dtypes(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  for (const Tensor* other : {&weight, &bias})
    REEL_CHECK(!other->defined() || other->dtype() == x.dtype(), op, ": x is ", x.dtype(), ", the ",
               other == &bias ? "bias " : "weight ", other->dtype());
}

/// Throws unless devices, ranks, groups and the kernel's size are those of a convolution.
template <int N>
void check_operands(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t groups,
                    bool channels_last) {
  const View &xv = view_of(x, op), &wv = view_of(weight, op);
  REEL_CHECK(is_floating_point(xv.dtype), op, ": needs floating-point tensors, got ", xv.dtype);
  bias.defined() ? common_device(op, {&x, &weight, &bias}) : common_device(op, {&x, &weight});
  const int rank = xv.shape.size();
  const char* const sizes = kShapeNames[channels_last][N - 1];
  REEL_CHECK(rank == N + 1 || rank == N + 2, op, ": expected x of shape [n, ", sizes, "] or [", sizes, "], got ",
             xv.shape);
  REEL_CHECK(wv.shape.size() == N + 2, op, ": expected a weight with ", N + 2, " dimensions, got shape ", wv.shape);
  REEL_CHECK(wv.numel, op, ": the weight's shape ", wv.shape, " has no elements");
  REEL_CHECK(groups >= 1, op, ": ", groups, " groups");
}

/// For messages: x's shape, and what its dimensions are.
template <int N>
std::string layout_of(const Tensor& x, bool channels_last) {
  return x.shape().to_string() + (x.dim() == N + 2 ? ", [n, " : ", [") + kShapeNames[channels_last][N - 1] + "],";
}

void check_bias(const char* op, const Tensor& bias, int64_t channels) {
  REEL_CHECK(!bias.defined() || view_of(bias).shape == Shape{channels}, op, ": a bias of shape ", bias.shape(), " for ",
             channels, " output channels");
}

/// The windows of a traced convolution; `after` are the zeros at the end.
std::array<Attribute, 8> attributes_of(const Convolution& form, const std::array<int64_t, 3>& after,
                                       const std::array<int64_t, 3>& output_padding = {}) {
  const auto of = [&](const auto& numbers) {
    return std::span<const int64_t>(numbers).last(static_cast<size_t>(form.dims));
  };
  return {{{"kernel", of(form.kernel)},
           {"stride", of(form.stride)},
           {"dilation", of(form.dilation)},
           {"before", of(form.before)},
           {"after", of(after)},
           {"groups", form.groups},
           {"output_padding", of(output_padding)},
           {"channels_last", form.channels_last[kConvX]}}};
}

/// op(x) for a batch; x without a batch dimension gets one for the time.
template <class Op>
Tensor batched(const Tensor& x, int rank, const Op& op) {
  return view_of(x).shape.size() == rank ? op(x) : op(x.unsqueeze(0)).squeeze(0);
}

template <int N>
Tensor conv(Op op, const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions<N>& options,
            bool with_relu = false) {
  const bool last = options.channels_last;
  check_operands<N>(op, x, weight, bias, options.groups, last);
  return batched(x, N + 2, [&](const Tensor& images) {
    const Shape &xs = view_of(images).shape, &ws = view_of(weight).shape;
    Convolution form = blank(view_of(x).dtype, N);
    form.channels_last = {last, false, last};
    form.n = xs[0], form.in = xs[last ? N + 1 : 1], form.out = ws[0], form.groups = options.groups;
    REEL_CHECK(form.in == ws[1] * form.groups, op, ": x of shape ", layout_of<N>(x, last), " has ", form.in,
               " channels, a weight of shape ", ws, " in ", form.groups, " groups takes ", ws[1] * form.groups);
    REEL_CHECK(form.out % form.groups == 0, op, ": ", form.out, " output channels do not divide into ", form.groups,
               " groups");
    check_bias(op, bias, form.out);
    put(op, "stride", form.stride, options.stride, 1);
    put(op, "padding", form.before, options.padding.amount, 0);
    put(op, "dilation", form.dilation, options.dilation, 1);
    const bool same = options.padding.rule == kSame;
    REEL_CHECK(!same || options.stride == PerDim<N>(1), op, ": padding kSame needs stride 1, got ", options.stride);
    for (int d = 3 - N; d < 3; ++d) {
      form.x_size[d] = xs[d + N - 1 - last], form.kernel[d] = ws[d + N - 1];
      const int64_t room = same ? form.x_size[d] - 1 : form.x_size[d] + 2 * form.before[d] - reach(form, d);
      REEL_CHECK(room >= 0, op, ": a kernel of size ", form.kernel[d], " and dilation ", form.dilation[d],
                 " does not fit into x of shape ", x.shape(), " with padding ", options.padding.amount);
      if (same) form.before[d] = (reach(form, d) - 1) / 2;
      form.y_size[d] = room / form.stride[d] + 1;
    }
    if (last && is_tracing()) [[unlikely]]
      return with_channels_in_front(images, N, [&](const Tensor& front) {
        ConvOptions<N> of_front = options;
        of_front.channels_last = false;
        return conv<N>(op, front, weight, bias, of_front);
      });
    std::array<int64_t, 3> after = form.before;
    for (int d = 3 - N; same && d < 3; ++d) after[d] = reach(form, d) - 1 - form.before[d];
    return call(op, {images, weight, bias}, attributes_of(form, after),
                [&](const Tensor& images, const Tensor& weight, const Tensor& bias) {
                  check_dtypes(op, images, weight, bias);
                  form.dtype = view_of(images).dtype, form.n = view_of(images).shape[0];
                  return convolve(op, kConvY, form, {images, weight, {}}, bias, with_relu);
                });
  });
}

template <int N>
Tensor conv_transpose(Op op, const Tensor& x, const Tensor& weight, const Tensor& bias,
                      const ConvTransposeOptions<N>& options) {
  const bool last = options.channels_last;
  check_operands<N>(op, x, weight, bias, options.groups, last);
  return batched(x, N + 2, [&](const Tensor& images) {
    // The convolution whose y is the x here.
    const Shape &xs = view_of(images).shape, &ws = view_of(weight).shape;
    Convolution form = blank(view_of(x).dtype, N);
    form.channels_last = {last, false, last};
    form.n = xs[0], form.out = xs[last ? N + 1 : 1], form.in = ws[1] * options.groups, form.groups = options.groups;
    REEL_CHECK(form.out == ws[0], op, ": x of shape ", layout_of<N>(x, last), " has ", form.out,
               " channels, a weight of shape ", ws, " takes ", ws[0]);
    REEL_CHECK(form.out % form.groups == 0, op, ": ", form.out, " input channels do not divide into ", form.groups,
               " groups");
    check_bias(op, bias, form.in);
    std::array<int64_t, 3> extra{};
    put(op, "stride", form.stride, options.stride, 1);
    put(op, "padding", form.before, options.padding, 0);
    put(op, "dilation", form.dilation, options.dilation, 1);
    put(op, "output_padding", extra, options.output_padding, 0);
    for (int d = 3 - N; d < 3; ++d) {
      REEL_CHECK(extra[d] < std::max(form.stride[d], form.dilation[d]), op, ": output_padding ", options.output_padding,
                 " is neither less than stride ", options.stride, " nor than dilation ", options.dilation);
      form.y_size[d] = xs[d + N - 1 - last], form.kernel[d] = ws[d + N - 1];
      form.x_size[d] = (form.y_size[d] - 1) * form.stride[d] - 2 * form.before[d] + reach(form, d) + extra[d];
      REEL_CHECK(form.y_size[d] > 0 && form.x_size[d] > 0, op, ": x of shape ", x.shape(), " and a weight of shape ",
                 ws, " with padding ", options.padding, " leave no output");
    }
    if (last && is_tracing()) [[unlikely]]
      return with_channels_in_front(images, N, [&](const Tensor& front) {
        ConvTransposeOptions<N> of_front = options;
        of_front.channels_last = false;
        return conv_transpose<N>(op, front, weight, bias, of_front);
      });
    return call(op, {images, weight, bias}, attributes_of(form, form.before, extra),
                [&](const Tensor& images, const Tensor& weight, const Tensor& bias) {
                  check_dtypes(op, images, weight, bias);
                  form.dtype = view_of(images).dtype, form.n = view_of(images).shape[0];
                  return convolve(op, kConvX, form, {Tensor(), weight, images}, bias);
                });
  });
}

// ---- windows as columns ---------------------------------------------------------------------------------------------

/// unfold or, as its adjoint, fold.
Tensor slide(bool to_columns, const Convolution& form, const Tensor& x) {
  return call(to_columns ? Op("unfold") : Op("fold"), {x}, attributes_of(form, form.before), [&](const Tensor& x) {
    const Tensor from = x.contiguous();
    const auto& k = form.kernel;
    const Shape columns{form.n, Shape{form.in, k[1], k[2]}.numel(), Shape{form.y_size[1], form.y_size[2]}.numel()};
    const Tensor to = make_tensor(to_columns ? columns : shape_of(form, kConvX), form.dtype, x.device());
    Convolution call = form;
    call.data = {view_of(to_columns ? from : to).data, nullptr, view_of(to_columns ? to : from).data};
    const KernelTable& table = kernels_of(x);
    if (view_of(to).numel) to_columns ? table.unfold(call) : table.fold(call);
    if (recording(from))
      record(to_columns ? "unfold" : "fold", to, inputs(from),
             [to_columns, form](Backward& back) { back.set(0, slide(!to_columns, form, back.grad())); });
    return to;
  });
}

Convolution windows(const char* op, DType dtype, PerDim<2> size, PerDim<2> kernel, const UnfoldOptions& options) {
  REEL_CHECK(is_floating_point(dtype), op, ": needs a floating-point tensor, got ", dtype);
  Convolution form = blank(dtype, 2);
  put(op, "size", form.x_size, size, 0);
  put(op, "kernel_size", form.kernel, kernel, 1);
  put(op, "dilation", form.dilation, options.dilation, 1);
  put(op, "padding", form.before, options.padding, 0);
  put(op, "stride", form.stride, options.stride, 1);
  for (int d = 1; d < 3; ++d) {
    const int64_t room = form.x_size[d] + 2 * form.before[d] - reach(form, d);
    REEL_CHECK(room >= 0, op, ": a kernel of size ", kernel, " and dilation ", options.dilation,
               " does not fit into size ", size, " with padding ", options.padding);
    form.y_size[d] = room / form.stride[d] + 1;
  }
  return form;
}

}  // namespace

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions<1>& options) {
  return conv("conv1d", x, weight, bias, options);
}
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions<2>& options) {
  return conv("conv2d", x, weight, bias, options);
}
Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions<3>& options) {
  return conv("conv3d", x, weight, bias, options);
}

// ReLU is computed in place on the CPU unless a mode concerns the op. On a GPU a capture could skip the relu that
// follows, and replay so for other elements.
template <int N>
Tensor conv_before_relu(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions<N>& options) {
  constexpr Op kOps[] = {"conv1d", "conv2d", "conv3d"}, op = kOps[N - 1];
  const bool with_relu = view_of(x, op).host && !op.concerns(op_modes) && !recording(x, weight, bias);
  return conv(op, x, weight, bias, options, with_relu);
}
template Tensor conv_before_relu(const Tensor&, const Tensor&, const Tensor&, const ConvOptions<1>&);
template Tensor conv_before_relu(const Tensor&, const Tensor&, const Tensor&, const ConvOptions<2>&);
template Tensor conv_before_relu(const Tensor&, const Tensor&, const Tensor&, const ConvOptions<3>&);

Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTransposeOptions<1>& options) {
  return conv_transpose("conv_transpose1d", x, weight, bias, options);
}
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTransposeOptions<2>& options) {
  return conv_transpose("conv_transpose2d", x, weight, bias, options);
}
Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTransposeOptions<3>& options) {
  return conv_transpose("conv_transpose3d", x, weight, bias, options);
}

Tensor unfold(const Tensor& x, PerDim<2> kernel_size, const UnfoldOptions& options) {
  const Shape shape = view_of(x, "unfold").shape;
  REEL_CHECK(shape.size() == 3 || shape.size() == 4, "unfold: expected x of shape [n, c, h, w] or [c, h, w], got ",
             shape);
  const int r = shape.size();
  Convolution form = windows("unfold", x.dtype(), {shape[r - 2], shape[r - 1]}, kernel_size, options);
  return batched(x, 4, [&](const Tensor& images) {
    form.n = images.size(0), form.in = images.size(1);
    return slide(true, form, images);
  });
}

Tensor fold(const Tensor& x, PerDim<2> output_size, PerDim<2> kernel_size, const UnfoldOptions& options) {
  const Shape shape = view_of(x, "fold").shape;
  REEL_CHECK(shape.size() == 2 || shape.size() == 3,
             "fold: expected x of shape [n, c * kernel, windows] or [c * kernel, windows], got ", shape);
  Convolution form = windows("fold", x.dtype(), output_size, kernel_size, options);
  const int64_t places = Shape{form.y_size[1], form.y_size[2]}.numel(), area = kernel_size[0] * kernel_size[1];
  const int r = shape.size();
  REEL_CHECK(shape[r - 2] % area == 0, "fold: x of shape ", shape, " has ", shape[r - 2], " rows, not a multiple of ",
             area, ", the kernel's area");
  REEL_CHECK(shape[r - 1] == places, "fold: x of shape ", shape, " has ", shape[r - 1], " columns, but there are ",
             form.y_size[1], " x ", form.y_size[2], " = ", places, " windows");
  return batched(x, 3, [&](const Tensor& columns) {
    form.n = columns.size(0), form.in = shape[r - 2] / area;
    return slide(false, form, columns);
  });
}

}  // namespace reel
