#pragma once
#include "lib/cpu/loop.h"

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
  bool columns = false;  // The innermost dimension of x is kept.
  Reduction(const View& x, const View& y) {
    bool innermost = true;
    for (int d = x.shape.size() - 1; d >= 0; --d) {
      if (x.shape[d] == 1) continue;
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

}  // namespace reel::cpu::REEL_ISA
