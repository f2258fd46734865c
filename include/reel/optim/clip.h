#pragma once
#include <span>

#include "reel/tensor.h"

namespace reel::optim {

/// Scales the gradients of the parameters, in place, so that their norm, taken over all of them together, is at most
/// max_norm (Pascanu et al. 2013). Returns the norm as it was before. norm_type is positive or infinity. Row-sparse
/// gradients stay so.
double clip_grad_norm(std::span<const Tensor> parameters, double max_norm, double norm_type = 2);

/// Clamps every element of the gradients to [-clip_value, clip_value], in place.
void clip_grad_value(std::span<const Tensor> parameters, double clip_value);

}  // namespace reel::optim
