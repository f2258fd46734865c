#include <cmath>

#include "cuda/index.h"
#include "cuda/kernels.h"
#include "cuda/online_softmax.h"
#include "cuda/rows.h"
#include "lib/functors/number.h"

// Softmax, log-softmax and cross entropy along a dimension, with gradients: along the last one by teams of threads
// (cuda/rows.h has the division of work), along another one by a thread a column, of which neighbours read neighbours.
// Cross entropy keeps two numbers of each row, with which its gradient makes the probabilities again: to compute them
// takes less time than to write and read them, and no memory.
namespace reel::cuda {
namespace {

using functors::exp;
using functors::log;

/// What makes the softmax of a row again: exp(x - max) scale.
template <class W>
struct RowNorm {
  W max, scale;
};

/// A ColumnExtent describes the elements that are computed along a dimension: n, `inner` apart, for each of `count`
/// columns.
struct ColumnExtent {
  int64_t count, n, inner;
  ColumnExtent(const View& x, int dim) : n(x.shape.empty() ? 1 : x.shape[dim]), inner(1) {
    for (int d = dim + 1; d < x.shape.size(); ++d) inner *= x.shape[d];
    count = x.numel / n;
  }
  __device__ int64_t begin(int64_t column) const { return column / inner * n * inner + column % inner; }
};

template <class T>
struct Softmax {
  using W = Wide<T>;
  RowTeams rows;
  const T* x;
  T* y = nullptr;
  bool log = false;
  // Of cross entropy, which has no y:
  const int64_t* target = nullptr;
  W* loss = nullptr;
  RowNorm<W>* norms = nullptr;  // or nullptr: not wanted
  W smoothing = 0;
  const W* divisor = nullptr;
  IdBounds bounds = {};

  __device__ bool counts(int64_t row) const { return !target || (target[row] >= 0 && target[row] < rows.n); }

