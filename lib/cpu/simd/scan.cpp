// This file has argmax, argmin and scans. Lines that lie side by side are scanned side by side, so that the compiler
// vectorises the loops over them; along a line a scan is sequential.
#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/cpu/kernels.h"
#include "lib/cpu/reduce.h"
#include "lib/cpu/simd/halves.h"
#include "lib/device/dispatch.h"
#include "lib/device/kernels/enums.h"

namespace reel::cpu::REEL_ISA {
namespace {

/// Returns an element as a number that can be compared and added.
template <class T>
auto value_of(T x) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>)
    return static_cast<float>(x);
  else
    return x;
}

template <class T>
bool is_nan(T x) {
  return x != x;
}

/// Returns whether a replaces b as the maximum (minimum). NaN replaces every number in both, so that it propagates.
template <class V>
bool beats(bool largest, V x, V best) {
  if (is_nan(best)) return false;
  return is_nan(x) || (largest ? x > best : x < best);
}

/// Returns the loops of all dimensions but one.
Nest other_dims(const View& x, int dim, const View& y) {
  Nest nest;
  for (int d = x.shape.size() - 1; d >= 0; --d)
    if (d != dim && x.shape[d] != 1) nest.add(x.shape[d], x.strides[d], y.strides[d]);
  if (nest.rank == 0) nest.add(1, 0, 0);
  return nest;
}

/// Calls f(parts) for parts of the views if the last one has many lines along dim, and returns whether it does.
template <size_t count, class F>
bool divided(const View* const (&views)[count], int dim, const F& f) {
  return views[count - 1]->numel > part_size && for_each_part(views, 1u << dim, f);
}

void arg_reduce_part(bool largest, const View& x, int dim, const View& y) {
  if (x.numel == 0) return;
  const bool scalar = x.shape.empty();
  const int64_t n = scalar ? 1 : x.shape[dim], stride = scalar ? 0 : x.strides[dim];
  with_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    for_each_point(other_dims(x, dim, y), 0, [&](int64_t x_offset, int64_t y_offset) {
      const T* row = x.as<const T>() + x_offset;
      int64_t position = 0;
      auto best = value_of(row[0]);
      for (int64_t i = 1; i < n; ++i) {
        const auto value = value_of(row[i * stride]);
        if (beats(largest, value, best)) best = value, position = i;
      }
      y.as<int64_t>()[y_offset] = position;
    });
  });
}

void arg_reduce(bool largest, const View& x, int dim, const View& y) {
  const View* const views[] = {&y, &x};
  if (!divided(views, dim, [=](const View* const* part) { arg_reduce_part(largest, *part[1], dim, *part[0]); }))
    arg_reduce_part(largest, x, dim, y);
}

/// Calls f(n, x, x's stride, y, y's stride) for every line of elements along dim.
template <class T, class F>
void for_each_line(const View& x, int dim, const View& y, const F& f) {
  const bool scalar = x.shape.empty();
  const int64_t n = scalar ? 1 : x.shape[dim];
  const int64_t x_stride = scalar ? 0 : x.strides[dim], y_stride = scalar ? 0 : y.strides[dim];
  for_each_point(other_dims(x, dim, y), 0, [&](int64_t x_offset, int64_t y_offset) {
    f(n, x.as<const T>() + x_offset, x_stride, y.as<T>() + y_offset, y_stride);
  });
}

double log_add_exp(double a, double b) {
  const double low = std::min(a, b), high = std::max(a, b);
  if (is_nan(a) || is_nan(b)) return a + b;
  return low == high && std::isinf(low) ? low : high + std::log1p(std::exp(low - high));
}

/// This many lines of a scan have their totals kept at a time, and this many elements of a line of a half type are
/// converted at once.
constexpr int64_t kLines = 256;

/// The innermost dimension of `nest` is that of adjacent elements in both views.
bool is_side_by_side(const Nest& nest) { return nest.sizes[0] > 1 && nest.x_strides[0] == 1 && nest.y_strides[0] == 1; }

/// Value<T> is the type that elements of type T are read and written as.
template <class T>
using Value = std::conditional_t<std::is_integral_v<T>, T, Compute<T>>;
template <class T>
constexpr bool kIsHalf = !std::is_same_v<T, Value<T>>;

template <class T, class Total, class Join>
void scan_side_by_side(const Nest& nest, int64_t n, int64_t x_stride, const T* x, int64_t y_stride, T* y, Total start,
                       const Join& join) {
  for_each_point(nest, 1, [&](int64_t x_offset, int64_t y_offset) {
    for (int64_t begin = 0; begin < nest.sizes[0]; begin += kLines) {
      const int64_t count = std::min(kLines, nest.sizes[0] - begin);
      Total totals[kLines];
      std::fill_n(totals, count, start);
      const T* from = x + x_offset + begin;
      T* to = y + y_offset + begin;
      for (int64_t i = 0; i < n; ++i, from += x_stride, to += y_stride) {
        const auto scan_row = [&](const Value<T>* in, Value<T>* out) {
          for (int64_t j = 0; j < count; ++j) {
            totals[j] = join(totals[j], static_cast<Total>(in[j]));
            out[j] = static_cast<Value<T>>(totals[j]);
          }
        };
        if constexpr (kIsHalf<T>) {
          float row[kLines];
          convert(from, row, count);
          scan_row(row, row);
          convert(row, to, count);
        } else {
          scan_row(from, to);
        }
      }
    }
  });
}

