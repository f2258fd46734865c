#include <cmath>

#include "cuda/block.h"
#include "cuda/kernels.h"
#include "cuda/packed.h"

// Ragged rows: x is [n, m], segment s the rows offsets[s] … offsets[s + 1]. A team of threads, a warp or a block, has a
// segment of some neighbouring columns: `columns` of its lanes lie side by side, the others share the rows.
//
// A Job says what becomes of one column of a segment:
//   using Acc (trivially copyable, at most 16 bytes, of 4-byte words)
//   Acc start(at)                   at: where the segment's row of [s, m] has the column
//   void add(Acc*, i)               i: an element's place in [n, m]
//   Acc operator()(a, b)            two parts joined
//   void finish(at, rows, acc)      called once
//   void apply(at, i, acc)          called for each element afterwards, if kApplies
namespace reel::cuda {
namespace {

struct Ragged {
  const int64_t* offsets;
  int64_t segments, m, tiles;  // of columns
  unsigned team, columns;
};

/// The lanes of a block whose numbers differ by multiples of `distance` joined, in all of them.
template <class Acc, class Op>
__device__ Acc join_lanes(Acc value, const Op& op, unsigned distance, unsigned team) {
  for (unsigned step = kWarp / 2; step >= distance; step /= 2) value = op(value, shuffle_xor(value, step));
  if (team == kWarp) return value;
  __shared__ __align__(16) unsigned char memory[kThreads * sizeof(Acc)];
  Acc* const all = reinterpret_cast<Acc*>(memory);
  const unsigned lane = threadIdx.x % kWarp;
  all[threadIdx.x] = value;
  __syncthreads();
  value = all[lane];
  for (unsigned w = 1; w < kThreads / kWarp; ++w) value = op(value, all[w * kWarp + lane]);
  return value;
}

template <class Job>
__global__ void __launch_bounds__(kThreads) segment_kernel(const Job job, const Ragged ragged) {
  const int64_t unit = first_index() / ragged.team, segment = unit / ragged.tiles;
  if (segment >= ragged.segments) return;  // a whole warp or block
  const unsigned thread = threadIdx.x % ragged.team;
  const int64_t column = unit % ragged.tiles * ragged.columns + thread % ragged.columns;
  const bool there = column < ragged.m;
  const int64_t begin = ragged.offsets[segment], end = there ? ragged.offsets[segment + 1] : begin;
  const int64_t at = segment * ragged.m + column, first = begin + thread / ragged.columns;
  const int64_t step = ragged.team / ragged.columns;

  typename Job::Acc total = job.start(at, there);
  for (int64_t row = first; row < end; row += step) job.add(&total, row * ragged.m + column);
  total = join_lanes(total, job, ragged.columns, ragged.team);
  if (there && thread < ragged.columns) job.finish(at, end - begin, total);
  if constexpr (Job::kApplies)
    for (int64_t row = first; row < end; row += step) job.apply(at, row * ragged.m + column, total);
}

template <class Job>
void run(const Job& job, const View& x, const View& offsets) {
  Ragged ragged{};
  ragged.offsets = offsets.as<const int64_t>();
  ragged.segments = offsets.numel - 1;
  const int64_t rows = x.shape[0];
  ragged.m = rows ? x.numel / rows : x.shape.size() > 1 ? x.shape[1] : 1;
  if (ragged.segments == 0 || ragged.m == 0) return;
  ragged.columns = power_of_two_from(ragged.m, kWarp);
  ragged.tiles = ceil_div(ragged.m, ragged.columns);
  ragged.team = rows / ragged.segments * ragged.columns > 2048 ? kThreads : kWarp;
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
  __device__ Acc start(int64_t, bool) const { return 0; }
  __device__ void add(Acc* total, int64_t i) const { *total += static_cast<double>(x[i]); }
  __device__ Acc operator()(Acc a, Acc b) const { return a + b; }
  __device__ void finish(int64_t at, int64_t rows, Acc total) const {
    y[at] = static_cast<T>(mean && rows ? total / static_cast<double>(rows) : total);
  }
};

template <class T>
struct Extreme {
  static constexpr bool kApplies = false;
  using Acc = T;
  bool largest;
  const T* x;
  T* y;
  __device__ Acc start(int64_t, bool) const { return largest ? -INFINITY : INFINITY; }
  __device__ void add(Acc* best, int64_t i) const { *best = (*this)(*best, x[i]); }
  __device__ Acc operator()(Acc a, Acc b) const { return largest ? Maximum()(a, b) : Minimum()(a, b); }
  __device__ void finish(int64_t at, int64_t, Acc best) const { y[at] = best; }
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

// ---- one value for all of a segment ---------------------------------------------------------------------------------

struct Nothing {
  unsigned none;
};

template <class T>
struct Spread {
  static constexpr bool kApplies = true;
  using Acc = Nothing;
  bool mean;
  const int64_t* offsets;
  int64_t m;
  const T* y;
  T* x;
};

}  // namespace
}  // namespace reel::cuda