  /// An element of y.
  __device__ W value(W x_or_exp, W max, W log_sum, W scale) const {
    return log ? x_or_exp - max - log_sum : x_or_exp * scale;
  }
  /// `from` is the first of the row's logits, which are `step` apart.
  __device__ void set_loss(int64_t row, const T* from, int64_t step, W max, W sum, double total) const {
    const W log_sum = functors::log(sum);
    W value = 0;
    if (counts(row)) {
      W expected = widen(from[target[row] * step]) - max;
      if (smoothing != W(0))  // label smoothing: part of the picked logit is replaced by the mean of all
        expected = (W(1) - smoothing) * expected +
                   smoothing * static_cast<W>(total / static_cast<double>(rows.n) - static_cast<double>(max));
      value = log_sum - expected;
    }
    if (divisor) value /= *divisor;  // 0 of 0 rows is NaN
    loss[row] = value;
    if (target[row] != bounds.ignored) bounds.test(target[row]);
    if (norms) norms[row] = counts(row) ? RowNorm<W>{max, W(1) / sum} : RowNorm<W>{0, 0};
  }
};

template <class T, int kHeld, bool kAligned>
__global__ void __launch_bounds__(kMaxTeam) softmax_register_kernel(Softmax<T> job) {
  using W = Wide<T>;
  job.rows.aligned = kAligned;
  const RowSlice<T> slice(job.rows);
  const bool counts = slice.valid && job.counts(slice.row);
  RowRegisters<T, kHeld> x;
  x.load(job.x + slice.row * job.rows.n, slice, job.rows, counts, -INFINITY);

  // Beyond the row, -inf changes neither the maximum nor the sum of exponentials.
  W max = -INFINITY;
  x.for_all([&](W item) { max = Maximum()(max, item); });
  max = team_reduce(max, Maximum(), job.rows.team);

  double total = 0;
  if (job.smoothing != W(0)) {
    x.for_each(slice, job.rows, [&](W item, int64_t) { total += static_cast<double>(item); });
    total = team_reduce(total, Plus(), job.rows.team);
  }
  W sum = 0;
  // Loops for each case: with the case inside of one loop the kernel takes 128 registers instead of 76.
  if (job.log || job.loss) {
    x.for_all([&](W item) { sum += exp(item - max); });
  } else {
    x.for_all([&](W& item) { sum += item = exp(item - max); });
  }
  sum = team_reduce(sum, Plus(), job.rows.team);
  if (!slice.valid) return;

  if (job.loss) {
    if (slice.is_leader) job.set_loss(slice.row, job.x + slice.row * job.rows.n, 1, max, sum, total);
    return;
  }
  if (job.log) {
    const W log_sum = log(sum);
    x.for_all([&](W& item) { item = item - max - log_sum; });
  } else {
    const W scale = W(1) / sum;
    x.for_all([&](W& item) { item *= scale; });
  }
  x.store(job.y + slice.row * job.rows.n, slice, job.rows);
}

template <class T>
__global__ void __launch_bounds__(kMaxThreads) softmax_multipass_kernel(const Softmax<T> job) {
  using W = Wide<T>;
  const RowSlice<T> slice(job.rows);
  const int64_t n = job.rows.n;
  const T* const from = job.x + slice.row * n;
  const bool counts = job.counts(slice.row);
  W items[RowSlice<T>::kVectorSize];

  OnlineSoftmax<W> all;
  double total = 0;
  for (int64_t i = slice.first; i < n && counts; i += slice.step) {
    load_items(items, from, i, n, job.rows.aligned, W(-INFINITY));
    OnlineSoftmax<W> some;
    for (const W item : items) some.max = Maximum()(some.max, item);
    for (int k = 0; k < RowSlice<T>::kVectorSize; ++k) {
      if (i + k >= n) break;
      some.sum += exp_difference(items[k], some.max);
      if (job.smoothing != W(0)) total += static_cast<double>(items[k]);
    }
    all = MergeOnlineSoftmax()(all, some);
  }
  all = block_reduce(all, MergeOnlineSoftmax());
  if (job.smoothing != W(0)) total = block_reduce(total, Plus());
  all.sum = all.total();

  if (job.loss) {
    if (slice.is_leader) job.set_loss(slice.row, from, 1, all.max, all.sum, total);
    return;
  }
  const W log_sum = log(all.sum), scale = W(1) / all.sum;
  for (int64_t i = slice.first; i < n; i += slice.step) {
    load_items(items, from, i, n, job.rows.aligned, W(0));
    for (W& item : items) item = job.value(job.log ? item : exp(item - all.max), all.max, log_sum, scale);
    store_items(job.y + slice.row * n, i, n, job.rows.aligned, items);
  }
}

template <class T>
__global__ void softmax_columns_kernel(const Softmax<T> job, const ColumnExtent columns) {
  using W = Wide<T>;
  const int64_t n = columns.n, inner = columns.inner;
  for (int64_t column = first_index(); column < columns.count; column += index_step()) {
    const int64_t begin = columns.begin(column);
    const T* const from = job.x + begin;
    const bool counts = job.counts(column);
    OnlineSoftmax<W> all;
    double total = 0;
    for (int64_t i = 0; i < n && counts; ++i) {
      const W item = widen(from[i * inner]);
      all = MergeOnlineSoftmax()(all, OnlineSoftmax<W>{item, W(1)});
      if (job.smoothing != W(0)) total += static_cast<double>(item);
    }
    all.sum = all.total();
    if (job.loss) {
      job.set_loss(column, from, inner, all.max, all.sum, total);
      continue;
    }
    const W log_sum = log(all.sum), scale = W(1) / all.sum;
    for (int64_t i = 0; i < n; ++i) {
      const W item = widen(from[i * inner]);
      job.y[begin + i * inner] = narrow<T>(job.value(job.log ? item : exp(item - all.max), all.max, log_sum, scale));
    }
  }
}

template <class T>
void run(Softmax<T> job, const ColumnExtent& columns) {
  const int64_t n = columns.n;
  if (columns.inner > 1) {
    job.rows.n = n;
    return launch(softmax_columns_kernel<T>, blocks_for(columns.count), kThreads, 0, job, columns);
  }
  job.rows = make_row_teams<T>(columns.count, n, {job.x, job.y});
  with_held(job.rows, job.rows.aligned, [&](auto held, auto aligned) {
    launch(job.rows.fits_registers() ? softmax_register_kernel<T, held, aligned> : softmax_multipass_kernel<T>,
           job.rows.blocks(), job.rows.block(), 0, job);
  });
}

void softmax(bool log, const View& x, int dim, const View& y) {
  if (x.numel == 0) return;
  with_floating(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    run(Softmax<T>{.rows = {}, .x = x.as<const T>(), .y = y.as<T>(), .log = log}, ColumnExtent(x, dim));
  });
}

bool cross_entropy(double smoothing, const View& logits, const View& target, const View* divisor, const View& loss,
                   const View* norms, IdCheck* check) {
  if (logits.numel == 0) return false;
  with_floating(logits.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using W = Wide<T>;
    run(Softmax<T>{.rows = {},
                   .x = logits.as<const T>(),
                   .target = target.as<const int64_t>(),
                   .loss = loss.as<W>(),
                   .norms = norms ? norms->as<RowNorm<W>>() : nullptr,
                   .smoothing = static_cast<W>(smoothing),
                   .divisor = divisor ? divisor->as<const W>() : nullptr,
                   .bounds = {check, logits.shape[1]}},
        ColumnExtent(logits, 1));
  });
  return false;
}

