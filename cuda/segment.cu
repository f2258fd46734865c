#include <cmath>

#include "cuda/block.h"
#include "cuda/kernels.h"
#include "cuda/online_softmax.h"
#include "lib/device/kernels/enums.h"
#include "lib/functors/number.h"

// Segment ops over ragged rows: x is [n, m], segment s the rows offsets[s] … offsets[s + 1] - 1. A team of threads, a
// warp or a block, has up to 32 neighbouring columns of a segment: `columns` of its lanes lie side by side, the others
// share the rows. Warps suit short segments, blocks long ones; the choice depends on the mean length alone, so that
// lengths need not be copied to the host.
//
// A Job says what is computed for one column of a segment. It is reduced first, then each element may get a value:
//   using Acc (trivially copyable, at most 16 bytes, of 4-byte words)
//   Acc start(at)                        at: the offset in [segments, m] of the result; -1 beyond the last column
//   void add(Acc*, i)                    i: an element's offset in [n, m]
//   Acc operator()(a, b)                 combines two parts
//   void finish(Acc*, at, rows, writes)  in every thread; `writes` is true in one of them
//   void apply(acc, at, i)               if kApplies
namespace reel::cuda {
namespace {

struct Ragged {
  const int64_t* offsets;
  int64_t segments, m, tiles;  // of columns
  unsigned team, columns;
};

/// Combines the lanes of a team that share a column, whose numbers differ by multiples of `distance`; all get the
/// result.
template <class Acc, class Op>
__device__ Acc combine_lanes(Acc value, const Op& op, unsigned distance, unsigned team) {
  for (unsigned step = kWarp / 2; step >= distance; step /= 2) value = op(value, shuffle_xor(value, step));
  if (team == kWarp) return value;
  static_assert(sizeof(Acc) <= 16);
  __shared__ __align__(16) unsigned char memory[kThreads * sizeof(Acc)];
  Acc* const all = reinterpret_cast<Acc*>(memory);
  all[threadIdx.x] = value;
  __syncthreads();
  value = all[threadIdx.x % kWarp];
  for (unsigned i = threadIdx.x % kWarp + kWarp; i < kThreads; i += kWarp) value = op(value, all[i]);
  return value;
}

template <class Job>
__global__ void __launch_bounds__(kThreads) segment_kernel(const Job job, const Ragged ragged) {
  const int64_t unit = first_index() / ragged.team, segment = unit / ragged.tiles;
  if (segment >= ragged.segments) return;  // a whole warp or block
  const unsigned thread = threadIdx.x % ragged.team;
  const int64_t column = unit % ragged.tiles * ragged.columns + thread % ragged.columns;
  const bool there = column < ragged.m;
  const int64_t at = there ? segment * ragged.m + column : -1;
  const int64_t begin = ragged.offsets[segment], end = there ? ragged.offsets[segment + 1] : begin;
  const int64_t first = begin + thread / ragged.columns, step = ragged.team / ragged.columns;

  typename Job::Acc acc = job.start(at);
  for (int64_t row = first; row < end; row += step) job.add(&acc, row * ragged.m + column);
  acc = combine_lanes(acc, job, ragged.columns, ragged.team);
  if (!there) return;
  job.finish(&acc, at, end - begin, thread < ragged.columns);
  if constexpr (Job::kApplies)
    for (int64_t row = first; row < end; row += step) job.apply(acc, at, row * ragged.m + column);
}

/// x: the view of [n, m].
template <class Job>
void run(const Job& job, const View& x, const View& offsets) {
  Ragged ragged{};
  ragged.offsets = offsets.as<const int64_t>();
  ragged.segments = offsets.numel - 1;
  ragged.m = x.shape.size() > 1 ? x.shape[1] : 1;
  if (ragged.segments == 0 || ragged.m == 0) return;
  ragged.columns = power_of_two_from(ragged.m, kWarp);
  ragged.tiles = ceil_div(ragged.m, ragged.columns);
  ragged.team = x.shape[0] / ragged.segments * ragged.columns > 2048 ? kThreads : kWarp;
  const int64_t threads = ragged.segments * ragged.tiles * ragged.team;
  launch(segment_kernel<Job>, static_cast<unsigned>(ceil_div(threads, kThreads)), kThreads, 0, job, ragged);
}

// ---- reductions -----------------------------------------------------------------------------------------------------

template <class T>
struct Sum {
  static constexpr bool kApplies = false;
  using Acc = double;
  bool mean;
  const T* x;
  T* y;
  __device__ Acc start(int64_t) const { return 0; }
  __device__ void add(Acc* total, int64_t i) const { *total += static_cast<double>(x[i]); }
  __device__ Acc operator()(Acc a, Acc b) const { return a + b; }
  __device__ void finish(Acc* total, int64_t at, int64_t rows, bool writes) const {
    if (writes) y[at] = static_cast<T>(mean && rows ? *total / static_cast<double>(rows) : *total);
  }
};

template <class T>
struct Extreme {
  static constexpr bool kApplies = false;
  using Acc = T;
  bool largest;
  const T* x;
  T* y;
  __device__ Acc start(int64_t) const { return largest ? -INFINITY : INFINITY; }
  __device__ void add(Acc* best, int64_t i) const { *best = (*this)(*best, x[i]); }
  __device__ Acc operator()(Acc a, Acc b) const { return largest ? Maximum()(a, b) : Minimum()(a, b); }
  __device__ void finish(Acc* best, int64_t at, int64_t, bool writes) const {
    if (writes) y[at] = *best;
  }
};

void segment_reduce(SegmentOp op, const View& x, const View& offsets, const View& y) {
  with_float(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if (op == SegmentOp::kSum || op == SegmentOp::kMean)
      run(Sum<T>{op == SegmentOp::kMean, x.as<const T>(), y.as<T>()}, x, offsets);
    else
      run(Extreme<T>{op == SegmentOp::kMax, x.as<const T>(), y.as<T>()}, x, offsets);
  });
}

// ---- their gradients ------------------------------------------------------------------------------------------------

template <class T>
struct Spread {
  static constexpr bool kApplies = true;
  using Acc = T;
  bool mean;
  const T* y;
  T* x;
  __device__ Acc start(int64_t at) const { return at < 0 ? T(0) : y[at]; }
  __device__ void add(Acc*, int64_t) const {}
  __device__ Acc operator()(Acc a, Acc) const { return a; }
  __device__ void finish(Acc* value, int64_t, int64_t rows, bool) const {
    if (mean && rows) *value *= T(1) / static_cast<T>(rows);
  }
  __device__ void apply(Acc value, int64_t, int64_t i) const { x[i] = value; }
};

void segment_broadcast(bool mean, const View& y, const View& offsets, const View& x) {
  with_float(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    run(Spread<T>{mean, y.as<const T>(), x.as<T>()}, x, offsets);
  });
}