/// Scans n elements and returns the last total. As a function of its own it keeps the total in a register.
template <class Total, class In, class Out, class Join>
[[gnu::noinline]] Total scan_run(int64_t n, const In* from, int64_t x_stride, Out* to, int64_t y_stride, Total total,
                                 const Join& join) {
  const auto scan_by = [&](int64_t x_step, int64_t y_step) {
    for (int64_t i = 0; i < n; ++i) {
      total = join(total, static_cast<Total>(from[i * x_step]));
      to[i * y_step] = static_cast<Out>(total);
    }
  };
  x_stride == 1 && y_stride == 1 ? scan_by(1, 1) : scan_by(x_stride, y_stride);
  return total;
}

template <class T, class Total, class Join>
void scan_line(int64_t n, const T* from, int64_t x_stride, T* to, int64_t y_stride, Total total, const Join& join) {
  if constexpr (!kIsHalf<T>) {
    scan_run(n, from, x_stride, to, y_stride, total, join);
  } else if (x_stride == 1 && y_stride == 1) {
    float buffer[kLines];
    for (int64_t begin = 0; begin < n; begin += kLines) {
      const int64_t count = std::min(kLines, n - begin);
      convert(from + begin, buffer, count);
      total = scan_run(count, buffer, 1, buffer, 1, total, join);
      convert(buffer, to + begin, count);
    }
  } else {
    for (int64_t i = 0; i < n; ++i) {
      total = join(total, static_cast<Total>(widen(from[i * x_stride])));
      to[i * y_stride] = T(static_cast<float>(total));
    }
  }
}

constexpr int kTogether = 4;

/// Scans lines side by side, so that the sums of one do not wait for each other alone.
template <class T, class Total, class Join>
[[gnu::noinline]] void scan_together(int64_t n, const T* const* from, int64_t x_stride, T* const* to, int64_t y_stride,
                                     Total start, const Join& join) {
  const T *a = from[0], *b = from[1], *c = from[2], *d = from[3];
  T *p = to[0], *q = to[1], *r = to[2], *s = to[3];
  Total ta = start, tb = start, tc = start, td = start;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t at = i * x_stride, out = i * y_stride;
    ta = join(ta, static_cast<Total>(a[at])), tb = join(tb, static_cast<Total>(b[at]));
    tc = join(tc, static_cast<Total>(c[at])), td = join(td, static_cast<Total>(d[at]));
    p[out] = static_cast<T>(ta), q[out] = static_cast<T>(tb), r[out] = static_cast<T>(tc), s[out] = static_cast<T>(td);
  }
}

void scan(ScanOp op, const View& x, int dim, const View& y) {
  if (x.numel == 0) return;
  const View* const views[] = {&y, &x};
  if (divided(views, dim, [=](const View* const* part) { scan(op, *part[1], dim, *part[0]); })) return;
  with_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    // Floats are combined in double: the last of many sums is as exact as the first.
    using Total = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
    const auto run = [&](Total start, auto join) {
      const Nest nest = other_dims(x, dim, y);
      if (!x.shape.empty() && is_side_by_side(nest))
        return scan_side_by_side(nest, x.shape[dim], x.strides[dim], x.as<const T>(), y.strides[dim], y.as<T>(), start,
                                 join);
      const T* from[kTogether];
      T* to[kTogether];
      int waiting = 0;
      for_each_line<T>(x, dim, y, [&](int64_t n, const T* line, int64_t x_stride, T* result, int64_t y_stride) {
        if constexpr (kIsHalf<T>) return scan_line(n, line, x_stride, result, y_stride, start, join);
        from[waiting] = line, to[waiting] = result;
        if (++waiting < kTogether) return;
        if constexpr (!kIsHalf<T>) scan_together(n, from, x_stride, to, y_stride, start, join);
        waiting = 0;
      });
      const bool scalar = x.shape.empty();
      for (int i = 0; i < waiting; ++i)
        scan_line(scalar ? 1 : x.shape[dim], from[i], scalar ? 0 : x.strides[dim], to[i], scalar ? 0 : y.strides[dim],
                  start, join);
    };
    switch (op) {
      case ScanOp::kSum: return run(0, [](Total a, Total b) { return a + b; });
      case ScanOp::kProd: return run(1, [](Total a, Total b) { return a * b; });
      case ScanOp::kLogSumExp:
        if constexpr (!std::is_integral_v<T>) run(-std::numeric_limits<double>::infinity(), log_add_exp);
        return;
    }
  });
}

