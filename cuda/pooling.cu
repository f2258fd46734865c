#include "cuda/block.h"
#include "cuda/kernels.h"
#include "cuda/runtime.h"
#include "lib/kernels/pool.h"
#include "lib/window.h"

// Pooling and resampling. Gradients are gathers: each element of gx sums the outputs that it took part in, in a fixed
// order, where a scatter would take atomic additions, whose order (and rounding) changes from run to run.
namespace reel::cuda {
namespace {

// ---- windows --------------------------------------------------------------------------------------------------------

/// The sizes of a Pooling in C arrays: std::array's operator[] is host code.
struct PoolShape {
  int64_t in[3], out[3], kernel[3], stride[3], padding[3], dilation[3];
  bool adaptive, count_include_pad;
  int64_t divisor;
  explicit PoolShape(const Pooling& p)
      : adaptive(p.adaptive), count_include_pad(p.count_include_pad), divisor(p.divisor) {
    for (size_t d = 0; d < 3; ++d) {
      in[d] = p.in[d], out[d] = p.out[d], kernel[d] = p.kernel[d];
      stride[d] = p.stride[d], padding[d] = p.padding[d], dilation[d] = p.dilation[d];
    }
  }
};

/// A window in all three dimensions, and its plane (image and channel).
struct Window3d {
  int64_t plane;
  Window d, h, w;

  __device__ Window3d(const PoolShape& p, int64_t o) {
    w = window_of(p, 2, o % p.out[2]), o /= p.out[2];
    h = window_of(p, 1, o % p.out[1]), o /= p.out[1];
    d = window_of(p, 0, o % p.out[0]), plane = o / p.out[0];
  }
  /// f(offset in the plane of x) for every `lanes`-th tap from number `first` on.
  template <int lanes, class F>
  __device__ void for_each(const PoolShape& p, int64_t first, const F& f) const {
    const auto place = [&](int64_t i, int64_t j, int64_t k) {
      const int64_t slice = d.start + i * p.dilation[0], row = h.start + j * p.dilation[1];
      return (slice * p.in[1] + row) * p.in[2] + w.start + k * p.dilation[2];
    };
    if constexpr (lanes == 1) {
      for (int64_t i = 0; i < d.taps; ++i)
        for (int64_t j = 0; j < h.taps; ++j)
          for (int64_t k = 0; k < w.taps; ++k) f(place(i, j, k));
    } else {
      const int64_t taps = d.taps * h.taps * w.taps;
      for (int64_t tap = first; tap < taps; tap += lanes) {
        const int64_t line = tap / w.taps;
        f(place(line / h.taps, line % h.taps, tap - line * w.taps));
      }
    }
  }
};

__device__ double divisor_of(const PoolShape& p, const Window& d, const Window& h, const Window& w) {
  if (p.divisor) return double(p.divisor);
  return p.count_include_pad ? double(d.covered * h.covered) * double(w.covered)
                             : double(d.taps * h.taps) * double(w.taps);
}

int64_t volume(const std::array<int64_t, 3>& size) { return size[0] * size[1] * size[2]; }

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
__device__ int64_t lane() {
  return lanes == 1 ? 0 : threadIdx.x % lanes;
}

/// f(lanes): a warp for windows of at least 32 taps, else one thread.
template <class F>
void with_lanes(const Pooling& p, const F& f) {
  int64_t taps = 1;
  for (int d = 0; d < 3; ++d) taps *= p.adaptive ? ceil_div(p.in[d], p.out[d]) : p.kernel[d];
  taps >= kWarp ? f(std::integral_constant<int, kWarp>()) : f(std::integral_constant<int, 1>());
}

// ---- maxima ---------------------------------------------------------------------------------------------------------

template <class T>
struct BestTap {
  T value;
  int64_t at = -1;
  /// NaN is the largest, and the last of several, as on the CPU; of equal numbers the first is taken. Lanes combine in
  /// any order, hence the comparisons of places.
  __device__ void update(T v, int64_t place) {
    const bool better = v != v ? value == value || place > at : v > value || (v == value && place < at);
    if (at < 0 || better) value = v, at = place;
  }
};

template <int lanes, class T>
__global__ void max_pool_kernel(PoolShape p, int64_t count, int64_t size, const T* x, T* y, int64_t* indices) {
  for (int64_t o = first_window<lanes>(); o < count; o += window_step<lanes>()) {
    const Window3d box(p, o);
    const T* from = x + box.plane * size;
    BestTap<Wide<T>> best{-Wide<T>(INFINITY)};
    box.for_each<lanes>(p, lane<lanes>(), [&](int64_t place) { best.update(widen(from[place]), place); });
    if constexpr (lanes > 1)
      for (int step = lanes / 2; step > 0; step /= 2) {
        const Wide<T> value = __shfl_xor_sync(~0u, best.value, step);
        const int64_t at = __shfl_xor_sync(~0u, best.at, step);
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
      launch(max_pool_kernel<lanes(), T>, blocks_for(y.numel * lanes), kThreads, 0, PoolShape(p), y.numel, volume(p.in),
             x.as<const T>(), y.as<T>(), indices ? indices->as<int64_t>() : nullptr);
    });
  });
}

// ---- averages -------------------------------------------------------------------------------------------------------

