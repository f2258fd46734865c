#include <limits>

#include "cuda/kernels.h"
#include "cuda/reduction.h"
#include "lib/device/kernels/enums.h"
#include "lib/functors/math.h"

// Reductions (sum, mean, prod, max, min, any, all) and argmax, argmin as Jobs of cuda/reduction.h.
namespace reel::cuda {
namespace {

struct NoContext {};

/// Same is the term of a plain sum: the element.
struct Same {
  template <class T>
  __device__ T operator()(T x) const {
    return x;
  }
};
/// ZeroForNaN is the term of a sum without NaN.
struct ZeroForNaN {
  template <class T>
  __device__ T operator()(T x) const {
    return x != x ? T(0) : x;
  }
};

/// An Accumulate computes sums of the terms of elements, products and, with a divisor, means. Floats are accumulated in
/// double precision (but for the elements of one vector, which are added in their own type first): the sum of 10⁷
/// float32 numbers is as exact as its inputs. Integers wrap.
template <class T, bool product, class Term = Same>
struct Accumulate {
  using Element = T;
  using Acc = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
  const T* x;
  T* y;
  double divisor;
  __device__ Acc identity() const { return product; }
  __device__ NoContext context(int64_t, int64_t) const { return {}; }
  __device__ Acc element(NoContext, int64_t at, int64_t) const { return static_cast<Acc>(term(x[at])); }
  __device__ Acc vector(NoContext, int64_t at, int64_t) const {
    using Part = std::conditional_t<product || std::is_integral_v<T>, Acc, Wide<T>>;
    const AlignedVector<T> all = load_vector(x + at);
    Part part = static_cast<Part>(term(all.items[0]));
    for (int k = 1; k < AlignedVector<T>::kSize; ++k) part = combine_two(part, static_cast<Part>(term(all.items[k])));
    return static_cast<Acc>(part);
  }
  __device__ Acc item(const AlignedVector<T>& pack, int k, int64_t) const {
    return static_cast<Acc>(term(pack.items[k]));
  }
  __device__ Acc combine(Acc a, Acc b) const { return combine_two(a, b); }
  __device__ void finish(int64_t, int64_t at, Acc total) const {
    if constexpr (product || std::is_integral_v<T>)
      y[at] = narrow<T>(total);
    else
      y[at] = narrow<T>(total / divisor);
  }

