#include <algorithm>
#include <array>
#include <type_traits>

#include "lib/cpu/halves.h"
#include "lib/cpu/kernels.h"
#include "lib/cpu/parts.h"
#include "lib/cpu/simd/batch.h"
#include "lib/cpu/simd/halves.h"
#include "lib/cpu/simd/transpose.h"
#include "lib/device/kernels/id_check.h"

// Softmax, log-softmax and cross entropy along a dimension, and their gradients. Along the last one they are computed
// row by row: the maximum, the sum of exponentials and the result are passes over a row that stays in the cache. Along
// another one the same passes run over a strip of neighbouring columns, which are the lanes of vectors.
namespace reel::cpu::REEL_ISA {
namespace {

template <class T>
struct Row {
  static Batch<T> load_at(const T* x, int64_t n, const Batch<T>& beyond) {
    if (n >= kWidth<T>) return load(x);
    return select(lanes() < Batch<T>(T(n)), load_part(x, n), beyond);
  }
  static void store_at(T* y, const Batch<T>& value, int64_t n) {
    if (n >= kWidth<T>)
      store(y, value);
    else
      store_part(y, value, n);
  }
  static Batch<T> lanes() {
    alignas(Arch::alignment()) T number[kWidth<T>];
    for (int64_t i = 0; i < kWidth<T>; ++i) number[i] = T(i);
    return Batch<T>::load_aligned(number);
  }
};

/// Lanes are those of B vectors.
template <class T, int B>
struct Lanes {
  alignas(Arch::alignment()) T data[B * kWidth<T>];
  Lanes() = default;
  explicit Lanes(const std::array<Batch<T>, B>& batches) {
    for (int b = 0; b < B; ++b) batches[b].store_aligned(data + b * kWidth<T>);
  }
  Batch<T> operator[](int b) const { return Batch<T>::load_aligned(data + b * kWidth<T>); }
};

template <class T>
Batch<T> log_of(const Batch<T>& x) {
  return log(x);
}

template <class T>
Batch<T> larger(const Batch<T>& a, const Batch<T>& b) {
  return select((b > a) | (b != b), b, a);
}

/// Returns the maxima of the lanes of a row.
template <class T>
Batch<T> max_of_row(const T* x, int64_t n) {
  const Batch<T> lowest(-std::numeric_limits<T>::infinity());
  Batch<T> result = lowest;
  for (int64_t i = 0; i < n; i += kWidth<T>) result = larger(result, Row<T>::load_at(x + i, n - i, lowest));
  return result;
}

/// y = exp(x - shift); returns the sums of the lanes.
template <class T>
Batch<T> exp_row(const T* x, T* y, int64_t n, T shift) {
  Batch<T> sum(T(0));
  for (int64_t i = 0; i < n; i += kWidth<T>) {
    const Batch<T> e =
        exp(Row<T>::load_at(x + i, n - i, Batch<T>(-std::numeric_limits<T>::infinity())) - Batch<T>(shift));
    sum += e;
    if (y) Row<T>::store_at(y + i, e, n - i);
  }
  return sum;
}

template <class T, class Op>
void map_row(const Op& op, int64_t n, T* y, const T* a, const T* b) {
  for (int64_t i = 0; i < n; i += kWidth<T>) {
    const Batch<T> zero(T(0));
    Row<T>::store_at(y + i, op(Row<T>::load_at(a + i, n - i, zero), Row<T>::load_at(b + i, n - i, zero)), n - i);
  }
}
/// Returns the sums of the lanes of op(a, b).
template <class T, class Op>
Batch<T> sum_row(const Op& op, int64_t n, const T* a, const T* b) {
  const Batch<T> zero(T(0));
  Batch<T> sum = zero;
  for (int64_t i = 0; i < n; i += kWidth<T>)
    sum += op(Row<T>::load_at(a + i, n - i, zero), Row<T>::load_at(b + i, n - i, zero));
  return sum;
}

/// Calls f(row, n) for the rows, of n elements, of a contiguous view.
template <class F>
void for_each_row(const View& x, int64_t n, const F& f) {
  if (x.numel == 0) return;
  for_each_range(x.numel / n, n, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) f(row, n);
  });
}