template <int lanes, class T>
__global__ void avg_pool_kernel(PoolShape p, int64_t count, int64_t size, const T* x, T* y) {
  for (int64_t o = first_window<lanes>(); o < count; o += window_step<lanes>()) {
    const Window3d box(p, o);
    const T* from = x + box.plane * size;
    Wide<T> sum = 0;
    box.for_each<lanes>(p, lane<lanes>(), [&](int64_t place) { sum += widen(from[place]); });
    if constexpr (lanes > 1) sum = warp_reduce(sum, Plus());
    if (!lane<lanes>()) y[o] = narrow<T>(sum / static_cast<Wide<T>>(divisor_of(p, box.d, box.h, box.w)));
  }
}

void avg_pool(const Pooling& p, const View& x, const View& y) {
  with_floating(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    with_lanes(p, [&](auto lanes) {
      launch(avg_pool_kernel<lanes(), T>, blocks_for(y.numel * lanes), kThreads, 0, PoolShape(p), y.numel, volume(p.in),
             x.as<const T>(), y.as<T>());
    });
  });
}

/// The windows [first, last] along one dimension that cover element i.
struct Span {
  int64_t first, last;
};
__device__ Span windows_covering(const PoolShape& p, int d, int64_t i) {
  const int64_t in = p.in[d], out = p.out[d];
  if (p.adaptive) return {i * out / in, ((i + 1) * out + in - 1) / in - 1};
  const int64_t reach = i + p.padding[d], before = reach - p.kernel[d];
  const int64_t last = reach / p.stride[d];
  return {before < 0 ? 0 : before / p.stride[d] + 1, last < out ? last : out - 1};
}

template <class T>
__global__ void avg_pool_grad_kernel(PoolShape p, int64_t count, int64_t size, const T* g, T* gx) {
  for (int64_t i = first_index(); i < count; i += index_step()) {
    int64_t rest = i;
    const Span ws = windows_covering(p, 2, rest % p.in[2]);
    rest /= p.in[2];
    const Span hs = windows_covering(p, 1, rest % p.in[1]);
    rest /= p.in[1];
    const Span ds = windows_covering(p, 0, rest % p.in[0]);
    const T* from = g + rest / p.in[0] * size;
    Wide<T> sum = 0;
    for (int64_t d = ds.first; d <= ds.last; ++d) {
      const Window slice = window_of(p, 0, d);
      for (int64_t h = hs.first; h <= hs.last; ++h) {
        const Window row = window_of(p, 1, h);
        const T* line = from + (d * p.out[1] + h) * p.out[2];
        for (int64_t w = ws.first; w <= ws.last; ++w)
          sum += widen(line[w]) / static_cast<Wide<T>>(divisor_of(p, slice, row, window_of(p, 2, w)));
      }
    }
    gx[i] = narrow<T>(widen(gx[i]) + sum);
  }
}

void avg_pool_grad(const Pooling& p, const View& g, const View& gx) {
  with_floating(g.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    launch(avg_pool_grad_kernel<T>, blocks_for(gx.numel), kThreads, 0, PoolShape(p), gx.numel, volume(p.out),
           g.as<const T>(), gx.as<T>());
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

template <class T>
__global__ void resample_kernel(Lines l, int64_t count, const T* x, const int64_t* ids, const T* weights, T* y) {
  for (int64_t i = first_index(); i < count; i += index_step()) {
    const int64_t inner = i % l.inner, line = i / l.inner, j = line % l.y_size;
    const T* from = x + line / l.y_size * l.x_size * l.inner + inner;
    Wide<T> sum = 0;
    for (int64_t k = j * l.taps; k < (j + 1) * l.taps; ++k) sum += widen(weights[k]) * widen(from[ids[k] * l.inner]);
    y[i] = narrow<T>(sum);
  }
}

void resample(const View& x, int dim, const View& ids, const View& weights, const View& y) {
  with_floating(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    launch(resample_kernel<T>, blocks_for(y.numel), kThreads, 0, lines_of(x, dim, ids, y), y.numel, x.as<const T>(),
           ids.as<const int64_t>(), weights.as<const T>(), y.as<T>());
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

template <class T>
__global__ void resample_grad_kernel(Lines l, int64_t count, T* x, const int64_t* ids, const T* weights, const T* y,
                                     const long long* ends) {
  for (int64_t i = first_index(); i < count; i += index_step()) {
    const int64_t inner = i % l.inner, line = i / l.inner, place = line % l.x_size;
    const T* from = y + line / l.x_size * l.y_size * l.inner + inner;
    Wide<T> sum = widen(x[i]);
    for (int64_t j = l.y_size - ends[2 * place]; j < ends[2 * place + 1]; ++j)
      for (int64_t k = j * l.taps; k < (j + 1) * l.taps; ++k)
        if (ids[k] == place) sum += widen(weights[k]) * widen(from[j * l.inner]);
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
    launch(resample_grad_kernel<T>, blocks_for(x.numel), kThreads, 0, lines, x.numel, x.as<T>(),
           ids.as<const int64_t>(), weights.as<const T>(), y.as<const T>(), ends.data());
  });
}

}  // namespace

void install_pool(KernelTable& table) {
  table.max_pool = max_pool;
  table.avg_pool = avg_pool;
  table.avg_pool_grad = avg_pool_grad;
  table.interpolate = resample;
  table.interpolate_grad = resample_grad;
}

}  // namespace reel::cuda
