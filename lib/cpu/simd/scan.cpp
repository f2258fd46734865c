// This file has argmax, argmin and scans. Lines that lie side by side are scanned side by side, so that the compiler
// vectorises the loops over them; along a line a scan is sequential.
#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/cpu/kernels.h"
#include "lib/cpu/reduce.h"
#include "lib/cpu/scratch.h"
#include "lib/cpu/simd/halves.h"
#include "lib/cpu/simd/transpose.h"
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

/// Returns whether it is better to read elements that are `stride` apart one after the other than those `other` apart.
bool is_nearer(int64_t stride, int64_t other) {
  return stride == 1 || (stride != 0 && std::abs(stride) < std::abs(other));
}

/// A scan keeps the totals of this many lines at a time, and converts this many elements of a line of a half type at
/// once.
constexpr int64_t kLines = 256;

/// Calls f(parts) for parts of the views if the last one has many lines along dim, and returns whether it does. Parts
/// of lines side by side have many of them, since whole rows are read.
template <size_t count, class F>
bool divided(const View* const (&views)[count], int dim, const F& f) {
  const View& x = *views[count - 1];
  if (x.numel <= part_size) return false;
  const int64_t parts = parts_of(x.numel);
  const int d = divided_dim(x.shape, 1u << dim, parts);
  if (d < 0) return false;
  const int64_t size = x.shape[d],
                step = std::max(step_of(size, parts), is_nearer(x.strides[d], x.strides[dim]) ? 2 * kLines : 1);
  if (step >= size) return false;
  parallel_for(size, step, [&](int64_t begin, int64_t end) {
    View part[count];
    const View* pointers[count];
    for (size_t i = 0; i < count; ++i) part[i] = part_of(*views[i], d, begin, end), pointers[i] = &part[i];
    f(pointers);
  });
  return true;
}

/// Value<T> is the type that elements of type T are read and written as.
template <class T>
using Value = std::conditional_t<std::is_integral_v<T>, T, Compute<T>>;
template <class T>
constexpr bool kIsHalf = !std::is_same_v<T, Value<T>>;

template <class T>
void copy_strided(const T* from, int64_t stride, int64_t n, T* to) {
  const auto copy_by = [&](int64_t step) {
    for (int64_t i = 0; i < n; ++i) to[i] = from[i * step];
  };
  stride == 2 ? copy_by(2) : copy_by(stride);  // the compiler vectorises the former
}

/// Returns n ≤ kLines elements as numbers: where they lie if they can be read there, or else copies in `buffer`.
template <class T>
const Value<T>* read_line(const T* from, int64_t stride, int64_t n, Value<T>* buffer) {
  if constexpr (kIsHalf<T>) {
    if (stride == 2) {
      int64_t i = 0;
      for (; i + kWidth<float> <= n; i += kWidth<float>) store(buffer + i, load_every_second_wide(from + 2 * i));
      for (; i < n; ++i) buffer[i] = value_of(from[2 * i]);
      return buffer;
    }
    T elements[kLines];
    if (stride != 1) copy_strided(from, stride, n, elements), from = elements;
    convert(from, buffer, n);
  } else {
    if (stride == 1) return from;
    copy_strided(from, stride, n, buffer);
  }
  return buffer;
}

/// Writes n ≤ kLines numbers as elements.
template <class T>
void write_line(const Value<T>* from, int64_t n, T* to, int64_t stride) {
  if constexpr (kIsHalf<T>) {
    if (stride == 1) return convert(from, to, n);
    T elements[kLines];
    convert(from, elements, n);
    for (int64_t i = 0; i < n; ++i) to[i * stride] = elements[i];
  } else {
    if (stride == 1) return void(std::copy_n(from, n, to));
    for (int64_t i = 0; i < n; ++i) to[i * stride] = from[i];
  }
}

/// Place<T> is the type of positions that is as wide as elements are, so that the compiler vectorises loops over both.
template <class T>
using Place = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;

