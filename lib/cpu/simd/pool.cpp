#include "lib/device/kernels/pool.h"
#include "lib/cpu/kernels.h"
#include "lib/cpu/parts.h"
#include "lib/cpu/scratch.h"
#include "lib/cpu/simd/halves.h"
#include "lib/cpu/simd/transpose.h"
#include "lib/device/window.h"

// Max and average pooling with gradients. oneDNN is not used: its maxima drop NaN and turn -infinity into the lowest
// finite number.
namespace reel::cpu::REEL_ISA {
namespace {

// ---- windows --------------------------------------------------------------------------------------------------------

/// Some windows of a row, next to each other, that fit over a line of at most kLine elements: length of them from
/// position `start` of x on, of which [first, last) are inside of x.
constexpr int64_t kLine = 1024;
struct Chunk {
  int64_t begin, count, start, length, first, last;
};
int64_t extent_of(const Pooling& p) { return (p.kernel[2] - 1) * p.dilation[2] + 1; }
template <class F>
void for_each_chunk(const Pooling& p, const F& f) {
  const int64_t stride = p.stride[2], most = (kLine - extent_of(p)) / stride + 1;
  for (int64_t begin = 0; begin < p.out[2]; begin += most) {
    const int64_t count = begin + most < p.out[2] ? most : p.out[2] - begin;
    const int64_t start = begin * stride - p.padding[2], length = (count - 1) * stride + extent_of(p);
    f(Chunk{begin, count, start, length, start < 0 ? -start : 0, start + length < p.in[2] ? length : p.in[2] - start});
  }
}
/// Returns whether windows are computed line by line; otherwise they are computed one by one, which is faster where
/// they are so far apart that a line has few of them.
bool by_lines(const Pooling& p) {
  constexpr int64_t kFarApart = 64;
  return !p.adaptive && extent_of(p) <= kLine && p.stride[2] < kFarApart;
}

/// One row of windows: where they are in the other two dimensions.
struct Row {
  int64_t plane, depth, height;  // the row's own position
  Window d, h;
};
template <class F>
void for_each_row(const Pooling& p, const F& f) {
  for (int64_t plane = 0; plane < p.planes; ++plane)
    for (int64_t od = 0; od < p.out[0]; ++od)
      for (int64_t oh = 0; oh < p.out[1]; ++oh) f(Row{plane, od, oh, window_of(p, 0, od), window_of(p, 1, oh)});
}
/// f(offset) for the beginnings of the lines of x, in a plane, that the row's windows cover.
template <class F>
void for_each_line(const Pooling& p, const Row& row, const F& f) {
  for (int64_t i = 0; i < row.d.taps; ++i)
    for (int64_t j = 0; j < row.h.taps; ++j)
      f(((row.d.start + i * p.dilation[0]) * p.in[1] + row.h.start + j * p.dilation[1]) * p.in[2]);
}
int64_t plane_size(const std::array<int64_t, 3>& sizes) { return sizes[0] * sizes[1] * sizes[2]; }
int64_t row_offset(const Pooling& p, const Row& row) {
  return ((row.plane * p.out[0] + row.depth) * p.out[1] + row.height) * p.out[2];
}

// ---- every second element -------------------------------------------------------------------------------------------

// a[0], a[2], …, then b[1], b[3], …: with b loaded from one before the end of a, no element after the last is touched.
#if defined(__AVX512F__)
Batch<float> every_second(const Batch<float>& a, const Batch<float>& b) {
  const __m512i at = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31);
  return _mm512_permutex2var_ps(a, at, b);
}
Batch<double> every_second(const Batch<double>& a, const Batch<double>& b) {
  return _mm512_permutex2var_pd(a, _mm512_setr_epi64(0, 2, 4, 6, 9, 11, 13, 15), b);
}
#elif defined(__AVX2__)
Batch<float> every_second(const Batch<float>& a, const Batch<float>& b) {
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(_mm256_shuffle_ps(a, b, 0xD8)), 0xD8));
}
Batch<double> every_second(const Batch<double>& a, const Batch<double>& b) {
  return _mm256_permute4x64_pd(_mm256_shuffle_pd(a, b, 0xA), 0xD8);
}
#else
Batch<float> every_second(const Batch<float>& a, const Batch<float>& b) { return _mm_shuffle_ps(a, b, 0xD8); }
Batch<double> every_second(const Batch<double>& a, const Batch<double>& b) { return _mm_shuffle_pd(a, b, 2); }
#endif

