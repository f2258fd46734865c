// This file has the kernels that sample images at the points of a grid: neighbouring points are the lanes of vectors,
// for which the neighbours and their weights are computed once for all channels.
#include "lib/functors/grid_sample.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "lib/cpu/kernels.h"
#include "lib/cpu/simd/batch.h"
#include "lib/device/kernels/grid_sample.h"
#include "reel/threads.h"

namespace reel::cpu::REEL_ISA {
namespace {

using functors::select;

constexpr int kMaxGridDims = 3, kMaxNeighbours = 4, kMaxTaps = 16;
constexpr int64_t kPartWork = int64_t{1} << 15;  // elements that are gathered

/// Index<T> is the type of an element's index, as large as T.
template <class T>
using Index = std::conditional_t<sizeof(T) == sizeof(int32_t), int32_t, int64_t>;

/// Sizes are those of a problem.
struct Sizes {
  int dims;
  int64_t n, channels, plane = 1, points = 1;
  int64_t size[kMaxGridDims];
  explicit Sizes(const GridSample& job)
      : dims(static_cast<int>(job.grid.shape.back())), n(job.x.shape[0]), channels(job.x.shape[1]) {
    for (int d = 0; d < dims; ++d) plane *= size[d] = job.x.shape[2 + d], points *= job.grid.shape[1 + d];
  }
};

/// Neighbours are the elements of one dimension that are near a position, as numbers, and how their weights change with
/// the grid.
template <class T>
struct Neighbours {
  int count = 0;
  Batch<T> position[kMaxNeighbours], weight[kMaxNeighbours], slope[kMaxNeighbours];
  void add(const Batch<T>& at, const Batch<T>& w, const Batch<T>& s) {
    position[count] = at, weight[count] = w, slope[count++] = s;
  }
};

/// Returns a position brought inside of n elements; `slope`, if any, is multiplied by how it moves.
template <class T>
Batch<T> brought_inside(const GridSample& job, const Batch<T>& at, int64_t size, Batch<T>* slope) {
  const Batch<T> zero(T(0)), last(static_cast<T>(size - 1));
  if (job.edge == GridEdge::kZeros) return at;
  Batch<T> inner = at;
  if (job.edge == GridEdge::kReflection) {
    const double low = job.align_corners ? 0 : -0.5, high = static_cast<double>(size - 1) - low;
    inner = functors::reflected(at, low, high);
    // Each mirror turns the direction, and so does low for what is left of it.
    if (slope && high > low) {
      const Batch<T> distance = at - Batch<T>(T(low)), two(T(2));
      const Batch<T> times = floor(abs(distance) / Batch<T>(T(high - low)));
      *slope = select(distance < zero, zero - *slope, *slope);
      *slope = select(times - floor(times / two) * two == Batch<T>(T(1)), zero - *slope, *slope);
    }
  }
  if (slope) *slope = select((inner > zero) & (inner < last), *slope, zero);
  inner = select(inner < zero, zero, inner);
  return select(inner > last, last, inner);
}

template <class T>
Neighbours<T> neighbours_of(const GridSample& job, const Batch<T>& grid, int64_t size) {
  const auto n = static_cast<double>(size);
  const Batch<T> one(T(1)), two(T(2));
  Batch<T> at = functors::grid_position(grid, n, job.align_corners), scale(T((job.align_corners ? n - 1 : n) / 2));
  // A cubic's neighbours are brought inside one by one, a linear's place as a whole.
  if (job.mode != GridMode::kBicubic) at = brought_inside(job, at, size, &scale);
  Neighbours<T> found;
  if (job.mode == GridMode::kNearest) {
    found.add(nearbyint(at), one, Batch<T>(T(0)));
    return found;
  }
  const Batch<T> base = floor(at), t = at - base;
  if (job.mode == GridMode::kBilinear) {
    found.add(base, one - t, Batch<T>(T(0)) - scale);
    found.add(base + one, t, scale);
    return found;
  }
  using functors::cubic_far, functors::cubic_near, functors::cubic_far_slope, functors::cubic_near_slope;
  found.add(base - one, cubic_far(t + one), scale * cubic_far_slope(t + one));
  found.add(base, cubic_near(t), scale * cubic_near_slope(t));
  found.add(base + one, cubic_near(one - t), Batch<T>(T(0)) - scale * cubic_near_slope(one - t));
  found.add(base + two, cubic_far(two - t), Batch<T>(T(0)) - scale * cubic_far_slope(two - t));
  for (int k = 0; k < found.count; ++k) found.position[k] = brought_inside<T>(job, found.position[k], size, nullptr);
  return found;
}

/// Returns the elements of x at a vector of indices.
template <class T>
Batch<T> gather(const T* x, const Index<T>* index) {
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<T, float>)
    return _mm512_i32gather_ps(_mm512_load_si512(index), x, sizeof(T));
  else
    return _mm512_i64gather_pd(_mm512_load_si512(index), x, sizeof(T));
#else
  alignas(Arch::alignment()) T lanes[kWidth<T>];
  for (int64_t i = 0; i < kWidth<T>; ++i) lanes[i] = x[index[i]];
  return Batch<T>::load_aligned(lanes);
#endif
}

/// Taps are the elements of an image of which a vector of points is made.
template <class T>
struct Taps {
  struct Tap {
    alignas(Arch::alignment()) Index<T> index[kWidth<T>];
    Batch<T> weight, slope[kMaxGridDims];  // by the dimensions of x
    Batch<T> seen;                         // 1, or 0 where it lies outside
  };
  int count = 0;
  bool all_seen = true;
  Tap taps[kMaxTaps];

