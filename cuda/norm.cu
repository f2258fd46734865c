#include "cuda/kernels.h"
#include "cuda/moments.h"
#include "cuda/reduction.h"
#include "cuda/rows.h"
#include "lib/device/kernels/norm.h"
#include "lib/functors/number.h"

// Layer, RMS and group norms (statistics of rows) and batch norms (statistics of channels), with their gradients.
//
// Sums over threads are taken in double precision. A row in registers is summed twice, first for its mean and then for
// its distances from that; other sums of x and x² are of differences from x's first element: with E[x²] - E[x]² as it
// stands, a large mean would cost a small variance its digits. The mean is subtracted as a sum of two numbers of the
// elements' type (high and low part) for the same reason.
namespace reel::cuda {
namespace {

// ---- rows -----------------------------------------------------------------------------------------------------------

template <class T>
struct RowNorm {
  using W = Wide<T>;
  RowTeams rows;
  const T* x;
  T* y;
  Parameters<T> weight, bias;
  double eps, share;  // share: 1 / rows.n
  bool center;
  double *mean, *variance;

  /// What is subtracted from the elements before they are summed.
  __device__ double origin(const T* row) const { return center ? static_cast<double>(widen(*row)) : 0; }
  /// The moments from the row's sums; stores them for the gradient.
  __device__ Moments finish(const RowSlice<T>& slice, Sums sums, double from) const {
    if (!center) sums.first = 0;
    const Moments moments = moments_of(sums, static_cast<double>(rows.n), from);
    if (slice.is_leader && slice.valid) mean[slice.row] = moments.mean, variance[slice.row] = moments.variance;
    return moments;
  }
  __device__ void normalize(W (&items)[AlignedVector<T>::kSize], int64_t row, int64_t i, const Centre<W>& centre,
                            W scale) const {
    W w[AlignedVector<T>::kSize], b[AlignedVector<T>::kSize];
    weight.load(w, row, i, rows, 1);
    bias.load(b, row, i, rows, 0);
    for (int k = 0; k < AlignedVector<T>::kSize; ++k) items[k] = centre(items[k]) * scale * w[k] + b[k];
  }
};

/// The row's squared distances from its mean, in the elements' type: there are few in a thread. Where they are too
/// large for it, in double precision.
template <class T, int kHeld>
__device__ double sum_of_squares(RowRegisters<T, kHeld>& x, const RowSlice<T>& slice, const RowTeams& rows,
                                 const Centre<Wide<T>>& centre) {
  Wide<T> part = 0;
  x.for_each(slice, rows, [&](Wide<T> item, int64_t) {
    const Wide<T> d = centre(item);
    part += d * d;
  });
  const double sum = team_reduce(static_cast<double>(part), Plus(), rows.team);
  if constexpr (sizeof(Wide<T>) == sizeof(float)) {
    const bool too_large = sum > 1e38 || sum != sum;  // of one row at least that the warp has
    if (rows.team > kWarp ? too_large : __any_sync(~0u, too_large)) {
      double wide = 0;
      x.for_each(slice, rows, [&](Wide<T> item, int64_t) {
        const double d = static_cast<double>(centre(item));
        wide += d * d;
      });
      return team_reduce(wide, Plus(), rows.team);
    }
  }
  return sum;
}

/// The blocks of kMaxTeam threads for which a multiprocessor is to have the registers, so that enough is in flight: as
/// many as need no local memory.
template <class T, bool simple>
inline constexpr int kRowNormBlocks = sizeof(Wide<T>) > 4        ? 1
                                      : sizeof(T) == 4 && simple ? 4
                                                                 : 3;

/// `simple`: rows and parameters are read in vectors.
template <class T, int kHeld, bool simple>
__global__ void __launch_bounds__(kMaxTeam, (kRowNormBlocks<T, simple>)) row_norm_register_kernel(RowNorm<T> job) {
  using W = Wide<T>;
  job.rows.aligned = job.rows.aligned || simple;
  job.weight.as_row = job.bias.as_row = simple;
  const RowSlice<T> slice(job.rows);
  const T* const from = job.x + slice.row * job.rows.n;
  const W origin = slice.valid ? static_cast<W>(job.origin(from)) : W(0);
  RowRegisters<T, kHeld> x;
  x.load(from, slice, job.rows, slice.valid, origin);
  Moments moments{};
  if (job.center) {
    W part = 0;
    x.for_all([&](W item) { part += item - origin; });  // 0 beyond the row
    const double sum = team_reduce(static_cast<double>(part), Plus(), job.rows.team);
    moments.mean = static_cast<double>(origin) + sum * job.share;
  }
  const Centre<W> centre(moments.mean);
  moments.variance = sum_of_squares(x, slice, job.rows, centre) * job.share;
  if (!slice.valid) return;
  if (slice.is_leader) job.mean[slice.row] = moments.mean, job.variance[slice.row] = moments.variance;
  const W scale = rstd_as<W>(moments.variance, job.eps);
#pragma unroll
  for (int p = 0; p < x.kVectors; ++p) {  // each is stored before the next one's parameters are loaded: fewer registers
    const int64_t i = slice.first + p * slice.step;
    if (i >= job.rows.n) continue;
    job.normalize(x.items[p], slice.row, i, centre, scale);
    store_items(job.y + slice.row * job.rows.n, i, job.rows.n, job.rows.aligned, x.items[p]);
  }
}

template <class T>
__global__ void __launch_bounds__(kMaxThreads) row_norm_multipass_kernel(const RowNorm<T> job) {
  const RowSlice<T> slice(job.rows);
  const int64_t n = job.rows.n;
  const T* const from = job.x + slice.row * n;
  const double origin = job.origin(from);
  Wide<T> items[AlignedVector<T>::kSize];
  Sums sums{};
  for (int64_t i = slice.first; i < n; i += slice.step) {
    load_items(items, from, i, n, job.rows.aligned, Wide<T>(0));
    for (int k = 0; k < AlignedVector<T>::kSize; ++k)
      if (i + k < n) add_distance(&sums, static_cast<double>(items[k]), origin);
  }
  const Moments moments = job.finish(slice, block_reduce(sums, PlusSums()), origin);
  const Centre<Wide<T>> centre(moments.mean);
  const Wide<T> scale = rstd_as<Wide<T>>(moments.variance, job.eps);
  for (int64_t i = slice.first; i < n; i += slice.step) {
    load_items(items, from, i, n, job.rows.aligned, Wide<T>(0));
    job.normalize(items, slice.row, i, centre, scale);
    store_items(job.y + slice.row * n, i, n, job.rows.aligned, items);
  }
}

template <class T>
RowTeams row_teams_of(const Norm& norm, std::initializer_list<const void*> arrays, int most = kMany) {
  RowTeams rows = make_row_teams<T>(norm.outer * norm.groups, norm.channels * norm.inner, arrays, most);
  if (norm.inner == 1) rows.aligned = rows.aligned && is_aligned(norm.weight) && is_aligned(norm.bias);
  return rows;
}

void row_norm(const Norm& norm) {
  with_floating(norm.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const RowTeams rows = row_teams_of<T>(norm, {norm.x, norm.y});
    const RowNorm<T> job{rows,
                         static_cast<const T*>(norm.x),
                         static_cast<T*>(norm.y),
                         parameters_of<T>(norm, norm.weight, rows),
                         parameters_of<T>(norm, norm.bias, rows),
                         norm.eps,
                         1 / static_cast<double>(rows.n),
                         norm.center,
                         norm.mean,
                         norm.variance};
    with_held(rows, job.weight.as_row, [&](auto held, auto simple) {
      launch(rows.fits_registers() ? row_norm_register_kernel<T, held, simple> : row_norm_multipass_kernel<T>,
             rows.blocks(), rows.block(), 0, job);
    });
  });
}

// ---- gradients of rows ----------------------------------------------------------------------------------------------

// gx = rstd (h - ⟨h⟩ - x̂ ⟨h x̂⟩) with h = g weight, x̂ = (x - mean) rstd and ⟨⟩ the mean over a row; without centring,
// there is no ⟨h⟩.

template <class T>
struct RowNormGrad {
  using W = Wide<T>;
  static constexpr int kVectorSize = AlignedVector<T>::kSize;
  RowTeams rows;
  const T *x, *g;
  T* gx;  // or nullptr
  Parameters<T> weight;
  double eps;
  bool center;
  const double *mean, *variance;
  Standard<W>* standards;  // of each row, for the gradient of the weight; or nullptr

