#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "reel/types.h"

namespace reel {

class PackedCopies;  // lib/device/packed.h

/// A convolution over 1 to 3 spatial dimensions. x is [n, in, x_size…], weight [out, in / groups, kernel…] and
/// y [n, out, y_size…], contiguous and not empty:
///   y[b, o, p] = bias[o] + Σ weight[o, c, k] x[b, c, stride p + dilation k - before]
/// over all k and the channels c of o's group, with zeros beyond x's edges, which may be met at the end, too: y_size
/// alone says how far the windows go. The sizes fill the arrays from the end; dimensions in front of them have size,
/// stride and dilation 1, before 0. In a part that is channels_last the second of its dimensions is the last.
enum ConvPart : int { kConvX, kConvWeight, kConvY };
struct Convolution {
  DType dtype;  // a floating-point one
  int dims;     // spatial ones
  int64_t n, in, out, groups;
  std::array<int64_t, 3> x_size, kernel, y_size, stride, dilation, before;
  std::array<void*, 3> data = {};          // by ConvPart
  const void* bias = nullptr;              // [out]; only where y is computed
  std::array<bool, 3> channels_last = {};  // by ConvPart; an op has x and y alike, and the weight never: a device may
  PackedCopies* packed = nullptr;          // copies of the weight that a kernel may use and add to
};

/// The strides of a dense tensor whose second dimension lies last, or where it stands.
inline std::vector<int64_t> dense_strides(const std::vector<int64_t>& sizes, bool channels_last) {
  std::vector<int64_t> strides(sizes.size());
  int64_t step = 1;
  const auto lay = [&](size_t d) { strides[d] = step, step *= sizes[d]; };
  if (channels_last) lay(1);
  for (size_t d = sizes.size(); d-- > 0;)
    if (d != 1 || !channels_last) lay(d);
  return strides;
}

}  // namespace reel