/// p[0], p[stride], …: n elements, and anything behind. `step` is 1 or 2 for a stride of that, 0 for any.
template <int step, class T>
Batch<T> load_steps(const T* p, int64_t stride, int64_t n) {
  if constexpr (step == 1) return load(p);
  if constexpr (step == 2) return every_second(load(p), load(p + kWidth<T> - 1));
  return load_strided(p, stride, n);
}

/// A line, and as much behind it as load_steps may touch.
template <class T>
struct Line {
  T data[kLine + 2 * kWidth<T>];
  explicit Line(T value) {
    for (T& v : data) v = value;
  }
};

/// f(get, set) for the elements [first, last) in batches: get(p) is a batch of p, set(p, batch) writes it.
template <class T, class F>
void for_each_batch(int64_t first, int64_t last, const F& f) {
  int64_t i = first;
  for (; i + kWidth<T> <= last; i += kWidth<T>)
    f([i](const T* p) { return load(p + i); }, [i](T* p, const Batch<T>& v) { store(p + i, v); });
  if (const int64_t n = last - i; n > 0)
    f([i, n](const T* p) { return load_part(p + i, n); }, [i, n](T* p, const Batch<T>& v) { store_part(p + i, v, n); });
}

/// f(i, n) for n windows from window i of a chunk on, as many at a time as there are lanes.
template <class T, class F>
void for_each_block(const Chunk& chunk, const F& f) {
  for (int64_t i = 0; i < chunk.count; i += kWidth<T>) f(i, i + kWidth<T> <= chunk.count ? kWidth<T> : chunk.count - i);
}

// ---- maxima ---------------------------------------------------------------------------------------------------------

/// The maximum of one window of x's plane, from the channel that x points to, and where it is.
template <class T>
T max_of(const Pooling& p, const Row& row, int64_t o, const T* x, int64_t* at) {
  const Window w = window_of(p, 2, o);
  T best = -std::numeric_limits<T>::infinity();
  *at = -1;
  for_each_line(p, row, [&](int64_t line) {
    for (int64_t k = 0; k < w.taps; ++k) {
      const int64_t i = line + w.start + k * p.dilation[2];
      const T v = x[i * p.channels];
      if (v > best || v != v || *at < 0) best = v, *at = i;
    }
  });
  return best;
}

template <class T>
void max_pool_one_by_one(const Pooling& p, const T* x, T* y, int64_t* indices) {
  for_each_row(p, [&](const Row& row) {
    for (int64_t i = 0; i < p.out[2] * p.channels; ++i) {
      const int64_t o = i / p.channels, channel = i % p.channels, to = row_offset(p, row) * p.channels + i;
      int64_t at;
      y[to] = max_of(p, row, o, x + row.plane * plane_size(p.in) * p.channels + channel, &at);
      if (indices) indices[to] = at;
    }
  });
}

/// Separable: first the elementwise maxima of the lines that a row of windows covers, then the maxima over the taps in
/// the resulting line. The place of each maximum, relative to the window's corner, is carried along as a T.
template <int step, bool with_places, class T>
void max_pool_by_lines(const Pooling& p, const T* x, T* y, int64_t* indices) {
  const T infinity = std::numeric_limits<T>::infinity();
  const int64_t stride = p.stride[2];
  for_each_chunk(p, [&](const Chunk& chunk) {
    Line<T> best(-infinity), place(infinity);  // as they are in the padding
    for_each_row(p, [&](const Row& row) {
      const int64_t corner = (row.d.start * p.in[1] + row.h.start) * p.in[2];
      const T* from = x + row.plane * plane_size(p.in) + chunk.start;
      bool first = true;
      for_each_line(p, row, [&](int64_t line) {
        const Batch<T> here(T(line - corner));
        for_each_batch<T>(chunk.first, chunk.last, [&](const auto& get, const auto& set) {
          const Batch<T> v = get(from + line);
          if (first) {
            set(best.data, v);
            if constexpr (with_places) set(place.data, here);
          } else {
            const Batch<T> before = get(best.data);
            const auto better = (v > before) | (v != v);
            set(best.data, select(better, v, before));
            if constexpr (with_places) set(place.data, select(better, here, get(place.data)));
          }
        });
        first = false;
      });
      for_each_block<T>(chunk, [&](int64_t i, int64_t n) {
        Batch<T> most(-infinity), at(infinity);
        for (int64_t k = 0; k < p.kernel[2]; ++k) {
          const int64_t tap = k * p.dilation[2], element = i * stride + tap;
          const Batch<T> v = load_steps<step>(best.data + element, stride, n);
          if constexpr (with_places) {
            const Batch<T> there = load_steps<step>(place.data + element, stride, n) + Batch<T>(T(tap));
            const auto better = (v > most) | (v != v) | ((v == most) & (there < at));
            at = select(better, there, at);
            most = select(better, v, most);
          } else {
            most = select((v > most) | (v != v), v, most);
          }
        }
        const int64_t to = row_offset(p, row) + chunk.begin + i;
        store_up_to(y + to, most, n);
        if constexpr (with_places) {
          T lanes[kWidth<T>];
          store(lanes, at);
          const int64_t window = corner + chunk.start + i * stride;
          for (int64_t k = 0; k < n; ++k) indices[to + k] = window + k * stride + static_cast<int64_t>(lanes[k]);
        }
      });
    });
  });
}

