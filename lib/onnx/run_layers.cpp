#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/nn/by_dims.h"
#include "lib/onnx/run_ops.h"
#include "lib/ops/fused.h"
#include "reel/ragged.h"

namespace reel::onnx {
namespace {

using nn::internal::convolve, nn::internal::pick;

// ---- sliding windows ------------------------------------------------------------------------------------------------

// Along one dimension: the window, and what is added to the input at either end.
struct Axis {
  int64_t kernel, stride, dilation, before, after;
  int64_t beyond = 0;  // behind `after`, for the last window of ceil_mode
  int64_t extent() const { return dilation * (kernel - 1) + 1; }
};
using Axes = std::vector<Axis>;

template <int N, class Get>
PerDim<N> each(const Axes& axes, const Get& get) {
  PerDim<N> values(0);
  for (int i = 0; i < N; ++i) values.values[i] = get(axes[i]);
  return values;
}
template <int N>
PerDim<N> kernel_of(const Axes& axes) {
  return each<N>(axes, [](const Axis& a) { return a.kernel; });
}
template <int N>
PerDim<N> stride_of(const Axes& axes) {
  return each<N>(axes, [](const Axis& a) { return a.stride; });
}
template <int N>
PerDim<N> dilation_of(const Axes& axes) {
  return each<N>(axes, [](const Axis& a) { return a.dilation; });
}
template <int N>
PerDim<N> padding_of(const Axes& axes) {
  return each<N>(axes, [](const Axis& a) { return a.before; });
}

// f for the number of spatial dimensions.
template <class F>
auto by_dims(const Tensor& x, const F& f) {
  switch (x.dim()) {
    case 3: return f(std::integral_constant<int, 1>());
    case 4: return f(std::integral_constant<int, 2>());
    case 5: return f(std::integral_constant<int, 3>());
    default: detail::fail("expected 1 to 3 dimensions behind [n, channels], got the shape ", x.shape());
  }
}

struct Windows {
  std::string auto_pad;
  std::vector<int64_t> kernel, strides, dilations, pads;
  bool ceil = false;

