#pragma once
#include <cstdint>

#include "lib/functors/number.h"

namespace reel {

/// The part of a pooling window along one dimension that lies inside of x.
struct Window {
  int64_t start, taps;
  int64_t covered;  // taps, and those in the padding
};

/// Window o along dimension d. P has the members of Pooling (lib/kernels/pool.h). Static: the instruction sets must not
/// share it.
template <class P>
REEL_HD static Window window_of(const P& p, int d, int64_t o) {
  const int64_t in = p.in[d], step = p.dilation[d];
  if (p.adaptive) {
    const int64_t start = o * in / p.out[d], end = ((o + 1) * in + p.out[d] - 1) / p.out[d];
    return {start, end - start, end - start};
  }
  int64_t start = o * p.stride[d] - p.padding[d];
  const int64_t end = start + (p.kernel[d] - 1) * step + 1, inside = end < in ? end : in;
  const int64_t covered = (end < in + p.padding[d] ? end : in + p.padding[d]) - start;
  if (step == 1) {  // divisions are slow
    if (start < 0) start = 0;
    return {start, start < inside ? inside - start : 0, covered};
  }
  if (start < 0) start += (step - 1 - start) / step * step;
  return {start, start < inside ? (inside - start + step - 1) / step : 0, covered};
}

}  // namespace reel
