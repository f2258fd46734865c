#include "lib/cpu/reduce.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "lib/cpu/halves.h"
#include "lib/cpu/kernels.h"
#include "lib/cpu/simd/halves.h"
#include "lib/cpu/simd/map.h"
#include "lib/cpu/simd/power.h"
#include "lib/cpu/simd/transpose.h"
#include "lib/device/dispatch.h"
#include "lib/device/kernels/enums.h"
#include "lib/device/kernels/update.h"
#include "lib/functors/binary.h"
#include "lib/functors/math.h"

// Reductions. Sums of floating-point numbers are taken over blocks of a few hundred elements in T, and the blocks'
// results are added in double precision: the sum of 10⁷ float32 numbers is as exact as its inputs, and vectors of
// floats do most of the work.
namespace reel::cpu::REEL_ISA {
namespace {

using functors::select;

/// Same is the term of a plain sum: the element.
struct Same {
  template <class B>
  B operator()(const B& x) const {
    return x;
  }
};

/// Sum, Prod, Max and Min join elements, of which they take the `Term`; `Total` is the type in which partial results of
/// type T are joined.
struct Sum {
  using Term = Same;
  template <class T>
  using Total = double;
  template <class T>
  static constexpr T start = T(0);
  template <class B>
  static B join(const B& a, const B& b) {
    return a + b;
  }
};
struct Prod {
  using Term = Same;
  template <class T>
  using Total = double;
  template <class T>
  static constexpr T start = T(1);
  template <class B>
  static B join(const B& a, const B& b) {
    return a * b;
  }
};
struct Max {
  using Term = Same;
  template <class T>
  using Total = T;
  template <class T>
  static constexpr T start = -std::numeric_limits<T>::infinity();
  template <class B>
  static B join(const B& a, const B& b) {
    return select((b > a) | (b != b), b, a);
  }
};
struct Min {
  using Term = Same;
  template <class T>
  using Total = T;
  template <class T>
  static constexpr T start = std::numeric_limits<T>::infinity();
  template <class B>
  static B join(const B& a, const B& b) {
    return select((b < a) | (b != b), b, a);
  }
};

/// SumOf<F> adds F of each element.
template <class F>
struct SumOf : Sum {
  using Term = F;
};
/// ZeroForNaN is the term of a sum without NaN.
struct ZeroForNaN {
  template <class B>
  B operator()(const B& x) const {
    return select(x != x, B(0), x);
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

/// A Row has elements of type E. `Stride` is an integral constant, or the number of elements between neighbours.
template <class E, class Stride = std::integral_constant<int64_t, 1>>
struct Row {
  const E* data;
  Stride stride = {};
  auto at(int64_t i) const { return widen(data[i * stride]); }
  /// Returns the vector of the elements from i on.
  Batch<Compute<E>> vector_at(int64_t i) const {
    if constexpr (std::is_same_v<Stride, int64_t>) {
      if (stride == 2) return load_every_second_wide(data + 2 * i);
      return part_at(i, kWidth<Compute<E>>);
    } else {
      return load_wide(data + i);
    }
  }
  /// Returns n elements from i on, 0 < n ≤ a vector's; those beyond them are zero.
  Batch<Compute<E>> part_at(int64_t i, int64_t n) const {
    if constexpr (std::is_same_v<Stride, int64_t>) {
      using T = Compute<E>;
      alignas(Arch::alignment()) T lanes[kWidth<T>] = {};
      for (int64_t k = 0; k < n; ++k) lanes[k] = at(i + k);
      return Batch<T>::load_aligned(lanes);
    } else {
      return load_part_wide(data + i, n);
    }
  }
  Row behind(int64_t offset) const { return {data + offset, stride}; }
};

/// Calls f(row) for the row of elements that are `stride` apart.
template <class E, class F>
auto with_row(const E* data, int64_t stride, const F& f) {
  return stride == 1 ? f(Row<E>{data}) : f(Row<E, int64_t>{data, stride});
}

/// Returns the whole vectors of n ≤ kBlock elements of a row, reduced to one. The elements behind them are left out.
template <class Op, class Elements, class Term = typename Op::Term>
auto reduce_vectors(const Elements& x, int64_t begin, int64_t n, const Term& term = {}) {
  using B = decltype(x.vector_at(0));
  using T = typename B::value_type;
  constexpr int64_t kStep = kWidth<T>;
  const B start(Op::template start<T>);
  B a = start, b = start, c = start, d = start;
  int64_t i = 0;
  for (; i + 4 * kStep <= n; i += 4 * kStep) {
    a = Op::join(a, term(x.vector_at(begin + i)));
    b = Op::join(b, term(x.vector_at(begin + i + kStep)));
    c = Op::join(c, term(x.vector_at(begin + i + 2 * kStep)));
    d = Op::join(d, term(x.vector_at(begin + i + 3 * kStep)));
  }
  for (; i + kStep <= n; i += kStep) a = Op::join(a, term(x.vector_at(begin + i)));
  return Op::join(Op::join(a, b), Op::join(c, d));
}

/// Reduces term(x) over n elements of a row.
template <class Op, class Elements, class Term = typename Op::Term>
double reduce_row(const Elements& x, int64_t n, const Term& term = {}) {
  using T = decltype(x.at(0));
  constexpr int64_t kStep = kWidth<T>;
  double result = Op::template start<double>;
  for (int64_t begin = 0; begin < n; begin += kBlock<T>) {
    const int64_t count = begin + kBlock<T> < n ? kBlock<T> : n - begin;
    if (count >= kStep) result = Op::join(result, join_lanes<Op, T>(reduce_vectors<Op>(x, begin, count, term)));
    for (int64_t i = count / kStep * kStep; i < count; ++i) result = Op::join(result, double(term(x.at(begin + i))));
  }
  return result;
}

/// Computes y[0 … n) for n columns, n at most kColumns batches. `first` is the first one of the rows.
template <class Op, class E, class Stride, class Out>
void reduce_columns(const Nest& rows, const Row<E, Stride>& first, int64_t n, Out* y, int64_t y_stride) {
  using T = Compute<E>;
  constexpr int64_t kStep = kWidth<T>;
  constexpr typename Op::Term term;
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
      Row<E, Stride> row = first.behind(offset + begin * stride);
      if (n == kColumns * kStep) {
        for (int64_t r = begin; r < end; ++r, row.data += stride)
          for (int c = 0; c < kColumns; ++c) part[c] = Op::join(part[c], term(row.vector_at(c * kStep)));
      } else {
        const int64_t whole = n / kStep, rest = n % kStep;
        for (int64_t r = begin; r < end; ++r, row.data += stride) {
          for (int64_t c = 0; c < whole; ++c) part[c] = Op::join(part[c], term(row.vector_at(c * kStep)));
          if (rest) part[whole] = Op::join(part[whole], term(row.part_at(whole * kStep, rest)));
        }
      }
      flush();
    }
  });
  for (int64_t i = 0; i < n; ++i) y[i * y_stride] = static_cast<Out>(total[i]);
}

/// Reduces columns of which there are so few that `together` rows, which lie side by side in memory, fit into vectors.
template <class Op, class E, class Stride, class Out>
void reduce_narrow_columns(const Nest& rows, const Row<E, Stride>& x, int64_t n, int64_t together, Out* y,
                           int64_t y_stride) {
  constexpr int64_t kMax = kColumns * kWidth<Compute<E>>;
  double totals[kMax], rest[kMax];
  Nest part = rows;
  part.sizes[0] /= together, part.x_strides[0] *= together;
  reduce_columns<Op>(part, x, n * together, totals, 1);
  for (int64_t i = n; i < n * together; ++i) totals[i % n] = Op::join(totals[i % n], totals[i]);
  if (const int64_t done = part.sizes[0] * together; done < rows.sizes[0]) {
    part = rows;
    part.sizes[0] -= done;
    reduce_columns<Op>(part, x.behind(done * rows.x_strides[0]), n, rest, 1);
    for (int64_t i = 0; i < n; ++i) totals[i] = Op::join(totals[i], rest[i]);
  }
  for (int64_t i = 0; i < n; ++i) y[i * y_stride] = static_cast<Out>(totals[i]);
}

/// Reduces `rows` rows, `stride` apart, of n ≤ kBlock elements, with the bits of reduce_row(). Several rows lie in the
/// lanes of vectors in the end.
template <class Op, class E, class Stride, class Out>
void reduce_rows(const Row<E, Stride>& first, int64_t stride, int64_t rows, int64_t n, Out* y, int64_t y_stride) {
  constexpr bool kAdjacent = !std::is_same_v<Stride, int64_t>;
  using T = Compute<E>;
  using Total = typename Op::template Total<T>;
  constexpr int64_t kTogether = kWidth<T>;
  constexpr typename Op::Term term;
  T lanes[kTogether * kTogether];
  for (int64_t row = 0; row < rows; row += kTogether) {
    const int64_t count = std::min(kTogether, rows - row);
    const Row<E, Stride> from = first.behind(row * stride);
    // The first `done` elements of each row lie in lanes, as `vectors` vectors.
    int64_t done = n / kTogether * kTogether, vectors = done ? kTogether : 0;
    if constexpr (kAdjacent && std::is_same_v<E, T>)
      if (n <= kTogether) {
        rows_to_lanes(from.data, stride, done = vectors = n, count, lanes);
        for (int64_t k = 0; k < vectors; ++k) store(lanes + k * kTogether, term(load(lanes + k * kTogether)));
      }
    if (n > kTogether || !kAdjacent || !std::is_same_v<E, T>) {
      Batch<T> parts[kTogether];
      for (int64_t r = 0; r < kTogether; ++r)
        parts[r] = r < count ? reduce_vectors<Op>(from.behind(r * stride), 0, n) : Batch<T>(T(0));
      transpose(parts);
      for (int64_t k = 0; k < kTogether; ++k) store(lanes + k * kTogether, parts[k]);
    }
    Total results[kTogether];
    for (Total& result : results) result = Op::template start<Total>;
    if constexpr (std::is_same_v<Total, T>) {
      Batch<T> joined(Op::template start<T>);
      for (int64_t k = 0; k < vectors; ++k) joined = Op::join(joined, load(lanes + k * kTogether));
      store(results, joined);
    } else {
      for (int64_t k = 0; k < vectors; ++k)
        for (int64_t r = 0; r < kTogether; ++r) results[r] = Op::join(results[r], Total(lanes[k * kTogether + r]));
    }
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t i = done; i < n; ++i) results[r] = Op::join(results[r], Total(term(from.behind(r * stride).at(i))));
      y[(row + r) * y_stride] = static_cast<Out>(results[r]);
    }
  }
}

