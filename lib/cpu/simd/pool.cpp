#include "lib/cpu/kernels.h"
#include "lib/cpu/simd/batch.h"

namespace reel::cpu::REEL_ISA {
namespace {

// ---- windows --------------------------------------------------------------------------------------------------------

/// The part of a window along one dimension that lies inside of x.
struct Window {
  int64_t start, taps;
  int64_t covered;  // taps, and those in the padding
};
Window window_of(const Pool& p, int d, int64_t o) {
  const int64_t in = p.in[d], step = p.dilation[d];
  if (p.adaptive) {
    const int64_t start = o * in / p.out[d], end = ((o + 1) * in + p.out[d] - 1) / p.out[d];
    return {start, end - start, end - start};
  }
  int64_t start = o * p.stride[d] - p.padding[d];
  const int64_t end = start + (p.kernel[d] - 1) * step + 1, inside = end < in ? end : in;
  const int64_t covered = (end < in + p.padding[d] ? end : in + p.padding[d]) - start;
  if (start < 0) start += (step - 1 - start) / step * step;
  return {start, start < inside ? (inside - start + step - 1) / step : 0, covered};
}

/// The windows of a row that need no clipping: [begin, end).
struct Interior {
  int64_t begin = 0, end = 0;
  explicit Interior(const Pool& p, bool wanted = true) {
    if (p.adaptive || !wanted) return;
    const int64_t stride = p.stride[2], last = p.in[2] + p.padding[2] - (p.kernel[2] - 1) * p.dilation[2] - 1;
    if (last < 0) return;
    begin = (p.padding[2] + stride - 1) / stride;
    end = last / stride + 1 < p.out[2] ? last / stride + 1 : p.out[2];
    if (begin >= end) begin = end = 0;
  }
};

/// One row of windows: where they are in the other two dimensions.
struct Row {
  int64_t plane, depth, height;  // the row's own position
  Window d, h;
};
template <class F>
void for_each_row(const Pool& p, const F& f) {
  for (int64_t plane = 0; plane < p.planes; ++plane)
    for (int64_t od = 0; od < p.out[0]; ++od)
      for (int64_t oh = 0; oh < p.out[1]; ++oh) f(Row{plane, od, oh, window_of(p, 0, od), window_of(p, 1, oh)});
}
/// f(offset) for the beginnings of the lines of x, in a plane, that the row's windows meet.
template <class F>
void for_each_line(const Pool& p, const Row& row, const F& f) {
  for (int64_t i = 0; i < row.d.taps; ++i)
    for (int64_t j = 0; j < row.h.taps; ++j)
      f(((row.d.start + i * p.dilation[0]) * p.in[1] + row.h.start + j * p.dilation[1]) * p.in[2]);
}
int64_t plane_size(const std::array<int64_t, 3>& sizes) { return sizes[0] * sizes[1] * sizes[2]; }
int64_t row_offset(const Pool& p, const Row& row) {
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

template <class T>
Batch<T> load_first(const T* p, int64_t n) {
  return n <= 0 ? Batch<T>(T(0)) : n < kWidth<T> ? load_part(p, n) : load(p);
}
/// p[0], p[stride], …: n elements. step is 1 or 2 for a stride of that, 0 for any.
template <int step, class T>
Batch<T> load_steps(const T* p, int64_t stride, int64_t n) {
  if constexpr (step == 1) return load_first(p, n);
  if constexpr (step == 2)
    return every_second(load_first(p, 2 * n - 1), load_first(p + kWidth<T> - 1, 2 * n - kWidth<T>));
  return load_strided(p, stride, n);
}

/// f(o, n) for the windows [begin, end) of a row, as many at a time as there are lanes.
template <class T, class F>
void for_each_block(int64_t begin, int64_t end, const F& f) {
  for (int64_t o = begin; o < end; o += kWidth<T>) f(o, o + kWidth<T> <= end ? kWidth<T> : end - o);
}
template <class T>
void store_first(T* p, const Batch<T>& x, int64_t n) {
  n < kWidth<T> ? store_part(p, x, n) : store(p, x);
}

// ---- maxima ---------------------------------------------------------------------------------------------------------

/// The maximum of one window of x's plane, and where it is.
template <class T>
T max_of(const Pool& p, const Row& row, int64_t o, const T* x, int64_t* at) {
  const Window w = window_of(p, 2, o);
  T best = -std::numeric_limits<T>::infinity();
  *at = -1;
  for_each_line(p, row, [&](int64_t line) {
    for (int64_t k = 0; k < w.taps; ++k) {
      const int64_t i = line + w.start + k * p.dilation[2];
      if (x[i] > best || x[i] != x[i] || *at < 0) best = x[i], *at = i;
    }
  });
  return best;
}

template <int step, class T>
void max_pool_rows(const Pool& p, const T* x, T* y, int64_t* indices) {
  // Lanes note the maximum's place relative to the window's as a T.
  const int64_t plane = plane_size(p.in);
  const bool exact = plane < int64_t{1} << std::numeric_limits<T>::digits;
  const Interior inside(p, exact || !indices);
  const int64_t stride = p.stride[2], step_h = p.dilation[1] * p.in[2];
  for_each_row(p, [&](const Row& row) {
    const T* from = x + row.plane * plane;
    T* to = y + row_offset(p, row);
    int64_t* places = indices ? indices + row_offset(p, row) : nullptr;
    const auto one_by_one = [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) {
        int64_t at;
        to[o] = max_of(p, row, o, from, &at);
        if (places) places[o] = at;
      }
    };
    one_by_one(0, inside.begin);
    const int64_t corner = (row.d.start * p.in[1] + row.h.start) * p.in[2] - p.padding[2];
    for_each_block<T>(inside.begin, inside.end, [&](int64_t o, int64_t n) {
      Batch<T> best(-std::numeric_limits<T>::infinity()), place(T(0));
      const int64_t first = corner + o * stride;
      for (int64_t i = 0; i < row.d.taps; ++i)
        for (int64_t j = 0; j < row.h.taps; ++j) {
          const int64_t line = i * p.dilation[0] * p.in[1] * p.in[2] + j * step_h;
          for (int64_t k = 0; k < p.kernel[2]; ++k) {
            const int64_t offset = line + k * p.dilation[2];
            const Batch<T> v = load_steps<step>(from + first + offset, stride, n);
            const auto better = (v > best) | (v != v);
            best = select(better, v, best);
            if (places) place = select(better, Batch<T>(T(offset)), place);
          }
        }
      store_first(to + o, best, n);
      if (!places) return;
      T lanes[kWidth<T>];
      store(lanes, place);
      for (int64_t k = 0; k < n; ++k) places[o + k] = first + k * stride + static_cast<int64_t>(lanes[k]);
    });
    one_by_one(inside.end, p.out[2]);
  });
}

// ---- averages -------------------------------------------------------------------------------------------------------

/// What the sum over a window is divided by.
double divisor_of(const Pool& p, const Row& row, const Window& w) {
  if (p.divisor) return double(p.divisor);
  return p.count_include_pad ? double(row.d.covered * row.h.covered * w.covered)
                             : double(row.d.taps * row.h.taps * w.taps);
}

template <class T>
T average_of(const Pool& p, const Row& row, int64_t o, const T* x) {
  const Window w = window_of(p, 2, o);
  if (row.d.taps * row.h.taps * w.taps == 0) return 0;
  double sum = 0;
  for_each_line(p, row, [&](int64_t line) {
    for (int64_t k = 0; k < w.taps; ++k) sum += double(x[line + w.start + k]);
  });
  return T(sum / divisor_of(p, row, w));
}

template <int step, class T>
void avg_pool_rows(const Pool& p, const T* x, T* y) {
  const Interior inside(p);
  const int64_t stride = p.stride[2];
  for_each_row(p, [&](const Row& row) {
    const T* from = x + row.plane * plane_size(p.in);
    T* to = y + row_offset(p, row);
    for (int64_t o = 0; o < inside.begin; ++o) to[o] = average_of(p, row, o, from);
    const Batch<T> divisor(T(inside.begin < inside.end ? divisor_of(p, row, window_of(p, 2, inside.begin)) : 1));
    for_each_block<T>(inside.begin, inside.end, [&](int64_t o, int64_t n) {
      Batch<T> sum(T(0));  // of the sums of lines, so that a large window has small errors
      for_each_line(p, row, [&](int64_t line) {
        Batch<T> of_line(T(0));
        for (int64_t k = 0; k < p.kernel[2]; ++k)
          of_line += load_steps<step>(from + line + o * stride - p.padding[2] + k, stride, n);
        sum += of_line;
      });
      store_first<T>(to + o, sum / divisor, n);
    });
    for (int64_t o = inside.end; o < p.out[2]; ++o) to[o] = average_of(p, row, o, from);
  });
}

template <class T>
void avg_pool_grad_rows(const Pool& p, const T* g, T* gx) {
  const Interior inside(p);
  const int64_t stride = p.stride[2];
  for_each_row(p, [&](const Row& row) {
    const T* from = g + row_offset(p, row);
    T* to = gx + row.plane * plane_size(p.in);
    const auto one_by_one = [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) {
        const Window w = window_of(p, 2, o);
        const T share = T(from[o] / divisor_of(p, row, w));
        for_each_line(p, row, [&](int64_t line) {
          for (int64_t k = 0; k < w.taps; ++k) to[line + w.start + k] += share;
        });
      }
    };
    one_by_one(0, inside.begin);
    if (inside.begin < inside.end) {
      const T share = T(1 / divisor_of(p, row, window_of(p, 2, inside.begin)));
      for_each_line(p, row, [&](int64_t line) {
        for (int64_t k = 0; k < p.kernel[2]; ++k) {
          T* __restrict at = to + line - p.padding[2] + k;
          const T* __restrict grad = from;
          if (stride == 1)
            for (int64_t o = inside.begin; o < inside.end; ++o) at[o] += grad[o] * share;
          else
            for (int64_t o = inside.begin; o < inside.end; ++o) at[o * stride] += grad[o] * share;
        }
      });
    }
    one_by_one(inside.end, p.out[2]);
  });
}

// ---- the table's rows -----------------------------------------------------------------------------------------------

template <class T>
void max_pool_of(const Pool& p, const View& x, const View& y, const View* indices) {
  int64_t* at = indices ? indices->as<int64_t>() : nullptr;
  switch (p.stride[2]) {
    case 1: return max_pool_rows<1>(p, x.as<const T>(), y.as<T>(), at);
    case 2: return max_pool_rows<2>(p, x.as<const T>(), y.as<T>(), at);
    default: return max_pool_rows<0>(p, x.as<const T>(), y.as<T>(), at);
  }
}
template <class T>
void avg_pool_of(const Pool& p, const View& x, const View& y) {
  switch (p.stride[2]) {
    case 1: return avg_pool_rows<1>(p, x.as<const T>(), y.as<T>());
    case 2: return avg_pool_rows<2>(p, x.as<const T>(), y.as<T>());
    default: return avg_pool_rows<0>(p, x.as<const T>(), y.as<T>());
  }
}

void max_pool(const Pool& p, const View& x, const View& y, const View* indices) {
  x.dtype == kFloat32 ? max_pool_of<float>(p, x, y, indices) : max_pool_of<double>(p, x, y, indices);
}
void avg_pool(const Pool& p, const View& x, const View& y) {
  x.dtype == kFloat32 ? avg_pool_of<float>(p, x, y) : avg_pool_of<double>(p, x, y);
}
void avg_pool_grad(const Pool& p, const View& g, const View& gx) {
  g.dtype == kFloat32 ? avg_pool_grad_rows(p, g.as<const float>(), gx.as<float>())
                      : avg_pool_grad_rows(p, g.as<const double>(), gx.as<double>());
}

}  // namespace

void install_pool(Backend& table) {
  table.max_pool = max_pool;
  table.avg_pool = avg_pool;
  table.avg_pool_grad = avg_pool_grad;
}

}  // namespace reel::cpu::REEL_ISA
