#include "lib/cpu/reduce.h"

#include "lib/cpu/halves.h"
#include "lib/cpu/kernels.h"
#include "lib/cpu/simd/halves.h"
#include "lib/cpu/simd/map.h"
#include "lib/device/dispatch.h"
#include "lib/device/kernels/enums.h"
#include "lib/device/kernels/update.h"
#include "lib/functors/binary.h"
#include "lib/functors/math.h"

// Reductions of float32 and float64. Sums are taken over blocks of a few hundred elements in T, and the blocks' results
// are added in double precision: the sum of 10⁷ float32 numbers is as exact as its inputs, and vectors of floats do
// most of the work.
namespace reel::cpu::REEL_ISA {
namespace {

using functors::select;

struct Sum {
  template <class T>
  static constexpr T start = T(0);
  template <class B>
  static B join(const B& a, const B& b) {
    return a + b;
  }
};
struct Prod {
  template <class T>
  static constexpr T start = T(1);
  template <class B>
  static B join(const B& a, const B& b) {
    return a * b;
  }
};
struct Max {
  template <class T>
  static constexpr T start = -std::numeric_limits<T>::infinity();
  template <class B>
  static B join(const B& a, const B& b) {
    return select((b > a) | (b != b), b, a);
  }
};
struct Min {
  template <class T>
  static constexpr T start = std::numeric_limits<T>::infinity();
  template <class B>
  static B join(const B& a, const B& b) {
    return select((b < a) | (b != b), b, a);
  }
};

template <class T>
constexpr int64_t kBlock = 128 * kWidth<T>;  // elements of a row whose partial result is in T: 32 for each lane
constexpr int64_t kRows = 64;                // rows of a column, likewise
constexpr int kColumns = 4;                  // batches side by side

template <class Op, class T>
double join_lanes(const Batch<T>& x) {
  T lanes[kWidth<T>];
  store(lanes, x);
  double result = lanes[0];
  for (int64_t i = 1; i < kWidth<T>; ++i) result = Op::join(result, double(lanes[i]));
  return result;
}

struct Same {
  template <class B>
  B operator()(const B& x) const {
    return x;
  }
};

/// Reduces term(x) over a row of elements of type E.
template <class Op, class E, class Term = Same>
double reduce_row(const E* x, int64_t n, int64_t stride, const Term& term = {}) {
  using T = Compute<E>;
  constexpr int64_t kStep = kWidth<T>;
  const Batch<T> start(Op::template start<T>);
  if (stride != 1) {
    double result = Op::template start<double>;
    for (int64_t i = 0; i < n; ++i) result = Op::join(result, double(term(widen(x[i * stride]))));
    return result;
  }
  double result = Op::template start<double>;
  for (int64_t begin = 0; begin < n; begin += kBlock<T>) {
    const int64_t end = begin + kBlock<T> < n ? begin + kBlock<T> : n;
    Batch<T> a = start, b = start, c = start, d = start;
    int64_t i = begin;
    for (; i + 4 * kStep <= end; i += 4 * kStep) {
      a = Op::join(a, term(load_wide(x + i)));
      b = Op::join(b, term(load_wide(x + i + kStep)));
      c = Op::join(c, term(load_wide(x + i + 2 * kStep)));
      d = Op::join(d, term(load_wide(x + i + 3 * kStep)));
    }
    for (; i + kStep <= end; i += kStep) a = Op::join(a, term(load_wide(x + i)));
    if (end - begin >= kStep) result = Op::join(result, join_lanes<Op, T>(Op::join(Op::join(a, b), Op::join(c, d))));
    for (; i < end; ++i) result = Op::join(result, double(term(widen(x[i]))));
  }
  return result;
}

/// y[0 … n) for n contiguous columns of x, n at most kColumns batches.
template <class Op, class E, class Out>
void reduce_columns(const Nest& rows, const E* x, int64_t n, Out* y, int64_t y_stride) {
  using T = Compute<E>;
  constexpr int64_t kStep = kWidth<T>;
  double total[kColumns * kStep];
  for (double& t : total) t = Op::template start<double>;
  Batch<T> part[kColumns];
  for (auto& p : part) p = Batch<T>(Op::template start<T>);
  const auto flush = [&] {
    T lanes[kColumns * kStep];
    for (int c = 0; c < kColumns; ++c) {
      store(lanes + c * kStep, part[c]);
      part[c] = Batch<T>(Op::template start<T>);
    }
    for (int i = 0; i < kColumns * kStep; ++i) total[i] = Op::join(total[i], double(lanes[i]));
  };
  const int64_t count = rows.sizes[0], stride = rows.x_strides[0];
  for_each_point(rows, 1, [&](int64_t offset, int64_t) {
    for (int64_t begin = 0; begin < count; begin += kRows) {
      const int64_t end = begin + kRows < count ? begin + kRows : count;
      const E* row = x + offset + begin * stride;
      if (n == kColumns * kStep) {
        for (int64_t r = begin; r < end; ++r, row += stride)
          for (int c = 0; c < kColumns; ++c) part[c] = Op::join(part[c], load_wide(row + c * kStep));
      } else {
        const int64_t whole = n / kStep, rest = n % kStep;
        for (int64_t r = begin; r < end; ++r, row += stride) {
          for (int64_t c = 0; c < whole; ++c) part[c] = Op::join(part[c], load_wide(row + c * kStep));
          if (rest) part[whole] = Op::join(part[whole], load_part_wide(row + whole * kStep, rest));
        }
      }
      flush();
    }
  });
  for (int64_t i = 0; i < n; ++i) y[i * y_stride] = static_cast<Out>(total[i]);
}

/// Writes x, of type E, reduced to y, of type Out.
template <class Op, class E, class Out>
void reduce_part(const View& x, const View& y) {
  const E* from = x.as<const E>();
  Out* to = y.as<Out>();
  if (y.numel == 0) return;
  if (x.numel == 0) {
    for_each_point(Reduction(y, y).kept, 0, [&](int64_t offset, int64_t) { to[offset] = Op::template start<Out>; });
    return;
  }
  if (x.contiguous && y.numel == 1) {
    *to = static_cast<Out>(reduce_row<Op>(from, x.numel, 1));
    return;
  }
  const Reduction r(x, y);
  if (r.columns && r.kept.x_strides[0] == 1) {
    constexpr int64_t kStep = kColumns * kWidth<Compute<E>>;
    for_each_point(r.kept, 1, [&](int64_t x_offset, int64_t y_offset) {
      const int64_t n = r.kept.sizes[0], stride = r.kept.y_strides[0];
      for (int64_t i = 0; i < n; i += kStep)
        reduce_columns<Op>(r.gone, from + x_offset + i, i + kStep < n ? kStep : n - i, to + y_offset + i * stride,
                           stride);
    });
  } else {
    for_each_point(r.kept, 0, [&](int64_t x_offset, int64_t y_offset) {
      double total = Op::template start<double>;
      for_each_point(r.gone, 1, [&](int64_t offset, int64_t) {
        total = Op::join(total, reduce_row<Op>(from + x_offset + offset, r.gone.sizes[0], r.gone.x_strides[0]));
      });
      to[y_offset] = static_cast<Out>(total);
    });
  }
}

template <class Op, class E>
void reduce(const View& x, const View& y) {
  using T = Compute<E>;
  const auto of_part = [&](const View& px, const View& py) {
    py.dtype == y.dtype ? reduce_part<Op, E, T>(px, py) : reduce_part<Op, E, double>(px, py);
  };
  const auto join = [](double a, double b) { return Op::join(a, b); };
  if (x.numel <= part_size || y.numel == 0 || !reduce_parts<T, double>(x, y, kFloat64, of_part, join))
    reduce_part<Op, E, T>(x, y);
}

/// Reduces x, of type E, to y, of the type in which it is computed.
template <class E>
void reduce_floats(ReduceOp op, const View& x, const View& y) {
  using T = Compute<E>;
  switch (op) {
    case ReduceOp::kSum: return reduce<Sum, E>(x, y);
    case ReduceOp::kProd: return reduce<Prod, E>(x, y);
    case ReduceOp::kMax: return reduce<Max, E>(x, y);
    case ReduceOp::kMin: return reduce<Min, E>(x, y);
    default: break;
  }
  reduce<Sum, E>(x, y);
  const Batch<T> count(static_cast<T>(static_cast<double>(x.numel) / static_cast<double>(y.numel)));
  const auto divide = [&](const View& sums) { map<T>([&](const Batch<T>& sum) { return sum / count; }, sums, sums); };
  if (y.numel <= part_size) return divide(y);
  const View* const views[] = {&y};
  for_each_part(views, 0, [&](const View* const* part) { divide(*part[0]); });
}

void reduce_any(ReduceOp op, const View& x, const View& y) {
  switch (x.dtype) {
    case kFloat32: return reduce_floats<float>(op, x, y);
    case kFloat64: return reduce_floats<double>(op, x, y);
    case kFloat16: return reduce_floats<Float16>(op, x, Widened().out(y));
    case kBFloat16: return reduce_floats<BFloat16>(op, x, Widened().out(y));
    default: return cpu::reduce(op, x, y);
  }
}

/// |x|^p
template <class T>
struct Power {
  T p;
  template <class B>
  B operator()(const B& x) const {
    return functors::Pow()(functors::Abs()(x), B(p));
  }
};

template <class E>
double norm_of(double p, std::span<const Updated> tensors) {
  using T = Compute<E>;
  const auto joined = [&]<class Op>(Op, const auto& term) {
    const auto join_range = [&](int64_t first, int64_t last) {
      double total = 0;
      for_each_in_range(tensors, first, last, [&](const Updated& x, int64_t begin, int64_t end) {
        total = Op::join(total, reduce_row<Op>(static_cast<const E*>(x.p) + begin, end - begin, 1, term));
      });
      return total;
    };
    const int64_t numel = numel_of(tensors);
    if (numel <= part_size) return join_range(0, numel);
    const int64_t step = step_of(numel, parts_of(numel)), count = (numel - 1) / step + 1;
    const Scratch scratch(static_cast<size_t>(count) * sizeof(double));
    double* const results = scratch.data<double>();
    parallel_for(numel, step, [&](int64_t first, int64_t last) { results[first / step] = join_range(first, last); });
    double total = 0;
    for (int64_t i = 0; i < count; ++i) total = Op::join(total, results[i]);
    return total;
  };
  if (p == 2) return functors::sqrt(joined(Sum(), functors::Square()));
  if (p == 1) return joined(Sum(), functors::Abs());
  if (p == std::numeric_limits<double>::infinity()) return joined(Max(), functors::Abs());
  return functors::pow(joined(Sum(), Power<T>{T(p)}), 1 / p);
}

void norm(double p, std::span<const Updated> tensors, const View& y) {
  double result = 0;
  dispatch::with_floating(tensors.empty() ? kFloat32 : tensors[0].dtype,
                          [&](auto type) { result = norm_of<typename decltype(type)::type>(p, tensors); });
  y.dtype == kFloat32 ? void(*y.as<float>() = static_cast<float>(result)) : void(*y.as<double>() = result);
}

}  // namespace

void install_reduce(KernelTable& table) {
  table.reduce = reduce_any;
  table.multi_tensor_norm = norm;
}

}  // namespace reel::cpu::REEL_ISA
