#include "reel/ops/pool.h"

#include <algorithm>
#include <cmath>

#include "lib/device/kernels/enums.h"
#include "lib/device/kernels/pool.h"
#include "lib/ops/internal.h"
#include "reel/random.h"
#include "reel/threads.h"

namespace reel {
namespace {

// ---- windows --------------------------------------------------------------------------------------------------------

void check_input(const char* op, const View& x, int spatial, bool channels_last) {
  REEL_CHECK(is_floating_point(x.dtype), op, ": a tensor of ", x.dtype, "; convert it to a floating point type first");
  const int rank = x.shape.size();
  REEL_CHECK(rank == spatial + 1 || rank == spatial + 2, op, ": x of shape ", x.shape, ", not ",
             channels_last ? "[n, …, channels] or […, channels]" : "[n, channels, …] or [channels, …]", " with ",
             spatial, " more");
  for (int d = rank - spatial; d < rank; ++d)
    REEL_CHECK(x.shape[d - channels_last] > 0, op, ": nothing to pool in x of shape ", x.shape);
}

/// x as planes of three dimensions, the first of which may be of size 1; windows of size 1.
template <int N>
Pooling planes_of(const char* op, const View& x, bool channels_last) {
  check_input(op, x, N, channels_last);
  Pooling pool{};
  pool.planes = 1;
  const int lead = x.shape.size() - N - channels_last;
  for (int d = 0; d < lead; ++d) pool.planes *= x.shape[d];
  pool.channels_last = channels_last;
  if (channels_last) pool.channels = x.shape.back();
  for (auto* sizes : {&pool.in, &pool.out, &pool.kernel, &pool.stride, &pool.dilation}) sizes->fill(1);
  pool.padding.fill(0);
  for (int d = 0; d < N; ++d) pool.in[3 - N + d] = x.shape[lead + d];
  return pool;
}

template <int N>
Shape output_shape(const Pooling& pool, const Shape& in) {
  Shape shape = in;
  const int first = in.size() - N - pool.channels_last;
  for (int d = 3 - N; d < 3; ++d) shape[first + d - (3 - N)] = pool.out[static_cast<size_t>(d)];
  return shape;
}

/// The number of windows along one dimension.
int64_t count_windows(int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation, bool ceil_mode) {
  const int64_t room = size + 2 * padding - dilation * (kernel - 1) - 1 + (ceil_mode ? stride - 1 : 0);
  if (room < 0) return 0;
  const int64_t count = room / stride + 1;
  return ceil_mode && (count - 1) * stride >= size + padding ? count - 1 : count;
}

/// Are these numbers from `least` to the largest with which there is no overflow in counting windows?
template <int N>
bool in_range(const PerDim<N>& numbers, int64_t least) {
  return std::all_of(numbers.values, numbers.values + N, [&](int64_t v) { return v >= least && v <= INT32_MAX; });
}

template <int N>
Pooling windows(const char* op, const View& x, PerDim<N> kernel, PerDim<N> stride, PerDim<N> padding,
                PerDim<N> dilation, bool ceil_mode, bool channels_last) {
  Pooling pool = planes_of<N>(op, x, channels_last);
  pool.ceil_mode = ceil_mode;
  REEL_CHECK(in_range(kernel, 1) && in_range(stride, 0) && in_range(dilation, 1), op, ": kernel_size ", kernel,
             ", stride ", stride, " and dilation ", dilation, " must be positive and at most ", INT32_MAX);
  for (int i = 0; i < N; ++i) {
    const int d = 3 - N + i;
    pool.kernel[d] = kernel[i];
    pool.stride[d] = stride[i] == 0 ? kernel[i] : stride[i];
    pool.padding[d] = padding[i];
    pool.dilation[d] = dilation[i];
    REEL_CHECK(padding[i] >= 0 && padding[i] <= kernel[i] / 2, op, ": padding ", padding,
               " is not between 0 and half of kernel_size ", kernel);
    pool.out[d] = count_windows(pool.in[d], kernel[i], pool.stride[d], padding[i], dilation[i], ceil_mode);
    REEL_CHECK(pool.out[d] > 0, op, ": kernel_size ", kernel, " with dilation ", dilation, " and padding ", padding,
               " does not fit into x of shape ", x.shape);
  }
  return pool;
}

template <int N>
Pooling adaptive_windows(const char* op, const View& x, PerDim<N> output_size, bool channels_last) {
  Pooling pool = planes_of<N>(op, x, channels_last);
  pool.count_include_pad = false;
  for (int i = 0; i < N; ++i) {
    const int d = 3 - N + i;
    REEL_CHECK(output_size[i] >= -1, op, ": output_size ", output_size, " is negative");
    pool.out[d] = output_size[i] == -1 ? pool.in[d] : output_size[i];
    const int64_t count = std::max<int64_t>(pool.out[d], 1);
    pool.kernel[d] = pool.stride[d] = pool.in[d] / count;
    if (pool.in[d] % count) pool.adaptive = true;
  }
  return pool;
}

std::array<Attribute, 9> attributes_of(const Pooling& pool, size_t spatial) {
  const auto of = [&](const std::array<int64_t, 3>& numbers) { return std::span(numbers).last(spatial); };
  return {{{"kernel", of(pool.kernel)},
           {"stride", of(pool.stride)},
           {"padding", of(pool.padding)},
           {"dilation", of(pool.dilation)},
           {"adaptive", pool.adaptive},
           {"count_pad", pool.count_include_pad},
           {"divisor", pool.divisor},
           {"ceil_mode", pool.ceil_mode},
           {"spatial", spatial}}};
}

/// Returns the same pooling of x with its channels in front.
Pooling in_front(Pooling pool) {
  pool.planes *= pool.channels;
  pool.channels = 1, pool.channels_last = false;
  return pool;
}

/// Returns the same pooling of x with its channels last, [n, …, channels] or […, channels].
Pooling with_channels_last(Pooling pool, int64_t channels) {
  pool.planes /= channels;
  pool.channels = channels, pool.channels_last = true;
  return pool;
}
/// Returns whether the channels, which are in front of the sizes, are the last in memory, and so many that they are
/// worth vectors. Then the elements are not moved before they are pooled; the result lies as x does.
bool has_channels_last_in_memory(const Tensor& x, const Pooling& pool, int sizes) {
  constexpr int64_t kMinChannels = 8;
  const View& view = view_of(x);
  if (view.contiguous || view.numel == 0 || pool.channels_last || is_tracing()) return false;
  return view.shape[view.shape.size() - 1 - sizes] >= kMinChannels && movedim(x, -1 - sizes, -1).is_contiguous();
}

/// A tensor of so many elements as its planes: [planes, elements] or, where channels lie last, [planes, elements,
/// channels].
Shape as_planes(const Pooling& pool, int64_t numel) {
  const int64_t planes = pool.planes * pool.channels, elements = planes ? numel / planes : 0;
  return pool.channels_last ? Shape{pool.planes, elements, pool.channels} : Shape{pool.planes, elements};
}

// ---- maxima ---------------------------------------------------------------------------------------------------------

/// g, one gradient an element of `indices`, put back into planes of x's shape.
Tensor put_back(const Tensor& g, const Tensor& indices, const Pooling& pool, const Shape& shape) {
  const Shape list = as_planes(pool, g.numel());
  const Tensor all = zeros(as_planes(pool, shape.numel()), {.dtype = g.dtype(), .device = g.device()});
  return scatter_add(all, 1, indices.reshape(list), g.reshape(list)).reshape(shape);
}

/// Records that y has the elements of x at these places.
void record_maxima(const char* op, const Tensor& x, const Tensor& y, const Tensor& indices, const Pooling& pool) {
  if (recording(x))
    record(op, y, inputs(x), [pool, whole = x.shape(), indices = SavedTensor(indices)](Backward& back) {
      const Tensor at = back.get(indices);
      if (back.create_graph()) return back.set(0, put_back(back.grad(), at, pool, whole));
      const Tensor g = back.grad().contiguous(), gx = make_tensor(whole, g.dtype(), g.device());
      if (gx.numel()) kernels_of(g).max_pool_grad(pool, view_of(g), view_of(at), view_of(gx));
      back.set(0, gx);
    });
}

enum class Wanted { kValues, kBoth };

template <int N>
ValuesIndices maxima(const char* op, const Tensor& x_in, const Pooling& pool, Wanted wanted) {
  if (pool.channels_last && is_tracing()) [[unlikely]] {
    const auto [y, at] = maxima<N>(op, channels_to_front(x_in, N), in_front(pool), wanted);
    return {channels_to_back(y, N), at.defined() ? channels_to_back(at, N) : at};
  }
  if (has_channels_last_in_memory(x_in, pool, N)) {
    const Tensor last = movedim(x_in, -1 - N, -1);
    const auto [y, at] = maxima<N>(op, last, with_channels_last(pool, last.size(-1)), wanted);
    return {channels_to_front(y, N), at.defined() ? channels_to_front(at, N) : at};
  }
  return call("max_pool", {x_in}, attributes_of(pool, N), [&](const Tensor& x_in) {
    const Tensor x = x_in.contiguous();
    const View& view = view_of(x);
    const Shape shape = output_shape<N>(pool, view.shape);
    const Tensor y = make_tensor(shape, view.dtype, x.device());
    Tensor indices;
    if (wanted == Wanted::kBoth || recording(x)) indices = make_tensor(shape, kInt64, x.device());
    if (view_of(y).numel)
      kernels_of(x).max_pool(pool, view, view_of(y), indices.defined() ? &view_of(indices) : nullptr);
    record_maxima(op, x, y, indices, pool);
    return ValuesIndices{y, indices};
  });
}

template <int N>
ValuesIndices max_pool(const char* op, const Tensor& x, PerDim<N> kernel, const MaxPoolOptions<N>& options,
                       Wanted wanted) {
  const View& view = view_of(x, op);
  const Pooling pool = windows<N>(op, view, kernel, options.stride, options.padding, options.dilation,
                                  options.ceil_mode, options.channels_last);
  for (int d = 0; d < 3; ++d)  // from the padding, taps could jump over all of x
    REEL_CHECK(pool.padding[d] == 0 || pool.dilation[d] <= pool.in[d], op, ": dilation ", options.dilation,
               " exceeds x of shape ", view.shape);
  return maxima<N>(op, x, pool, wanted);
}

template <int N>
ValuesIndices adaptive_max_pool(const char* op, const Tensor& x, PerDim<N> output_size,
                                const AdaptivePoolOptions& options, Wanted wanted) {
  return maxima<N>(op, x, adaptive_windows<N>(op, view_of(x, op), output_size, options.channels_last), wanted);
}

template <int N>
Tensor max_unpool(const char* op, const Tensor& x, const Tensor& indices, PerDim<N> kernel,
                  const MaxUnpoolOptions<N>& options) {
  const View& view = view_of(x, op);
  Pooling pool = planes_of<N>(op, view, options.channels_last);
  REEL_CHECK(view_of(indices, op).shape == view.shape && indices.dtype() == kInt64, op, ": indices are ",
             indices.dtype(), " ", indices.shape(), ", not int64 of x's shape ", view.shape);
  REEL_CHECK(in_range(kernel, 1) && in_range(options.stride, 0) && in_range(options.padding, 0), op, ": kernel_size ",
             kernel, " and stride ", options.stride, " must be positive, padding ", options.padding,
             " not negative, and all at most ", INT32_MAX);
  for (int i = 0; i < N; ++i) {
    const int64_t stride = options.stride[i] == 0 ? kernel[i] : options.stride[i], size = pool.in[3 - N + i];
    pool.out[3 - N + i] =
        options.output_size[i] == 0 ? (size - 1) * stride - 2 * options.padding[i] + kernel[i] : options.output_size[i];
    REEL_CHECK(pool.out[3 - N + i] > 0, op, ": nothing is left of size ", size, " with kernel_size ", kernel,
               ", stride ", options.stride, ", padding ", options.padding, " and output_size ", options.output_size);
  }
  const int64_t plane = Shape{pool.out[0], pool.out[1], pool.out[2]}.numel();
  int64_t bad = 0;
  REEL_CHECK(!kernels_of(indices).check_bounds(op, view_of(indices), 0, plane, &bad), op, ": index ", bad,
             " is out of range for ", plane, " elements");
  const Shape list = as_planes(pool, view.numel);
  Shape all = list;
  all[1] = plane;
  return scatter(zeros(all, {.dtype = view.dtype, .device = x.device()}), 1, indices.reshape(list), x.reshape(list))
      .reshape(output_shape<N>(pool, view.shape));
}

// ---- fractional -----------------------------------------------------------------------------------------------------

/// Where the windows of one dimension begin: int64 [planes, out] for samples [planes] (Graham 2014, section 2.1, as
/// PyTorch takes it).
Tensor random_starts(const Tensor& samples, int64_t in, int64_t out, int64_t kernel) {
  const TensorOptions like{.dtype = samples.dtype(), .device = samples.device()};
  const double alpha = out > 1 ? static_cast<double>(in - kernel) / static_cast<double>(out - 1) : 0;
  const Tensor s = samples.unsqueeze(1);
  const Tensor starts = (floor((arange(0, out - 1, 1, like) + s) * alpha) - floor(s * alpha)).to(kInt64);
  return cat({starts, full({s.size(0), 1}, in - kernel, {.dtype = kInt64, .device = samples.device()})}, 1);
}

/// Writes the maxima of windows that begin at `starts`, one list for each dimension, and their places in x's planes.
template <class T>
void max_pool_from(const Pooling& p, const std::array<const int64_t*, 3>& starts, const T* x, T* y, int64_t* indices) {
  const int64_t size = p.in[0] * p.in[1] * p.in[2], windows = p.out[0] * p.out[1] * p.out[2];
  const int64_t work = windows * p.kernel[0] * p.kernel[1] * p.kernel[2];
  parallel_for(p.planes, std::max<int64_t>((1 << 15) / std::max<int64_t>(work, 1), 1), [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      const auto start = [&](size_t d, int64_t o) { return starts[d][plane * p.out[d] + o]; };
      const T* const from = x + plane * size;
      int64_t to = plane * windows;
      for (int64_t od = 0; od < p.out[0]; ++od)
        for (int64_t oh = 0; oh < p.out[1]; ++oh)
          for (int64_t ow = 0; ow < p.out[2]; ++ow, ++to) {
            int64_t best = (start(0, od) * p.in[1] + start(1, oh)) * p.in[2] + start(2, ow);
            const int64_t corner = best;
            T most = from[best];
            for (int64_t d = 0; d < p.kernel[0]; ++d)
              for (int64_t h = 0; h < p.kernel[1]; ++h)
                for (int64_t w = 0; w < p.kernel[2]; ++w) {
                  const int64_t at = corner + (d * p.in[1] + h) * p.in[2] + w;
                  const T value = from[at];
                  if (value > most || (value != value && most == most)) most = value, best = at;
                }
            y[to] = most, indices[to] = best;
          }
    }
  });
}

template <int N>
ValuesIndices fractional_max_pool(const char* op, const Tensor& x, PerDim<N> kernel,
                                  const FractionalPoolOptions<N>& options) {
  const View& view = view_of(x, op);
  Pooling pool = planes_of<N>(op, view, false);
  const std::vector<double>& ratio = options.output_ratio;
  REEL_CHECK(ratio.empty() || ratio.size() == 1 || ratio.size() == N, op, ": ", ratio.size(), " ratios for ", N,
             " dimensions");
  for (int i = 0; i < N; ++i) {
    const int64_t in = pool.in[3 - N + i];
    int64_t& out = pool.out[3 - N + i];
    out = options.output_size[i];
    if (!ratio.empty()) {
      const double r = ratio[ratio.size() == 1 ? 0 : static_cast<size_t>(i)];
      REEL_CHECK(r > 0 && r < 1, op, ": output_ratio ", r, " is not between 0 and 1");
      REEL_CHECK(out == 0, op, ": both output_size and output_ratio are given");
      out = static_cast<int64_t>(static_cast<double>(in) * r);
    }
    REEL_CHECK(out > 0 && kernel[i] > 0 && out + kernel[i] - 1 <= in, op, ": ", out, " windows of kernel_size ", kernel,
               " do not fit into x of shape ", view.shape);
  }
  const int64_t planes = pool.planes, channels = view.shape[view.shape.size() - N - 1];
  const Shape wanted{channels ? planes / channels : 0, channels, N};
  Tensor samples = options.random_samples;
  if (!samples.defined())
    samples = rand(wanted, {.dtype = view.dtype == kFloat64 ? kFloat64 : kFloat32, .device = x.device()});
  REEL_CHECK(samples.shape() == wanted && samples.is_floating_point(), op, ": random_samples are ", samples.dtype(),
             " ", samples.shape(), ", not floating-point numbers ", wanted);

  if (is_readable(x) && is_readable(samples)) {
    for (int i = 0; i < N; ++i) pool.kernel[3 - N + i] = kernel[i];
    const Tensor from = x.contiguous(), wide = no_grad([&] { return to_compute(from); });
    const Shape shape = output_shape<N>(pool, view.shape);
    const Tensor maxima = make_tensor(shape, wide.dtype(), kCPU), indices = make_tensor(shape, kInt64, kCPU);
    std::array<Tensor, 3> lists;
    std::array<const int64_t*, 3> starts;
    no_grad([&] {
      lists.fill(zeros({planes}, on_host(kInt64)));
      for (int d = 3 - N; d < 3; ++d) {
        const Tensor column = samples.reshape({planes, N}).select(1, N == 2 ? 2 - d : d);
        lists[d] = random_starts(column, pool.in[d], pool.out[d], pool.kernel[d]);
      }
    });
    for (int d = 0; d < 3; ++d) {
      int64_t bad = 0;
      REEL_CHECK(!kernels_of(from).check_bounds(op, view_of(lists[d]), 0, pool.in[d] - pool.kernel[d] + 1, &bad), op,
                 ": random_samples are not between 0 and 1");
      starts[d] = view_of(lists[d]).as<const int64_t>();
    }
    const auto run = [&]<class T>(T* y) {
      max_pool_from(pool, starts, view_of(wide).as<const T>(), y, view_of(indices).as<int64_t>());
    };
    wide.dtype() == kFloat64 ? run(view_of(maxima).as<double>()) : run(view_of(maxima).as<float>());
    const Tensor y = maxima.to(view.dtype);
    record_maxima(op, from, y, indices, pool);
    return {y, indices};
  }

  // at [planes, out…, kernel…]: for every window its elements.
  Shape grid{planes};
  for (int i = 0; i < 2 * N; ++i) grid.push_back(1);
  int64_t windows = 1, taps = 1;
  const Tensor at = no_grad([&] {
    Tensor sum;
    for (int i = 0; i < N; ++i) {
      const int64_t in = pool.in[3 - N + i], out = pool.out[3 - N + i];
      const Tensor column = samples.reshape({planes, N}).select(1, N == 2 ? 1 - i : i);
      const Tensor inside = arange(0, kernel[i], 1, {.dtype = kInt64, .device = x.device()});
      const Tensor places = random_starts(column, in, out, kernel[i]).unsqueeze(2) + inside;
      Shape shape = grid;
      shape[1 + i] = out;
      shape[1 + N + i] = kernel[i];
      sum = sum.defined() ? sum * in + places.reshape(shape) : places.reshape(shape);
      windows *= out;
      taps *= kernel[i];
    }
    return sum.reshape({planes, windows * taps});
  });
  const Tensor elements = gather(x.reshape({planes, pool.in[0] * pool.in[1] * pool.in[2]}), 1, at);
  const auto [values, best] = max(elements.reshape({planes, windows, taps}), -1);
  const Shape shape = output_shape<N>(pool, view.shape);
  const Tensor indices = gather(at.reshape({planes, windows, taps}), -1, best.unsqueeze(-1));
  return {values.reshape(shape), indices.reshape(shape)};
}

// ---- averages -------------------------------------------------------------------------------------------------------

Tensor average_grad(const char* op, const Tensor& g, const Pooling& pool, const Shape& shape);

/// The averages, of `shape`, of the windows of x. Linear, so its rule is its adjoint, and the other way round.
Tensor average(const char* op, const Tensor& x, const Pooling& pool, const Shape& shape, int spatial) {
  if (pool.channels_last && is_tracing()) [[unlikely]]
    return with_channels_in_front(x, spatial, [&](const Tensor& front) {
      Shape sizes = shape;
      const int64_t channels = sizes.back();
      sizes.erase(sizes.size() - 1);
      sizes.insert(sizes.size() - spatial, channels);
      return average(op, front, in_front(pool), sizes, spatial);
    });
  if (has_channels_last_in_memory(x, pool, spatial)) {
    const Tensor last = movedim(x, -1 - spatial, -1);
    Shape sizes = shape;
    const int64_t channels = last.size(-1);
    sizes.erase(sizes.size() - 1 - spatial);
    sizes.push_back(channels);
    return channels_to_front(average(op, last, with_channels_last(pool, channels), sizes, spatial), spatial);
  }
  return call("avg_pool", {x}, attributes_of(pool, static_cast<size_t>(spatial)), [&](const Tensor& x) {
    const Tensor from = x.contiguous();
    const Tensor y = make_tensor(shape, x.dtype(), x.device());
    if (view_of(y).numel) kernels_of(x).avg_pool(pool, view_of(from), view_of(y));
    if (recording(x))
      record(op, y, inputs(x), [op, pool, whole = x.shape()](Backward& back) {
        back.set(0, average_grad(op, back.grad(), pool, whole));
      });
    return y;
  });
}
Tensor average_grad(const char* op, const Tensor& g, const Pooling& pool, const Shape& shape) {
  const Tensor from = g.contiguous();
  const Tensor gx = zeros(shape, {.dtype = g.dtype(), .device = g.device()});
  if (view_of(from).numel) kernels_of(g).avg_pool_grad(pool, view_of(from), view_of(gx));
  if (recording(g))
    record(op, gx, inputs(g),
           [op, pool, part = g.shape()](Backward& back) { back.set(0, average(op, back.grad(), pool, part, 3)); });
  return gx;
}

template <int N>
Tensor avg_pool(const char* op, const Tensor& x, PerDim<N> kernel, const AvgPoolOptions<N>& options) {
  const View& view = view_of(x, op);
  Pooling pool =
      windows<N>(op, view, kernel, options.stride, options.padding, 1, options.ceil_mode, options.channels_last);
  pool.count_include_pad = options.count_include_pad;
  pool.divisor = options.divisor_override;
  REEL_CHECK(pool.divisor >= 0, op, ": divisor_override ", pool.divisor, " is negative");
  return average(op, x, pool, output_shape<N>(pool, view.shape), N);
}

template <int N>
Tensor adaptive_avg_pool(const char* op, const Tensor& x, PerDim<N> output_size, const AdaptivePoolOptions& options) {
  const View& view = view_of(x, op);
  const Pooling pool = adaptive_windows<N>(op, view, output_size, options.channels_last);
  if (output_size == PerDim<N>(1)) {
    Dims sizes;
    for (int d = -N; d < 0; ++d) sizes.dims.push_back(d - options.channels_last);
    return mean(x, sizes, true);
  }
  return average(op, x, pool, output_shape<N>(pool, view.shape), N);
}

template <int N>
Tensor lp_pool(const char* op, const Tensor& x, double p, PerDim<N> kernel, const LPPoolOptions<N>& options) {
  const View& view = view_of(x, op);
  REEL_CHECK(p != 0, op, ": norm_type is 0");
  check_input(op, view, N, options.channels_last);
  return call("lp_pool", {x}, {}, [&](const Tensor& x) {
    double taps = 1;
    for (int64_t size : kernel.values) taps *= static_cast<double>(size);
    const Tensor sums =
        avg_pool<N>(
            op, pow(x, p), kernel,
            {.stride = options.stride, .ceil_mode = options.ceil_mode, .channels_last = options.channels_last}) *
        taps;
    const Tensor zero = no_grad([&] { return sums == 0; });
    return where(zero, 0, pow(where(zero, 1, sums), 1 / p));
  });
}

}  // namespace

