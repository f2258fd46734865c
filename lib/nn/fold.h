// This file declares how a batch norm is folded into the layer in front of it.
#pragma once
#include "reel/tensor.h"

namespace reel::nn::internal {

/// NormTensors are the running statistics of a batch norm, and its weight and bias, which may be undefined.
struct NormTensors {
  Tensor mean, variance, weight, bias;
  double eps;
};
/// A Folded is a weight and a bias with a norm in them.
struct Folded {
  Tensor weight, bias;
};
/// Returns the weight and bias with which a layer computes what the norm makes of its results. Dimension `out_dim` of
/// the weight has the channels of a group: 0 (all of them) for convolutions and Linear, 1 for transposed convolutions.
/// It is computed in float64 and rounded once. `bias` may be undefined.
Folded fold_batch_norm(const Tensor& weight, const Tensor& bias, int out_dim, int64_t groups, const NormTensors& norm);

}  // namespace reel::nn::internal
