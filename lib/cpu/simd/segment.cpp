#include <algorithm>
#include <limits>

#include "lib/cpu/kernels.h"
#include "lib/cpu/parts.h"
#include "lib/cpu/simd/batch.h"
#include "lib/device/kernels/enums.h"

// Segment ops over ragged rows: x is [n, m], segment s the rows offsets[s] … offsets[s + 1] - 1. A few vectors of
// columns at a time are reduced down a segment in registers. Where there is only one column (m = 1), a segment is one
// contiguous line and the vectors run along it.
namespace reel::cpu::REEL_ISA {
namespace {

template <class T>
struct Sum {
  static constexpr T kStart = 0;
  template <class V>
  V operator()(const V& a, const V& b) const {
    return a + b;
  }
};
template <class T>
struct Max {
  static constexpr T kStart = -std::numeric_limits<T>::infinity();
  Batch<T> operator()(const Batch<T>& a, const Batch<T>& b) const { return select((b > a) | (b != b), b, a); }
  T operator()(T a, T b) const { return b > a || b != b ? b : a; }
};
template <class T>
struct Min {
  static constexpr T kStart = std::numeric_limits<T>::infinity();
  Batch<T> operator()(const Batch<T>& a, const Batch<T>& b) const { return select((b < a) | (b != b), b, a); }
  T operator()(T a, T b) const { return b < a || b != b ? b : a; }
};

/// The elements of one line combined; `value(i, n)` gives elements i … i + n - 1.
template <class T, class Join, class Load>
T fold_line(const Join& join, int64_t count, const Load& value) {
  Batch<T> total(Join::kStart);
  int64_t i = 0;
  for (; i + kWidth<T> <= count; i += kWidth<T>) total = join(total, value(i, kWidth<T>));
  alignas(Arch::alignment()) T lanes[kWidth<T>];
  total.store_aligned(lanes);
  T all = Join::kStart;
  if (count >= kWidth<T>)
    for (T lane : lanes) all = join(all, lane);
  if (i < count) {
    value(i, count - i).store_aligned(lanes);
    for (int64_t k = 0; k < count - i; ++k) all = join(all, lanes[k]);
  }
  return all;
}

/// f(segment, first row, end) for each segment, and the number of columns of rows of x.
struct Ragged {
  const int64_t* offsets;
  int64_t segments, columns;
  Ragged(const View& x, const View& at)
      : offsets(at.as<const int64_t>()), segments(at.numel - 1), columns(x.shape.size() > 1 ? x.shape[1] : 1) {}
  template <class F>
  void for_each(const F& f) const {
    if (segments == 0) return;
    for_each_range(segments, offsets[segments] * columns / segments + 1, [&](int64_t begin, int64_t end) {
      for (int64_t s = begin; s < end; ++s) f(s, offsets[s], offsets[s + 1]);
    });
  }
};

template <class T, class Join>
void reduce_segments(const Join& join, bool mean, const View& x, const View& offsets, const View& y) {
  const Ragged ragged(x, offsets);
  const int64_t m = ragged.columns;
  const T* from = x.as<const T>();
  ragged.for_each([&](int64_t s, int64_t begin, int64_t end) {
    T* to = y.as<T>() + s * m;
    const T scale = mean && end > begin ? T(1) / T(end - begin) : T(1);
    if (m == 1) {
      const T* line = from + begin;
      *to = scale * fold_line<T>(join, end - begin, [&](int64_t i, int64_t n) { return load_up_to(line + i, n); });
      return;
    }
    constexpr int64_t kWide = 4 * kWidth<T>;
    int64_t column = 0;
    for (; column + kWide <= m; column += kWide) {
      const T* row = from + begin * m + column;
      Batch<T> a(Join::kStart), b = a, c = a, d = a;
      for (int64_t r = begin; r < end; ++r, row += m) {
        a = join(a, load(row)), b = join(b, load(row + kWidth<T>));
        c = join(c, load(row + 2 * kWidth<T>)), d = join(d, load(row + 3 * kWidth<T>));
      }
      store(to + column, a * Batch<T>(scale)), store(to + column + kWidth<T>, b * Batch<T>(scale));
      store(to + column + 2 * kWidth<T>, c * Batch<T>(scale)), store(to + column + 3 * kWidth<T>, d * Batch<T>(scale));
    }
    for (; column < m; column += kWidth<T>) {
      const T* row = from + begin * m + column;
      Batch<T> a(Join::kStart);
      for (int64_t r = begin; r < end; ++r, row += m) a = join(a, load_up_to(row, m - column));
      store_up_to(to + column, a * Batch<T>(scale), m - column);
    }
  });
}

template <class T>
void spread_segments(bool mean, const View& y, const View& offsets, const View& x) {
  const Ragged ragged(x, offsets);
  const int64_t m = ragged.columns;
  ragged.for_each([&](int64_t s, int64_t begin, int64_t end) {
    const T* from = y.as<const T>() + s * m;
    const T scale = mean && end > begin ? T(1) / T(end - begin) : T(1);
    if (m == 1) return std::fill(x.as<T>() + begin, x.as<T>() + end, scale * *from);
    for (int64_t column = 0; column < m; column += kWidth<T>) {
      const Batch<T> value = load_up_to(from + column, m - column) * Batch<T>(scale);
      T* to = x.as<T>() + begin * m + column;
      for (int64_t r = begin; r < end; ++r, to += m) store_up_to(to, value, m - column);
    }
  });
}

template <class T>
auto same(const Batch<T>& a, const Batch<T>& b) {
  return (a == b) | ((a != a) & (b != b));
}

/// down(first, stride, rows, width) for every vector of columns of a segment, or along(first, count) where a segment is
/// one line.
template <class T, class Down, class Along>
void for_each_block(const View& x, const View& offsets, const Down& down, const Along& along) {
  const Ragged ragged(x, offsets);
  const int64_t m = ragged.columns;
  ragged.for_each([&](int64_t s, int64_t begin, int64_t end) {
    if (m == 1)
      along(s, begin, end - begin);
    else
      for (int64_t column = 0; column < m; column += kWidth<T>)
        down(s * m + column, begin * m + column, m, end - begin, std::min(kWidth<T>, m - column));
  });
}

template <class T>
void extreme_grad(const View& g, const View& x, const View& y, const View& offsets, const View& gx) {
  const T *gv = g.as<const T>(), *xv = x.as<const T>(), *yv = y.as<const T>();
  T* out = gx.as<T>();
  const Batch<T> one(T(1)), zero(T(0));
  for_each_block<T>(
      x, offsets,
      [&](int64_t at, int64_t first, int64_t stride, int64_t rows, int64_t n) {
        const Batch<T> best = load_up_to(yv + at, n);
        Batch<T> ties = zero;
        for (int64_t r = 0; r < rows; ++r)
          ties += select(same(load_up_to(xv + first + r * stride, n), best), one, zero);
        const Batch<T> share = load_up_to(gv + at, n) / ties;
        for (int64_t r = 0; r < rows; ++r) {
          const int64_t i = first + r * stride;
          store_up_to(out + i, select(same(load_up_to(xv + i, n), best), share, zero), n);
        }
      },
      [&](int64_t s, int64_t first, int64_t count) {
        const Batch<T> best(yv[s]);
        const T ties = fold_line<T>(Sum<T>(), count, [&](int64_t i, int64_t n) {
          return select(same(load_up_to(xv + first + i, n), best), one, zero);
        });
        const Batch<T> share(gv[s] / ties);
        for (int64_t i = 0; i < count; i += kWidth<T>)
          store_up_to(out + first + i, select(same(load_up_to(xv + first + i, count - i), best), share, zero),
                      count - i);
      });
}

template <class T>
void softmax(const View& x, const View& offsets, const View& y) {
  const T* from = x.as<const T>();
  T* to = y.as<T>();
  for_each_block<T>(
      x, offsets,
      [&](int64_t, int64_t first, int64_t stride, int64_t rows, int64_t n) {
        Batch<T> best(Max<T>::kStart), sum(T(0));
        for (int64_t r = 0; r < rows; ++r) best = Max<T>()(best, load_up_to(from + first + r * stride, n));
        for (int64_t r = 0; r < rows; ++r) {
          const int64_t i = first + r * stride;
          const Batch<T> e = exp(load_up_to(from + i, n) - best);
          sum += e;
          store_up_to(to + i, e, n);
        }
        const Batch<T> scale = Batch<T>(T(1)) / sum;
        for (int64_t r = 0; r < rows; ++r) {
          const int64_t i = first + r * stride;
          store_up_to(to + i, load_up_to(to + i, n) * scale, n);
        }
      },
      [&](int64_t, int64_t first, int64_t count) {
        const T* line = from + first;
        T* result = to + first;
        const Batch<T> best(
            fold_line<T>(Max<T>(), count, [&](int64_t i, int64_t n) { return load_up_to(line + i, n); }));
        const T sum = fold_line<T>(Sum<T>(), count, [&](int64_t i, int64_t n) {
          const Batch<T> e = exp(load_up_to(line + i, n) - best);
          store_up_to(result + i, e, n);
          return e;
        });
        const Batch<T> scale(T(1) / sum);
        for (int64_t i = 0; i < count; i += kWidth<T>)
          store_up_to(result + i, load_up_to(result + i, count - i) * scale, count - i);
      });
}

template <class T>
void softmax_grad(const View& g, const View& y, const View& offsets, const View& gx) {
  const T *gv = g.as<const T>(), *yv = y.as<const T>();
  T* out = gx.as<T>();
  for_each_block<T>(
      y, offsets,
      [&](int64_t, int64_t first, int64_t stride, int64_t rows, int64_t n) {
        Batch<T> sum(T(0));
        for (int64_t r = 0; r < rows; ++r)
          sum = fma(load_up_to(gv + first + r * stride, n), load_up_to(yv + first + r * stride, n), sum);
        for (int64_t r = 0; r < rows; ++r) {
          const int64_t i = first + r * stride;
          store_up_to(out + i, load_up_to(yv + i, n) * (load_up_to(gv + i, n) - sum), n);
        }
      },
      [&](int64_t, int64_t first, int64_t count) {
        const T *gs = gv + first, *ys = yv + first;
        const Batch<T> sum(fold_line<T>(
            Sum<T>(), count, [&](int64_t i, int64_t n) { return load_up_to(gs + i, n) * load_up_to(ys + i, n); }));
        for (int64_t i = 0; i < count; i += kWidth<T>)
          store_up_to(out + first + i, load_up_to(ys + i, count - i) * (load_up_to(gs + i, count - i) - sum),
                      count - i);
      });
}

template <class T>
void reduce(SegmentOp op, const View& x, const View& offsets, const View& y) {
  switch (op) {
    case SegmentOp::kSum: return reduce_segments<T>(Sum<T>(), false, x, offsets, y);
    case SegmentOp::kMean: return reduce_segments<T>(Sum<T>(), true, x, offsets, y);
    case SegmentOp::kMax: return reduce_segments<T>(Max<T>(), false, x, offsets, y);
    case SegmentOp::kMin: return reduce_segments<T>(Min<T>(), false, x, offsets, y);
  }
}

}  // namespace

void install_segment(KernelTable& table) {
  table.segment_reduce = [](SegmentOp op, const View& x, const View& offsets, const View& y) {
    x.dtype == kFloat32 ? reduce<float>(op, x, offsets, y) : reduce<double>(op, x, offsets, y);
  };
  table.segment_broadcast = [](bool mean, const View& y, const View& offsets, const View& x) {
    x.dtype == kFloat32 ? spread_segments<float>(mean, y, offsets, x) : spread_segments<double>(mean, y, offsets, x);
  };
  table.segment_extreme_grad = [](const View& g, const View& x, const View& y, const View& offsets, const View& gx) {
    x.dtype == kFloat32 ? extreme_grad<float>(g, x, y, offsets, gx) : extreme_grad<double>(g, x, y, offsets, gx);
  };
  table.segment_softmax = [](const View& x, const View& offsets, const View& y) {
    x.dtype == kFloat32 ? softmax<float>(x, offsets, y) : softmax<double>(x, offsets, y);
  };
  table.segment_softmax_grad = [](const View& g, const View& y, const View& offsets, const View& gx) {
    y.dtype == kFloat32 ? softmax_grad<float>(g, y, offsets, gx) : softmax_grad<double>(g, y, offsets, gx);
  };
}

}  // namespace reel::cpu::REEL_ISA
