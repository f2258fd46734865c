#include <algorithm>

#include "cuda/block.h"
#include "cuda/elementwise.h"
#include "cuda/kernels.h"
#include "cuda/runtime.h"
#include "lib/device/kernels/pool.h"
#include "lib/device/window.h"

// Pooling and resampling. Gradients are gathers: each element of gx sums the outputs that it took part in, in a fixed
// order, where a scatter would take atomic additions, whose order (and rounding) changes from run to run.
namespace reel::cuda {
namespace {

// ---- windows --------------------------------------------------------------------------------------------------------

// Kernels count in type I: int32_t where all sizes allow it, which GPUs compute in, and divide by, in a fraction of the
// time that int64_t takes.

/// Divides non-negative numbers by one divisor: by a multiplication if they have 32 bits.
template <class I>
struct Division {
  I divisor = 1;
  Divider fast;
  Division() = default;
  explicit Division(int64_t by) : divisor(static_cast<I>(by)) {
    if constexpr (sizeof(I) == 4) fast = Divider(static_cast<uint32_t>(by > 0 ? by : 1));
  }
  __device__ I divide(I n) const {
    if constexpr (sizeof(I) == 4)
      return static_cast<I>(fast.divide(static_cast<uint32_t>(n)));
    else
      return n / divisor;
  }
  /// n becomes the quotient; returns the rest.
  __device__ I take_rest(I* n) const {
    const I all = *n;
    *n = divide(all);
    return all - *n * divisor;
  }
};

int64_t volume(const std::array<int64_t, 3>& size) { return size[0] * size[1] * size[2]; }

/// A Pooling for kernels: std::array's operator[] is host code.
template <class I>
struct PoolShape {
  I in[3], out[3], kernel[3], stride[3], padding[3], dilation[3];
  I in_size, out_size;  // of a plane
  I channels;
  Division<I> by_in[3], by_out[3], by_stride[3], by_channels;
  bool adaptive, count_include_pad;
  int64_t divisor;
  explicit PoolShape(const Pooling& p)
      : in_size(static_cast<I>(volume(p.in))),
        out_size(static_cast<I>(volume(p.out))),
        channels(static_cast<I>(p.channels)),
        by_channels(p.channels),
        adaptive(p.adaptive),
        count_include_pad(p.count_include_pad),
        divisor(p.divisor) {
    for (size_t d = 0; d < 3; ++d) {
      const auto set = [&](I(&to)[3], const std::array<int64_t, 3>& from) { to[d] = static_cast<I>(from[d]); };
      set(in, p.in), set(out, p.out), set(kernel, p.kernel);
      set(stride, p.stride), set(padding, p.padding), set(dilation, p.dilation);
      by_in[d] = Division<I>(p.in[d]), by_out[d] = Division<I>(p.out[d]), by_stride[d] = Division<I>(p.stride[d]);
    }
  }
};

/// The largest number of elements that is counted in 32 bits. In test/simt it is small, so that the CPU runs both kinds
/// of kernels.
#if defined(__CUDACC__)
constexpr int64_t kMostSmall = INT32_MAX;
#else
constexpr int64_t kMostSmall = 1000;
#endif

/// f(PoolShape<I>(p)).
template <class F>
void with_shape(const Pooling& p, const F& f) {
  bool small = p.planes * p.channels * std::max(volume(p.in), volume(p.out)) <= kMostSmall;
  for (size_t d = 0; d < 3 && small; ++d) {
    const int64_t reach = p.adaptive ? p.in[d] : p.kernel[d] * p.dilation[d];  // no product has more than 62 bits
    const int64_t windows = p.adaptive ? p.in[d] * (p.out[d] + 1) + p.out[d] : p.out[d] * p.stride[d];
    small = p.in[d] + 2 * p.padding[d] + reach + windows <= INT32_MAX;
  }
  small ? f(PoolShape<int32_t>(p)) : f(PoolShape<int64_t>(p));
}

/// A window in all three dimensions, its plane and, where channels lie last, its channel, which is 0 otherwise.
template <class I>
struct Window3d {
  I plane, channel;
  WindowOf<I> d, h, w;