/// Finds the extremes of `count` columns, each of n elements, and the first positions at which they are.
template <bool largest, class T>
void find_extremes(const T* from, int64_t n, int64_t row_stride, int64_t count, int64_t column_stride,
                   Value<T>* __restrict best, Place<T>* __restrict at) {
  const auto for_each_piece = [&](const T* row, const auto& f) {
    for (int64_t begin = 0; begin < count; begin += kLines) {
      Value<T> buffer[kLines];
      const int64_t size = std::min(kLines, count - begin);
      f(begin, size, read_line(row + begin * column_stride, column_stride, size, buffer));
    }
  };
  for_each_piece(from, [&](int64_t begin, int64_t size, const Value<T>* row) { std::copy_n(row, size, best + begin); });
  std::fill_n(at, count, Place<T>(0));
  for (int64_t i = 1; i < n; ++i)
    for_each_piece(from + i * row_stride, [&](int64_t begin, int64_t size, const Value<T>* row) {
      Value<T>* const extremes = best + begin;
      Place<T>* const places = at + begin;
      for (int64_t j = 0; j < size; ++j) {
        const Value<T> value = row[j], before = extremes[j];
        // NaN replaces every number, and nothing replaces it.
        const bool better = !(largest ? value <= before : value >= before) & (before == before);
        extremes[j] = better ? value : before;
        places[j] = better ? static_cast<Place<T>>(i) : places[j];
      }
    });
}

/// Returns the position of the extreme of a line of n ≥ kLanes elements, which is read as a matrix of kLanes columns.
template <bool largest, int64_t kLanes, class T>
int64_t extreme_of_line(const T* from, int64_t n, int64_t stride) {
  Value<T> best[kLanes];
  Place<T> at[kLanes];
  find_extremes<largest>(from, n / kLanes, kLanes * stride, kLanes, stride, best, at);
  int64_t position = at[0] * kLanes;
  Value<T> top = best[0];
  for (int64_t lane = 1; lane < kLanes; ++lane) {
    const int64_t i = at[lane] * kLanes + lane;
    if (beats(largest, best[lane], top) || (i < position && !beats(largest, top, best[lane])))
      top = best[lane], position = i;
  }
  for (int64_t i = n / kLanes * kLanes; i < n; ++i)
    if (const Value<T> value = value_of(from[i * stride]); beats(largest, value, top)) top = value, position = i;
  return position;
}

template <bool largest, class T>
void arg_reduce_of(const View& x, int dim, const View& y) {
  constexpr int64_t kFew = 64;
  const bool scalar = x.shape.empty();
  const int64_t n = scalar ? 1 : x.shape[dim], stride = scalar ? 0 : x.strides[dim];
  const Nest nest = other_dims(x, dim, y);
  const bool columns = nest.sizes[0] >= kFew && is_nearer(nest.x_strides[0], stride);
  if (n >= kFew && (!columns || n > std::numeric_limits<int32_t>::max()))
    return for_each_point(nest, 0, [&](int64_t x_offset, int64_t y_offset) {
      const T* const line = x.as<const T>() + x_offset;
      y.as<int64_t>()[y_offset] = n < 16 * kLines ? extreme_of_line<largest, kFew>(line, n, stride)
                                                  : extreme_of_line<largest, kLines>(line, n, stride);
    });
  // Whole rows are read, as far as what is found fits into the second-level cache.
  const int64_t together = std::min<int64_t>(nest.sizes[0], 8192);
  const Scratch scratch(static_cast<size_t>(together) * (sizeof(Place<T>) + sizeof(Value<T>)));
  Place<T>* const at = scratch.data<Place<T>>();
  Value<T>* const best = reinterpret_cast<Value<T>*>(at + together);
  for_each_point(nest, 1, [&](int64_t x_offset, int64_t y_offset) {
    for (int64_t begin = 0; begin < nest.sizes[0]; begin += together) {
      const int64_t count = std::min(together, nest.sizes[0] - begin);
      find_extremes<largest>(x.as<const T>() + x_offset + begin * nest.x_strides[0], n, stride, count,
                             nest.x_strides[0], best, at);
      int64_t* const to = y.as<int64_t>() + y_offset + begin * nest.y_strides[0];
      for (int64_t j = 0; j < count; ++j) to[j * nest.y_strides[0]] = at[j];
    }
  });
}

