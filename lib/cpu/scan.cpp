#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/cpu/kernels.h"
#include "lib/cpu/reduce.h"
#include "lib/device/dispatch.h"
#include "lib/device/kernels/enums.h"

// Argmax, argmin and scans, without explicit vector code: scans are sequential, and the others are limited by memory.
namespace reel::cpu {
namespace {

/// A comparable, summable value of an element.
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

/// Whether a replaces b as the maximum (minimum). NaN replaces every number in both, so that it propagates.
template <class V>
bool beats(bool largest, V x, V best) {
  if (is_nan(best)) return false;
  return is_nan(x) || (largest ? x > best : x < best);
}

/// The loops of all dimensions but one.
plain::Nest other_dims(const View& x, int dim, const View& y) {
  plain::Nest nest;
  for (int d = x.shape.size() - 1; d >= 0; --d)
    if (d != dim && x.shape[d] != 1) nest.add(x.shape[d], x.strides[d], y.strides[d]);
  if (nest.rank == 0) nest.add(1, 0, 0);
  return nest;
}

/// Whether the lines of the last view along dim are many: f(parts) has been called for parts of the views then.
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
    plain::for_each_point(other_dims(x, dim, y), 0, [&](int64_t x_offset, int64_t y_offset) {
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

/// f(n, x, x's stride, y, y's stride) for every line of elements along dim.
template <class T, class F>
void for_each_line(const View& x, int dim, const View& y, const F& f) {
  const bool scalar = x.shape.empty();
  const int64_t n = scalar ? 1 : x.shape[dim];
  const int64_t x_stride = scalar ? 0 : x.strides[dim], y_stride = scalar ? 0 : y.strides[dim];
  plain::for_each_point(other_dims(x, dim, y), 0, [&](int64_t x_offset, int64_t y_offset) {
    f(n, x.as<const T>() + x_offset, x_stride, y.as<T>() + y_offset, y_stride);
  });
}

double log_add_exp(double a, double b) {
  const double low = std::min(a, b), high = std::max(a, b);
  if (is_nan(a) || is_nan(b)) return a + b;
  return low == high && std::isinf(low) ? low : high + std::log1p(std::exp(low - high));
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
      for_each_line<T>(x, dim, y, [&](int64_t n, const T* from, int64_t x_stride, T* to, int64_t y_stride) {
        Total total = start;
        for (int64_t i = 0; i < n; ++i) {
          total = join(total, static_cast<Total>(value_of(from[i * x_stride])));
          if constexpr (std::is_integral_v<T> || std::is_floating_point_v<T>)
            to[i * y_stride] = static_cast<T>(total);
          else
            to[i * y_stride] = T(static_cast<float>(total));
        }
      });
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
      plain::for_each_run(views, [&](int64_t count, char* const* p, const int64_t* s) {
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

void cum_extreme(bool largest, const View& x, int dim, const View& values, const View& indices) {
  if (x.numel == 0) return;
  const View* const views[] = {&values, &indices, &x};
  const auto of_part = [=](const View* const* part) { cum_extreme(largest, *part[2], dim, *part[0], *part[1]); };
  if (divided(views, dim, of_part)) return;
  with_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    for_each_line<T>(x, dim, values, [&](int64_t n, const T* from, int64_t x_stride, T* to, int64_t stride) {
      int64_t* at = indices.as<int64_t>() + (to - values.as<T>());
      int64_t position = 0;
      auto best = value_of(from[0]);
      for (int64_t i = 0; i < n; ++i) {
        const auto value = value_of(from[i * x_stride]);
        if (is_nan(value) || (largest ? value >= best : value <= best)) best = value, position = i;
        to[i * stride] = from[position * x_stride];
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

}  // namespace reel::cpu
