#pragma once
#include "reel/tensor.h"

namespace reel::optim {

/// The kernels know float32 and float64: half-precision parameters go by way of float32, and keep their states in it.
inline DType state_dtype(const Tensor& p) { return is_half(p.dtype()) ? kFloat32 : p.dtype(); }

}  // namespace reel::optim
