#include <cmath>

#include "cuda/block.h"
#include "cuda/kernels.h"
#include "cuda/reduction.h"
#include "lib/device/kernels/enums.h"
#include "lib/functors/number.h"

// Inclusive scans along a dimension: cumsum, cumprod, logcumsumexp, cummax, cummin. A thread scans a line by itself
// where neighbouring threads have neighbouring lines (coalesced reads) or lines are short; otherwise a team of threads,
// a warp or a block, scans a line tile by tile. Where there are few long lines, each is cut into chunks: one launch
// reduces each chunk, a second one combines the totals of the chunks before its own and scans from there.
//
// A Job says what is combined, and how:
//   using Acc (trivially copyable, of 4-byte words)
//   Acc identity()              combined with a it gives a
//   Acc combine(before, after)  associative
//   auto line(number)           the offsets of a line
//   Acc load(line, i)           element i of the line
//   void store(line, i, acc)    stores the result for element i
namespace reel::cuda {
namespace {

// ---- kernels --------------------------------------------------------------------------------------------------------

struct Scan {
  int64_t lines, n;
  int64_t chunks = 1, chunk = 0;  // chunks of a line, elements of a chunk
  unsigned team = 0;              // 0: a thread a line
  bool totals = false;            // the first launch: only the totals of chunks are computed
};

constexpr int kItemsPerThread = 4;  // elements that a thread loads at a time

/// Loads elements begin … begin + kItemsPerThread - 1; the identity beyond the end.
template <class Job, class Line>
__device__ void load_items(const Job& job, const Line& line, int64_t begin, int64_t end,
                           typename Job::Acc (&items)[kItemsPerThread]) {
  for (int k = 0; k < kItemsPerThread; ++k) items[k] = begin + k < end ? job.load(line, begin + k) : job.identity();
}
/// Stores the items' inclusive scan that starts from `total`.
template <class Job, class Line>
__device__ void store_items(const Job& job, const Line& line, int64_t begin, int64_t end, typename Job::Acc total,
                            const typename Job::Acc (&items)[kItemsPerThread]) {
  for (int k = 0; k < kItemsPerThread; ++k) {
    if (begin + k >= end) return;
    total = job.combine(total, items[k]);
    job.store(line, begin + k, total);
  }
}
template <class Job>
__device__ typename Job::Acc combine_items(const Job& job, const typename Job::Acc (&items)[kItemsPerThread]) {
  typename Job::Acc total = items[0];
  for (int k = 1; k < kItemsPerThread; ++k) total = job.combine(total, items[k]);
  return total;
}

template <class Job>
__global__ void __launch_bounds__(kThreads)
    thread_scan_kernel(const Job job, const Scan scan, typename Job::Acc* totals) {
  const int64_t unit = first_index(), number = unit % scan.lines, chunk = unit / scan.lines;
  if (chunk >= scan.chunks) return;
  const auto line = job.line(number);
  const int64_t begin = chunk * scan.chunk, end = begin + scan.chunk < scan.n ? begin + scan.chunk : scan.n;
  typename Job::Acc total = job.identity(), items[kItemsPerThread];
  if (totals && !scan.totals)
    for (int64_t c = 0; c < chunk; ++c) total = job.combine(total, totals[c * scan.lines + number]);
  for (int64_t i = begin; i < end; i += kItemsPerThread) {
    load_items(job, line, i, end, items);
    if (!scan.totals) store_items(job, line, i, end, total, items);
    total = job.combine(total, combine_items(job, items));
  }
  if (scan.totals) totals[unit] = total;
}

/// Of a team's values in the order of its threads: those before the calling thread's combined, and all combined.
template <class Acc>
struct Prefix {
  Acc before, all;
};
template <class Job>
__device__ Prefix<typename Job::Acc> scan_team(const Job& job, typename Job::Acc mine, unsigned team) {
  using Acc = typename Job::Acc;
  __shared__ __align__(16) unsigned char memory[kThreads / kWarp * sizeof(Acc)];
  Acc* const of_warp = reinterpret_cast<Acc*>(memory);
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  for (unsigned step = 1; step < kWarp; step *= 2) {
    const Acc other = shuffle_up(mine, step);
    if (lane >= step) mine = job.combine(other, mine);
  }
  Prefix<Acc> result{shuffle_up(mine, 1), shuffle_from(mine, kWarp - 1)};
  if (lane == 0) result.before = job.identity();
  if (team == kWarp) return result;
  __syncthreads();  // all threads have read the results of an earlier call
  if (lane == 0) of_warp[warp] = result.all;
  __syncthreads();
  Acc total = job.identity();
  for (unsigned w = 0; w < kThreads / kWarp; ++w) {
    if (w == warp) result.before = job.combine(total, result.before);
    total = job.combine(total, of_warp[w]);
  }
  result.all = total;
  return result;
}

template <class Job>
__global__ void __launch_bounds__(kThreads)
    team_scan_kernel(const Job job, const Scan scan, typename Job::Acc* totals) {
  using Acc = typename Job::Acc;
  const int64_t unit = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / scan.team;
  const int64_t number = unit / scan.chunks, chunk = unit % scan.chunks;
  if (number >= scan.lines) return;  // a whole warp or block
  const unsigned lane = threadIdx.x % scan.team;
  const auto line = job.line(number);
  Acc total = job.identity();
  if (totals && !scan.totals)
    for (int64_t first = 0; first < chunk; first += scan.team) {
      const Acc mine = first + lane < chunk ? totals[number * scan.chunks + first + lane] : job.identity();
      total = job.combine(total, scan_team(job, mine, scan.team).all);
    }
  const int64_t begin = chunk * scan.chunk, end = begin + scan.chunk < scan.n ? begin + scan.chunk : scan.n;
  for (int64_t tile = begin; tile < end; tile += int64_t(scan.team) * kItemsPerThread) {
    const int64_t i = tile + lane * kItemsPerThread;
    Acc items[kItemsPerThread];
    load_items(job, line, i, end, items);
    const Prefix<Acc> prefix = scan_team(job, combine_items(job, items), scan.team);
    if (!scan.totals) store_items(job, line, i, end, job.combine(total, prefix.before), items);
    total = job.combine(total, prefix.all);
  }
  if (scan.totals && lane == 0) totals[unit] = total;
}

/// How to scan `lines` lines of n elements; `along`: elements of a line are nearer to each other in memory than lines
/// are, so that a team's reads are coalesced and single threads' would not be. Lines are cut where there are too few to
/// fill a GPU of 132 multiprocessors, into chunks long enough to be worth a second pass.
Scan plan_scan(int64_t lines, int64_t n, bool along) {
  constexpr int64_t kWanted = 132 * 256, kWantedBlocks = 132 * 4, kShort = 32;
  Scan scan{lines, n};
  int64_t most = 1;
  if (along && n > kShort) {
    scan.team = n <= 1024 ? kWarp : kThreads;
    if (scan.team == kThreads) most = std::min(kWantedBlocks / lines, n / 4096);
  } else {
    most = std::min(kWanted / lines, n / 64);
  }
  scan.chunk = ceil_div(n, std::clamp<int64_t>(most, 1, 1024));
  scan.chunks = ceil_div(n, scan.chunk);
  return scan;
}

template <class Job>
void run(const Job& job, Scan scan) {
  const int64_t units = scan.lines * scan.chunks;
  const auto blocks = static_cast<unsigned>(ceil_div(scan.team ? units * scan.team : units, kThreads));
  const auto kernel = scan.team ? team_scan_kernel<Job> : thread_scan_kernel<Job>;
  if (scan.chunks == 1) return launch(kernel, blocks, kThreads, 0, job, scan, nullptr);
  const Scratch<typename Job::Acc> totals(units);
  scan.totals = true;
  launch(kernel, blocks, kThreads, 0, job, scan, totals.data());
  scan.totals = false;
  launch(kernel, blocks, kThreads, 0, job, scan, totals.data());
}

// ---- lines ----------------------------------------------------------------------------------------------------------

/// The lines of two views of one shape along a dimension.
struct Lines {
  struct Line {
    int64_t x, y;
  };
  LoopNest nest;
  int64_t n, x_step, y_step;