void arg_reduce_part(bool largest, const View& x, int dim, const View& y) {
  if (x.numel == 0) return;
  with_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    largest ? arg_reduce_of<true, T>(x, dim, y) : arg_reduce_of<false, T>(x, dim, y);
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

/// Returns whether lines are nearer to each other than the elements of one, in x or in the result y.
bool is_side_by_side(const Nest& nest, int64_t x_stride, int64_t y_stride) {
  return nest.sizes[0] > 1 && (is_nearer(nest.x_strides[0], x_stride) || is_nearer(nest.y_strides[0], y_stride));
}

/// Returns how many lines are scanned at once: few where each of them needs a part of the first-level cache.
int64_t lines_at_once(const Nest& nest) { return std::abs(nest.x_strides[0]) <= 2 ? kLines : 16; }

template <class T, class Total, class Join>
void scan_side_by_side(const Nest& nest, int64_t n, int64_t x_stride, const T* x, int64_t y_stride, T* y, Total start,
                       const Join& join) {
  const int64_t together = lines_at_once(nest), x_line = nest.x_strides[0];
  for_each_point(nest, 1, [&](int64_t x_offset, int64_t y_offset) {
    for (int64_t begin = 0; begin < nest.sizes[0]; begin += together) {
      const int64_t count = std::min(together, nest.sizes[0] - begin);
      Total totals[kLines];
      std::fill_n(totals, count, start);
      const T* from = x + x_offset + begin * x_line;
      T* const to = y + y_offset + begin;
      Value<T> buffer[kLines];
      for (int64_t i = 0; i < n; ++i, from += x_stride) {
        const Value<T>* const in = read_line(from, x_line, count, buffer);
        const auto scan_row = [&](Value<T>* out) {
          for (int64_t j = 0; j < count; ++j) {
            totals[j] = join(totals[j], static_cast<Total>(in[j]));
            out[j] = static_cast<Value<T>>(totals[j]);
          }
        };
        if constexpr (kIsHalf<T>) {
          scan_row(buffer);
          convert(buffer, to + i * y_stride, count);
        } else {
          scan_row(to + i * y_stride);
        }
      }
    }
  });
}

/// TurnedLines are some elements of adjacent lines, of which each has its own row here.
struct TurnedLines {
  static constexpr int64_t kCount = kWidth<float>;
  float lines[kCount][kLines];
  /// Reads n ≤ kLines elements of each line, `stride` apart.
  template <class T>
  void read(const T* from, int64_t stride, int64_t n) {
    int64_t i = 0;
    for (; i + kCount <= n; i += kCount) {
      Batch<float> block[kCount];
      for (int64_t k = 0; k < kCount; ++k) block[k] = load_wide(from + (i + k) * stride);
      transpose(block);
      for (int64_t line = 0; line < kCount; ++line) store(lines[line] + i, block[line]);
    }
    for (; i < n; ++i)
      for (int64_t line = 0; line < kCount; ++line) lines[line][i] = value_of(from[i * stride + line]);
  }
};

/// Returns whether lines of x that are not adjacent elements, but have adjacent neighbours, are better turned.
template <class T>
bool is_turned(const Nest& nest, int64_t x_stride) {
  return std::is_same_v<Value<T>, float> && nest.x_strides[0] == 1 && x_stride != 1 &&
         nest.sizes[0] >= TurnedLines::kCount;
}

/// Calls f(x's offset, y's offset, count) for groups of adjacent lines; `count` is that of TurnedLines, or 1 for those
/// that are left over.
template <class F>
void for_each_group(const Nest& nest, const F& f) {
  for_each_point(nest, 1, [&](int64_t x_offset, int64_t y_offset) {
    int64_t line = 0;
    const auto group = [&](int64_t count) {
      f(x_offset + line, y_offset + line * nest.y_strides[0], count);
      line += count;
    };
    while (line + TurnedLines::kCount <= nest.sizes[0]) group(TurnedLines::kCount);
    while (line < nest.sizes[0]) group(1);
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
  } else {
    float buffer[kLines];
    for (int64_t begin = 0; begin < n; begin += kLines) {
      const int64_t count = std::min(kLines, n - begin);
      total = scan_run(count, read_line(from + begin * x_stride, x_stride, count, buffer), 1, buffer, 1, total, join);
      write_line(buffer, count, to + begin * y_stride, y_stride);
    }
  }
}

constexpr int kTogether = 4;

/// Scans parts of lines, so that the sums of one do not wait for each other alone. Continues the totals.
template <class In, class Out, class Total, class Join>
[[gnu::noinline]] void scan_together(int64_t n, const In* const* from, int64_t x_stride, Out* const* to,
                                     int64_t y_stride, Total* totals, const Join& join) {
  const In *a = from[0], *b = from[1], *c = from[2], *d = from[3];
  Out *p = to[0], *q = to[1], *r = to[2], *s = to[3];
  Total ta = totals[0], tb = totals[1], tc = totals[2], td = totals[3];
  for (int64_t i = 0; i < n; ++i) {
    const int64_t at = i * x_stride, out = i * y_stride;
    ta = join(ta, static_cast<Total>(a[at])), tb = join(tb, static_cast<Total>(b[at]));
    tc = join(tc, static_cast<Total>(c[at])), td = join(td, static_cast<Total>(d[at]));
    p[out] = static_cast<Out>(ta), q[out] = static_cast<Out>(tb);
    r[out] = static_cast<Out>(tc), s[out] = static_cast<Out>(td);
  }
  totals[0] = ta, totals[1] = tb, totals[2] = tc, totals[3] = td;
}

/// Scans kTogether lines.
template <class T, class Total, class Join>
void scan_lines(int64_t n, const T* const* from, int64_t x_stride, T* const* to, int64_t y_stride, Total start,
                const Join& join) {
  Total totals[kTogether];
  std::fill_n(totals, kTogether, start);
  if constexpr (!kIsHalf<T>) {
    scan_together(n, from, x_stride, to, y_stride, totals, join);
  } else {
    float buffers[kTogether][kLines];
    for (int64_t begin = 0; begin < n; begin += kLines) {
      const int64_t count = std::min(kLines, n - begin);
      float* numbers[kTogether];
      for (int line = 0; line < kTogether; ++line) {
        numbers[line] = buffers[line];
        read_line(from[line] + begin * x_stride, x_stride, count, buffers[line]);
      }
      scan_together(count, numbers, 1, numbers, 1, totals, join);
      for (int line = 0; line < kTogether; ++line)
        write_line(buffers[line], count, to[line] + begin * y_stride, y_stride);
    }
  }
}

/// Scans adjacent lines of halves, as many as TurnedLines are.
template <class T, class Total, class Join>
void scan_turned(int64_t n, const T* from, int64_t x_stride, T* to, int64_t y_stride, int64_t y_line, Total start,
                 const Join& join) {
  TurnedLines turned;
  Total totals[TurnedLines::kCount];
  std::fill_n(totals, TurnedLines::kCount, start);
  for (int64_t begin = 0; begin < n; begin += kLines) {
    const int64_t count = std::min(kLines, n - begin);
    turned.read(from + begin * x_stride, x_stride, count);
    for (int64_t line = 0; line < TurnedLines::kCount; line += kTogether) {
      float* numbers[kTogether];
      for (int i = 0; i < kTogether; ++i) numbers[i] = turned.lines[line + i];
      scan_together(count, numbers, 1, numbers, 1, totals + line, join);
      for (int i = 0; i < kTogether; ++i)
        write_line(numbers[i], count, to + (line + i) * y_line + begin * y_stride, y_stride);
    }
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
      const bool scalar = x.shape.empty();
      const int64_t size = scalar ? 1 : x.shape[dim], x_step = scalar ? 0 : x.strides[dim],
                    y_step = scalar ? 0 : y.strides[dim];
      if (!scalar && nest.y_strides[0] == 1 && is_side_by_side(nest, x_step, y_step))
        return scan_side_by_side(nest, size, x_step, x.as<const T>(), y_step, y.as<T>(), start, join);
      if constexpr (kIsHalf<T>)
        if (is_turned<T>(nest, x_step))
          return for_each_group(nest, [&](int64_t x_offset, int64_t y_offset, int64_t count) {
            const T* const from = x.as<const T>() + x_offset;
            T* const to = y.as<T>() + y_offset;
            if (count == 1)
              scan_line(size, from, x_step, to, y_step, start, join);
            else
              scan_turned(size, from, x_step, to, y_step, nest.y_strides[0], start, join);
          });
      const T* from[kTogether];
      T* to[kTogether];
      int waiting = 0;
      for_each_line<T>(x, dim, y, [&](int64_t n, const T* line, int64_t x_stride, T* result, int64_t y_stride) {
        from[waiting] = line, to[waiting] = result;
        if (++waiting < kTogether) return;
        scan_lines(n, from, x_stride, to, y_stride, start, join);
        waiting = 0;
      });
      for (int i = 0; i < waiting; ++i) scan_line(size, from[i], x_step, to[i], y_step, start, join);
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
  const int64_t together = lines_at_once(nest), x_line = nest.x_strides[0];
  const auto run = [&](auto is_better) {
    for_each_point(nest, 1, [&](int64_t x_offset, int64_t y_offset) {
      for (int64_t begin = 0; begin < nest.sizes[0]; begin += together) {
        const int64_t count = std::min(together, nest.sizes[0] - begin), first = y_offset + begin;
        const T* from = x.as<const T>() + x_offset + begin * x_line;
        T* const to = values.as<T>() + first;
        int64_t* const at = indices.as<int64_t>() + first;
        Place<T> positions[kLines] = {};
        Value<T> buffer[kLines], best[kLines];
        std::copy_n(read_line(from, x_line, count, buffer), count, best);
        for (int64_t i = 0; i < n; ++i, from += x_stride) {
          const Value<T>* const row = read_line(from, x_line, count, buffer);
          for (int64_t j = 0; j < count; ++j) {
            const bool better = is_nan(row[j]) || is_better(row[j], best[j]);
            best[j] = better ? row[j] : best[j];
            positions[j] = better ? static_cast<Place<T>>(i) : positions[j];
          }
          write_line(best, count, to + i * y_stride, 1);
          std::copy_n(positions, count, at + i * y_stride);
        }
      }
    });
  };
  using V = Value<T>;
  largest ? run([](V a, V b) { return a >= b; }) : run([](V a, V b) { return a <= b; });
}

/// Extreme is the extreme of the first elements of a line, and its position.
template <class V>
struct Extreme {
  V value;
  int64_t position = 0;
};

/// Continues an extreme over n elements, the first of which is element `begin` of its line.
template <bool largest, class In, class V>
void extend(Extreme<V>& extreme, int64_t begin, int64_t n, const In* line, int64_t x_step, V* values,
            int64_t value_step, int64_t* at, int64_t step) {
  auto [best, position] = extreme;
  for (int64_t i = 0; i < n; ++i) {
    const V value = value_of(line[i * x_step]);
    if (is_nan(value) || (largest ? value >= best : value <= best)) best = value, position = begin + i;
    values[i * value_step] = best;
    at[i * step] = position;
  }
  extreme = {best, position};
}

template <bool largest, class T>
void extremes_of_line(int64_t n, const T* from, int64_t x_stride, T* to, int64_t* at, int64_t stride) {
  Value<T> buffer[kLines], bests[kLines];
  Extreme<Value<T>> extreme{value_of(from[0])};
  for (int64_t begin = 0; begin < n; begin += kLines) {
    const int64_t count = std::min(kLines, n - begin);
    const auto scan_to = [&](Value<T>* values, int64_t value_step, int64_t step) {
      const T* const line = from + begin * x_stride;
      if (x_stride == 1 || x_stride == 2)
        extend<largest>(extreme, begin, count, read_line(line, x_stride, count, buffer), 1, values, value_step,
                        at + begin * step, step);
      else
        extend<largest>(extreme, begin, count, line, x_stride, values, value_step, at + begin * step, step);
    };
    if constexpr (kIsHalf<T>) {
      stride == 1 ? scan_to(bests, 1, 1) : scan_to(bests, 1, stride);
      write_line(bests, count, to + begin * stride, stride);
    } else {
      stride == 1 ? scan_to(to + begin, 1, 1) : scan_to(to + begin * stride, stride, stride);
    }
  }
}

/// Does that for adjacent lines, as many as TurnedLines are.
template <bool largest, class T>
void extremes_turned(int64_t n, const T* from, int64_t x_stride, T* to, int64_t* at, int64_t stride, int64_t y_line) {
  TurnedLines turned;
  Extreme<float> extremes[TurnedLines::kCount];
  for (int64_t line = 0; line < TurnedLines::kCount; ++line) extremes[line] = {value_of(from[line])};
  for (int64_t begin = 0; begin < n; begin += kLines) {
    const int64_t count = std::min(kLines, n - begin);
    turned.read(from + begin * x_stride, x_stride, count);
    for (int64_t line = 0; line < TurnedLines::kCount; ++line) {
      float* const values = turned.lines[line];
      const int64_t first = line * y_line + begin * stride;
      const auto scan_by = [&](int64_t step) {
        extend<largest>(extremes[line], begin, count, values, 1, values, 1, at + first, step);
      };
      stride == 1 ? scan_by(1) : scan_by(stride);
      write_line(values, count, to + first, stride);
    }
  }
}

void cum_extreme(bool largest, const View& x, int dim, const View& values, const View& indices) {
  if (x.numel == 0) return;
  const View* const views[] = {&values, &indices, &x};
  const auto of_part = [=](const View* const* part) { cum_extreme(largest, *part[2], dim, *part[0], *part[1]); };
  if (divided(views, dim, of_part)) return;
  with_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const Nest nest = other_dims(x, dim, values);
    if (!x.shape.empty() && x.shape[dim] <= std::numeric_limits<Place<T>>::max() && nest.y_strides[0] == 1 &&
        is_side_by_side(nest, x.strides[dim], values.strides[dim]))
      return extremes_side_by_side<T>(largest, nest, x, dim, values, indices);
    if constexpr (std::is_same_v<Value<T>, float>)
      if (!x.shape.empty() && is_turned<T>(nest, x.strides[dim]))
        return for_each_group(nest, [&](int64_t x_offset, int64_t y_offset, int64_t count) {
          const auto find = [&](auto all) {
            constexpr bool kLargest = decltype(all)::value;
            const int64_t n = x.shape[dim], x_step = x.strides[dim], y_step = values.strides[dim];
            const T* const from = x.as<const T>() + x_offset;
            T* const to = values.as<T>() + y_offset;
            int64_t* const at = indices.as<int64_t>() + y_offset;
            if (count == 1)
              extremes_of_line<kLargest>(n, from, x_step, to, at, y_step);
            else
              extremes_turned<kLargest>(n, from, x_step, to, at, y_step, nest.y_strides[0]);
          };
          largest ? find(std::true_type()) : find(std::false_type());
        });
    for_each_line<T>(x, dim, values, [&](int64_t n, const T* from, int64_t x_stride, T* to, int64_t stride) {
      int64_t* const at = indices.as<int64_t>() + (to - values.as<T>());
      largest ? extremes_of_line<true>(n, from, x_stride, to, at, stride)
              : extremes_of_line<false>(n, from, x_stride, to, at, stride);
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