/// Reduces rows of n contiguous elements to one number. Several short ones are reduced before lanes are joined.
template <class Op, class E>
double reduce_nest(const Nest& rows, const E* x) {
  using T = Compute<E>;
  const int64_t n = rows.sizes[0], stride = rows.x_strides[0], whole = n / kWidth<T> * kWidth<T>;
  double total = Op::template start<double>;
  if (stride != 1 || n > kBlock<T> / 2 || rows.rank == 1) {
    for_each_point(rows, 1, [&](int64_t offset, int64_t) {
      const double row = with_row(x + offset, stride, [&](const auto& row) { return reduce_row<Op>(row, n); });
      total = Op::join(total, row);
    });
    return total;
  }
  constexpr typename Op::Term term;
  const Batch<T> start(Op::template start<T>);
  Batch<T> part = start;
  int64_t count = 0;  // elements of part
  for_each_point(rows, 1, [&](int64_t offset, int64_t) {
    const Row<E> row{x + offset};
    if (whole) part = Op::join(part, reduce_vectors<Op>(row, 0, n));
    for (int64_t i = whole; i < n; ++i) total = Op::join(total, double(term(row.at(i))));
    if ((count += whole) < kBlock<T>) return;
    total = Op::join(total, join_lanes<Op, T>(part));
    part = start, count = 0;
  });
  return count ? Op::join(total, join_lanes<Op, T>(part)) : total;
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
    *to = static_cast<Out>(reduce_row<Op>(Row<E>{from}, x.numel));
    return;
  }
  const Reduction r(x, y);
  const int64_t width = r.kept.sizes[0], y_stride = r.kept.y_strides[0];
  if (r.columns && r.kept.x_strides[0] != 0) {
    constexpr int64_t kStep = kColumns * kWidth<Compute<E>>;
    const int64_t column = r.kept.x_strides[0], together = r.gone.x_strides[0] == column * width ? kStep / width : 1;
    for_each_point(r.kept, 1, [&](int64_t x_offset, int64_t y_offset) {
      with_row(from + x_offset, column, [&](const auto& row) {
        if (together > 1 && together <= r.gone.sizes[0])
          return reduce_narrow_columns<Op>(r.gone, row, width, together, to + y_offset, y_stride);
        for (int64_t i = 0; i < width; i += kStep)
          reduce_columns<Op>(r.gone, row.behind(i * column), std::min(kStep, width - i), to + y_offset + i * y_stride,
                             y_stride);
      });
    });
    return;
  }
  const int64_t n = r.gone.sizes[0];
  if (r.gone.rank == 1 && r.gone.x_strides[0] != 0 && n <= kBlock<Compute<E>> && width >= 4)
    return for_each_point(r.kept, 1, [&](int64_t x_offset, int64_t y_offset) {
      with_row(from + x_offset, r.gone.x_strides[0],
               [&](const auto& row) { reduce_rows<Op>(row, r.kept.x_strides[0], width, n, to + y_offset, y_stride); });
    });
  for_each_point(r.kept, 0, [&](int64_t x_offset, int64_t y_offset) {
    to[y_offset] = static_cast<Out>(reduce_nest<Op>(r.gone, from + x_offset));
  });
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
    case ReduceOp::kSumOfMagnitudes: return reduce<SumOf<functors::Abs>, E>(x, y);
    case ReduceOp::kSumOfSquares: return reduce<SumOf<functors::Square>, E>(x, y);
    case ReduceOp::kSumWithoutNaN: return reduce<SumOf<ZeroForNaN>, E>(x, y);
    default: break;
  }
  reduce<Sum, E>(x, y);
  const Batch<T> count(static_cast<T>(static_cast<double>(x.numel) / static_cast<double>(y.numel)));
  const auto divide = [&](const View& sums) { map<T>([&](const Batch<T>& sum) { return sum / count; }, sums, sums); };
  if (y.numel <= part_size) return divide(y);
  const View* const views[] = {&y};
  for_each_part(views, 0, [&](const View* const* part) { divide(*part[0]); });
}

