#include "lib/cpu/halves.h"
#include "lib/cpu/kernels.h"
#include "lib/cpu/parts.h"

// Resampling along one dimension (interpolation, adaptive averages) as weighted sums, and its gradient: inner loops
// over contiguous elements, which the compiler vectorises.
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

template <class T>
void resample_of(const View& x, int dim, const View& ids, const View& weights, const View& y) {
  const Lines from(x, dim), to(y, dim);
  const int64_t taps = ids.shape[1], inner = to.inner;
  const int64_t* at = ids.as<const int64_t>();
  const T* weight = weights.as<const T>();
  for_each_range(to.outer, (from.size > to.size ? from.size : to.size) * inner, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      const T* __restrict source = x.as<const T>() + o * from.size * inner;
      T* __restrict target = y.as<T>() + o * to.size * inner;
      if (inner == 1) {
        for (int64_t j = 0; j < to.size; ++j) {
          T sum = weight[j * taps] * source[at[j * taps]];
          for (int64_t k = 1; k < taps; ++k) sum += weight[j * taps + k] * source[at[j * taps + k]];
          target[j] = sum;
        }
        continue;
      }
      for (int64_t j = 0; j < to.size; ++j, target += inner) {
        const int64_t* id = at + j * taps;
        const T* w = weight + j * taps;
        const T* first = source + id[0] * inner;
        if (taps == 1) {
          for (int64_t i = 0; i < inner; ++i) target[i] = w[0] * first[i];
          continue;
        }
        const T* second = source + id[1] * inner;
        for (int64_t i = 0; i < inner; ++i) target[i] = w[0] * first[i] + w[1] * second[i];
        for (int64_t k = 2; k < taps; ++k) {
          const T* line = source + id[k] * inner;
          for (int64_t i = 0; i < inner; ++i) target[i] += w[k] * line[i];
        }
      }
    }
  });
}

template <class T>
void resample_grad_of(const View& x, int dim, const View& ids, const View& weights, const View& y) {
  const Lines to(x, dim), from(y, dim);
  const int64_t taps = ids.shape[1], inner = to.inner;
  const int64_t* at = ids.as<const int64_t>();
  const T* weight = weights.as<const T>();
  for_each_range(to.outer, (from.size > to.size ? from.size : to.size) * inner, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      const T* __restrict source = y.as<const T>() + o * from.size * inner;
      T* target = x.as<T>() + o * to.size * inner;
      for (int64_t j = 0; j < from.size; ++j, source += inner)
        for (int64_t k = 0; k < taps; ++k) {
          T* __restrict line = target + at[j * taps + k] * inner;
          const T w = weight[j * taps + k];
          for (int64_t i = 0; i < inner; ++i) line[i] += w * source[i];
        }
    }
  });
}

void resample(const View& x, int dim, const View& ids, const View& weights, const View& y) {
  if (is_half(x.dtype)) return resample(Widened().in(x), dim, ids, Widened().in(weights), Widened().out(y));
  x.dtype == kFloat32 ? resample_of<float>(x, dim, ids, weights, y) : resample_of<double>(x, dim, ids, weights, y);
}
void resample_grad(const View& x, int dim, const View& ids, const View& weights, const View& y) {
  if (is_half(x.dtype)) return resample_grad(Widened().in_out(x), dim, ids, Widened().in(weights), Widened().in(y));
  x.dtype == kFloat32 ? resample_grad_of<float>(x, dim, ids, weights, y)
                      : resample_grad_of<double>(x, dim, ids, weights, y);
}

}  // namespace

void install_resize(KernelTable& table) {
  table.interpolate = resample;
  table.interpolate_grad = resample_grad;
}

}  // namespace reel::cpu::REEL_ISA
