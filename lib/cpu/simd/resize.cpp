#include <algorithm>

#include "lib/cpu/halves.h"
#include "lib/cpu/kernels.h"
#include "lib/cpu/parts.h"
#include "lib/cpu/scratch.h"
#include "lib/cpu/simd/halves.h"
#include "lib/cpu/simd/transpose.h"
#include "lib/device/dispatch.h"

// Resampling along one dimension (interpolation, adaptive averages) as weighted sums, and its gradient: inner loops
// over contiguous elements, which the compiler vectorises. Where the dimension is the last one, lines are transposed so
// that the lanes of a vector are as many lines.
namespace reel::cpu::REEL_ISA {
namespace {

/// A contiguous x as [outer, size, inner] for the dimension that is resampled.
struct Lines {
  int64_t outer = 1, size, inner = 1;
  Lines(const View& x, int dim) : size(x.shape[dim]) {
    for (int d = 0; d < dim; ++d) outer *= x.shape[d];
    for (int d = dim + 1; d < x.shape.size(); ++d) inner *= x.shape[d];
  }
};

/// Taps say of which elements each of `size` elements is the weighted sum.
template <class T>
struct Taps {
  int64_t size, count;
  const int64_t* ids;
  const T* weights;
};

/// Writes the weighted sums of the source's elements, of `inner` numbers each. Inner is an integral constant where that
/// is a vector.
template <class T, class Inner>
void resample_line(const Taps<T>& taps, const T* __restrict source, T* __restrict target, Inner inner) {
  for (int64_t j = 0; j < taps.size; ++j, target += inner) {
    const int64_t* id = taps.ids + j * taps.count;
    const T* w = taps.weights + j * taps.count;
    const T* first = source + id[0] * inner;
    if (taps.count == 1) {
      for (int64_t i = 0; i < inner; ++i) target[i] = w[0] * first[i];
      continue;
    }
    const T* second = source + id[1] * inner;
    for (int64_t i = 0; i < inner; ++i) target[i] = w[0] * first[i] + w[1] * second[i];
    for (int64_t k = 2; k < taps.count; ++k) {
      const T* line = source + id[k] * inner;
      for (int64_t i = 0; i < inner; ++i) target[i] += w[k] * line[i];
    }
  }
}
/// Adds the source's elements to those that they are sums of: the adjoint.
template <class T, class Inner>
void spread_line(const Taps<T>& taps, const T* __restrict source, T* __restrict target, Inner inner) {
  for (int64_t j = 0; j < taps.size; ++j, source += inner)
    for (int64_t k = 0; k < taps.count; ++k) {
      T* __restrict line = target + taps.ids[j * taps.count + k] * inner;
      const T w = taps.weights[j * taps.count + k];
      for (int64_t i = 0; i < inner; ++i) line[i] += w * source[i];
    }
}

/// Resamples `from` along a dimension, or spreads it back, which adds to `to`.
template <class E, bool back>
void run(const View& from, const View& to, int dim, const View& ids, const View& weights) {
  using T = Compute<E>;
  constexpr bool is_wide = std::is_same_v<E, T>;
  const Lines source(from, dim), target(to, dim);
  const Taps<T> taps{ids.shape[0], ids.shape[1], ids.as<const int64_t>(), weights.as<const T>()};
  const int64_t outer = source.outer, lanes = source.inner == 1 && outer > 1 ? kWidth<T> : 1;
  const int64_t from_size = source.size * source.inner, to_size = target.size * target.inner;
  const auto call = [&](const T* x, T* y, auto inner) {
    back ? spread_line(taps, x, y, inner) : resample_line(taps, x, y, inner);
  };
  for_each_range((outer + lanes - 1) / lanes, std::max(from_size, to_size) * lanes, [&](int64_t begin, int64_t end) {
    // These have copies of some lines, widened, and of these as lanes.
    const int64_t of_wide = is_wide ? 0 : lanes, of_lanes = lanes > 1 ? lanes : 0;
    const Scratch scratch(static_cast<size_t>((from_size + to_size) * (of_wide + of_lanes)) * sizeof(T));
    T *const wide_from = scratch.data<T>(), *const wide_to = wide_from + from_size * of_wide;
    T *const lanes_from = wide_to + to_size * of_wide, *const lanes_to = lanes_from + from_size * of_lanes;
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * lanes, n = std::min(lanes, outer - first);
      const E* const x = from.as<const E>() + first * from_size;
      E* const y = to.as<E>() + first * to_size;
      const T* wide_x;
      T* wide_y;
      if constexpr (is_wide) {
        wide_x = x, wide_y = y;
      } else {
        wide_x = wide_from, wide_y = wide_to;
        convert(x, wide_from, n * from_size);
        if (back) convert(y, wide_to, n * to_size);
      }
      if (lanes > 1) {
        rows_to_lanes(wide_x, from_size, from_size, n, lanes_from);
        if (back) rows_to_lanes(static_cast<const T*>(wide_y), to_size, to_size, n, lanes_to);
        call(lanes_from, lanes_to, std::integral_constant<int64_t, kWidth<T>>());
        lanes_to_rows(lanes_to, to_size, n, wide_y, to_size);
      } else {
        call(wide_x, wide_y, source.inner);
      }
      if constexpr (!is_wide) convert(wide_to, y, n * to_size);
    }
  });
}

template <bool back>
void run_of_dtype(const View& from, const View& to, int dim, const View& ids, const View& weights) {
  Widened wide;
  const View& factors = wide.in(weights);
  dispatch::with_floating(from.dtype,
                          [&](auto type) { run<typename decltype(type)::type, back>(from, to, dim, ids, factors); });
}

void resample(const View& x, int dim, const View& ids, const View& weights, const View& y) {
  run_of_dtype<false>(x, y, dim, ids, weights);
}
void resample_grad(const View& x, int dim, const View& ids, const View& weights, const View& y) {
  run_of_dtype<true>(y, x, dim, ids, weights);
}

}  // namespace

void install_resize(KernelTable& table) {
  table.interpolate = resample;
  table.interpolate_grad = resample_grad;
}

}  // namespace reel::cpu::REEL_ISA