  __device__ Standard<W> standard(const RowSlice<T>& slice) const {
    if (!slice.valid) return {};
    const Standard<W> result{Centre<W>(mean[slice.row]), rstd_as<W>(variance[slice.row], eps)};
    if (standards && slice.is_leader) standards[slice.row] = result;
    return result;
  }
  /// g and x̂ from element i of a row on; zeros beyond its end.
  __device__ void load(W (&g_items)[kVectorSize], W (&z)[kVectorSize], const RowSlice<T>& slice,
                       const Standard<W>& standard, int64_t i) const {
    const int64_t at = slice.row * rows.n, n = slice.valid ? rows.n : 0;
    load_items(g_items, g + at, i, n, rows.aligned, W(0));
    load_items(z, x + at, i, n, rows.aligned, W(0));
    standardize(z, standard);
  }
  /// x̂ from x. Beyond the row it is some number, which meets a g of 0.
  __device__ static void standardize(W (&z)[kVectorSize], const Standard<W>& standard) {
    for (W& item : z) item = standard(item);
  }
  /// h from g.
  __device__ void weigh(W (&h)[kVectorSize], const RowSlice<T>& slice, int64_t i) const {
    W w[kVectorSize];
    weight.load(w, slice.valid ? slice.row : 0, i, rows, 1);
    for (int k = 0; k < kVectorSize; ++k) h[k] *= w[k];
  }
  __device__ static void add(W* first, W* second, const W (&h)[kVectorSize], const W (&z)[kVectorSize]) {
    for (int k = 0; k < kVectorSize; ++k) *first += h[k], *second += h[k] * z[k];
  }
  __device__ void store(W (&h)[kVectorSize], const W (&z)[kVectorSize], const RowSlice<T>& slice, W rstd,
                        const Means<W>& means, int64_t i) const {
    for (int k = 0; k < kVectorSize; ++k) h[k] = rstd * (h[k] - means.shift - z[k] * means.slope);
    store_items(gx + slice.row * rows.n, i, rows.n, rows.aligned, h);
  }
};

template <class W>
__device__ Sums team_sums(W first, W second, unsigned team) {
  return team_reduce(Sums{static_cast<double>(first), static_cast<double>(second)}, PlusSums(), team);
}

template <class T, int kHeld, bool simple>
__global__ void __launch_bounds__(kMaxTeam) row_norm_grad_register_kernel(RowNormGrad<T> job) {
  using W = Wide<T>;
  job.rows.aligned = job.rows.aligned || simple;
  job.weight.as_row = simple;
  const RowSlice<T> slice(job.rows);
  const Standard<W> standard = job.standard(slice);
  if (!job.gx) return;
  RowRegisters<T, kHeld> h, z;
  h.load(job.g + slice.row * job.rows.n, slice, job.rows, slice.valid, 0);
  z.load(job.x + slice.row * job.rows.n, slice, job.rows, slice.valid, 0);
  W first = 0, second = 0;  // of few elements, in their own type
#pragma unroll
  for (int p = 0; p < h.kVectors; ++p) {
    job.standardize(z.items[p], standard);
    job.weigh(h.items[p], slice, slice.first + p * slice.step);
    job.add(&first, &second, h.items[p], z.items[p]);
  }
  const Means<W> means(team_sums(first, second, job.rows.team), job.rows.n, job.center);
  if (!slice.valid) return;
#pragma unroll
  for (int p = 0; p < h.kVectors; ++p)
    job.store(h.items[p], z.items[p], slice, standard.rstd, means, slice.first + p * slice.step);
}

template <class T>
__global__ void __launch_bounds__(kMaxThreads) row_norm_grad_multipass_kernel(const RowNormGrad<T> job) {
  const RowSlice<T> slice(job.rows);
  const Standard<Wide<T>> standard = job.standard(slice);
  if (!job.gx) return;
  Wide<T> h[AlignedVector<T>::kSize], z[AlignedVector<T>::kSize];
  Sums sums{};
  for (int64_t i = slice.first; i < job.rows.n; i += slice.step) {
    job.load(h, z, slice, standard, i);
    job.weigh(h, slice, i);
    Wide<T> first = 0, second = 0;
    job.add(&first, &second, h, z);
    sums.first += static_cast<double>(first), sums.second += static_cast<double>(second);
  }
  const Means<Wide<T>> means(block_reduce(sums, PlusSums()), job.rows.n, job.center);
  for (int64_t i = slice.first; i < job.rows.n; i += slice.step) {
    job.load(h, z, slice, standard, i);
    job.weigh(h, slice, i);
    job.store(h, z, slice, standard.rstd, means, i);
  }
}

/// Sums of g x̂ and of g over the rows that each team has taken, a row of n each.
template <class W>
struct Partial {
  int64_t teams, n;
  W *weight, *bias;
};

inline constexpr unsigned kMaxFusedThreads = 512;  // of 1024, each would have too few registers
/// The gradients of x, weight and bias in one pass, so that x and g are read once, where a row uses each parameter
/// once. A team takes many rows and keeps its sums for the parameters in registers; a reduction over the teams follows.
template <class T>
__global__ void __launch_bounds__(kMaxFusedThreads)
    row_norm_grad_fused_kernel(const RowNormGrad<T> job, const Partial<Wide<T>> partial) {
  using W = Wide<T>;
  constexpr int kVectorSize = AlignedVector<T>::kSize;
  RowSlice<T> slice(job.rows);
  const int64_t team = slice.row;
  RowRegisters<T, kFew> to_weight{}, to_bias{};
  for (int64_t first = 0; first < job.rows.count; first += partial.teams) {  // uniform: team_reduce takes whole warps
    slice.row = first + team;
    slice.valid = slice.row < job.rows.count;
    const Standard<W> standard = job.standard(slice);
    RowRegisters<T, kFew> h, z;
    h.load(job.g + slice.row * job.rows.n, slice, job.rows, slice.valid, 0);
    z.load(job.x + slice.row * job.rows.n, slice, job.rows, slice.valid, 0);
    W of_h = 0, of_product = 0;
#pragma unroll
    for (int p = 0; p < h.kVectors; ++p) {
      const int64_t i = slice.first + p * slice.step;
      job.standardize(z.items[p], standard);
      for (int k = 0; k < kVectorSize; ++k) {
        to_weight.items[p][k] += h.items[p][k] * z.items[p][k];
        to_bias.items[p][k] += h.items[p][k];
      }
      job.weigh(h.items[p], slice, i);
      job.add(&of_h, &of_product, h.items[p], z.items[p]);
    }
    const Means<W> means(team_sums(of_h, of_product, job.rows.team), job.rows.n, job.center);
    if (!slice.valid) continue;
#pragma unroll
    for (int p = 0; p < h.kVectors; ++p)
      job.store(h.items[p], z.items[p], slice, standard.rstd, means, slice.first + p * slice.step);
  }
  to_weight.for_each(slice, job.rows, [&](W sum, int64_t i) { partial.weight[team * partial.n + i] = sum; });
  to_bias.for_each(slice, job.rows, [&](W sum, int64_t i) { partial.bias[team * partial.n + i] = sum; });
}

template <class W>
struct PartialSums {
  using Element = W;
  using Acc = Sums;
  Partial<W> partial;
  ParameterGrads grads;