// ---- gradients ------------------------------------------------------------------------------------------------------

template <class T>
struct SoftmaxGrad {
  using W = Wide<T>;
  RowTeams rows;
  bool log;
  const T *g, *y;
  T* gx;
  __device__ W term(W g, W y) const { return log ? g : g * y; }
  __device__ W value(W g, W y, W sum) const { return log ? g - exp(y) * sum : y * (g - sum); }
};

template <class T, int kHeld, bool kAligned>
__global__ void __launch_bounds__(kMaxTeam) softmax_grad_register_kernel(SoftmaxGrad<T> job) {
  using W = Wide<T>;
  job.rows.aligned = kAligned;
  const RowSlice<T> slice(job.rows);
  const int64_t begin = slice.row * job.rows.n;
  RowRegisters<T, kHeld> g, y;
  g.load(job.g + begin, slice, job.rows, slice.valid, 0);
  y.load(job.y + begin, slice, job.rows, slice.valid, 0);
  W sum = 0;
#pragma unroll
  for (int p = 0; p < g.kVectors; ++p)
#pragma unroll
    for (int k = 0; k < g.kVectorSize; ++k) sum += job.term(g.items[p][k], y.items[p][k]);
  sum = team_reduce(sum, Plus(), job.rows.team);
  if (!slice.valid) return;
#pragma unroll
  for (int p = 0; p < g.kVectors; ++p)
#pragma unroll
    for (int k = 0; k < g.kVectorSize; ++k) g.items[p][k] = job.value(g.items[p][k], y.items[p][k], sum);
  g.store(job.gx + begin, slice, job.rows);
}

template <class T>
__global__ void __launch_bounds__(kMaxThreads) softmax_grad_multipass_kernel(const SoftmaxGrad<T> job) {
  using W = Wide<T>;
  constexpr int kVectorSize = RowSlice<T>::kVectorSize;
  const RowSlice<T> slice(job.rows);
  const int64_t n = job.rows.n, begin = slice.row * n;
  W g[kVectorSize], y[kVectorSize];
  W sum = 0;
  for (int64_t i = slice.first; i < n; i += slice.step) {
    load_items(g, job.g + begin, i, n, job.rows.aligned, W(0));
    load_items(y, job.y + begin, i, n, job.rows.aligned, W(0));
    W part = 0;
    for (int k = 0; k < kVectorSize; ++k) part += job.term(g[k], y[k]);
    sum += part;
  }
  sum = block_reduce(sum, Plus());
  for (int64_t i = slice.first; i < n; i += slice.step) {
    load_items(g, job.g + begin, i, n, job.rows.aligned, W(0));
    load_items(y, job.y + begin, i, n, job.rows.aligned, W(0));
    for (int k = 0; k < kVectorSize; ++k) g[k] = job.value(g[k], y[k], sum);
    store_items(job.gx + begin, i, n, job.rows.aligned, g);
  }
}

template <class T>
__global__ void softmax_grad_columns_kernel(const SoftmaxGrad<T> job, const ColumnExtent columns) {
  using W = Wide<T>;
  for (int64_t column = first_index(); column < columns.count; column += index_step()) {
    const int64_t begin = columns.begin(column), end = begin + columns.n * columns.inner;
    W sum = 0;
    for (int64_t i = begin; i < end; i += columns.inner) sum += job.term(widen(job.g[i]), widen(job.y[i]));
    for (int64_t i = begin; i < end; i += columns.inner)
      job.gx[i] = narrow<T>(job.value(widen(job.g[i]), widen(job.y[i]), sum));
  }
}