  explicit Windows(const Context& n, bool is_pool)
      : auto_pad(n.choice("auto_pad", "NOTSET", {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"})),
        kernel(n.integers("kernel_shape")),
        strides(n.integers("strides")),
        dilations(n.integers("dilations")),
        pads(n.integers("pads")),
        ceil(is_pool && n.flag("ceil_mode", false)) {
    const auto check = [&](const std::vector<int64_t>& list, int64_t least) {
      for (const int64_t number : list)
        REEL_CHECK(number >= least && number < (1 << 30), n.node.label(),
                   ": a kernel_shape, stride, dilation or pad is ", number);
    };
    check(kernel, 1), check(strides, 1), check(dilations, 1), check(pads, 0);
  }

  Axes axes(const Tensor& x, const std::vector<int64_t>& windows) const {
    const size_t rank = windows.size();
    REEL_CHECK(kernel.empty() || kernel == windows, "kernel_shape is ", Shape(kernel), " with windows of ",
               Shape(windows));
    REEL_CHECK(x.dim() == static_cast<int64_t>(rank) + 2 && (strides.empty() || strides.size() == rank) &&
                   (dilations.empty() || dilations.size() == rank) && (pads.empty() || pads.size() == 2 * rank),
               "windows of ", rank, " dimensions with ", strides.size(), " strides, ", dilations.size(), " dilations, ",
               pads.size(), " pads and an input of shape ", x.shape());
    Axes all;
    for (size_t i = 0; i < rank; ++i) {
      Axis a{windows[i], strides.empty() ? 1 : strides[i], dilations.empty() ? 1 : dilations[i],
             pads.empty() ? 0 : pads[i], pads.empty() ? 0 : pads[i + rank]};
      const int64_t size = x.size(static_cast<int64_t>(i) + 2);
      if (auto_pad.starts_with("SAME")) {
        const int64_t out = (size + a.stride - 1) / a.stride,
                      total = std::max<int64_t>((out - 1) * a.stride + a.extent() - size, 0);
        a.before = auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
        a.after = total - a.before;
      } else if (auto_pad == "VALID") {
        a.before = a.after = 0;
      }
      if (ceil) {  // no window begins in the padding behind x
        int64_t out = (size + a.before + a.after - a.extent() + a.stride - 1) / a.stride + 1;
        if ((out - 1) * a.stride >= size + a.before) --out;
        a.beyond = std::max<int64_t>((out - 1) * a.stride + a.extent() - size - a.before - a.after, 0);
      }
      all.push_back(a);
    }
    return all;
  }
};

Tensor pad_axes(const Tensor& x, const Axes& axes, double value, bool beyond) {
  std::vector<int64_t> amounts;
  for (auto a = axes.rbegin(); a != axes.rend(); ++a)
    amounts.insert(amounts.end(), {a->before, a->after + (beyond ? a->beyond : 0)});
  const bool none = std::all_of(amounts.begin(), amounts.end(), [](int64_t n) { return n == 0; });
  return none ? x : pad(x, amounts, kConstant, value);
}
bool is_even(const Axes& axes) {
  return std::all_of(axes.begin(), axes.end(), [](const Axis& a) { return a.before == a.after; });
}
// What a pool of reel pads itself.
bool is_plain(const Axes& axes) {
  return std::all_of(axes.begin(), axes.end(),
                     [](const Axis& a) { return a.before == a.after && 2 * a.before <= a.kernel && !a.beyond; });
}

std::vector<int64_t> window_of(const Tensor& weight) {
  return {weight.shape().begin() + std::min(weight.dim(), int64_t{2}), weight.shape().end()};
}

Run make_conv(const Context& n) {
  return gives([w = Windows(n, false), groups = n.integer("group", 1)](Call& c) {
    const Tensor weight = c[1], bias = c.get(2);
    Axes axes = w.axes(c[0], window_of(weight));
    const bool even = is_even(axes);
    const Tensor x = even ? c[0] : pad_axes(c[0], axes, 0, false);
    return by_dims(x, [&](auto dims) {
      constexpr int N = dims;
      const ConvOptions<N> options{.stride = stride_of<N>(axes),
                                   .padding = even ? padding_of<N>(axes) : PerDim<N>(0),
                                   .dilation = dilation_of<N>(axes),
                                   .groups = groups};
      if (c.node.has_relu) return relu(conv_before_relu(x, weight, bias, options));
      return convolve(x, weight, bias, options);
    });
  });
}

Run make_conv_transpose(const Context& n) {
  return gives([w = Windows(n, false), groups = n.integer("group", 1), extra = n.integers("output_padding"),
                shape = n.integers("output_shape")](Call& c) {
    const Tensor x = c[0], weight = c[1], bias = c.get(2);
    Axes axes = w.axes(x, window_of(weight));
    REEL_CHECK((extra.empty() || extra.size() == axes.size()) && (shape.empty() || shape.size() == axes.size()),
               "output_padding or output_shape of another rank");
    bool even = true;
    std::vector<int64_t> cut;
    for (size_t i = 0; i < axes.size(); ++i) {
      Axis& a = axes[i];
      a.beyond = extra.empty() ? 0 : extra[i];
      const int64_t size = x.size(static_cast<int64_t>(i) + 2), full = (size - 1) * a.stride + a.extent() + a.beyond;
      if (!shape.empty() || w.auto_pad.starts_with("SAME")) {
        const int64_t total = full - (shape.empty() ? size * a.stride : shape[i]);
        a.before = total < 0 ? 0 : w.auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
        a.after = total - a.before;
      }
      even = even && a.before == a.after && a.before >= 0;
    }
    for (auto a = axes.rbegin(); a != axes.rend(); ++a) cut.insert(cut.end(), {-a->before, -a->after});
    const Tensor y = by_dims(x, [&](auto dims) {
      constexpr int N = dims;
      const ConvTransposeOptions<N> options{.stride = stride_of<N>(axes),
                                            .padding = even ? padding_of<N>(axes) : PerDim<N>(0),
                                            .output_padding = each<N>(axes, [](const Axis& a) { return a.beyond; }),
                                            .groups = groups,
                                            .dilation = dilation_of<N>(axes)};
      return convolve(x, weight, even ? bias : Tensor(), options);
    });
    if (even) return y;
    const Tensor part = pad(y, cut);
    Shape channel(std::vector<int64_t>(x.dim(), 1));
    channel[1] = -1;
    return bias.defined() ? part + bias.reshape(channel) : part;
  });
}

Run make_max_pool(const Context& n) {
  n.require(n.integer("storage_order", 0) == 0, "storage_order 1");
  return [w = Windows(n, true)](Call& c) {
    const Axes axes = w.axes(c[0], w.kernel);
    const bool plain = is_plain(axes), with_indices = c.wants(1);
    REEL_CHECK(plain || !with_indices, "indices of uneven padding are not supported");
    const Tensor x = plain ? c[0] : pad_axes(c[0], axes, -std::numeric_limits<double>::infinity(), true);
    const ValuesIndices y = by_dims(x, [&](auto dims) -> ValuesIndices {
      constexpr int N = dims;
      const MaxPoolOptions<N> options{.stride = stride_of<N>(axes),
                                      .padding = plain ? padding_of<N>(axes) : PerDim<N>(0),
                                      .dilation = dilation_of<N>(axes)};
      const PerDim<N> kernel = kernel_of<N>(axes);
      if (!with_indices) return {pick<N>(max_pool1d, max_pool2d, max_pool3d)(x, kernel, options), {}};
      return pick<N>(max_pool1d_with_indices, max_pool2d_with_indices, max_pool3d_with_indices)(x, kernel, options);
    });
    c.set(0, y.values);
    if (!with_indices) return;
    // ONNX counts from the first element of x, not of a channel.
    Shape planes(std::vector<int64_t>(x.dim(), 1));
    planes[0] = x.size(0), planes[1] = x.size(1);
    const int64_t plane = planes.numel() ? x.numel() / planes.numel() : 0;
    c.set(1, y.indices + arange(planes.numel(), {.device = x.device()}).reshape(planes) * plane);
  };
}

template <int N>
Tensor avg_pool(const Tensor& x, const Axes& axes, const AvgPoolOptions<N>& options) {
  return pick<N>(avg_pool1d, avg_pool2d, avg_pool3d)(x, kernel_of<N>(axes), options);
}
// The sums of windows that divisor_override = 1 makes of averages.
Tensor sum_pool(const Tensor& x, const Axes& axes) {
  return by_dims(
      x, [&](auto dims) { return avg_pool<dims>(x, axes, {.stride = stride_of<dims>(axes), .divisor_override = 1}); });
}

Run make_average_pool(const Context& n) {
  const Windows w(n, true);
  n.require(std::all_of(w.dilations.begin(), w.dilations.end(), [](int64_t d) { return d == 1; }), "a dilated average");
  return gives([w, count_padding = n.flag("count_include_pad", false)](Call& c) {
    const Tensor x = c[0];
    Axes axes = w.axes(x, w.kernel);
    if (!is_plain(axes)) {
      Shape shape = x.shape();
      shape[0] = shape[1] = 1;
      Tensor counted = ones(shape, x.options());
      if (count_padding) {
        counted = pad_axes(counted, axes, 1, false);
        Axes rest = axes;
        for (Axis& a : rest) a.before = a.after = 0;
        counted = pad_axes(counted, rest, 0, true);
      } else {
        counted = pad_axes(counted, axes, 0, true);
      }
      return sum_pool(pad_axes(x, axes, 0, true), axes) / sum_pool(counted, axes);
    }
    return by_dims(x, [&](auto dims) {
      return avg_pool<dims>(
          x, axes,
          {.stride = stride_of<dims>(axes), .padding = padding_of<dims>(axes), .count_include_pad = count_padding});
    });
  });
}

Run make_lp_pool(const Context& n) {
  const Windows w(n, true);
  n.require(std::all_of(w.dilations.begin(), w.dilations.end(), [](int64_t d) { return d == 1; }), "a dilated LpPool");
  return gives([w, p = static_cast<double>(n.integer("p", 2))](Call& c) {
    const Axes axes = w.axes(c[0], w.kernel);
    return pow(sum_pool(pow(abs(pad_axes(c[0], axes, 0, true)), p), axes), 1 / p);
  });
}

Dims spatial(const Tensor& x) {
  REEL_CHECK(x.dim() > 2, "expected dimensions behind [n, channels], got the shape ", x.shape());
  Dims dims;
  for (int64_t d = 2; d < x.dim(); ++d) dims.dims.push_back(d);
  return dims;
}

// ---- normalisation --------------------------------------------------------------------------------------------------

Run make_batch_norm(const Context& n) {
  const double eps = n.number("epsilon", 1e-5), momentum = 1 - n.number("momentum", 0.9);
  n.require(n.integer("spatial", 1) == 1, "spatial = 0");
  n.ignore("training_mode");
  const bool in_place = n.reads_weight(3) && n.reads_weight(4);
  return [=](Call& c) {
    // In training the running statistics move in place, so that the buffers do; but not what the caller gave.
    const bool copy = c.training && !in_place;
    const Tensor mean = copy ? c[3].clone() : c[3], variance = copy ? c[4].clone() : c[4];
    c.set(0, batch_norm(c[0], mean, variance, c[1], c[2], c.training, momentum, eps));
    c.set(1, mean), c.set(2, variance);
  };
}

Run make_layer_norm(const Context& n) {
  const int64_t at = n.integer("axis", -1);
  const double eps = n.number("epsilon", 1e-5);
  n.ignore("stash_type");
  return [=](Call& c) {
    const Tensor x = c[0];
    const int64_t axis = wrap_axis(at, x.dim());
    Shape shape;
    Dims dims;
    for (int64_t d = axis; d < x.dim(); ++d) shape.push_back(x.size(d)), dims.dims.push_back(d);
    const auto fit = [&](const Tensor& t) { return t.defined() ? t.expand(shape) : t; };
    c.set(0, layer_norm(x, shape, fit(c[1]), fit(c.get(2)), eps));
    if (!c.wants(1) && !c.wants(2)) return;
    const Moments moments = var_mean(x, dims, 0, true);
    c.set(1, moments.mean), c.set(2, rsqrt(moments.spread + eps));
  };
}

Run make_group_norm(const Context& n) {
  const int64_t groups = n.integer("num_groups", 1);
  const double eps = n.number("epsilon", 1e-5);
  n.ignore("stash_type");
  n.require(groups > 0, "num_groups");
  return gives([=](Call& c) {  // scale and bias are of groups
    const Tensor x = c[0];
    const auto of_channels = [&](const Tensor& t) { return repeat_interleave(t, x.size(1) / groups, 0); };
    return group_norm(x, groups, of_channels(c[1]), of_channels(c[2]), eps);
  });
}

// ---- recurrent nets -------------------------------------------------------------------------------------------------

// `w` [G · hidden, …] with its G blocks in another order.
Tensor blocks(const Tensor& w, std::initializer_list<int> order) {
  const std::vector<Tensor> parts = chunk(w, static_cast<int64_t>(order.size()), 0);
  std::vector<Tensor> moved;
  for (const int part : order) moved.push_back(parts[part]);
  return moved.size() == 1 ? moved[0] : cat(moved, 0);
}

// A GRU whose r multiplies h before the product with W_hn, for gates z r h, step by step: [len, n, hidden].
Tensor gru_reset_before(const Tensor& x, Tensor h, const Tensor& w, const Tensor& r, const Tensor& wb,
                        const Tensor& rb) {
  const int64_t hidden = r.size(1);
  const Tensor gates = linear(x, w, wb), r_zr = r.narrow(0, 0, 2 * hidden), r_n = r.narrow(0, 2 * hidden, hidden);
  const Tensor b_zr = rb.narrow(0, 0, 2 * hidden), b_n = rb.narrow(0, 2 * hidden, hidden);
  std::vector<Tensor> steps;
  for (int64_t t = 0; t < x.size(0); ++t) {
    const Tensor zr = sigmoid(gates[t].narrow(1, 0, 2 * hidden) + linear(h, r_zr, b_zr));
    const Tensor z = zr.narrow(1, 0, hidden), reset = zr.narrow(1, hidden, hidden);
    const Tensor next = tanh(gates[t].narrow(1, 2 * hidden, hidden) + linear(reset * h, r_n, b_n));
    h = next + z * (h - next);
    steps.push_back(h);
  }
  return stack(steps, 0);
}

// Gates are i o f c of an LSTM and z r h of a GRU; reel's are i f c o and r z h.
Run make_recurrent(const Context& n) {
  enum Kind { kLstm, kGru, kTanh, kRelu };
  const std::string op = n.node.op,
                    direction = n.choice("direction", "forward", {"forward", "reverse", "bidirectional"});
  const bool both = direction == "bidirectional", reverse = direction == "reverse",
             batch_first = n.flag("layout", false);
  const std::string one = op == "LSTM" ? "Sigmoid Tanh Tanh" : op == "GRU" ? "Sigmoid Tanh" : "Tanh";
  const std::string own = both ? one + " " + one : one;
  const std::string activations = n.has("activations") ? n.joined_texts("activations") : own;
  const bool is_relu = op == "RNN" && activations == (both ? "Relu Relu" : "Relu");
  n.require(is_relu || activations == own, ("activations " + activations).c_str());
  n.require(!n.has("clip"), "clip");
  n.require(op != "LSTM" || !n.flag("input_forget", false), "input_forget");
  n.ignore("activation_alpha"), n.ignore("activation_beta");
  const int64_t declared = n.integer("hidden_size", 0);
  const Kind kind = op == "LSTM" ? kLstm : op == "GRU" ? kGru : is_relu ? kRelu : kTanh;
  const bool after = op == "GRU" && n.flag("linear_before_reset", false);
  const bool stepwise = kind == kGru && !after;
  n.require(n.node.inputs.size() < 8 || n.node.inputs[7] < 0, "peephole weights");
  return [=](Call& c) {
    Tensor x = batch_first ? c[0].transpose(0, 1) : c[0];
    const Tensor w = c[1], r = c[2], b = c.get(3);
    const int64_t directions = both ? 2 : 1, hidden = r.size(-1), len = x.size(0), batch = x.size(1);
    REEL_CHECK(x.dim() == 3 && w.dim() == 3 && r.dim() == 3 && w.size(0) == directions && r.size(0) == directions &&
                   (!b.defined() || b.size(0) == directions),
               "shapes ", x.shape(), ", ", w.shape(), " and ", r.shape(), " for ", directions, " directions");
    REEL_CHECK(!declared || declared == hidden, "hidden_size ", declared, " with weights of shape ", r.shape());
    std::vector<int64_t> lengths = c.has(4) ? c.integers(4) : std::vector<int64_t>();
    if (std::all_of(lengths.begin(), lengths.end(), [&](int64_t l) { return l == len; })) lengths.clear();
    REEL_CHECK(lengths.empty() || (!reverse && !stepwise),
               "sequences of different lengths with a net in reverse, or linear_before_reset = 0");
    const auto state = [&](size_t i) {
      const Tensor s = c.get(i);
      return batch_first && s.defined() ? s.transpose(0, 1) : s;
    };
    const Tensor h0 = state(5), c0 = state(6);
    if (reverse) x = flip(x, 0);

    std::vector<Tensor> parameters;
    const auto in_order = [&](const Tensor& t) {
      return kind == kLstm ? blocks(t, {0, 2, 3, 1}) : kind == kGru && !stepwise ? blocks(t, {1, 0, 2}) : t;
    };
    for (int64_t d = 0; d < directions; ++d) {
      parameters.insert(parameters.end(), {in_order(w[d]), in_order(r[d])});
      if (b.defined())
        for (const Tensor& half : chunk(b[d], 2, 0)) parameters.push_back(in_order(half));
    }
    Tensor y, h, cell;
    if (stepwise) {
      std::vector<Tensor> outputs, last;
      for (int64_t d = 0; d < directions; ++d) {
        const Tensor none = zeros({3 * hidden}, x.options()),
                     start = h0.defined() ? h0[d] : zeros({batch, hidden}, x.options());
        const Tensor wb = b.defined() ? b[d].narrow(0, 0, 3 * hidden) : none,
                     rb = b.defined() ? b[d].narrow(0, 3 * hidden, 3 * hidden) : none;
        const Tensor steps = gru_reset_before(d ? flip(x, 0) : x, start, w[d], r[d], wb, rb);
        last.push_back(steps[len - 1]);
        outputs.push_back(d ? flip(steps, 0) : steps);
      }
      y = cat(outputs, -1), h = stack(last, 0);
    } else {
      const RecurrentOptions options{.bias = b.defined(), .bidirectional = both};
      const auto run = [&](const auto& sequences) {
        if (kind == kLstm) {
          auto result = lstm(sequences, {h0, c0}, parameters, options);
          h = result.state.h, cell = result.state.c;
          return result.output;
        }
        auto result = kind == kGru    ? gru(sequences, h0, parameters, options)
                      : kind == kTanh ? rnn_tanh(sequences, h0, parameters, options)
                                      : rnn_relu(sequences, h0, parameters, options);
        h = result.h;
        return result.output;
      };
      if (lengths.empty()) {
        y = run(x);
      } else {
        const Ragged sequences = Ragged::unpad(x, Lengths::of(lengths), false);
        y = pad(run(sequences).pad(0, false), {0, 0, 0, 0, 0, len - sequences.lengths->longest()});
        // The state after no step is 0 in ONNX Runtime, whatever the first one is.
        const Tensor any_step = (reel::tensor(lengths, {.device = x.device()}) > 0).unsqueeze(1);
        for (Tensor* state : {&h, &cell})
          if (state->defined()) *state = where(any_step, *state, 0);
      }
    }
    if (reverse) y = flip(y, 0);
    const Tensor apart = y.reshape({len, batch, directions, hidden});
    c.set(0, batch_first ? apart.permute({1, 0, 2, 3}) : apart.permute({0, 2, 1, 3}));
    c.set(1, batch_first ? h.transpose(0, 1) : h);
    if (kind == kLstm) c.set(2, batch_first ? cell.transpose(0, 1) : cell);
  };
}

// ---- resizing -------------------------------------------------------------------------------------------------------

struct Sampling {
  std::string mode, coordinates, nearest;
  double cubic = -0.75;
  bool exclude_outside = false, antialias = false;

  // Computes in float32, as the scales are and as ONNX Runtime and the frameworks that write them compute: 3
  // · 2.3333333 is 7 there, and element 7 comes from element 3.
  float from(int64_t i, int64_t size, int64_t out, float scale) const {
    const auto at = static_cast<float>(i), length = static_cast<float>(size), count = static_cast<float>(out);
    if (coordinates == "asymmetric") return at / scale;
    if (coordinates == "align_corners") return out > 1 ? at * (length - 1) / (count - 1) : 0;
    if (coordinates == "pytorch_half_pixel" && out == 1) return 0;
    if (coordinates == "tf_half_pixel_for_nn") return (at + 0.5F) / scale;
    if (coordinates == "half_pixel_symmetric")
      return length / 2 * (1 - count / (scale * length)) + (at + 0.5F) / scale - 0.5F;
    return (at + 0.5F) / scale - 0.5F;
  }
  int64_t neighbour(float x, float scale) const {
    const float at = nearest.empty()                  ? (scale < 1 ? std::ceil(x) : std::floor(x))  // opsets 9 and 10
                     : nearest == "floor"             ? std::floor(x)
                     : nearest == "ceil"              ? std::ceil(x)
                     : nearest == "round_prefer_ceil" ? std::floor(x + 0.5F)
                                                      : std::ceil(x - 0.5F);
    return static_cast<int64_t>(at);
  }
  // The weight of an element at a distance (Keys 1981 for cubic).
  double weight(double distance) const {
    const double t = std::abs(distance);
    if (mode == "linear") return std::max(0., 1 - t);
    if (t <= 1) return ((cubic + 2) * t - (cubic + 3)) * t * t + 1;
    return t < 2 ? ((cubic * t - 5 * cubic) * t + 8 * cubic) * t - 4 * cubic : 0;
  }
  // Row i has what each element contributes to element i of the result.
  Tensor matrix(int64_t size, int64_t out, float scale) const {
    std::vector<double> rows(static_cast<size_t>(size * out));
    const double stretch = antialias ? std::min<double>(scale, 1) : 1, reach = (mode == "linear" ? 1 : 2) / stretch;
    for (int64_t i = 0; i < out; ++i) {
      double* row = rows.data() + i * size;
      const double x = from(i, size, out, scale);
      double total = 0;
      for (auto j = static_cast<int64_t>(std::floor(x - reach)) + 1; j <= static_cast<int64_t>(std::floor(x + reach));
           ++j) {
        if (exclude_outside && (j < 0 || j >= size)) continue;
        const double w = weight((static_cast<double>(j) - x) * stretch);
        row[std::clamp<int64_t>(j, 0, size - 1)] += w, total += w;
      }
      for (int64_t j = 0; j < size; ++j) row[j] /= total;
    }
    return reel::tensor(rows, {out, size}, {.device = kCPU});
  }
};

Run make_resize(const Context& n) {
  const bool is_first = n.opset < 11;  // Upsample, and Resize of opset 10, have other rules
  Sampling s;
  if (is_first) {
    s.mode = n.choice("mode", "nearest", {"nearest", "linear", "bilinear", "trilinear"});
    if (s.mode != "nearest") s.mode = "linear";
    s.coordinates = "asymmetric";
  } else {
    s.mode = n.choice("mode", "nearest", {"nearest", "linear", "cubic"});
    s.coordinates = n.choice("coordinate_transformation_mode", "half_pixel",
                             {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
                              "tf_half_pixel_for_nn"});
    s.nearest =
        n.choice("nearest_mode", "round_prefer_floor", {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"});
    n.choice("keep_aspect_ratio_policy", "stretch", {"stretch"});
    s.cubic = n.number("cubic_coeff_a", -0.75);
    s.exclude_outside = n.flag("exclude_outside", false), s.antialias = n.flag("antialias", false);
    n.ignore("extrapolation_value");
  }
  const std::vector<int64_t> listed = is_first ? std::vector<int64_t>() : n.integers("axes");
  return gives([=](Call& c) {
    Tensor x = c[0];
    const size_t at = is_first ? 1 : 2;
    std::vector<float> scales = c.has(at) ? c.as_is(at).to(kFloat32).to_vector<float>() : std::vector<float>();
    std::vector<int64_t> axes = wrap_axes(listed, x.dim()), sizes = c.has(3) ? c.integers(3) : std::vector<int64_t>();
    if (axes.empty())
      for (int64_t d = 0; d < x.dim(); ++d) axes.push_back(d);
    REEL_CHECK((sizes.empty() ? scales.size() : sizes.size()) == axes.size(), scales.size(), " scales and ",
               sizes.size(), " sizes for ", axes.size(), " axes");
    for (size_t i = 0; i < axes.size(); ++i) {
      const int64_t axis = axes[i], size = x.size(axis);
      REEL_CHECK(!sizes.empty() || (scales[i] > 0 && scales[i] < 1 << 20), "a scale of ",
                 sizes.empty() ? scales[i] : 0);
      const int64_t out = sizes.empty() ? static_cast<int64_t>(static_cast<float>(size) * scales[i]) : sizes[i];
      const float scale = sizes.empty() ? scales[i] : static_cast<float>(out) / static_cast<float>(size);
      if (scale == 1) continue;
      REEL_CHECK(size > 0 && out > 0, "a size of ", size, " to ", out);
      check_extent(out);
      if (s.mode != "nearest") check_extent(size < (int64_t{1} << 31) ? size * out : size);
      if (s.mode == "nearest") {
        std::vector<int64_t> from;
        for (int64_t j = 0; j < out; ++j)
          from.push_back(std::clamp<int64_t>(s.neighbour(s.from(j, size, out, scale), scale), 0, size - 1));
        x = index_select(x, axis, reel::tensor(from, {.device = x.device()}));
      } else {
        x = linear(x.transpose(axis, -1), s.matrix(size, out, scale).to(x.dtype()).to(x.device())).transpose(axis, -1);
      }
    }
    return x;
  });
}

Run make_grid_sample(const Context& n) {
  const std::string mode = n.choice("mode", "linear", {"nearest", "linear", "bilinear", "cubic", "bicubic"}),
                    padding = n.choice("padding_mode", "zeros", {"zeros", "border", "reflection"});
  GridSampleOptions options{.align_corners = n.flag("align_corners", false)};
  options.mode = mode == "nearest" ? kNearest : mode == "cubic" || mode == "bicubic" ? kBicubic : kBilinear;
  options.padding = padding == "border"       ? GridPadding::kBorder
                    : padding == "reflection" ? GridPadding::kReflection
                                              : GridPadding::kZeros;
  return gives([=](Call& c) { return grid_sample(c[0], c[1], options); });
}

}  // namespace

void add_layers(OpTable& table) {
  for (const char* op : {"LSTM", "GRU", "RNN"}) table[op] = {3, 8, make_recurrent};
  table.insert({
      {"AveragePool", {1, 1, make_average_pool}},
      {"BatchNormalization", {5, 5, make_batch_norm}},
      {"Conv", {2, 3, make_conv}},
      {"ConvTranspose", {2, 3, make_conv_transpose}},
      {"DepthToSpace",
       {1, 1,
        [](const Context& n) -> Run {
          const int64_t b = n.integer("blocksize", 0);
          const bool crd = n.choice("mode", "DCR", {"DCR", "CRD"}) == "CRD";
          n.require(b > 0 && b < (1 << 16), "blocksize");
          return gives([=](Call& c) {
            const Tensor x = c[0];
            if (crd) return pixel_shuffle(x, b);
            REEL_CHECK(x.dim() == 4 && x.size(1) % (b * b) == 0, "blocks of ", b, " from the shape ", x.shape());
            const int64_t channels = x.size(1) / (b * b), h = x.size(2), w = x.size(3);
            return x.reshape({x.size(0), b, b, channels, h, w})
                .permute({0, 3, 4, 1, 5, 2})
                .reshape({x.size(0), channels, h * b, w * b});
          });
        }}},
      {"GlobalAveragePool",
       {1, 1, [](const Context&) -> Run { return gives([](Call& c) { return mean(c[0], spatial(c[0]), true); }); }}},
      {"GlobalLpPool",
       {1, 1,
        [](const Context& n) -> Run {
          return gives(
              [p = static_cast<double>(n.integer("p", 2))](Call& c) { return norm(c[0], p, spatial(c[0]), true); });
        }}},
      {"GlobalMaxPool",
       {1, 1, [](const Context&) -> Run { return gives([](Call& c) { return amax(c[0], spatial(c[0]), true); }); }}},
      {"GridSample", {2, 2, make_grid_sample}},
      {"GroupNormalization", {3, 3, make_group_norm}},
      {"InstanceNormalization",
       {3, 3,
        [](const Context& n) -> Run {
          return gives([eps = n.number("epsilon", 1e-5)](Call& c) {
            return instance_norm(c[0], {}, {}, c[1], c[2], true, 0.1, eps);
          });
        }}},
      {"LRN",
       {1, 1,
        [](const Context& n) -> Run {
          const int64_t size = n.integer("size", 1);
          const double alpha = n.number("alpha", 1e-4), beta = n.number("beta", 0.75), bias = n.number("bias", 1);
          return gives([=](Call& c) {  // of an even number of channels the larger half is behind, in reel in front
            const bool even = size % 2 == 0;
            const Tensor y = local_response_norm(even ? flip(c[0], 1) : c[0], size, alpha, beta, bias);
            return even ? flip(y, 1) : y;
          });
        }}},
      {"LayerNormalization", {2, 3, make_layer_norm}},
      {"LpNormalization",
       {1, 1,
        [](const Context& n) -> Run {
          return gives([axis = n.integer("axis", -1), p = static_cast<double>(n.integer("p", 2))](Call& c) {
            const Tensor length = norm(c[0], p, axis, true);
            return c[0] / where(length == 0, ones_like(length), length);
          });
        }}},
      {"LpPool", {1, 1, make_lp_pool}},
      {"MaxPool", {1, 1, make_max_pool}},
      {"MeanVarianceNormalization",
       {1, 1,
        [](const Context& n) -> Run {
          return gives([axes = n.integers("axes", {0, 2, 3})](Call& c) {
            const Moments m = std_mean(c[0], dims_of(axes), 0, true);
            return (c[0] - m.mean) / (m.spread + 1e-9);
          });
        }}},
      {"Resize", {1, 4, make_resize}},
      {"SpaceToDepth",
       {1, 1,
        [](const Context& n) -> Run {
          const int64_t b = n.integer("blocksize", 0);
          n.require(b > 0 && b < (1 << 16), "blocksize");
          return gives([=](Call& c) {
            const Tensor x = c[0];
            REEL_CHECK(x.dim() == 4 && x.size(2) % b == 0 && x.size(3) % b == 0, "blocks of ", b, " from the shape ",
                       x.shape());
            const int64_t channels = x.size(1), h = x.size(2) / b, w = x.size(3) / b;
            return x.reshape({x.size(0), channels, h, b, w, b})
                .permute({0, 3, 5, 1, 2, 4})
                .reshape({x.size(0), channels * b * b, h, w});
          });
        }}},
      {"Upsample", {2, 2, make_resize}},
  });
}

}  // namespace reel::onnx