  struct NoContext {};
  __device__ Acc identity() const { return {}; }
  __device__ NoContext context(int64_t, int64_t) const { return {}; }
  __device__ Acc element(NoContext, int64_t at, int64_t) const {
    return {static_cast<double>(partial.bias[at]), static_cast<double>(partial.weight[at])};
  }
  __device__ Acc vector(NoContext, int64_t, int64_t) const { return {}; }  // only where sums are not of columns
  __device__ Acc combine(const Acc& a, const Acc& b) const { return PlusSums()(a, b); }
  __device__ void finish(int64_t output, int64_t, const Acc& sums) const {
    grads.store(output, sums.first, sums.second);
  }
};

template <class T>
void run_fused(const RowNormGrad<T>& job, const ParameterGrads& grads) {
  using W = Wide<T>;
  // Threads that fill a GPU of 132 multiprocessors; rows that a team sums in W (float) before the reduction goes on in
  // double.
  constexpr int64_t kWanted = 132 * 1024, kMaxRowsPerTeam = 32;
  const RowTeams& rows = job.rows;
  const int64_t side_by_side = rows.block() / rows.team;
  const int64_t teams = std::max(ceil_div(rows.count, kMaxRowsPerTeam), std::min(rows.count, kWanted / rows.team));
  const int64_t blocks = ceil_div(teams, side_by_side);
  const Scratch<W> memory(2 * blocks * side_by_side * rows.n);
  const Partial<W> partial{blocks * side_by_side, rows.n, memory, memory + blocks * side_by_side * rows.n};
  launch(row_norm_grad_fused_kernel<T>, static_cast<unsigned>(blocks), rows.block(), 0, job, partial);
  LoopNest kept, reduced;
  kept.add(rows.n, 1, 1);
  reduced.add(partial.teams, rows.n, 0);
  run(PartialSums<W>{partial, grads}, Reduction(kept, reduced, sizeof(W), 0));
}

/// The gradients of weight and bias for any layout: the sums of g x̂ and g over all elements that they apply to.
template <class T>
struct ParameterGrad {
  using W = Wide<T>;
  using Element = T;
  using Acc = Sums;
  const T *g, *x;
  const Standard<W>* standards;
  int64_t n;  // elements of a row
  ParameterGrads grads;