// ---- in one, two and three dimensions -------------------------------------------------------------------------------

Tensor max_pool1d(const Tensor& x, PerDim<1> kernel_size, const MaxPoolOptions<1>& options) {
  return max_pool("max_pool1d", x, kernel_size, options, Wanted::kValues).values;
}
Tensor max_pool2d(const Tensor& x, PerDim<2> kernel_size, const MaxPoolOptions<2>& options) {
  return max_pool("max_pool2d", x, kernel_size, options, Wanted::kValues).values;
}
Tensor max_pool3d(const Tensor& x, PerDim<3> kernel_size, const MaxPoolOptions<3>& options) {
  return max_pool("max_pool3d", x, kernel_size, options, Wanted::kValues).values;
}
ValuesIndices max_pool1d_with_indices(const Tensor& x, PerDim<1> kernel_size, const MaxPoolOptions<1>& options) {
  return max_pool("max_pool1d", x, kernel_size, options, Wanted::kBoth);
}
ValuesIndices max_pool2d_with_indices(const Tensor& x, PerDim<2> kernel_size, const MaxPoolOptions<2>& options) {
  return max_pool("max_pool2d", x, kernel_size, options, Wanted::kBoth);
}
ValuesIndices max_pool3d_with_indices(const Tensor& x, PerDim<3> kernel_size, const MaxPoolOptions<3>& options) {
  return max_pool("max_pool3d", x, kernel_size, options, Wanted::kBoth);
}
Tensor max_unpool1d(const Tensor& x, const Tensor& indices, PerDim<1> kernel_size, const MaxUnpoolOptions<1>& options) {
  return max_unpool("max_unpool1d", x, indices, kernel_size, options);
}
Tensor max_unpool2d(const Tensor& x, const Tensor& indices, PerDim<2> kernel_size, const MaxUnpoolOptions<2>& options) {
  return max_unpool("max_unpool2d", x, indices, kernel_size, options);
}
Tensor max_unpool3d(const Tensor& x, const Tensor& indices, PerDim<3> kernel_size, const MaxUnpoolOptions<3>& options) {
  return max_unpool("max_unpool3d", x, indices, kernel_size, options);
}
Tensor adaptive_max_pool1d(const Tensor& x, PerDim<1> output_size, const AdaptivePoolOptions& options) {
  return adaptive_max_pool("adaptive_max_pool1d", x, output_size, options, Wanted::kValues).values;
}
Tensor adaptive_max_pool2d(const Tensor& x, PerDim<2> output_size, const AdaptivePoolOptions& options) {
  return adaptive_max_pool("adaptive_max_pool2d", x, output_size, options, Wanted::kValues).values;
}
Tensor adaptive_max_pool3d(const Tensor& x, PerDim<3> output_size, const AdaptivePoolOptions& options) {
  return adaptive_max_pool("adaptive_max_pool3d", x, output_size, options, Wanted::kValues).values;
}
ValuesIndices adaptive_max_pool1d_with_indices(const Tensor& x, PerDim<1> output_size,
                                               const AdaptivePoolOptions& options) {
  return adaptive_max_pool("adaptive_max_pool1d", x, output_size, options, Wanted::kBoth);
}
ValuesIndices adaptive_max_pool2d_with_indices(const Tensor& x, PerDim<2> output_size,
                                               const AdaptivePoolOptions& options) {
  return adaptive_max_pool("adaptive_max_pool2d", x, output_size, options, Wanted::kBoth);
}
ValuesIndices adaptive_max_pool3d_with_indices(const Tensor& x, PerDim<3> output_size,
                                               const AdaptivePoolOptions& options) {
  return adaptive_max_pool("adaptive_max_pool3d", x, output_size, options, Wanted::kBoth);
}
Tensor avg_pool1d(const Tensor& x, PerDim<1> kernel_size, const AvgPoolOptions<1>& options) {
  return avg_pool("avg_pool1d", x, kernel_size, options);
}
Tensor avg_pool2d(const Tensor& x, PerDim<2> kernel_size, const AvgPoolOptions<2>& options) {
  return avg_pool("avg_pool2d", x, kernel_size, options);
}
Tensor avg_pool3d(const Tensor& x, PerDim<3> kernel_size, const AvgPoolOptions<3>& options) {
  return avg_pool("avg_pool3d", x, kernel_size, options);
}
Tensor adaptive_avg_pool1d(const Tensor& x, PerDim<1> output_size, const AdaptivePoolOptions& options) {
  return adaptive_avg_pool("adaptive_avg_pool1d", x, output_size, options);
}
Tensor adaptive_avg_pool2d(const Tensor& x, PerDim<2> output_size, const AdaptivePoolOptions& options) {
  return adaptive_avg_pool("adaptive_avg_pool2d", x, output_size, options);
}
Tensor adaptive_avg_pool3d(const Tensor& x, PerDim<3> output_size, const AdaptivePoolOptions& options) {
  return adaptive_avg_pool("adaptive_avg_pool3d", x, output_size, options);
}