  __device__ Window3d(const PoolShape<I>& p, I o) {
    channel = p.by_channels.take_rest(&o);
    w = window_of(p, 2, p.by_out[2].take_rest(&o));
    h = window_of(p, 1, p.by_out[1].take_rest(&o));
    d = window_of(p, 0, p.by_out[0].take_rest(&o));
    plane = o;
  }
  /// f(offset in the plane of x) for every `lanes`-th tap from number `first` on.
  template <int lanes, class F>
  __device__ void for_each(const PoolShape<I>& p, I first, const F& f) const {
    const auto place = [&](I i, I j, I k) {
      const I slice = d.start + i * p.dilation[0], row = h.start + j * p.dilation[1];
      return (slice * p.in[1] + row) * p.in[2] + w.start + k * p.dilation[2];
    };
    if constexpr (lanes == 1) {
      for (I i = 0; i < d.taps; ++i)
        for (I j = 0; j < h.taps; ++j)
          for (I k = 0; k < w.taps; ++k) f(place(i, j, k));
    } else {
      const I taps = d.taps * h.taps * w.taps;
      for (I tap = first; tap < taps; tap += lanes) {
        const I line = tap / w.taps;
        f(place(line / h.taps, line % h.taps, tap - line * w.taps));
      }
    }
  }
};

template <class I>
__device__ double divisor_of(const PoolShape<I>& p, const WindowOf<I>& d, const WindowOf<I>& h, const WindowOf<I>& w) {
  if (p.divisor) return double(p.divisor);
  return p.count_include_pad ? double(d.covered * h.covered) * double(w.covered)
                             : double(d.taps * h.taps) * double(w.taps);
}

/// The windows [first, last] along one dimension that have element i between their ends.
template <class I>
struct Span {
  I first, last;
};
template <class I>
__device__ Span<I> windows_covering(const PoolShape<I>& p, int d, I i) {
  const I in = p.in[d], out = p.out[d];
  if (p.adaptive) return {i * out / in, ((i + 1) * out + in - 1) / in - 1};
  const I reach = i + p.padding[d], before = reach - (p.kernel[d] - 1) * p.dilation[d] - 1;
  const I last = p.by_stride[d].divide(reach);
  return {before < 0 ? 0 : p.by_stride[d].divide(before) + 1, last < out ? last : out - 1};
}
/// The same in all three dimensions for element i of all of x, its place in its plane, and plane and channel.
template <class I>
struct Covering {
  I plane, channel, place;
  Span<I> d, h, w;