  struct NoContext {};
  __device__ Acc identity() const { return {}; }
  __device__ NoContext context(int64_t, int64_t) const { return {}; }
  __device__ Acc element(NoContext, int64_t at, int64_t) const {
    const W grad = widen(g[at]);
    return {static_cast<double>(grad), static_cast<double>(grad * standards[quotient(at, n)](widen(x[at])))};
  }
  __device__ Acc vector(NoContext, int64_t at, int64_t) const {  // within one row
    const Standard<W> standard = standards[quotient(at, n)];
    const AlignedVector<T> gs = load_vector(g + at), xs = load_vector(x + at);
    W first = 0, second = 0;
    for (int k = 0; k < AlignedVector<T>::kSize; ++k) {
      const W grad = widen(gs.items[k]);
      first += grad, second += grad * standard(widen(xs.items[k]));
    }
    return {static_cast<double>(first), static_cast<double>(second)};
  }
  __device__ Acc combine(const Acc& a, const Acc& b) const { return PlusSums()(a, b); }
  __device__ void finish(int64_t output, int64_t, const Acc& sums) const {
    grads.store(output, sums.first, sums.second);
  }
};

/// A reduction of [outer, count, inner] to [count]: the parameters or channels.
template <class T>
Reduction over_channels(const Norm& norm, int64_t count, std::initializer_list<const void*> arrays, bool pack = true) {
  LoopNest kept, reduced;
  kept.add(count, norm.inner, 1);
  reduced.add(norm.inner, 1, 0);
  reduced.add(norm.outer, count * norm.inner, 0);
  for (const void* array : arrays) pack = pack && is_aligned(array);
  return Reduction(kept, reduced, sizeof(T), pack ? AlignedVector<T>::kSize : 0);
}

void row_norm_grad(const Norm& norm) {
  with_floating(norm.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const RowTeams rows = row_teams_of<T>(norm, {norm.x, norm.grad_y, norm.grad_x});
    const bool parameters = norm.grad_weight || norm.grad_bias;
    const T *x = static_cast<const T*>(norm.x), *g = static_cast<const T*>(norm.grad_y);
    RowNormGrad<T> job{rows,
                       x,
                       g,
                       static_cast<T*>(norm.grad_x),
                       parameters_of<T>(norm, norm.weight, rows),
                       norm.eps,
                       norm.center,
                       norm.mean,
                       norm.variance,
                       nullptr};
    if constexpr (sizeof(Wide<T>) == sizeof(float))  // doubles would spill registers
      if (parameters && job.gx && norm.groups == 1 && norm.inner == 1 && rows.n <= kFew * kMaxFusedThreads) {
        RowNormGrad<T> fused = job;
        fused.rows = row_teams_of<T>(norm, {norm.x, norm.grad_y, norm.grad_x}, kFew);
        return run_fused(fused, ParameterGrads(norm));
      }
    const Scratch<Standard<Wide<T>>> standards(parameters ? rows.count : 0);
    if (parameters) job.standards = standards;
    with_held(rows, job.weight.as_row, [&](auto held, auto simple) {
      launch(rows.fits_registers() ? row_norm_grad_register_kernel<T, held, simple> : row_norm_grad_multipass_kernel<T>,
             rows.blocks(), rows.block(), 0, job);
    });
    if (!parameters) return;
    run(ParameterGrad<T>{g, x, standards.data(), rows.n, ParameterGrads(norm)},
        over_channels<T>(norm, norm.groups * norm.channels, {x, g}, rows.n % AlignedVector<T>::kSize == 0));
  });
}