// ---- averages -------------------------------------------------------------------------------------------------------

/// What the sum over a window is divided by, but for its last dimension.
double divisor_of(const Pooling& p, const Row& row) {
  if (p.divisor) return double(p.divisor);
  return double(p.count_include_pad ? row.d.covered * row.h.covered : row.d.taps * row.h.taps);
}
/// The factor of the last dimension.
double divisor_of(const Pooling& p, const Window& w) {
  return p.divisor ? 1 : double(p.count_include_pad ? w.covered : w.taps);
}

template <class T>
void avg_pool_one_by_one(const Pooling& p, const T* x, T* y) {
  for_each_row(p, [&](const Row& row) {
    for (int64_t o = 0; o < p.out[2]; ++o) {
      const Window w = window_of(p, 2, o);
      const T* from = x + row.plane * plane_size(p.in) + w.start;
      double sum = 0;
      for_each_line(p, row, [&](int64_t line) {
        for (int64_t k = 0; k < w.taps; ++k) sum += double(from[line + k]);
      });
      y[row_offset(p, row) + o] = T(sum / (divisor_of(p, row) * divisor_of(p, w)));
    }
  });
}
template <class T>
void avg_pool_grad_one_by_one(const Pooling& p, const T* g, T* gx) {
  for_each_row(p, [&](const Row& row) {
    for (int64_t o = 0; o < p.out[2]; ++o) {
      const Window w = window_of(p, 2, o);
      const T share = T(g[row_offset(p, row) + o] / (divisor_of(p, row) * divisor_of(p, w)));
      T* to = gx + row.plane * plane_size(p.in) + w.start;
      for_each_line(p, row, [&](int64_t line) {
        for (int64_t k = 0; k < w.taps; ++k) to[line + k] += share;
      });
    }
  });
}

/// The factors of a chunk's windows.
template <class T>
void divisors_of(const Pooling& p, const Chunk& chunk, T* divisors) {
  for (int64_t i = 0; i < chunk.count; ++i) divisors[i] = T(divisor_of(p, window_of(p, 2, chunk.begin + i)));
}

/// First the sum of the lines, then those of the taps in it.
template <int step, class T>
void avg_pool_by_lines(const Pooling& p, const T* x, T* y) {
  const int64_t stride = p.stride[2];
  for_each_chunk(p, [&](const Chunk& chunk) {
    Line<T> sum(T(0)), divisor(T(1));
    divisors_of(p, chunk, divisor.data);
    for_each_row(p, [&](const Row& row) {
      const T* from = x + row.plane * plane_size(p.in) + chunk.start;
      const Batch<T> of_row(T(divisor_of(p, row)));
      bool first = true;
      for_each_line(p, row, [&](int64_t line) {
        for_each_batch<T>(chunk.first, chunk.last, [&](const auto& get, const auto& set) {
          set(sum.data, first ? get(from + line) : get(sum.data) + get(from + line));
        });
        first = false;
      });
      for_each_block<T>(chunk, [&](int64_t i, int64_t n) {
        Batch<T> total(T(0));
        for (int64_t k = 0; k < p.kernel[2]; ++k) total += load_steps<step>(sum.data + i * stride + k, stride, n);
        store_up_to<T>(y + row_offset(p, row) + chunk.begin + i, total / (of_row * load(divisor.data + i)), n);
      });
    });
  });
}