/// The extreme of a segment and how often it occurs; after finish(), `count` holds the gradient of each occurrence, an
/// equal share.
template <class T>
struct Ties {
  T best, count;
};
template <class T>
struct ExtremeGrad {
  static constexpr bool kApplies = true;
  using Acc = Ties<T>;
  const T *g, *x, *y;
  T* gx;
  static __device__ bool same(T a, T b) { return a == b || (a != a && b != b); }
  __device__ Acc start(int64_t at) const { return {at < 0 ? T(0) : y[at], 0}; }
  __device__ void add(Acc* ties, int64_t i) const { ties->count += same(x[i], ties->best); }
  __device__ Acc operator()(const Acc& a, const Acc& b) const { return {a.best, a.count + b.count}; }
  __device__ void finish(Acc* ties, int64_t at, int64_t, bool) const { ties->count = g[at] / ties->count; }
  __device__ void apply(const Acc& ties, int64_t, int64_t i) const {
    gx[i] = same(x[i], ties.best) ? ties.count : T(0);
  }
};

void segment_extreme_grad(const View& g, const View& x, const View& y, const View& offsets, const View& gx) {
  with_float(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    run(ExtremeGrad<T>{g.as<const T>(), x.as<const T>(), y.as<const T>(), gx.as<T>()}, x, offsets);
  });
}

// ---- softmax --------------------------------------------------------------------------------------------------------

template <class T>
struct Softmax {
  static constexpr bool kApplies = true;
  using Acc = OnlineSoftmax<T>;
  const T* x;
  T* y;
  __device__ Acc start(int64_t) const { return {}; }
  __device__ void add(Acc* all, int64_t i) const { *all = MergeOnlineSoftmax()(*all, Acc{x[i], T(1)}); }
  __device__ Acc operator()(const Acc& a, const Acc& b) const { return MergeOnlineSoftmax()(a, b); }
  __device__ void finish(Acc* all, int64_t, int64_t, bool) const { all->sum = T(1) / all->total(); }
  __device__ void apply(const Acc& all, int64_t, int64_t i) const { y[i] = functors::exp(x[i] - all.max) * all.sum; }
};

void segment_softmax(const View& x, const View& offsets, const View& y) {
  with_float(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    run(Softmax<T>{x.as<const T>(), y.as<T>()}, x, offsets);
  });
}

template <class T>
struct SoftmaxGrad {
  static constexpr bool kApplies = true;
  using Acc = double;
  const T *g, *y;
  T* gx;
  __device__ Acc start(int64_t) const { return 0; }
  __device__ void add(Acc* total, int64_t i) const { *total += static_cast<double>(g[i] * y[i]); }
  __device__ Acc operator()(Acc a, Acc b) const { return a + b; }
  __device__ void finish(Acc*, int64_t, int64_t, bool) const {}
  __device__ void apply(Acc total, int64_t, int64_t i) const { gx[i] = y[i] * (g[i] - static_cast<T>(total)); }
};

void segment_softmax_grad(const View& g, const View& y, const View& offsets, const View& gx) {
  with_float(y.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    run(SoftmaxGrad<T>{g.as<const T>(), y.as<const T>(), gx.as<T>()}, y, offsets);
  });
}

}  // namespace

void install_segment(KernelTable& table) {
  table.segment_reduce = segment_reduce;
  table.segment_broadcast = segment_broadcast;
  table.segment_extreme_grad = segment_extreme_grad;
  table.segment_softmax = segment_softmax;
  table.segment_softmax_grad = segment_softmax_grad;
}

}  // namespace reel::cuda