void logcumsumexp_grad(const View& g, const View& x, const View& y, int dim, const View& gx) {
  if (x.numel == 0) return;
  const View* const operands[] = {&g, &y, &gx, &x};
  const auto of_part = [=](const View* const* part) { logcumsumexp_grad(*part[0], *part[3], *part[1], dim, *part[2]); };
  if (divided(operands, dim, of_part)) return;
  const bool scalar = x.shape.empty();
  const int64_t n = scalar ? 1 : x.shape[dim];
  View lines = x;  // of all four, where each line begins
  if (!scalar) lines.shape[dim] = 1;
  const auto first = [&](const View& v) {
    View part = v;
    part.shape = lines.shape;
    return part;
  };
  const View heads[] = {first(g), first(x), first(y), first(gx)};
  const View* const views[] = {&heads[0], &heads[1], &heads[2], &heads[3]};
  with_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if constexpr (std::is_floating_point_v<T>) {
      int64_t step[4];
      for (int v = 0; v < 4; ++v) step[v] = scalar ? 0 : views[v]->strides[dim];
      for_each_run(views, [&](int64_t count, char* const* p, const int64_t* s) {
        for (int64_t line = 0; line < count; ++line) {
          const auto at = [&](int v, int64_t i) -> T& { return reinterpret_cast<T*>(p[v] + line * s[v])[i * step[v]]; };
          // y is ascending, so exp(y[i] - y[i + 1]) is at most 1. Where it is 0, later elements contribute nothing, not
          // even a NaN.
          double total = 0;
          for (int64_t i = n - 1; i >= 0; --i) {
            const double now = at(2, i);
            const bool nothing = now == -std::numeric_limits<double>::infinity(), last = i == n - 1;
            // Infinities differ by nothing.
            const double next = last ? 0 : at(2, i + 1), decay = nothing || last ? 0
                                                                 : next == now   ? 1
                                                                                 : std::exp(now - next);
            total = at(0, i) + (decay == 0 ? 0 : total * decay);
            at(3, i) = nothing ? T(0) : static_cast<T>(total * std::exp(at(1, i) - now));
          }
        }
      });
    }
  });
}

template <class T>
void extremes_side_by_side(bool largest, const Nest& nest, const View& x, int dim, const View& values,
                           const View& indices) {
  const int64_t n = x.shape[dim], x_stride = x.strides[dim], y_stride = values.strides[dim];
  const auto run = [&](auto is_better) {
    for_each_point(nest, 1, [&](int64_t x_offset, int64_t y_offset) {
      for (int64_t begin = 0; begin < nest.sizes[0]; begin += kLines) {
        const int64_t count = std::min(kLines, nest.sizes[0] - begin);
        const T* from = x.as<const T>() + x_offset + begin;
        T* to = values.as<T>() + y_offset + begin;
        int64_t *at = indices.as<int64_t>() + y_offset + begin, positions[kLines] = {};
        T best[kLines];
        std::copy_n(from, count, best);
        for (int64_t i = 0; i < n; ++i, from += x_stride, to += y_stride, at += y_stride) {
          for (int64_t j = 0; j < count; ++j) {
            const bool better = is_nan(from[j]) || is_better(from[j], best[j]);
            best[j] = better ? from[j] : best[j];
            positions[j] = better ? i : positions[j];
            to[j] = best[j];
            at[j] = positions[j];
          }
        }
      }
    });
  };
  largest ? run([](T a, T b) { return a >= b; }) : run([](T a, T b) { return a <= b; });
}

void cum_extreme(bool largest, const View& x, int dim, const View& values, const View& indices) {
  if (x.numel == 0) return;
  const View* const views[] = {&values, &indices, &x};
  const auto of_part = [=](const View* const* part) { cum_extreme(largest, *part[2], dim, *part[0], *part[1]); };
  if (divided(views, dim, of_part)) return;
  with_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const Nest nest = other_dims(x, dim, values);
    if constexpr (std::is_arithmetic_v<T>)
      if (!x.shape.empty() && is_side_by_side(nest))
        return extremes_side_by_side<T>(largest, nest, x, dim, values, indices);
    for_each_line<T>(x, dim, values, [&](int64_t n, const T* from, int64_t x_stride, T* to, int64_t stride) {
      int64_t* at = indices.as<int64_t>() + (to - values.as<T>());
      int64_t position = 0;
      T element = from[0];
      auto best = value_of(element);
      for (int64_t i = 0; i < n; ++i) {
        const auto value = value_of(from[i * x_stride]);
        if (is_nan(value) || (largest ? value >= best : value <= best))
          best = value, element = from[i * x_stride], position = i;
        to[i * stride] = element;
        at[i * stride] = position;
      }
    });
  });
}

}  // namespace

void install_scan(KernelTable& table) {
  table.arg_reduce = arg_reduce;
  table.scan = scan;
  table.logcumsumexp_grad = logcumsumexp_grad;
  table.cum_extreme = cum_extreme;
}

}  // namespace reel::cpu::REEL_ISA