  __device__ Covering(const PoolShape<I>& p, I i) {
    channel = p.by_channels.take_rest(&i);
    place = i;
    w = windows_covering(p, 2, p.by_in[2].take_rest(&i));
    h = windows_covering(p, 1, p.by_in[1].take_rest(&i));
    d = windows_covering(p, 0, p.by_in[0].take_rest(&i));
    plane = i;
    place -= plane * p.in_size;
  }
};

// A window is taken by `lanes` adjacent threads: 1, or a warp for large ones.
template <int lanes>
__device__ int64_t first_window() {
  return first_index() / lanes;
}
template <int lanes>
__device__ int64_t window_step() {
  return index_step() / lanes;
}
template <int lanes>
__device__ int lane() {
  return lanes == 1 ? 0 : static_cast<int>(threadIdx.x % lanes);
}

/// f(lanes): a warp for windows of at least 32 taps, else one thread; also where the threads of a warp have
/// neighbouring channels, which are read together.
template <class F>
void with_lanes(const Pooling& p, const F& f) {
  int64_t taps = 1;
  for (int d = 0; d < 3; ++d) taps *= p.adaptive ? ceil_div(p.in[d], p.out[d]) : p.kernel[d];
  const bool by_warps = taps >= kWarp && p.channels < kWarp;
  by_warps ? f(std::integral_constant<int, kWarp>()) : f(std::integral_constant<int, 1>());
}

// ---- maxima ---------------------------------------------------------------------------------------------------------

template <class T, class I>
struct BestTap {
  T value;
  I at = -1;
  /// NaN is the largest, and the last of several, as on the CPU; of equal numbers the first is taken. Lanes combine in
  /// any order, hence the comparisons of places.
  __device__ void update(T v, I place) {
    const bool better = v != v ? value == value || place > at : v > value || (v == value && place < at);
    if (at < 0 || better) value = v, at = place;
  }
};

template <int lanes, class I, class T>
__global__ void max_pool_kernel(PoolShape<I> p, int64_t count, const T* x, T* y, int64_t* indices) {
  for (int64_t o = first_window<lanes>(); o < count; o += window_step<lanes>()) {
    const Window3d<I> box(p, static_cast<I>(o));
    const T* from = x + int64_t{box.plane} * p.in_size * p.channels + box.channel;
    BestTap<Wide<T>, I> best{-Wide<T>(INFINITY)};
    box.template for_each<lanes>(p, lane<lanes>(),
                                 [&](I place) { best.update(widen(from[place * p.channels]), place); });
    if constexpr (lanes > 1)
      for (int step = lanes / 2; step > 0; step /= 2) {
        const Wide<T> value = __shfl_xor_sync(~0u, best.value, step);
        const I at = __shfl_xor_sync(~0u, best.at, step);
        if (at >= 0) best.update(value, at);
      }
    if (lane<lanes>()) continue;
    y[o] = narrow<T>(best.value);
    if (indices) indices[o] = best.at;
  }
}

void max_pool(const Pooling& p, const View& x, const View& y, const View* indices) {
  with_floating(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    with_lanes(p, [&](auto lanes) {
      with_shape(p, [&](const auto& shape) {
        launch(max_pool_kernel<lanes(), std::decay_t<decltype(shape.in_size)>, T>, blocks_for(y.numel * lanes),
               kThreads, 0, shape, y.numel, x.as<const T>(), y.as<T>(), indices ? indices->as<int64_t>() : nullptr);
      });
    });
  });
}

template <class I, class T>
__global__ void max_pool_grad_kernel(PoolShape<I> p, int64_t count, const T* g, const int64_t* indices, T* gx) {
  for (int64_t at = first_index(); at < count; at += index_step()) {
    const Covering<I> box(p, static_cast<I>(at));
    const I plane = box.plane * p.out_size;
    Wide<T> sum = 0;
    for (I i = box.d.first; i <= box.d.last; ++i)
      for (I j = box.h.first; j <= box.h.last; ++j) {
        const I line = plane + (i * p.out[1] + j) * p.out[2];
        for (I k = box.w.first; k <= box.w.last; ++k) {
          const I window = (line + k) * p.channels + box.channel;
          if (indices[window] == box.place) sum += widen(g[window]);
        }
      }
    gx[at] = narrow<T>(sum);
  }
}

void max_pool_grad(const Pooling& p, const View& g, const View& indices, const View& gx) {
  with_floating(g.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    with_shape(p, [&](const auto& shape) {
      launch(max_pool_grad_kernel<std::decay_t<decltype(shape.in_size)>, T>, blocks_for(gx.numel), kThreads, 0, shape,
             gx.numel, g.as<const T>(), indices.as<const int64_t>(), gx.as<T>());
    });
  });
}

// ---- averages -------------------------------------------------------------------------------------------------------

