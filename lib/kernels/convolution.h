#pragma once
#include <array>
#include <cstdint>

#include "reel/types.h"

namespace reel {

/// A convolution over 1 to 3 spatial dimensions. x is [n, in, x_size…], weight [out, in / groups, kernel…] and
/// y [n, out, y_size…], contiguous and not empty:
///   y[b, o, p] = bias[o] + Σ weight[o, c, k] x[b, c, stride p + dilation k - before]
/// over all k and the channels c of o's group, with zeros beyond x's edges, which may be met at the end, too: y_size
/// alone says how far the windows go. The sizes fill the arrays from the end; dimensions in front of them have size,
/// stride and dilation 1, before 0.
enum ConvPart : int { kConvX, kConvWeight, kConvY };
struct Convolution {
  DType dtype;  // kFloat32 or kFloat64
  int dims;     // spatial ones
  int64_t n, in, out, groups;
  std::array<int64_t, 3> x_size, kernel, y_size, stride, dilation, before;
  std::array<void*, 3> data = {};  // by ConvPart
  const void* bias = nullptr;      // [out]; only where y is computed
};

}  // namespace reel