int64_t row_length(const View& x) { return x.shape.size() ? x.shape.back() : 1; }

/// Rows are some rows of n elements, from element `first` on, of which each has a number in a lane of vectors.
template <class T>
struct Rows {
  int64_t first, count, n;

  /// Returns the numbers that join() makes of the lanes of lanes_of(offset, row), the lane's number included.
  template <class LanesOf, class Join>
  Batch<T> reduce(const LanesOf& lanes_of, const Join& join) const {
    Batch<T> parts[kWidth<T>];
    for (int64_t row = 0; row < kWidth<T>; ++row)
      parts[row] = row < count ? lanes_of(first + row * n, row) : Batch<T>(T(1));
    transpose(parts);
    for (int64_t step = kWidth<T> / 2; step > 0; step /= 2)
      for (int64_t i = 0; i < step; ++i) parts[i] = join(parts[i], parts[i + step]);
    return parts[0];
  }
  template <class LanesOf>
  Batch<T> sum(const LanesOf& lanes_of) const {
    return reduce(lanes_of, [](const Batch<T>& a, const Batch<T>& b) { return a + b; });
  }
  template <class LanesOf>
  Batch<T> max(const LanesOf& lanes_of) const {
    return reduce(lanes_of, larger<T>);
  }
  template <class F>
  void for_each(const F& f) const {
    for (int64_t row = 0; row < count; ++row) f(first + row * n, row);
  }
};

/// Calls f(rows) for groups of rows, of n elements, that stay in the first-level cache.
template <class T, class F>
void for_each_rows(const View& x, int64_t n, const F& f) {
  constexpr int64_t kElements = 2048;
  if (x.numel == 0) return;
  const int64_t together = std::clamp<int64_t>(kElements / n, 1, kWidth<T>);
  for_each_range(x.numel / n, n, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row += together) f(Rows<T>{row * n, std::min(together, end - row), n});
  });
}

template <class T>
void softmax_rows(bool log, const View& x, const View& y) {
  const T* const from = x.as<const T>();
  T* const to = y.as<T>();
  for_each_rows<T>(x, row_length(x), [&](const Rows<T>& rows) {
    const int64_t n = rows.n;
    const Lanes<T, 1> shifts({rows.max([&](int64_t at, int64_t) { return max_of_row(from + at, n); })});
    const Batch<T> sums = rows.sum(
        [&](int64_t at, int64_t row) { return exp_row(from + at, log ? nullptr : to + at, n, shifts.data[row]); });
    const Lanes<T, 1> scales({log ? log_of(sums) : Batch<T>(T(1)) / sums});
    rows.for_each([&](int64_t at, int64_t row) {
      const Batch<T> shift(shifts.data[row]), scale(scales.data[row]);
      if (log)
        map_row([&](auto v, auto) { return v - shift - scale; }, n, to + at, from + at, from + at);
      else
        map_row([&](auto v, auto) { return v * scale; }, n, to + at, to + at, to + at);
    });
  });
}

template <class T>
void softmax_grad_rows(bool log, const View& g, const View& y, const View& gx) {
  const T *const grad = g.as<const T>(), *const out = y.as<const T>();
  T* const to = gx.as<T>();
  for_each_rows<T>(g, row_length(g), [&](const Rows<T>& rows) {
    const int64_t n = rows.n;
    const Lanes<T, 1> sums({rows.sum([&](int64_t at, int64_t) {
      return log ? sum_row([](auto a, auto) { return a; }, n, grad + at, out + at)
                 : sum_row([](auto a, auto b) { return a * b; }, n, grad + at, out + at);
    })});
    rows.for_each([&](int64_t at, int64_t row) {
      const Batch<T> sum(sums.data[row]);
      if (log)
        map_row([&](auto a, auto b) { return a - exp(b) * sum; }, n, to + at, grad + at, out + at);
      else
        map_row([&](auto a, auto b) { return b * (a - sum); }, n, to + at, grad + at, out + at);
    });
  });
}