/// Writes x, of type E, reduced to y, of integers or bools. The compiler vectorises the loops.
template <class E, class T, class Join>
void reduce_integers_of(const View& x, const View& y, T start, const Join& join) {
  constexpr int64_t kTogether = 64;  // columns
  const E* const from = x.as<const E>();
  T* const to = y.as<T>();
  if (y.numel == 0) return;
  if (x.numel == 0)
    return for_each_point(Reduction(y, y).kept, 0, [&](int64_t offset, int64_t) { to[offset] = start; });
  const Reduction r(x, y);
  const int64_t n = r.gone.sizes[0], stride = r.gone.x_strides[0];
  if (r.columns && r.kept.x_strides[0] == 1) {
    for_each_point(r.kept, 1, [&](int64_t x_offset, int64_t y_offset) {
      for (int64_t begin = 0; begin < r.kept.sizes[0]; begin += kTogether) {
        const int64_t columns = std::min(kTogether, r.kept.sizes[0] - begin);
        T totals[kTogether];
        std::fill_n(totals, columns, start);
        for_each_point(r.gone, 0, [&](int64_t offset, int64_t) {
          const E* const row = from + x_offset + begin + offset;
          for (int64_t c = 0; c < columns; ++c) totals[c] = join(totals[c], row[c]);
        });
        for (int64_t c = 0; c < columns; ++c) to[y_offset + (begin + c) * r.kept.y_strides[0]] = totals[c];
      }
    });
    return;
  }
  for_each_point(r.kept, 0, [&](int64_t x_offset, int64_t y_offset) {
    T total = start;
    for_each_point(r.gone, 1, [&](int64_t offset, int64_t) {
      const E* const row = from + x_offset + offset;
      const auto add = [&](int64_t step) {
        T sum = total;
        for (int64_t i = 0; i < n; ++i) sum = join(sum, row[i * step]);
        total = sum;
      };
      stride == 1 ? add(1) : add(stride);
    });
    to[y_offset] = total;
  });
}

