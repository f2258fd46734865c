// This file has the arguments of the kernels that sample an image at the points of a grid.
#pragma once
#include "lib/device/view.h"

namespace reel {

enum class GridMode { kNearest, kBilinear, kBicubic };
enum class GridEdge { kZeros, kBorder, kReflection };

/// A GridSample describes y [n, channels, points…], the elements of x [n, channels, h, w] or [n, channels, d, h, w] at
/// the points of grid [n, points…, 2 or 3], the last dimension of x first. All are contiguous and have one dtype,
/// float32 or float64; kBicubic is for images alone.
struct GridSample {
  GridMode mode;
  GridEdge edge;
  bool align_corners;
  View x, grid;
  View y;                                          // of a gradient: that of y
  const View *gx = nullptr, *grid_grad = nullptr;  // of a gradient: what is wanted of it
};

}  // namespace reel
