#pragma once
#include <cstdint>

#include "lib/functors/number.h"

namespace reel {

/// The part of a pooling window along one dimension that lies inside of x. I is an integer type in which the products
/// of its sizes do not overflow.
template <class I>
struct WindowOf {
  I start, taps;
  I covered;  // taps, and those in the padding
};
using Window = WindowOf<int64_t>;

/// Window o along dimension d. P has the members of Pooling (lib/device/kernels/pool.h), its sizes as type I. Static:
/// the instruction sets must not share it.
template <class P, class I>
REEL_HD static WindowOf<I> window_of(const P& p, int d, I o) {
  const I in = p.in[d], step = p.dilation[d];
  if (p.adaptive) {
    const I start = o * in / p.out[d], end = ((o + 1) * in + p.out[d] - 1) / p.out[d];
    return {start, end - start, end - start};
  }
  I start = o * p.stride[d] - p.padding[d];
  const I end = start + (p.kernel[d] - 1) * step + 1, inside = end < in ? end : in;
  const I covered = (end < in + p.padding[d] ? end : in + p.padding[d]) - start;
  if (step == 1) {  // divisions are slow
    if (start < 0) start = 0;
    return {start, start < inside ? inside - start : 0, covered};
  }
  if (start < 0) start += (step - 1 - start) / step * step;
  return {start, start < inside ? (inside - start + step - 1) / step : 0, covered};
}

}  // namespace reel