template <class E, class T, class Join, class JoinTotals>
void reduce_integers(const View& x, const View& y, T start, const Join& join, const JoinTotals& join_totals) {
  const auto of_part = [&](const View& px, const View& py) { reduce_integers_of<E>(px, py, start, join); };
  if (x.numel <= part_size || y.numel == 0 || !reduce_parts<T, T>(x, y, y.dtype, of_part, join_totals)) of_part(x, y);
}

template <class T>
void reduce_integers(ReduceOp op, const View& x, const View& y) {
  const auto reduce = [&](T start, const auto& join) { reduce_integers<T>(x, y, start, join, join); };
  switch (op) {
    // Sums and products wrap. The op widens narrow integers first.
    case ReduceOp::kSum: return reduce(0, [](T a, T b) { return static_cast<T>(uint64_t(a) + uint64_t(b)); });
    case ReduceOp::kProd: return reduce(1, [](T a, T b) { return static_cast<T>(uint64_t(a) * uint64_t(b)); });
    case ReduceOp::kMax: return reduce(std::numeric_limits<T>::lowest(), [](T a, T b) { return a < b ? b : a; });
    case ReduceOp::kMin: return reduce(std::numeric_limits<T>::max(), [](T a, T b) { return b < a ? b : a; });
    case ReduceOp::kAny: return reduce(0, [](T a, T b) { return T(a | T(b != 0)); });
    case ReduceOp::kAll: return reduce(1, [](T a, T b) { return T(a & T(b != 0)); });
    default: return;  // not of integers
  }
}

template <class E>
void count_nonzero(const View& x, const View& y) {
  const auto count = [](int64_t total, E element) {
    if constexpr (sizeof(E) == 2)  // no integer has two bytes
      return total + (std::bit_cast<uint16_t>(element) % 0x8000 != 0);
    else
      return total + (element != 0);
  };
  reduce_integers<E>(x, y, int64_t{0}, count, std::plus<int64_t>());
}

void reduce_any(ReduceOp op, const View& x, const View& y) {
  if (op == ReduceOp::kCountNonzero)
    return dispatch::with_type(x.dtype, [&](auto type) { count_nonzero<typename decltype(type)::type>(x, y); });
  switch (x.dtype) {
    case kFloat32: return reduce_floats<float>(op, x, y);
    case kFloat64: return reduce_floats<double>(op, x, y);
    case kFloat16: return reduce_floats<Float16>(op, x, Widened().out(y));
    case kBFloat16: return reduce_floats<BFloat16>(op, x, Widened().out(y));
    default:
      dispatch::with_integer(x.dtype, [&](auto type) { reduce_integers<typename decltype(type)::type>(op, x, y); });
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
        total = Op::join(total, reduce_row<Op>(Row<E>{static_cast<const E*>(x.p) + begin}, end - begin, term));
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