Tensor fractional_max_pool2d(const Tensor& x, PerDim<2> kernel_size, const FractionalPoolOptions<2>& options) {
  return fractional_max_pool("fractional_max_pool2d", x, kernel_size, options).values;
}
Tensor fractional_max_pool3d(const Tensor& x, PerDim<3> kernel_size, const FractionalPoolOptions<3>& options) {
  return fractional_max_pool("fractional_max_pool3d", x, kernel_size, options).values;
}
ValuesIndices fractional_max_pool2d_with_indices(const Tensor& x, PerDim<2> kernel_size,
                                                 const FractionalPoolOptions<2>& options) {
  return fractional_max_pool("fractional_max_pool2d", x, kernel_size, options);
}
ValuesIndices fractional_max_pool3d_with_indices(const Tensor& x, PerDim<3> kernel_size,
                                                 const FractionalPoolOptions<3>& options) {
  return fractional_max_pool("fractional_max_pool3d", x, kernel_size, options);
}
Tensor lp_pool1d(const Tensor& x, double norm_type, PerDim<1> kernel_size, const LPPoolOptions<1>& options) {
  return lp_pool("lp_pool1d", x, norm_type, kernel_size, options);
}
Tensor lp_pool2d(const Tensor& x, double norm_type, PerDim<2> kernel_size, const LPPoolOptions<2>& options) {
  return lp_pool("lp_pool2d", x, norm_type, kernel_size, options);
}
Tensor lp_pool3d(const Tensor& x, double norm_type, PerDim<3> kernel_size, const LPPoolOptions<3>& options) {
  return lp_pool("lp_pool3d", x, norm_type, kernel_size, options);
}

}  // namespace reel