template <int lanes, class I, class T>
__global__ void avg_pool_kernel(PoolShape<I> p, int64_t count, const T* x, T* y) {
  for (int64_t o = first_window<lanes>(); o < count; o += window_step<lanes>()) {
    const Window3d<I> box(p, static_cast<I>(o));
    const T* from = x + int64_t{box.plane} * p.in_size * p.channels + box.channel;
    Wide<T> sum = 0;
    box.template for_each<lanes>(p, lane<lanes>(), [&](I place) { sum += widen(from[place * p.channels]); });
    if constexpr (lanes > 1) sum = warp_reduce(sum, Plus());
    if (!lane<lanes>()) y[o] = narrow<T>(sum / static_cast<Wide<T>>(divisor_of(p, box.d, box.h, box.w)));
  }
}

void avg_pool(const Pooling& p, const View& x, const View& y) {
  with_floating(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    with_lanes(p, [&](auto lanes) {
      with_shape(p, [&](const auto& shape) {
        launch(avg_pool_kernel<lanes(), std::decay_t<decltype(shape.in_size)>, T>, blocks_for(y.numel * lanes),
               kThreads, 0, shape, y.numel, x.as<const T>(), y.as<T>());
      });
    });
  });
}

template <class I, class T>
__global__ void avg_pool_grad_kernel(PoolShape<I> p, int64_t count, const T* g, T* gx) {
  for (int64_t at = first_index(); at < count; at += index_step()) {
    const Covering<I> box(p, static_cast<I>(at));
    const T* from = g + int64_t{box.plane} * p.out_size * p.channels + box.channel;
    Wide<T> sum = 0;
    for (I d = box.d.first; d <= box.d.last; ++d) {
      const WindowOf<I> slice = window_of(p, 0, d);
      for (I h = box.h.first; h <= box.h.last; ++h) {
        const WindowOf<I> row = window_of(p, 1, h);
        const T* line = from + (d * p.out[1] + h) * p.out[2] * p.channels;
        for (I w = box.w.first; w <= box.w.last; ++w)
          sum += widen(line[w * p.channels]) / static_cast<Wide<T>>(divisor_of(p, slice, row, window_of(p, 2, w)));
      }
    }
    gx[at] = narrow<T>(widen(gx[at]) + sum);
  }
}

void avg_pool_grad(const Pooling& p, const View& g, const View& gx) {
  with_floating(g.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    with_shape(p, [&](const auto& shape) {
      launch(avg_pool_grad_kernel<std::decay_t<decltype(shape.in_size)>, T>, blocks_for(gx.numel), kThreads, 0, shape,
             gx.numel, g.as<const T>(), gx.as<T>());
    });
  });
}

// ---- resampling -----------------------------------------------------------------------------------------------------

/// x is [outer, x_size, inner] and y [outer, y_size, inner], contiguous; an element of y is a weighted sum of `taps`
/// elements of x.
struct Lines {
  int64_t x_size, y_size, taps, inner;
};
Lines lines_of(const View& x, int dim, const View& ids, const View& y) {
  Lines lines{x.shape[dim], y.shape[dim], ids.shape[1], 1};
  for (int d = dim + 1; d < x.shape.size(); ++d) lines.inner *= x.shape[d];
  return lines;
}
/// The coordinates of elements of x or y, whose numbers have type I.
template <class I>
struct Places {
  Division<I> by_inner, by_size;
  Places(const Lines& l, int64_t size) : by_inner(l.inner), by_size(size) {}
  struct Place {
    int64_t outer, i, inner;
  };
  __device__ Place of(int64_t number) const {
    I rest = static_cast<I>(number);
    const I inner = by_inner.take_rest(&rest), i = by_size.take_rest(&rest);
    return {rest, i, inner};
  }
};
/// f(Places<I>) for an array of `numel` elements, with `size` of them along the dimension.
template <class F>
void with_places(const Lines& l, int64_t numel, int64_t size, const F& f) {
  numel <= kMostSmall ? f(Places<int32_t>(l, size)) : f(Places<int64_t>(l, size));
}

