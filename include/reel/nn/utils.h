#pragma once
#include "reel/tensor.h"

#pragma GCC visibility push(default)
/// Parameters as one vector.
namespace reel::nn {

/// All elements of the parameters, one after the other, as one vector. Recorded.
Tensor parameters_to_vector(TensorList parameters);
/// Copies the values of such a vector into the parameters. An Error if it is of another length.
void vector_to_parameters(const Tensor& vector, TensorList parameters);

}  // namespace reel::nn
#pragma GCC visibility pop