  Lines(const View& x, int dim, const View& y) {
    const bool scalar = x.shape.empty();
    n = scalar ? 1 : x.shape[dim], x_step = scalar ? 0 : x.strides[dim], y_step = scalar ? 0 : y.strides[dim];
    for (int d = x.shape.size() - 1; d >= 0; --d)
      if (d != dim) nest.add(x.shape[d], x.strides[d], y.strides[d]);
  }
  bool along() const { return nest.rank == 0 || std::abs(y_step) <= std::abs(nest.y[0]); }
  __device__ Line line(int64_t number) const {
    Line line;
    nest.locate(number, &line.x, &line.y);
    return line;
  }
};

template <class Job>
void run(const Job& job, const Lines& lines) {
  run(job, plan_scan(lines.nest.numel(), lines.n, lines.along()));
}

// ---- sums and products ----------------------------------------------------------------------------------------------

/// Floats are combined in double: the last of many sums is as exact as the first.
template <class T>
struct ScanAll {
  using Acc = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
  Lines lines;
  ScanOp op;
  const T* x;
  T* y;

  __device__ Acc identity() const {
    if constexpr (std::is_floating_point_v<Acc>)
      if (op == ScanOp::kLogSumExp) return -INFINITY;
    return op == ScanOp::kProd;
  }
  __device__ Acc combine(Acc a, Acc b) const {
    if constexpr (std::is_floating_point_v<Acc>)
      if (op == ScanOp::kLogSumExp) return log_add_exp(a, b);
    return op == ScanOp::kProd ? a * b : a + b;
  }
  __device__ Lines::Line line(int64_t number) const { return lines.line(number); }
  __device__ Acc load(const Lines::Line& line, int64_t i) const {
    return static_cast<Acc>(widen(x[line.x + i * lines.x_step]));
  }
  __device__ void store(const Lines::Line& line, int64_t i, Acc total) const {
    y[line.y + i * lines.y_step] = narrow<T>(total);
  }