// ---- channels -------------------------------------------------------------------------------------------------------

template <class T>
struct ChannelMoments {
  using Element = T;
  using Acc = Sums;
  const T* x;
  int64_t inner;
  double count;
  double *mean, *variance;

  __device__ Acc identity() const { return {}; }
  __device__ double context(int64_t, int64_t at) const { return static_cast<double>(widen(x[at])); }
  __device__ Acc element(double from, int64_t at, int64_t) const {
    Sums sums{};
    add_distance(&sums, static_cast<double>(widen(x[at])), from);
    return sums;
  }
  __device__ Acc vector(double from, int64_t at, int64_t) const {
    Sums sums{};
    for (const T item : load_vector(x + at).items) add_distance(&sums, static_cast<double>(widen(item)), from);
    return sums;
  }
  __device__ Acc combine(const Acc& a, const Acc& b) const { return PlusSums()(a, b); }
  __device__ void finish(int64_t channel, int64_t, const Acc& sums) const {
    const Moments moments = moments_of(sums, count, context(channel, channel * inner));
    mean[channel] = moments.mean, variance[channel] = moments.variance;
  }
};

/// The sums of g and g (x - mean) over each channel.
template <class T>
struct ChannelSums {
  using W = Wide<T>;
  using Element = T;
  using Acc = Sums;
  const T *g, *x;
  const double *mean, *variance;
  double eps;
  ParameterGrads grads;
  Sums* sums;  // or nullptr