template <class T>
void cross_entropy_rows(double smoothing, const View& logits, const View& target, const View& loss, const View* norms) {
  const T* const from = logits.as<const T>();
  for_each_rows<T>(logits, logits.shape[1], [&](const Rows<T>& rows) {
    const int64_t n = rows.n, first = rows.first / n;
    const int64_t* const ids = target.as<const int64_t>() + first;
    T* const losses = loss.as<T>() + first;
    // Rows that do not count are not read.
    const auto if_counted = [&](const auto& lanes_of) {
      return [&](int64_t at, int64_t row) { return ids[row] < 0 ? Batch<T>(T(1)) : lanes_of(at, row); };
    };
    const Lanes<T, 1> shifts({rows.max(if_counted([&](int64_t at, int64_t) { return max_of_row(from + at, n); }))});
    const Batch<T> sums = rows.sum(if_counted(
        [&](int64_t at, int64_t row) { return exp_row(from + at, static_cast<T*>(nullptr), n, shifts.data[row]); }));
    const Lanes<T, 1> logs({log(sums)}), units({Batch<T>(T(1)) / sums});
    rows.for_each([&](int64_t at, int64_t row) {
      const bool counts = ids[row] >= 0;
      if (norms) {
        T* const norm = norms->as<T>() + 2 * (first + row);
        norm[0] = counts ? shifts.data[row] : T(0);
        norm[1] = counts ? units.data[row] : T(0);
      }
      losses[row] = 0;
      if (!counts) return;
      const T shift = shifts.data[row];
      T expected = from[at + ids[row]] - shift;
      if (smoothing != 0) {  // label smoothing: part of the picked logit is replaced by the mean of all
        Batch<T> total(T(0));
        for (int64_t i = 0; i < n; i += kWidth<T>)
          total += Row<T>::load_at(from + at + i, n - i, Batch<T>(shift)) - Batch<T>(shift);
        expected = T(1 - smoothing) * expected + T(smoothing) * (hadd(total) / T(n));
      }
      losses[row] = logs.data[row] - expected;
    });
  });
}

template <class T>
void cross_entropy_grad_rows(double smoothing, const View& g, const View& logits, const View& norms, const View& target,
                             const View* divisor, const View& gx) {
  const T share = divisor ? 1 / *divisor->as<const T>() : T(1);
  for_each_row(logits, logits.shape[1], [&](int64_t row, int64_t n) {
    const T *from = logits.as<const T>() + row * n, *norm = norms.as<const T>() + 2 * row;
    T* to = gx.as<T>() + row * n;
    const int64_t id = target.as<const int64_t>()[row];
    if (id < 0) {
      std::fill(to, to + n, T(0));
      return;
    }
    const T scale = g.as<const T>()[row * g.strides[0]] * share;
    const Batch<T> shift(norm[0]), unit(norm[1]), spread(smoothing == 0 ? T(0) : T(smoothing) / T(n));
    map_row([&](auto v, auto) { return (exp(v - shift) * unit - spread) * Batch<T>(scale); }, n, to, from, from);
    to[id] -= scale * T(1 - smoothing);
  });
}

// ---- columns --------------------------------------------------------------------------------------------------------

/// An Extent describes contiguous tensors as [outer, n, inner] for the dimension of size n that they are computed
/// along.
struct Extent {
  int64_t outer = 1, n, inner = 1;
  Extent(const View& x, int dim) : n(x.shape[dim]) {
    for (int d = 0; d < dim; ++d) outer *= x.shape[d];
    for (int d = dim + 1; d < x.shape.size(); ++d) inner *= x.shape[d];
  }
};

/// A Strip is part of the columns of a matrix [n, stride]: those of B vectors, or some of those of one vector.
template <class T, int B>
struct Strip {
  static constexpr int kBatches = B;
  using Batches = std::array<Batch<T>, B>;
  int64_t n, stride;
  int64_t first;  // column of all matrices, counted in the order of their places in results without the dimension
  int64_t start;  // element
  int64_t width;  // columns