template <class I, class T>
__global__ void resample_kernel(Lines l, Places<I> places, int64_t count, const T* x, const int64_t* ids,
                                const T* weights, T* y) {
  for (int64_t i = first_index(); i < count; i += index_step()) {
    const auto at = places.of(i);
    const T* from = x + at.outer * l.x_size * l.inner + at.inner;
    Wide<T> sum = 0;
    for (int64_t k = at.i * l.taps; k < (at.i + 1) * l.taps; ++k)
      sum += widen(weights[k]) * widen(from[ids[k] * l.inner]);
    y[i] = narrow<T>(sum);
  }
}

void resample(const View& x, int dim, const View& ids, const View& weights, const View& y) {
  const Lines lines = lines_of(x, dim, ids, y);
  with_floating(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    with_places(lines, y.numel, lines.y_size, [&]<class I>(const Places<I>& places) {
      launch(resample_kernel<I, T>, blocks_for(y.numel), kThreads, 0, lines, places, y.numel, x.as<const T>(),
             ids.as<const int64_t>(), weights.as<const T>(), y.as<T>());
    });
  });
}

/// The range of elements of y that element i of x contributes to: [y_size - ends[2 i], ends[2 i + 1]). Both ends are
/// found by atomic maxima from zero, which do not depend on the order of threads.
__global__ void find_users_kernel(Lines l, const int64_t* ids, long long* ends) {
  for (int64_t k = first_index(); k < l.y_size * l.taps; k += index_step()) {
    const int64_t j = k / l.taps;
    atomicMax(ends + 2 * ids[k], static_cast<long long>(l.y_size - j));
    atomicMax(ends + 2 * ids[k] + 1, static_cast<long long>(j + 1));
  }
}

template <class I, class T>
__global__ void resample_grad_kernel(Lines l, Places<I> places, int64_t count, T* x, const int64_t* ids,
                                     const T* weights, const T* y, const long long* ends) {
  for (int64_t i = first_index(); i < count; i += index_step()) {
    const auto at = places.of(i);
    const T* from = y + at.outer * l.y_size * l.inner + at.inner;
    Wide<T> sum = widen(x[i]);
    for (int64_t j = l.y_size - ends[2 * at.i]; j < ends[2 * at.i + 1]; ++j)
      for (int64_t k = j * l.taps; k < (j + 1) * l.taps; ++k)
        if (ids[k] == at.i) sum += widen(weights[k]) * widen(from[j * l.inner]);
    x[i] = narrow<T>(sum);
  }
}

void resample_grad(const View& x, int dim, const View& ids, const View& weights, const View& y) {
  if (!x.numel || !y.numel) return;
  const Lines lines = lines_of(x, dim, ids, y);
  const Scratch<long long> ends(2 * lines.x_size);
  CUDA_CHECK(cudaMemsetAsync(ends, 0, static_cast<size_t>(2 * lines.x_size) * sizeof(long long), stream()));
  launch(find_users_kernel, blocks_for(ids.numel), kThreads, 0, lines, ids.as<const int64_t>(), ends.data());
  with_floating(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    with_places(lines, x.numel, lines.x_size, [&]<class I>(const Places<I>& places) {
      launch(resample_grad_kernel<I, T>, blocks_for(x.numel), kThreads, 0, lines, places, x.numel, x.as<T>(),
             ids.as<const int64_t>(), weights.as<const T>(), y.as<const T>(), ends.data());
    });
  });
}

}  // namespace

void install_pool(KernelTable& table) {
  table.max_pool = max_pool;
  table.max_pool_grad = max_pool_grad;
  table.avg_pool = avg_pool;
  table.avg_pool_grad = avg_pool_grad;
  table.interpolate = resample;
  table.interpolate_grad = resample_grad;
  // It is composed of other ops.
  table.grid_sample = [](const GridSample&) { return false; };
  table.grid_sample_grad = [](const GridSample&) {};
}

}  // namespace reel::cuda