  __device__ Acc identity() const { return {}; }
  __device__ Centre<W> context(int64_t channel, int64_t) const { return Centre<W>(mean[channel]); }
  __device__ Acc element(const Centre<W>& centre, int64_t at, int64_t) const {
    const W grad = widen(g[at]);
    return {static_cast<double>(grad), static_cast<double>(grad * centre(widen(x[at])))};
  }
  __device__ Acc vector(const Centre<W>& centre, int64_t at, int64_t) const {
    const AlignedVector<T> gs = load_vector(g + at), xs = load_vector(x + at);
    W first = 0, second = 0;
    for (int k = 0; k < AlignedVector<T>::kSize; ++k) {
      const W grad = widen(gs.items[k]);
      first += grad, second += grad * centre(widen(xs.items[k]));
    }
    return {static_cast<double>(first), static_cast<double>(second)};
  }
  __device__ Acc combine(const Acc& a, const Acc& b) const { return PlusSums()(a, b); }
  __device__ void finish(int64_t channel, int64_t, const Acc& all) const {
    grads.store(channel, all.first, all.second * rstd_of(variance[channel], eps));
    if (sums) sums[channel] = all;
  }
};

/// y = (x - mean) slope + g scale + shift, with constants for each channel: batch norm and, with g, its gradient.
template <class W>
struct Affine {
  Centre<W> centre;
  W slope, scale, shift;
};

