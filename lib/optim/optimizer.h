#pragma once
#include "reel/tensor.h"

namespace reel::optim {

/// The CPU kernels take float32 and float64: half-precision parameters are converted to float32, and their states are
/// float32.
inline DType state_dtype(const Tensor& p) { return is_half(p.dtype()) ? kFloat32 : p.dtype(); }

}  // namespace reel::optim
