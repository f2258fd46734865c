#pragma once
#include <cstdint>

#include "lib/functors/number.h"
#include "reel/types.h"

namespace reel {

/// y = (x - mean) rstd weight + bias with rstd = 1 / √(variance + eps), for x [outer, groups, channels, inner];
/// everything contiguous. Mean and variance belong to a row (outer, group) in row_norm, to a group in channel_norm,
/// where channels is 1.
struct Norm {
  DType dtype;  // kFloat32 or kFloat64
  int64_t outer, groups, channels, inner;
  double eps;
  bool center = true;  // false: the mean is 0 (rows only)
  bool given = false;  // mean and variance are constants, not those of x (channels only)
  const void* x;
  const void* weight;  // [groups, channels], or nullptr: 1
  const void* bias;    // likewise, 0
  void* y;
  double* mean;
  double* variance;  // over n, not n - 1
  // Backward: the gradient in, and out (nullptr is not wanted). Those of weight and bias are written in
  // grads_dtype.
  const void* grad_y;
  void* grad_x;
  void* grad_weight;
  void* grad_bias;
  DType grads_dtype = kFloat64;
  bool wide_parameters = false;  // weight and bias are float32 where dtype is a half type
};

/// A running statistic that has moved towards `now`, by lerp's formula. Static: the instruction sets must not share it.
template <class T>
REEL_HD static T moved(T running, T now, T momentum) {
  const T way = now - running;
  return functors::abs(momentum) < T(0.5) ? running + momentum * way : now - way * (T(1) - momentum);
}

}  // namespace reel