template <class T>
struct ChannelMap {
  using W = Wide<T>;
  int64_t outer, groups, inner;
  // A team of threads has a channel: `inner` elements, or one of `slices` parts of them, of every `repeats`-th outer
  // index.
  unsigned team;
  int64_t slices, repeats;
  bool aligned;

  const T *x, *g;  // nullptr: not needed
  T* y;
  const void *weight, *bias;
  bool wide;  // these two are of type Wide<T>
  const double *mean, *variance;
  double eps;
  const Sums* sums;  // only for gradients
  bool given;

  __device__ W parameter(const void* data, int64_t channel) const {
    return wide ? static_cast<const W*>(data)[channel] : widen(static_cast<const T*>(data)[channel]);
  }

  __device__ Affine<W> constants(int64_t channel) const {
    const double rstd = rstd_of(variance[channel], eps);
    const double factor = weight ? rstd * static_cast<double>(parameter(weight, channel)) : rstd;
    Affine<W> result{Centre<W>(mean[channel]), W(0), W(0), W(0)};
    if (!g) {
      result.slope = static_cast<W>(factor);
      if (bias) result.shift = parameter(bias, channel);
      return result;
    }
    result.scale = static_cast<W>(factor);
    if (given) return result;
    const double n = static_cast<double>(outer * inner);
    result.shift = static_cast<W>(-factor * sums[channel].first / n);
    result.slope = static_cast<W>(-factor * rstd * rstd * sums[channel].second / n);
    return result;
  }
};

// The formula of rows, with a weight that is the same for all elements of a mean. With given statistics (evaluation)
// these are constants, and gx = rstd weight g.
template <class T>
__global__ void __launch_bounds__(kThreads) channel_map_kernel(const ChannelMap<T> job) {
  using W = Wide<T>;
  constexpr int kVectorSize = AlignedVector<T>::kSize;
  const int64_t team = first_index() / job.team, channel = team % job.groups;
  const int64_t slice = team / job.groups % job.slices, first = team / job.groups / job.slices;
  if (first >= job.repeats) return;
  const Affine<W> affine = job.constants(channel);
  for (int64_t o = first; o < job.outer; o += job.repeats) {
    const int64_t at = (o * job.groups + channel) * job.inner;
    for (int64_t i = (slice * job.team + threadIdx.x % job.team) * kVectorSize; i < job.inner;
         i += job.slices * job.team * kVectorSize) {
      W x[kVectorSize] = {}, g[kVectorSize] = {};
      if (job.x) load_items(x, job.x + at, i, job.inner, job.aligned, W(0));
      if (job.g) load_items(g, job.g + at, i, job.inner, job.aligned, W(0));
      for (int k = 0; k < kVectorSize; ++k) {
        const W base = job.g ? g[k] * affine.scale + affine.shift : affine.shift;
        x[k] = job.x ? affine.centre(x[k]) * affine.slope + base : base;
      }
      store_items(job.y + at, i, job.inner, job.aligned, x);
    }
  }
}

