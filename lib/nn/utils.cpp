#include "reel/nn/utils.h"

#include <vector>

#include "reel/autograd.h"
#include "reel/ops.h"

namespace reel::nn {

Tensor parameters_to_vector(TensorList parameters) {
  std::vector<Tensor> parts;
  for (const Tensor& p : parameters) parts.push_back(p.reshape({-1}));
  REEL_CHECK(!parts.empty(), "parameters_to_vector: no parameters");
  return cat(parts);
}

void vector_to_parameters(const Tensor& vector, TensorList parameters) {
  int64_t all = 0;
  for (const Tensor& p : parameters) all += p.numel();
  REEL_CHECK(vector.dim() == 1 && vector.numel() == all, "vector_to_parameters: a vector of shape ", vector.shape(),
             " for parameters of ", all, " elements");
  NoGrad guard;
  int64_t at = 0;
  for (Tensor p : parameters) {
    p.copy_(vector.narrow(0, at, p.numel()).view(p.shape()));
    at += p.numel();
  }
}

}  // namespace reel::nn