  static __device__ Wide<T> term(T x) { return Term()(widen(x)); }
  template <class A>
  static __device__ A combine_two(A a, A b) {
    return product ? a * b : a + b;
  }
};

/// Whether x replaces `best`. A NaN replaces every number, for max and min alike, so that it propagates.
template <class T>
__device__ bool beats(bool largest, T x, T best) {
  if (best != best) return false;
  return x != x || (largest ? x > best : x < best);
}

template <class T>
struct Extreme {
  using Element = T;
  using Acc = Wide<T>;
  bool largest;
  Acc first;
  const T* x;
  T* y;
  __device__ Acc identity() const { return first; }
  __device__ NoContext context(int64_t, int64_t) const { return {}; }
  __device__ Acc element(NoContext, int64_t at, int64_t) const { return widen(x[at]); }
  __device__ Acc vector(NoContext, int64_t at, int64_t) const {
    const AlignedVector<T> all = load_vector(x + at);
    Acc best = widen(all.items[0]);
    for (int k = 1; k < AlignedVector<T>::kSize; ++k) best = combine(best, widen(all.items[k]));
    return best;
  }
  __device__ Acc item(const AlignedVector<T>& pack, int k, int64_t) const { return widen(pack.items[k]); }
  __device__ Acc combine(Acc a, Acc b) const { return beats(largest, b, a) ? b : a; }
  __device__ void finish(int64_t, int64_t at, Acc best) const { y[at] = narrow<T>(best); }
};

/// kAny and kAll.
struct Truth {
  using Element = uint8_t;
  using Acc = int;
  bool any;
  const uint8_t* x;
  uint8_t* y;
  __device__ Acc identity() const { return !any; }
  __device__ NoContext context(int64_t, int64_t) const { return {}; }
  __device__ Acc element(NoContext, int64_t at, int64_t) const { return x[at] != 0; }
  __device__ Acc vector(NoContext, int64_t at, int64_t) const {
    const AlignedVector<uint8_t> all = load_vector(x + at);
    Acc truth = identity();
    for (const uint8_t item : all.items) truth = combine(truth, item != 0);
    return truth;
  }
  __device__ Acc combine(Acc a, Acc b) const { return any ? a | b : a & b; }
  __device__ void finish(int64_t, int64_t at, Acc truth) const { y[at] = static_cast<uint8_t>(truth); }
};

/// A CountNonzero counts the elements that are not 0; NaN is one of them.
template <class T>
struct CountNonzero {
  using Element = T;
  using Acc = int64_t;
  const T* x;
  int64_t* y;
  __device__ Acc identity() const { return 0; }
  __device__ NoContext context(int64_t, int64_t) const { return {}; }
  __device__ Acc element(NoContext, int64_t at, int64_t) const { return widen(x[at]) != Wide<T>(0); }
  __device__ Acc vector(NoContext, int64_t at, int64_t) const {
    const AlignedVector<T> all = load_vector(x + at);
    int count = 0;
    for (const T& item : all.items) count += widen(item) != Wide<T>(0);
    return count;
  }
  __device__ Acc combine(Acc a, Acc b) const { return a + b; }
  __device__ void finish(int64_t, int64_t at, Acc count) const { y[at] = count; }
};

template <class V>
struct Found {
  V value;
  int64_t at;  // -1: nothing yet
};

template <class T>
struct ArgExtreme {
  using Element = T;
  using Acc = Found<Wide<T>>;
  bool largest;
  const T* x;
  int64_t* y;
  __device__ Acc identity() const { return {Wide<T>(0), -1}; }
  __device__ NoContext context(int64_t, int64_t) const { return {}; }
  __device__ Acc element(NoContext, int64_t at, int64_t i) const { return {widen(x[at]), i}; }
  __device__ Acc vector(NoContext, int64_t at, int64_t i) const {
    const AlignedVector<T> all = load_vector(x + at);
    Acc best{widen(all.items[0]), i};
    for (int k = 1; k < AlignedVector<T>::kSize; ++k)
      if (beats(largest, Wide<T>(widen(all.items[k])), best.value)) best = {widen(all.items[k]), i + k};
    return best;
  }
  __device__ Acc combine(const Acc& a, const Acc& b) const {
    if (a.at < 0 || b.at < 0) return a.at < 0 ? b : a;
    if (beats(largest, b.value, a.value)) return b;
    if (beats(largest, a.value, b.value)) return a;
    return b.at < a.at ? b : a;
  }
  __device__ void finish(int64_t, int64_t at, const Acc& best) const { y[at] = best.at; }
};

template <class Job>
void reduce_by(const Job& job, const View& x, const View& y) {
  using T = typename Job::Element;
  LoopNest kept, reduced;
  for (int d = x.shape.size() - 1; d >= 0; --d)
    if (x.shape[d] == y.shape[d])
      kept.add(x.shape[d], x.strides[d], y.strides[d]);
    else
      reduced.add(x.shape[d], x.strides[d], 0);
  run(job, Reduction(kept, reduced, sizeof(T), is_aligned(x.data) ? AlignedVector<T>::kSize : 0, Packing<Job>));
}

template <class T, bool product, class Term = Same>
void accumulate(const View& x, const View& y, double divisor = 1) {
  reduce_by(Accumulate<T, product, Term>{x.as<const T>(), y.as<T>(), divisor}, x, y);
}
template <class Term>
void sum_of(const View& x, const View& y) {
  with_floating(x.dtype, [&](auto type) { accumulate<typename decltype(type)::type, false, Term>(x, y); });
}
template <bool product>
void accumulate_any(const View& x, const View& y, double divisor = 1) {
  if (x.dtype == kInt64) return accumulate<int64_t, product>(x, y, divisor);
  with_floating(x.dtype, [&](auto type) { accumulate<typename decltype(type)::type, product>(x, y, divisor); });
}

void find_extreme(bool largest, const View& x, const View& y) {
  with_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using Limits = std::numeric_limits<Wide<T>>;
    const Wide<T> low = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
    const Wide<T> high = Limits::has_infinity ? Limits::infinity() : Limits::max();
    reduce_by(Extreme<T>{largest, largest ? low : high, x.as<const T>(), y.as<T>()}, x, y);
  });
}

void reduce(ReduceOp op, const View& x, const View& y) {
  if (y.numel == 0) return;
  switch (op) {
    case ReduceOp::kSum: return accumulate_any<false>(x, y);
    case ReduceOp::kMean:
      return accumulate_any<false>(x, y, static_cast<double>(x.numel) / static_cast<double>(y.numel));
    case ReduceOp::kProd: return accumulate_any<true>(x, y);
    case ReduceOp::kMax: return find_extreme(true, x, y);
    case ReduceOp::kMin: return find_extreme(false, x, y);
    case ReduceOp::kAny:
    case ReduceOp::kAll: return reduce_by(Truth{op == ReduceOp::kAny, x.as<const uint8_t>(), y.as<uint8_t>()}, x, y);
    case ReduceOp::kSumOfMagnitudes: return sum_of<functors::Abs>(x, y);
    case ReduceOp::kSumOfSquares: return sum_of<functors::Square>(x, y);
    case ReduceOp::kSumWithoutNaN: return sum_of<ZeroForNaN>(x, y);
    case ReduceOp::kCountNonzero:
      return with_type(x.dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        reduce_by(CountNonzero<T>{x.as<const T>(), y.as<int64_t>()}, x, y);
      });
  }
}

void arg_reduce(bool largest, const View& x, int, const View& y) {
  if (x.numel == 0) return;
  with_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    reduce_by(ArgExtreme<T>{largest, x.as<const T>(), y.as<int64_t>()}, x, y);
  });
}

}  // namespace

void install_reduce(KernelTable& table) {
  table.reduce = reduce;
  table.arg_reduce = arg_reduce;
}

}  // namespace reel::cuda