/// The adjoint: the gradients of a row of windows are summed into one line, which is added to each line they cover.
template <class T>
void avg_pool_grad_by_lines(const Pooling& p, const T* g, T* gx) {
  const int64_t stride = p.stride[2];
  for_each_chunk(p, [&](const Chunk& chunk) {
    Line<T> divisor(T(1)), share(T(0)), sum(T(0));
    divisors_of(p, chunk, divisor.data);
    for_each_row(p, [&](const Row& row) {
      const T* from = g + row_offset(p, row) + chunk.begin;
      T* to = gx + row.plane * plane_size(p.in) + chunk.start;
      const Batch<T> of_row(T(divisor_of(p, row)));
      for_each_batch<T>(0, chunk.count, [&](const auto& get, const auto& set) {
        set(share.data, get(from) / (of_row * get(divisor.data)));
      });
      for (int64_t i = 0; i < chunk.length; ++i) sum.data[i] = 0;
      for (int64_t k = 0; k < p.kernel[2]; ++k) {
        if (stride == 1)
          for_each_batch<T>(0, chunk.count, [&](const auto& get, const auto& set) {
            set(sum.data + k, get(sum.data + k) + get(share.data));
          });
        else
          for (int64_t i = 0; i < chunk.count; ++i) sum.data[i * stride + k] += share.data[i];
      }
      for_each_line(p, row, [&](int64_t line) {
        for_each_batch<T>(chunk.first, chunk.last,
                          [&](const auto& get, const auto& set) { set(to + line, get(to + line) + get(sum.data)); });
      });
    });
  });
}

// ---- planes side by side --------------------------------------------------------------------------------------------
// Where rows are shorter than a vector, its lanes are planes: element i of as many planes is one vector.

constexpr int64_t kSmallPlane = 1024;
bool by_planes(const Pooling& p) {
  return p.channels == 1 && p.out[2] < 2 * kWidth<float> && plane_size(p.in) <= kSmallPlane &&
         plane_size(p.out) <= kSmallPlane;
}

template <class T>
struct Planes {
  alignas(Arch::alignment()) T data[kSmallPlane * kWidth<T>];
  Batch<T> operator[](int64_t i) const { return Batch<T>::load_aligned(data + i * kWidth<T>); }
  void set(int64_t i, const Batch<T>& v) { v.store_aligned(data + i * kWidth<T>); }
};
/// f(first, n) for blocks of at most a vector's lanes of planes.
template <class T, class F>
void for_each_planes(const Pooling& p, const F& f) {
  for (int64_t first = 0; first < p.planes; first += kWidth<T>)
    f(first, first + kWidth<T> <= p.planes ? kWidth<T> : p.planes - first);
}
/// f(o, row, window) for the windows of a plane; o counts them.
template <class F>
void for_each_window(const Pooling& p, const F& f) {
  int64_t o = 0;
  for (int64_t od = 0; od < p.out[0]; ++od)
    for (int64_t oh = 0; oh < p.out[1]; ++oh) {
      const Row row{0, od, oh, window_of(p, 0, od), window_of(p, 1, oh)};
      for (int64_t ow = 0; ow < p.out[2]; ++ow) f(o++, row, window_of(p, 2, ow));
    }
}

template <bool with_places, class T>
void max_pool_by_planes(const Pooling& p, const T* x, T* y, int64_t* indices) {
  const int64_t size = plane_size(p.in), out = plane_size(p.out);
  Planes<T> in, best, place;
  for_each_planes<T>(p, [&](int64_t first, int64_t n) {
    rows_to_lanes(x + first * size, size, size, n, in.data);
    for_each_window(p, [&](int64_t o, const Row& row, const Window& w) {
      const int64_t first_tap = (row.d.start * p.in[1] + row.h.start) * p.in[2] + w.start;
      Batch<T> most = in[first_tap], at = Batch<T>(T(first_tap));
      for_each_line(p, row, [&](int64_t line) {
        for (int64_t k = 0; k < w.taps; ++k) {
          const int64_t tap = line + w.start + k * p.dilation[2];
          const Batch<T> v = in[tap];
          const auto better = (v > most) | (v != v);
          most = select(better, v, most);
          if constexpr (with_places) at = select(better, Batch<T>(T(tap)), at);
        }
      });
      best.set(o, most);
      if constexpr (with_places) place.set(o, at);
    });
    lanes_to_rows(best.data, out, n, y + first * out, out);
    if constexpr (with_places) {
      lanes_to_rows(place.data, out, n, best.data, out);
      for (int64_t i = 0; i < n * out; ++i) indices[first * out + i] = static_cast<int64_t>(best.data[i]);
    }
  });
}

