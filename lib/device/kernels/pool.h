#pragma once
#include <array>
#include <cstdint>

namespace reel {

/// Windows over x [planes, in…, channels] that make y [planes, out…, channels]. Window o of a dimension has its taps at
/// o stride - padding, dilation apart; those outside are left out. If adaptive, it is [⌊o in / out⌋, ⌈(o + 1) in /
/// out⌉). The caller sees to it that every window of a maximum has an element.
struct Pooling {
  int64_t planes;
  std::array<int64_t, 3> in, out, kernel, stride, padding, dilation;
  bool adaptive = false;
  bool ceil_mode = false;  // whether `out` counts windows that end outside; kernels need not know
  // Of averages, whose dilation is 1: what to divide by.
  bool count_include_pad = true;
  int64_t divisor = 0;         // 0: by the number of elements
  int64_t channels = 1;        // where they lie last; otherwise planes counts them
  bool channels_last = false;  // whether x has that dimension; kernels need not know
};

}  // namespace reel
