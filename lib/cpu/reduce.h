#pragma once
#include "lib/cpu/loop.h"
#include "lib/cpu/parts.h"
#include "lib/cpu/scratch.h"
#include "lib/cpu/simd/tiles.h"

// The loops of a reduction: its dimensions, divided into kept and reduced ones, with neighbours merged.
namespace reel::cpu::REEL_ISA {

/// A nest of loops; dimension 0 is the innermost. Strides in elements.
struct Nest {
  int rank = 0;
  int64_t sizes[kMaxDims], x_strides[kMaxDims], y_strides[kMaxDims];
  void add(int64_t size, int64_t x_stride, int64_t y_stride) {
    if (rank > 0 && x_stride == x_strides[rank - 1] * sizes[rank - 1] &&
        y_stride == y_strides[rank - 1] * sizes[rank - 1]) {
      sizes[rank - 1] *= size;
      return;
    }
    sizes[rank] = size, x_strides[rank] = x_stride, y_strides[rank] = y_stride;
    ++rank;
  }
};

struct Reduction {
  Nest kept, gone;
  bool columns = false;  // The innermost dimension of x, that of the smallest stride, is kept.
  Reduction(const View& x, const View& y) {
    bool innermost = true;
    int order[kMaxDims];
    const int rank = order_by_strides(x, order);
    for (int i = 0; i < rank; ++i) {
      const int d = order[i];
      const bool keep = y.shape[d] != 1;
      if (innermost) columns = keep, innermost = false;
      if (keep)
        kept.add(x.shape[d], x.strides[d], y.strides[d]);
      else
        gone.add(x.shape[d], x.strides[d], 0);
    }
    if (kept.rank == 0) kept.add(1, 0, 0);
    if (gone.rank == 0) gone.add(1, 0, 0);
  }
};

/// f(x, y) for the offsets of every point of dimensions `from` … of the nest. No size is zero.
template <class F>
void for_each_point(const Nest& nest, int from, const F& f) {
  int64_t at[kMaxDims] = {}, x = 0, y = 0;
  while (true) {
    f(x, y);
    int d = from;
    for (; d < nest.rank; ++d) {
      x += nest.x_strides[d], y += nest.y_strides[d];
      if (++at[d] < nest.sizes[d]) break;
      x -= nest.x_strides[d] * nest.sizes[d], y -= nest.y_strides[d] * nest.sizes[d];
      at[d] = 0;
    }
    if (d >= nest.rank) return;
  }
}

/// A large reduction as reductions of parts of x: reduce(part of x, part of y), or, where a reduced dimension is
/// divided, reduce(part of x, results), which are contiguous and of dtype `total_dtype`, whose type is Total. Results
/// are joined in order. False, having done nothing, where there is no dimension to divide.
template <class T, class Total, class Reduce, class Join>
bool reduce_parts(const View& x, const View& y, DType total_dtype, const Reduce& reduce, const Join& join) {
  // The outermost dimension in memory is divided, so that parts are far from each other.
  if (needs_reordering(x)) {
    bool done = false;
    const auto run = [&](const View* const* sorted) {
      done = reduce_parts<T, Total>(*sorted[1], *sorted[0], total_dtype, reduce, join);
    };
    const auto call = [](const void* f, const View* const* sorted) { (*static_cast<decltype(run)*>(f))(sorted); };
    const View* const views[] = {&y, &x};
    call_reordered(views, 2, call, &run);
    return done;
  }
  // A dimension that is reduced is divided only where parts have many elements for each result.
  const int64_t parts = std::min<int64_t>(parts_of(x.numel), 64);
  unsigned kept = 0, gone = 0;
  for (int d = 0; d < x.shape.size(); ++d) (y.shape[d] == 1 ? gone : kept) |= 1u << d;
  const bool few = y.numel * parts <= x.numel / 64;
  const int d = divided_dim(x.shape, few ? 0 : gone, parts);
  if (d < 0) return false;
  if (kept >> d & 1) {
    const View* const views[] = {&y, &x};
    return for_each_part(views, ~(1u << d), [&](const View* const* part) { reduce(*part[1], *part[0]); });
  }
  const int64_t step = step_of(x.shape[d], parts), count = (x.shape[d] - 1) / step + 1, n = y.numel;
  const Scratch scratch(static_cast<size_t>(count * n) * sizeof(Total));
  Total* const results = scratch.data<Total>();
  parallel_for(x.shape[d], step, [&](int64_t begin, int64_t end) {
    reduce(part_of(x, d, begin, end), dense_like(y, results + begin / step * n, total_dtype));
  });
  for (int64_t part = 1; part < count; ++part)
    for (int64_t i = 0; i < n; ++i) results[i] = join(results[i], results[part * n + i]);
  for_each_point(Reduction(dense_like(y, results, total_dtype), y).kept, 0,
                 [&](int64_t from, int64_t to) { y.as<T>()[to] = static_cast<T>(results[from]); });
  return true;
}

}  // namespace reel::cpu::REEL_ISA