template <class T>
void avg_pool_by_planes(const Pooling& p, const T* x, T* y) {
  const int64_t size = plane_size(p.in), out = plane_size(p.out);
  Planes<T> in, means;
  for_each_planes<T>(p, [&](int64_t first, int64_t n) {
    rows_to_lanes(x + first * size, size, size, n, in.data);
    for_each_window(p, [&](int64_t o, const Row& row, const Window& w) {
      Batch<T> sum(T(0));
      for_each_line(p, row, [&](int64_t line) {
        for (int64_t i = line + w.start; i < line + w.start + w.taps; ++i) sum += in[i];
      });
      means.set(o, sum / Batch<T>(T(divisor_of(p, row) * divisor_of(p, w))));
    });
    lanes_to_rows(means.data, out, n, y + first * out, out);
  });
}

template <class T>
void avg_pool_grad_by_planes(const Pooling& p, const T* g, T* gx) {
  const int64_t size = plane_size(p.in), out = plane_size(p.out);
  Planes<T> shares, sums;
  for_each_planes<T>(p, [&](int64_t first, int64_t n) {
    rows_to_lanes(g + first * out, out, out, n, shares.data);
    rows_to_lanes(gx + first * size, size, size, n, sums.data);
    for_each_window(p, [&](int64_t o, const Row& row, const Window& w) {
      const Batch<T> share = shares[o] / Batch<T>(T(divisor_of(p, row) * divisor_of(p, w)));
      for_each_line(p, row, [&](int64_t line) {
        for (int64_t i = line + w.start; i < line + w.start + w.taps; ++i) sums.set(i, sums[i] + share);
      });
    });
    lanes_to_rows(sums.data, size, n, gx + first * size, size);
  });
}

// ---- channels last --------------------------------------------------------------------------------------------------
// Lanes are neighbouring channels.

/// n channels of a window: where x's plane and y's window have the first of them.
struct Channels {
  int64_t x, y, n;
};
/// f(row, window, channels) for all channels of all windows, at most a vector's lanes of them at a time.
template <class T, class F>
void for_each_channels(const Pooling& p, const F& f) {
  for (int64_t plane = 0; plane < p.planes; ++plane)
    for_each_window(p, [&](int64_t o, const Row& row, const Window& w) {
      const int64_t x = plane * plane_size(p.in) * p.channels, y = (plane * plane_size(p.out) + o) * p.channels;
      for (int64_t c = 0; c < p.channels; c += kWidth<T>)
        f(row, w, Channels{x + c, y + c, c + kWidth<T> <= p.channels ? kWidth<T> : p.channels - c});
    });
}
/// f(place) for the taps of a window, which are places in a plane.
template <class F>
void for_each_tap(const Pooling& p, const Row& row, const Window& w, const F& f) {
  for_each_line(p, row, [&](int64_t line) {
    for (int64_t k = 0; k < w.taps; ++k) f(line + w.start + k * p.dilation[2]);
  });
}

template <bool with_places, class T>
void max_pool_by_channels(const Pooling& p, const T* x, T* y, int64_t* indices) {
  for_each_channels<T>(p, [&](const Row& row, const Window& w, const Channels& at) {
    const int64_t first = (row.d.start * p.in[1] + row.h.start) * p.in[2] + w.start;
    Batch<T> most = load_up_to(x + at.x + first * p.channels, at.n), place = Batch<T>(T(first));
    for_each_tap(p, row, w, [&](int64_t tap) {
      const Batch<T> v = load_up_to(x + at.x + tap * p.channels, at.n);
      const auto better = (v > most) | (v != v);
      most = select(better, v, most);
      if constexpr (with_places) place = select(better, Batch<T>(T(tap)), place);
    });
    store_up_to(y + at.y, most, at.n);
    if constexpr (with_places) {
      T lanes[kWidth<T>];
      store(lanes, place);
      for (int64_t i = 0; i < at.n; ++i) indices[at.y + i] = static_cast<int64_t>(lanes[i]);
    }
  });
}