  static Batches all(T x) {
    Batches batches;
    batches.fill(Batch<T>(x));
    return batches;
  }
  Batch<T> load_at(const T* x, int b) const {
    if constexpr (B > 1) return load(x + b * kWidth<T>);
    return load_up_to(x, width);
  }
  void store_at(T* y, int b, const Batch<T>& value) const {
    if constexpr (B > 1) return store(y + b * kWidth<T>, value);
    return store_up_to(y, value, width);
  }
  /// Calls f(offset, b) for each row of each vector.
  template <class F>
  void for_each(const F& f) const {
    for (int64_t i = 0; i < n; ++i)
      for (int b = 0; b < B; ++b) f(start + i * stride, b);
  }
  /// Returns the sums of f(offset, b) over the rows, which are added in blocks first.
  template <class F>
  Batches sum(const F& f) const {
    constexpr int64_t kBlock = 64;
    Batches sums = all(T(0));
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const int64_t end = std::min(n, begin + kBlock);
      Batches part = all(T(0));
      for (int64_t i = begin; i < end; ++i)
        for (int b = 0; b < B; ++b) part[b] += f(start + i * stride, b);
      for (int b = 0; b < B; ++b) sums[b] += part[b];
    }
    return sums;
  }
  Batches max(const T* x) const {
    Batches result = all(-std::numeric_limits<T>::infinity());
    for_each([&](int64_t at, int b) {
      const Batch<T> v = load_at(x + at, b);
      result[b] = select((v > result[b]) | (v != v), v, result[b]);
    });
    return result;
  }
  /// Writes exp(x - shift) to y, if any, and returns the sums.
  Batches exp_sum(const T* x, T* y, const Batches& shift) const {
    return sum([&](int64_t at, int b) {
      const Batch<T> e = exp(load_at(x + at, b) - shift[b]);
      if (y) store_at(y + at, b, e);
      return e;
    });
  }
};

/// Calls f(strip) for strips of all columns.
template <class T, class F>
void for_each_strip(const Extent& extent, const F& f) {
  constexpr int kBatches = 4;
  constexpr int64_t kColumns = kBatches * kWidth<T>;
  const int64_t n = extent.n, inner = extent.inner, strips = (inner + kColumns - 1) / kColumns;
  if (n == 0 || inner == 0) return;
  for_each_range(extent.outer * strips, n * std::min(inner, kColumns), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t outer = i / strips, from = i % strips * kColumns, to = std::min(inner, from + kColumns);
      if (to - from == kColumns) {
        f(Strip<T, kBatches>{n, inner, outer * inner + from, outer * n * inner + from, kColumns});
        continue;
      }
      for (int64_t column = from; column < to; column += kWidth<T>)
        f(Strip<T, 1>{n, inner, outer * inner + column, outer * n * inner + column, std::min(kWidth<T>, to - column)});
    }
  });
}

template <class Batches>
void take_logs(Batches& batches) {
  for (auto& batch : batches) batch = log(batch);
}

template <class T>
void softmax_columns(bool log, const View& x, int dim, const View& y) {
  const T* const from = x.as<const T>();
  T* const to = y.as<T>();
  for_each_strip<T>(Extent(x, dim), [&](const auto& strip) {
    const auto shift = strip.max(from);
    auto sums = strip.exp_sum(from, log ? nullptr : to, shift);
    if (log) {
      take_logs(sums);
      strip.for_each(
          [&](int64_t at, int b) { strip.store_at(to + at, b, strip.load_at(from + at, b) - shift[b] - sums[b]); });
    } else {
      for (auto& sum : sums) sum = Batch<T>(T(1)) / sum;
      strip.for_each([&](int64_t at, int b) { strip.store_at(to + at, b, strip.load_at(to + at, b) * sums[b]); });
    }
  });
}