void softmax_grad(bool log, const View& g, const View& y, int dim, const View& gx) {
  if (g.numel == 0) return;
  const ColumnExtent columns(g, dim);
  with_floating(g.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const int64_t n = columns.n;
    if (columns.inner > 1)
      return launch(softmax_grad_columns_kernel<T>, blocks_for(columns.count), kThreads, 0,
                    SoftmaxGrad<T>{{}, log, g.as<const T>(), y.as<const T>(), gx.as<T>()}, columns);
    const RowTeams rows = make_row_teams<T>(columns.count, n, {g.data, y.data, gx.data});
    with_held(rows, rows.aligned, [&](auto held, auto aligned) {
      launch(rows.fits_registers() ? softmax_grad_register_kernel<T, held, aligned> : softmax_grad_multipass_kernel<T>,
             rows.blocks(), rows.block(), 0, SoftmaxGrad<T>{rows, log, g.as<const T>(), y.as<const T>(), gx.as<T>()});
    });
  });
}

template <class T>
struct CrossEntropyGrad {
  using W = Wide<T>;
  static constexpr int kHeld = 64 / sizeof(W);  // elements that a thread loads before it computes
  RowTeams rows;
  const W* g;
  int64_t g_step;
  const T* x;
  const RowNorm<W>* norms;
  const int64_t* target;
  W smoothing;
  const W* divisor;
  T* gx;
};

template <class T>
__global__ void __launch_bounds__(kMaxThreads) cross_entropy_grad_kernel(const CrossEntropyGrad<T> job) {
  using W = Wide<T>;
  RowSlice<T> slice(job.rows);
  if (!slice.valid) return;
  const int64_t n = job.rows.n, begin = slice.row * n, id = job.target[slice.row];
  const bool counts = id >= 0 && id < n;
  W scale = counts ? job.g[slice.row * job.g_step] : W(0);
  if (counts && job.divisor) scale /= *job.divisor;
  const RowNorm<W> norm = job.norms[slice.row];
  const W spread = job.smoothing / static_cast<W>(n), picked = scale * (W(1) - job.smoothing);
  RowRegisters<T, job.kHeld> x;
  for (; slice.first < n; slice.first += x.kVectors * slice.step) {
    x.load(job.x + begin, slice, job.rows, counts, 0);
    x.for_each(slice, job.rows, [&](W& item, int64_t i) {
      item = counts ? (exp(item - norm.max) * norm.scale - spread) * scale : W(0);
      if (i == id) item -= picked;
    });
    x.store(job.gx + begin, slice, job.rows);
  }
}

template <class T>
__global__ void cross_entropy_grad_columns_kernel(const CrossEntropyGrad<T> job, const ColumnExtent columns) {
  using W = Wide<T>;
  const int64_t n = columns.n;
  const W spread = job.smoothing / static_cast<W>(n);
  for (int64_t column = first_index(); column < columns.count; column += index_step()) {
    const int64_t begin = columns.begin(column), id = job.target[column];
    const bool counts = id >= 0 && id < n;
    W scale = counts ? job.g[column * job.g_step] : W(0);
    if (counts && job.divisor) scale /= *job.divisor;
    const RowNorm<W> norm = job.norms[column];
    const W picked = scale * (W(1) - job.smoothing);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = begin + i * columns.inner;
      const W share = counts ? (exp(widen(job.x[at]) - norm.max) * norm.scale - spread) * scale : W(0);
      job.gx[at] = narrow<T>(i == id ? share - picked : share);
    }
  }
}

void cross_entropy_grad(double smoothing, const View& g, const View& logits, const View& norms, const View& target,
                        const View* divisor, const View& gx) {
  if (logits.numel == 0) return;
  const ColumnExtent columns(logits, 1);
  with_floating(gx.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using W = Wide<T>;
    CrossEntropyGrad<T> job{{},
                            g.as<const W>(),
                            g.strides[0],
                            logits.as<const T>(),
                            norms.as<const RowNorm<W>>(),
                            target.as<const int64_t>(),
                            static_cast<W>(smoothing),
                            divisor ? divisor->as<const W>() : nullptr,
                            gx.as<T>()};
    if (columns.inner > 1)
      return launch(cross_entropy_grad_columns_kernel<T>, blocks_for(columns.count), kThreads, 0, job, columns);
    job.rows = make_row_teams<T>(columns.count, columns.n, {logits.data, gx.data}, CrossEntropyGrad<T>::kHeld);
    launch(cross_entropy_grad_kernel<T>, job.rows.blocks(), job.rows.block(), 0, job);
  });
}

}  // namespace

void install_softmax(KernelTable& table) {
  table.softmax = softmax;
  table.softmax_grad = softmax_grad;
  table.cross_entropy = cross_entropy;
  table.cross_entropy_grad = cross_entropy_grad;
}

}  // namespace reel::cuda