template <class T>
void avg_pool_by_channels(const Pooling& p, const T* x, T* y) {
  for_each_channels<T>(p, [&](const Row& row, const Window& w, const Channels& at) {
    Batch<T> sum(T(0));
    for_each_tap(p, row, w, [&](int64_t tap) { sum += load_up_to(x + at.x + tap * p.channels, at.n); });
    store_up_to<T>(y + at.y, sum / Batch<T>(T(divisor_of(p, row) * divisor_of(p, w))), at.n);
  });
}

template <class T>
void avg_pool_grad_by_channels(const Pooling& p, const T* g, T* gx) {
  for_each_channels<T>(p, [&](const Row& row, const Window& w, const Channels& at) {
    const Batch<T> share = load_up_to(g + at.y, at.n) / Batch<T>(T(divisor_of(p, row) * divisor_of(p, w)));
    for_each_tap(p, row, w, [&](int64_t tap) {
      T* const to = gx + at.x + tap * p.channels;
      store_up_to<T>(to, load_up_to(to, at.n) + share, at.n);
    });
  });
}

// ---- the table's rows -----------------------------------------------------------------------------------------------

/// f(step) for the stride's way of loading.
template <class F>
void with_step(int64_t stride, const F& f) {
  switch (stride) {
    case 1: return f(std::integral_constant<int, 1>());
    case 2: return f(std::integral_constant<int, 2>());
    default: return f(std::integral_constant<int, 0>());
  }
}

template <class T>
void max_pool_of(const Pooling& p, const T* x, T* y, int64_t* indices) {
  if (by_planes(p))
    return indices ? max_pool_by_planes<true>(p, x, y, indices) : max_pool_by_planes<false>(p, x, y, indices);
  const bool exact = !indices || plane_size(p.in) < int64_t{1} << std::numeric_limits<T>::digits;
  if (p.channels > 1 && exact)
    return indices ? max_pool_by_channels<true>(p, x, y, indices) : max_pool_by_channels<false>(p, x, y, indices);
  if (p.channels > 1 || !by_lines(p) || !exact) return max_pool_one_by_one(p, x, y, indices);
  with_step(p.stride[2], [&](auto step) {
    indices ? max_pool_by_lines<step, true>(p, x, y, indices) : max_pool_by_lines<step, false>(p, x, y, indices);
  });
}
template <class T>
void avg_pool_of(const Pooling& p, const T* x, T* y) {
  if (p.channels > 1) return avg_pool_by_channels(p, x, y);
  if (by_planes(p)) return avg_pool_by_planes(p, x, y);
  if (!by_lines(p)) return avg_pool_one_by_one(p, x, y);
  with_step(p.stride[2], [&](auto step) { avg_pool_by_lines<step>(p, x, y); });
}
template <class T>
void avg_pool_grad_of(const Pooling& p, const T* g, T* gx) {
  if (p.channels > 1) return avg_pool_grad_by_channels(p, g, gx);
  if (by_planes(p)) return avg_pool_grad_by_planes(p, g, gx);
  by_lines(p) ? avg_pool_grad_by_lines(p, g, gx) : avg_pool_grad_one_by_one(p, g, gx);
}

/// f(part, first) for ranges of planes: the first of them, and the pooling of that many.
template <class F>
void for_each_part_of(const Pooling& p, const F& f) {
  const int64_t size = plane_size(p.in) * p.channels, width = by_planes(p) ? kWidth<float> : 1;
  if (p.planes * size <= part_size) return f(p, int64_t{0});
  for_each_range((p.planes + width - 1) / width, size * width, [&](int64_t begin, int64_t end) {
    Pooling part = p;
    part.planes = (end * width < p.planes ? end * width : p.planes) - begin * width;
    f(part, begin * width);
  });
}