  /// Finds the taps of `points` points of the grid.
  Taps(const GridSample& job, const Sizes& sizes, const T* grid, int64_t points) {
    const int dims = sizes.dims;
    Neighbours<T> near[kMaxGridDims];
    Batch<T> seen[kMaxGridDims][kMaxNeighbours];
    Index<T> index[kMaxGridDims][kMaxNeighbours][kWidth<T>];
    const Batch<T> zero(T(0)), one(T(1));
    for (int d = 0; d < dims; ++d) {
      near[d] = neighbours_of(job, load_strided(grid + dims - 1 - d, dims, points), sizes.size[d]);
      const Batch<T> last(static_cast<T>(sizes.size[d] - 1));
      for (int k = 0; k < near[d].count; ++k) {
        const Batch<T>& at = near[d].position[k];
        const auto inside = (at >= zero) & (at <= last);
        seen[d][k] = select(inside, one, zero);
        alignas(Arch::alignment()) T places[kWidth<T>];
        select(inside, at, zero).store_aligned(places);
        for (int64_t i = 0; i < kWidth<T>; ++i) index[d][k][i] = static_cast<Index<T>>(places[i]);
      }
    }
    const int inner = dims == 3 ? near[2].count : 1;
    count = near[0].count * near[1].count * inner;
    for (int i = 0; i < count; ++i) {
      Tap& tap = taps[i];
      int at[kMaxGridDims] = {i / (near[1].count * inner), i / inner % near[1].count, i % inner};
      tap.weight = tap.seen = one;
      std::fill_n(tap.index, kWidth<T>, Index<T>(0));
      for (int d = 0; d < dims; ++d) {
        tap.weight *= near[d].weight[at[d]];
        tap.seen *= seen[d][at[d]];
        const auto size = static_cast<Index<T>>(sizes.size[d]);
        for (int64_t lane = 0; lane < kWidth<T>; ++lane)
          tap.index[lane] = static_cast<Index<T>>(tap.index[lane] * size + index[d][at[d]][lane]);
        tap.slope[d] = near[d].slope[at[d]];
        for (int e = 0; e < dims; ++e)
          if (e != d) tap.slope[d] *= near[e].weight[at[e]];
      }
      all_seen = all_seen && all(tap.seen == one);
    }
  }

  /// Returns the value of channel `x` there. What lies outside is 0, whatever the element is that stands for it.
  Batch<T> load_at(const T* x, const Tap& tap) const {
    const Batch<T> value = gather(x, tap.index);
    return all_seen ? value : select(tap.seen == Batch<T>(T(1)), value, Batch<T>(T(0)));
  }
};

/// Calls f(taps, image, first point, points) for vectors of points.
template <class T, class F>
void for_each_points(const GridSample& job, const Sizes& sizes, const F& f) {
  const int64_t blocks = (sizes.points + kWidth<T> - 1) / kWidth<T>;
  const int64_t work = kWidth<T> * std::max<int64_t>(sizes.channels, 1) * 4;
  parallel_for(sizes.n * blocks, std::max<int64_t>(kPartWork / work, 1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t image = i / blocks, first = i % blocks * kWidth<T>, n = std::min(kWidth<T>, sizes.points - first);
      const Taps<T> taps(job, sizes, job.grid.as<const T>() + (image * sizes.points + first) * sizes.dims, n);
      f(taps, image, first, n);
    }
  });
}

