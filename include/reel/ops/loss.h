#pragma once
#include "reel/ops/common.h"

/// Softmax and losses.
namespace reel {

Tensor softmax(const Tensor& x, int64_t dim);
Tensor log_softmax(const Tensor& x, int64_t dim);
/// The losses know no class weights, ignored targets or probability targets yet, and do not broadcast.
/// -log_probs[i, target[i]] for log_probs [n, classes] (or [classes]) and int64 target [n] (or a scalar).
Tensor nll_loss(const Tensor& log_probs, const Tensor& target, Reduction reduction = kMean);
/// nll_loss(log_softmax(logits), target), in one step: logits [n, classes] (or [classes]), target int64 [n] (or []).
Tensor cross_entropy(const Tensor& logits, const Tensor& target, Reduction reduction = kMean);
Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction = kMean);
/// Logarithms are clamped at -100, as in PyTorch.
Tensor binary_cross_entropy(const Tensor& probability, const Tensor& target, Reduction reduction = kMean);
Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target, Reduction reduction = kMean);

}  // namespace reel