/// Calls f(part, from, to, first) for some planes at a time: `from` and `to`, of so many elements a plane, are float32
/// copies of those of halves. They are so few that the copies stay in the caches.
template <class Half, class F>
void for_each_wide_part(const Pooling& p, const Half* from, int64_t from_size, Half* to, int64_t to_size, const F& f) {
  constexpr int64_t kElements = 1 << 14;
  const int64_t width = by_planes(p) ? kWidth<float> : 1, size = (from_size + to_size) * width;
  const int64_t together = (kElements < size ? 1 : kElements / size) * width;
  for_each_part_of(p, [&](const Pooling& whole, int64_t first) {
    const Scratch scratch(static_cast<size_t>(together * (from_size + to_size)) * sizeof(float));
    float *const wide_from = scratch.data<float>(), *const wide_to = wide_from + together * from_size;
    for (int64_t begin = 0; begin < whole.planes; begin += together) {
      Pooling part = whole;
      part.planes = begin + together < whole.planes ? together : whole.planes - begin;
      convert(from + (first + begin) * from_size, wide_from, part.planes * from_size);
      f(part, wide_from, wide_to, first + begin);
      convert(wide_to, to + (first + begin) * to_size, part.planes * to_size);
    }
  });
}
/// Calls f(part, from, to, first) for parts of the planes: the first of them, and where their elements begin.
template <class F>
void for_each_typed_part(const Pooling& p, const View& from, int64_t from_size, const View& to, int64_t to_size,
                         const F& f) {
  const auto run = [&]<class T>(const T* x, T* y) {
    for_each_part_of(
        p, [&](const Pooling& part, int64_t first) { f(part, x + first * from_size, y + first * to_size, first); });
  };
  switch (from.dtype) {
    case kFloat16: return for_each_wide_part(p, from.as<const Float16>(), from_size, to.as<Float16>(), to_size, f);
    case kBFloat16: return for_each_wide_part(p, from.as<const BFloat16>(), from_size, to.as<BFloat16>(), to_size, f);
    case kFloat32: return run(from.as<const float>(), to.as<float>());
    default: return run(from.as<const double>(), to.as<double>());
  }
}

void max_pool(const Pooling& p, const View& x, const View& y, const View* indices) {
  const int64_t in = plane_size(p.in) * p.channels, out = plane_size(p.out) * p.channels;
  for_each_typed_part(p, x, in, y, out, [&](const Pooling& part, const auto* from, auto* to, int64_t first) {
    max_pool_of(part, from, to, indices ? indices->as<int64_t>() + first * out : nullptr);
  });
}
/// `channels` is an integral constant where it is 1, which needs no inner loop and takes two thirds of the time.
template <class T, class Channels>
void max_pool_grad_of(int64_t in, int64_t out, int64_t planes, Channels channels, const T* g, const int64_t* indices,
                      T* gx) {
  std::fill(gx, gx + planes * in, T(0));
  for (int64_t plane = 0; plane < planes; ++plane)
    for (int64_t o = plane * out; o < (plane + 1) * out; o += channels)
      for (int64_t c = 0; c < channels; ++c) gx[plane * in + indices[o + c] * channels + c] += g[o + c];
}
void max_pool_grad(const Pooling& p, const View& g, const View& indices, const View& gx) {
  const int64_t in = plane_size(p.in) * p.channels, out = plane_size(p.out) * p.channels;
  for_each_typed_part(p, g, out, gx, in, [&](const Pooling& part, const auto* from, auto* to, int64_t first) {
    const int64_t* const at = indices.as<const int64_t>() + first * out;
    const auto of = [&](auto channels) { max_pool_grad_of(in, out, part.planes, channels, from, at, to); };
    p.channels == 1 ? of(std::integral_constant<int64_t, 1>()) : of(p.channels);
  });
}
void avg_pool(const Pooling& p, const View& x, const View& y) {
  const int64_t in = plane_size(p.in) * p.channels, out = plane_size(p.out) * p.channels;
  for_each_typed_part(p, x, in, y, out,
                      [](const Pooling& part, const auto* from, auto* to, int64_t) { avg_pool_of(part, from, to); });
}
void avg_pool_grad(const Pooling& p, const View& g, const View& gx) {
  const int64_t in = plane_size(p.in) * p.channels, out = plane_size(p.out) * p.channels;
  for_each_typed_part(p, g, out, gx, in, [&](const Pooling& part, const auto* from, auto* to, int64_t) {
    if (is_half(g.dtype)) std::fill(to, to + part.planes * in, 0);  // gx is zeros, but not the copies
    avg_pool_grad_of(part, from, to);
  });
}

}  // namespace

void install_pool(KernelTable& table) {
  table.max_pool = max_pool;
  table.max_pool_grad = max_pool_grad;
  table.avg_pool = avg_pool;
  table.avg_pool_grad = avg_pool_grad;
}

}  // namespace reel::cpu::REEL_ISA