template <class T>
void sample(const GridSample& job) {
  const Sizes sizes(job);
  for_each_points<T>(job, sizes, [&](const Taps<T>& taps, int64_t image, int64_t first, int64_t n) {
    const T* x = job.x.as<const T>() + image * sizes.channels * sizes.plane;
    T* y = job.y.as<T>() + image * sizes.channels * sizes.points + first;
    for (int64_t c = 0; c < sizes.channels; ++c, x += sizes.plane, y += sizes.points) {
      Batch<T> sum(T(0));
      for (int i = 0; i < taps.count; ++i) sum = fma(taps.taps[i].weight, taps.load_at(x, taps.taps[i]), sum);
      store_up_to(y, sum, n);
    }
  });
}

template <class T>
void add_grad_of_x(const GridSample& job, const View& gx) {
  constexpr int64_t kChannels = 16;  // for which taps are computed once
  const Sizes sizes(job);
  const int64_t groups = (sizes.channels + kChannels - 1) / kChannels;
  parallel_for(sizes.n * groups, 1, [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) {
      const int64_t image = group / groups, channel = group % groups * kChannels;
      const int64_t channels = std::min(kChannels, sizes.channels - channel);
      for (int64_t first = 0; first < sizes.points; first += kWidth<T>) {
        const int64_t n = std::min(kWidth<T>, sizes.points - first);
        const Taps<T> taps(job, sizes, job.grid.as<const T>() + (image * sizes.points + first) * sizes.dims, n);
        for (int64_t c = channel; c < channel + channels; ++c) {
          T* const to = gx.as<T>() + (image * sizes.channels + c) * sizes.plane;
          const Batch<T> g = load_up_to(job.y.as<const T>() + (image * sizes.channels + c) * sizes.points + first, n);
          for (int i = 0; i < taps.count; ++i) {
            const auto& tap = taps.taps[i];
            alignas(Arch::alignment()) T shares[kWidth<T>], seen[kWidth<T>];
            (g * tap.weight).store_aligned(shares);
            tap.seen.store_aligned(seen);
            for (int64_t lane = 0; lane < n; ++lane)
              if (taps.all_seen || seen[lane] != T(0)) to[tap.index[lane]] += shares[lane];
          }
        }
      }
    }
  });
}

template <class T>
void set_grad_of_grid(const GridSample& job, const View& grid_grad) {
  const Sizes sizes(job);
  if (job.mode == GridMode::kNearest) {
    std::fill_n(grid_grad.as<T>(), grid_grad.numel, T(0));
    return;
  }
  for_each_points<T>(job, sizes, [&](const Taps<T>& taps, int64_t image, int64_t first, int64_t n) {
    const T* x = job.x.as<const T>() + image * sizes.channels * sizes.plane;
    const T* g = job.y.as<const T>() + image * sizes.channels * sizes.points + first;
    Batch<T> sums[kMaxTaps];
    for (auto& sum : sums) sum = Batch<T>(T(0));
    for (int64_t c = 0; c < sizes.channels; ++c, x += sizes.plane, g += sizes.points) {
      const Batch<T> grad = load_up_to(g, n);
      for (int i = 0; i < taps.count; ++i) sums[i] = fma(grad, taps.load_at(x, taps.taps[i]), sums[i]);
    }
    T* const to = grid_grad.as<T>() + (image * sizes.points + first) * sizes.dims;
    for (int d = 0; d < sizes.dims; ++d) {
      Batch<T> sum(T(0));
      for (int i = 0; i < taps.count; ++i) sum = fma(sums[i], taps.taps[i].slope[d], sum);
      store_strided(to + sizes.dims - 1 - d, sizes.dims, sum, n);
    }
  });
}

bool grid_sample(const GridSample& job) {
  const Sizes sizes(job);
  if (job.x.dtype == kFloat32 && sizes.plane > INT32_MAX) return false;
  if (job.y.numel) job.x.dtype == kFloat32 ? sample<float>(job) : sample<double>(job);
  return true;
}
void grid_sample_grad(const GridSample& job) {
  if (job.grid.numel == 0) return;
  const bool single = job.x.dtype == kFloat32;
  if (job.gx) single ? add_grad_of_x<float>(job, *job.gx) : add_grad_of_x<double>(job, *job.gx);
  if (job.grid_grad)
    single ? set_grad_of_grid<float>(job, *job.grid_grad) : set_grad_of_grid<double>(job, *job.grid_grad);
}

}  // namespace

void install_grid_sample(KernelTable& table) {
  table.grid_sample = grid_sample;
  table.grid_sample_grad = grid_sample_grad;
}

}  // namespace reel::cpu::REEL_ISA
