#pragma once
#include "reel/tensor.h"

#pragma GCC visibility push(default)
/// Gradients scaled or clamped before a step.
namespace reel::optim {

/// Scales the gradients of the parameters, in place, so that their norm, taken over all of them together, is at most
/// max_norm (Pascanu et al. 2013): multiplies them with min(1, max_norm / (norm + 1e-6)). Returns the norm as it was
/// before, a 0-d float32 tensor (float64 if a gradient is) on the device of the first gradient; it does not synchronize
/// unless the parameters are on several devices. norm_type is positive or infinity. A norm of NaN makes all gradients
/// NaN. Sparse gradients stay sparse. A parameter that is given twice counts once.
Tensor clip_grad_norm(TensorList parameters, double max_norm, double norm_type = 2);

/// Clamps every element of the gradients to [-clip_value, clip_value], in place.
void clip_grad_value(TensorList parameters, double clip_value);

}  // namespace reel::optim
#pragma GCC visibility pop