template <class T>
void softmax_grad_columns(bool log, const View& g, const View& y, int dim, const View& gx) {
  const T *const grad = g.as<const T>(), *const out = y.as<const T>();
  T* const to = gx.as<T>();
  for_each_strip<T>(Extent(g, dim), [&](const auto& strip) {
    const auto sums = strip.sum([&](int64_t at, int b) {
      const Batch<T> term = strip.load_at(grad + at, b);
      return log ? term : term * strip.load_at(out + at, b);
    });
    strip.for_each([&](int64_t at, int b) {
      const Batch<T> a = strip.load_at(grad + at, b), o = strip.load_at(out + at, b);
      strip.store_at(to + at, b, log ? a - exp(o) * sums[b] : o * (a - sums[b]));
    });
  });
}

template <class T>
void cross_entropy_columns(double smoothing, const View& logits, const View& target, const View& loss,
                           const View* norms) {
  const T* const from = logits.as<const T>();
  for_each_strip<T>(Extent(logits, 1), [&](const auto& strip) {
    constexpr int kBatches = std::decay_t<decltype(strip)>::kBatches;
    const auto shift = strip.max(from);
    auto sums = strip.exp_sum(from, static_cast<T*>(nullptr), shift), total = strip.all(T(0));
    if (smoothing != 0) total = strip.sum([&](int64_t at, int b) { return strip.load_at(from + at, b) - shift[b]; });
    const Lanes<T, kBatches> shifts(shift), all(sums), totals(total);
    take_logs(sums);
    const Lanes<T, kBatches> logs(sums);
    for (int64_t c = 0; c < strip.width; ++c) {
      const int64_t row = strip.first + c, id = target.as<const int64_t>()[row];
      const bool counts = id >= 0;
      if (norms) {
        norms->as<T>()[2 * row] = counts ? shifts.data[c] : T(0);
        norms->as<T>()[2 * row + 1] = counts ? T(1) / all.data[c] : T(0);
      }
      T expected = counts ? from[strip.start + id * strip.stride + c] - shifts.data[c] : T(0);
      if (smoothing != 0) expected = T(1 - smoothing) * expected + T(smoothing) * (totals.data[c] / T(strip.n));
      loss.as<T>()[row] = counts ? logs.data[c] - expected : T(0);
    }
  });
}

template <class T>
void cross_entropy_grad_columns(double smoothing, const View& g, const View& logits, const View& norms,
                                const View& target, const View* divisor, const View& gx) {
  const T share = divisor ? 1 / *divisor->as<const T>() : T(1);
  const T* const from = logits.as<const T>();
  T* const to = gx.as<T>();
  const Batch<T> zero(T(0)), spread(smoothing == 0 ? T(0) : T(smoothing) / T(logits.shape[1]));
  for_each_strip<T>(Extent(logits, 1), [&](const auto& strip) {
    Lanes<T, std::decay_t<decltype(strip)>::kBatches> shift, unit, scale;
    for (int64_t c = 0; c < strip.kBatches * kWidth<T>; ++c) {
      const int64_t row = strip.first + c;
      const bool counts = c < strip.width && target.as<const int64_t>()[row] >= 0;
      shift.data[c] = counts ? norms.as<const T>()[2 * row] : T(0);
      unit.data[c] = counts ? norms.as<const T>()[2 * row + 1] : std::numeric_limits<T>::infinity();
      scale.data[c] = counts ? g.as<const T>()[row * g.strides[0]] * share : T(0);
    }
    const Batch<T> ignored(std::numeric_limits<T>::infinity());
    strip.for_each([&](int64_t at, int b) {
      const Batch<T> value = (exp(strip.load_at(from + at, b) - shift[b]) * unit[b] - spread) * scale[b];
      strip.store_at(to + at, b, select(unit[b] == ignored, zero, value));
    });
    for (int64_t c = 0; c < strip.width; ++c)
      if (const int64_t id = target.as<const int64_t>()[strip.first + c]; id >= 0)
        to[strip.start + id * strip.stride + c] -= scale.data[c] * T(1 - smoothing);
  });
}

// ---- kernels --------------------------------------------------------------------------------------------------------