  static __device__ double log_add_exp(double a, double b) {
    if (a != a || b != b) return a + b;
    const double low = a < b ? a : b, high = a < b ? b : a;
    if (low == high && functors::abs(low) == INFINITY) return low;
    return high + functors::log1p(functors::exp(low - high));
  }
};

void scan(ScanOp op, const View& x, int dim, const View& y) {
  if (x.numel == 0) return;
  with_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const Lines lines(x, dim, y);
    run(ScanAll<T>{lines, op, x.as<const T>(), y.as<T>()}, lines);
  });
}

// ---- extremes -------------------------------------------------------------------------------------------------------

template <class V>
struct Found {
  V value;
  int64_t at;  // -1: nothing yet
};

template <class T>
struct ScanExtreme {
  using V = std::conditional_t<sizeof(T) == 1, int32_t, Wide<T>>;
  using Acc = Found<V>;
  Lines lines;
  bool largest;
  const T* x;
  T* values;
  int64_t* indices;  // laid out like values

  __device__ Acc identity() const { return {V(0), -1}; }
  __device__ Acc combine(const Acc& a, const Acc& b) const {
    if (a.at < 0 || b.at < 0) return a.at < 0 ? b : a;
    return b.value != b.value || (largest ? b.value >= a.value : b.value <= a.value) ? b : a;
  }
  __device__ Lines::Line line(int64_t number) const { return lines.line(number); }
  __device__ Acc load(const Lines::Line& line, int64_t i) const { return {widen(x[line.x + i * lines.x_step]), i}; }
  __device__ void store(const Lines::Line& line, int64_t i, const Acc& best) const {
    const int64_t at = line.y + i * lines.y_step;
    values[at] = narrow<T>(best.value);
    indices[at] = best.at;
  }
};

void cum_extreme(bool largest, const View& x, int dim, const View& values, const View& indices) {
  if (x.numel == 0) return;
  with_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const Lines lines(x, dim, values);
    run(ScanExtreme<T>{lines, largest, x.as<const T>(), values.as<T>(), indices.as<int64_t>()}, lines);
  });
}

// ---- the gradient of logcumsumexp -----------------------------------------------------------------------------------

/// The linear function total ↦ grad + decay total; combining two is composing them. A decay of 0 drops what came
/// before, even a NaN.
struct Step {
  double decay, grad;
};

/// From the end: total[i] = g[i] + total[i + 1] exp(y[i] - y[i + 1]), where y never falls, and gx[i] = total[i]
/// exp(x[i] - y[i]).
template <class T>
struct LogCumSumExpGrad {
  using Acc = Step;
  struct Line {
    Lines::Line a, b;
  };
  Lines gx_of, y_of;  // the lines of g and gx, and of x and y
  const T *g, *x, *y;
  T* gx;

  __device__ Acc identity() const { return {1, 0}; }
  __device__ Acc combine(const Acc& a, const Acc& b) const {
    if (b.decay == 0) return b;
    return {a.decay * b.decay, b.grad + a.grad * b.decay};
  }
  __device__ Line line(int64_t number) const { return {gx_of.line(number), y_of.line(number)}; }
  __device__ double y_at(const Line& line, int64_t i) const { return y[line.b.y + i * y_of.y_step]; }
  __device__ Acc load(const Line& line, int64_t k) const {
    const int64_t i = y_of.n - 1 - k;
    const double now = y_at(line, i);
    const bool last = k == 0 || now == -INFINITY;
    const double next = last ? 0 : y_at(line, i + 1);  // infinities differ by nothing
    return {last          ? 0
            : next == now ? 1
                          : functors::exp(now - next),
            static_cast<double>(g[line.a.x + i * gx_of.x_step])};
  }
  __device__ void store(const Line& line, int64_t k, const Acc& total) const {
    const int64_t i = y_of.n - 1 - k;
    const double now = y_at(line, i);
    const double share = now == -INFINITY ? 0 : functors::exp(static_cast<double>(x[line.b.x + i * y_of.x_step]) - now);
    gx[line.a.y + i * gx_of.y_step] = now == -INFINITY ? T(0) : static_cast<T>(total.grad * share);
  }
};

void logcumsumexp_grad(const View& g, const View& x, const View& y, int dim, const View& gx) {
  if (x.numel == 0) return;
  with_float(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const Lines gx_of(g, dim, gx), y_of(x, dim, y);
    run(LogCumSumExpGrad<T>{gx_of, y_of, g.as<const T>(), x.as<const T>(), y.as<const T>(), gx.as<T>()}, gx_of);
  });
}

}  // namespace

void install_scan(KernelTable& table) {
  table.scan = scan;
  table.logcumsumexp_grad = logcumsumexp_grad;
  table.cum_extreme = cum_extreme;
}

}  // namespace reel::cuda