template <class T>
void run(ChannelMap<T> job) {
  constexpr int64_t kVectorSize = AlignedVector<T>::kSize, kWanted = 132 * 2048;
  const int64_t packs = ceil_div(job.inner, kVectorSize);
  job.team = power_of_two_from(packs, kThreads);
  job.aligned = job.inner % kVectorSize == 0 && is_aligned(job.x) && is_aligned(job.g) && is_aligned(job.y);
  const int64_t threads = job.groups * job.team;
  job.repeats = std::clamp<int64_t>(kWanted / threads, 1, job.outer);
  job.slices = std::clamp<int64_t>(kWanted / (threads * job.repeats), 1, ceil_div(packs, job.team));
  launch(channel_map_kernel<T>, static_cast<unsigned>(ceil_div(threads * job.repeats * job.slices, kThreads)), kThreads,
         0, job);
}

template <class T>
ChannelMap<T> channel_map(const Norm& norm) {
  ChannelMap<T> job{};
  job.outer = norm.outer, job.groups = norm.groups, job.inner = norm.inner;
  job.x = static_cast<const T*>(norm.x);
  job.weight = norm.weight, job.wide = norm.wide_parameters;
  job.mean = norm.mean, job.variance = norm.variance, job.eps = norm.eps;
  job.given = norm.given;
  return job;
}

void channel_norm(const Norm& norm) {
  with_floating(norm.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const T* x = static_cast<const T*>(norm.x);
    if (!norm.given)
      run(ChannelMoments<T>{x, norm.inner, static_cast<double>(norm.outer * norm.inner), norm.mean, norm.variance},
          over_channels<T>(norm, norm.groups, {x}));
    ChannelMap<T> job = channel_map<T>(norm);
    job.bias = norm.bias;
    job.y = static_cast<T*>(norm.y);
    run(job);
  });
}

void channel_norm_grad(const Norm& norm) {
  with_floating(norm.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const T *x = static_cast<const T*>(norm.x), *g = static_cast<const T*>(norm.grad_y);
    const bool moments = norm.grad_x && !norm.given;
    const Scratch<Sums> sums(moments ? norm.groups : 0);
    if (moments || norm.grad_weight || norm.grad_bias)
      run(ChannelSums<T>{g, x, norm.mean, norm.variance, norm.eps, ParameterGrads(norm),
                         moments ? sums.data() : nullptr},
          over_channels<T>(norm, norm.groups, {x, g}));
    if (!norm.grad_x) return;
    ChannelMap<T> job = channel_map<T>(norm);
    if (norm.given) job.x = nullptr;
    job.g = g;
    job.y = static_cast<T*>(norm.grad_x);
    job.sums = sums.data();
    run(job);
  });
}

// ---- running statistics ---------------------------------------------------------------------------------------------

struct Running {
  void* data;
  int64_t stride;
  DType dtype;
  const double* now;
  double scale;

  __device__ void move(int64_t i, double momentum) const {
    with_stored(dtype, [&](auto type) {
      using T = typename decltype(type)::type;
      using W = Wide<T>;
      T& item = static_cast<T*>(data)[i * stride];
      item = narrow<T>(moved(W(widen(item)), W(widen(narrow<T>(now[i] * scale))), static_cast<W>(momentum)));
    });
  }
};
__global__ void move_running_kernel(Running mean, Running variance, int64_t n, double momentum) {
  for (int64_t i = first_index(); i < n; i += index_step()) mean.move(i, momentum), variance.move(i, momentum);
}
Running running_of(const View& running, const View& now, double scale) {
  return {running.data, running.strides[0], running.dtype, now.as<const double>(), scale};
}
void move_running(const View& mean, const View& variance, double unbiased, double momentum, const View& running_mean,
                  const View& running_var) {
  launch(move_running_kernel, blocks_for(mean.numel), kThreads, 0, running_of(running_mean, mean, 1),
         running_of(running_var, variance, unbiased), mean.numel, momentum);
}

}  // namespace

void install_norm(KernelTable& table) {
  table.row_norm = row_norm;
  table.row_norm_grad = row_norm_grad;
  table.channel_norm = channel_norm;
  table.channel_norm_grad = channel_norm_grad;
  table.move_running = move_running;
}

}  // namespace reel::cuda