void softmax_last(bool log, const View& x, const View& y) {
  if (is_half(x.dtype)) return in_float32<softmax_last, 1>(log, x, y);
  x.dtype == kFloat32 ? softmax_rows<float>(log, x, y) : softmax_rows<double>(log, x, y);
}
void softmax_grad_last(bool log, const View& g, const View& y, const View& gx) {
  if (is_half(g.dtype)) return in_float32<softmax_grad_last, 1>(log, g, y, gx);
  g.dtype == kFloat32 ? softmax_grad_rows<float>(log, g, y, gx) : softmax_grad_rows<double>(log, g, y, gx);
}

/// Returns whether a dimension is the last one but for those of size 1.
bool is_innermost(const View& x, int dim) {
  for (int d = dim + 1; d < x.shape.size(); ++d)
    if (x.shape[d] != 1) return false;
  return true;
}

void softmax(bool log, const View& x, int dim, const View& y) {
  if (dim + 1 >= x.shape.size()) return softmax_last(log, x, y);
  if (is_half(x.dtype)) return softmax(log, Widened().in(x), dim, Widened().out(y));
  x.dtype == kFloat32 ? softmax_columns<float>(log, x, dim, y) : softmax_columns<double>(log, x, dim, y);
}
void softmax_grad(bool log, const View& g, const View& y, int dim, const View& gx) {
  if (dim + 1 >= g.shape.size()) return softmax_grad_last(log, g, y, gx);
  if (is_half(g.dtype)) return softmax_grad(log, Widened().in(g), Widened().in(y), dim, Widened().out(gx));
  g.dtype == kFloat32 ? softmax_grad_columns<float>(log, g, y, dim, gx)
                      : softmax_grad_columns<double>(log, g, y, dim, gx);
}

template <class T>
void cross_entropy_of(double smoothing, const View& logits, const View& target, const View* divisor, const View& loss,
                      const View* norms) {
  is_innermost(logits, 1) ? cross_entropy_rows<T>(smoothing, logits, target, loss, norms)
                          : cross_entropy_columns<T>(smoothing, logits, target, loss, norms);
  if (divisor)
    for (int64_t row = 0; row < loss.numel; ++row) loss.as<T>()[row] /= *divisor->as<const T>();
}
bool cross_entropy(double smoothing, const View& logits, const View& target, const View* divisor, const View& loss,
                   const View* norms, IdCheck* check) {
  for (int64_t row = 0; check && row < target.numel; ++row)
    if (const int64_t id = target.as<const int64_t>()[row]; id != check->ignored && (id < 0 || id >= logits.shape[1]))
      return check->bad = id, true;
  if (is_half(logits.dtype))
    return cross_entropy(smoothing, Widened().in(logits), target, divisor, loss, norms, nullptr);
  logits.dtype == kFloat32 ? cross_entropy_of<float>(smoothing, logits, target, divisor, loss, norms)
                           : cross_entropy_of<double>(smoothing, logits, target, divisor, loss, norms);
  return false;
}

template <class T>
void cross_entropy_grad_of(double smoothing, const View& g, const View& logits, const View& norms, const View& target,
                           const View* divisor, const View& gx) {
  is_innermost(logits, 1) ? cross_entropy_grad_rows<T>(smoothing, g, logits, norms, target, divisor, gx)
                          : cross_entropy_grad_columns<T>(smoothing, g, logits, norms, target, divisor, gx);
}
void cross_entropy_grad(double smoothing, const View& g, const View& logits, const View& norms, const View& target,
                        const View* divisor, const View& gx) {
  if (is_half(gx.dtype))
    return cross_entropy_grad(smoothing, g, Widened().in(logits), norms, target, divisor, Widened().out(gx));
  g.dtype == kFloat32 ? cross_entropy_grad_of<float>(smoothing, g, logits, norms, target, divisor, gx)
                      : cross_entropy_grad_of<double>(smoothing, g, logits, norms, target, divisor, gx);
}

}  // namespace

void install_softmax(KernelTable& table) {
  table.softmax = softmax;
  table.softmax_grad = softmax_grad;
  table.cross_entropy = cross_entropy;
  table.cross_entropy_grad = cross_entropy_grad;
}

}  // namespace reel::cpu::REEL_ISA
