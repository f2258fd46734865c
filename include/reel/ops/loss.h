#pragma once
#include <functional>

#include "reel/ops/common.h"

#pragma GCC visibility push(default)
/// Losses.
///
/// Every loss is averaged (kMean), summed (kSum) or given for each element or row (kNoReduction). Half types are
/// computed in float32 and give their own type again. Meanings and defaults are PyTorch's, but that nothing broadcasts
/// in silence: an elementwise loss throws unless input and target have one shape or the target is a number (a 0-d
/// tensor). Weights broadcast to the shape of the losses.
namespace reel {

// ---- classes --------------------------------------------------------------------------------------------------------

/// Of nll_loss.
struct NLLLossOptions {
  Tensor weight = {};           ///< [classes]: the weight of a row, by its target. kMean divides by their sum.
  int64_t ignore_index = -100;  ///< Rows with this target are ignored.
  Reduction reduction = kMean;  ///< Over the values.
};
///@{
/// -log_probs[i, target[i]] for log_probs [n, classes, d…] (or [classes]) and target [n, d…] (or []) of int64, int32 or
/// uint8. If all targets are ignored the mean is NaN. A target out of range is an Error.
Tensor nll_loss(const Tensor& log_probs, const Tensor& target, const NLLLossOptions& options = {});
inline Tensor nll_loss(const Tensor& log_probs, const Tensor& target, Reduction reduction) {
  return nll_loss(log_probs, target, {.reduction = reduction});
}
///@}

/// Of cross_entropy.
struct CrossEntropyLossOptions {
  Tensor weight = {};           ///< As in NLLLossOptions.
  int64_t ignore_index = -100;  ///< As in NLLLossOptions.
  Reduction reduction = kMean;  ///< Over the values.
  double label_smoothing = 0;   ///< This share of the target is spread evenly over all classes (Szegedy et al. 2016).
};
///@{
/// nll_loss(log_softmax(logits, 1), target), in one step. A floating-point target of the logits' shape holds the
/// probability of each class, and is differentiable; its mean divides by the number of rows, not by their weights.
Tensor cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyLossOptions& options = {});
inline Tensor cross_entropy(const Tensor& logits, const Tensor& target, Reduction reduction) {
  return cross_entropy(logits, target, {.reduction = reduction});
}
///@}

/// Of multi_margin_loss.
struct MultiMarginLossOptions {
  int64_t p = 1;                ///< 1 or 2.
  double margin = 1;            ///< Of the scores: the hinge is 0 where x[y] exceeds x[j] by more.
  Tensor weight = {};           ///< [classes]; kMean divides by the number of rows all the same.
  Reduction reduction = kMean;  ///< Over the values.
};
/// The multi-class hinge loss Σ max(0, margin - x[y] + x[j])^p / classes, j ≠ y, of x [n, classes] (or [classes]) and
/// target y, integers [n] (or []).
Tensor multi_margin_loss(const Tensor& x, const Tensor& target, const MultiMarginLossOptions& options = {});

/// Σ max(0, 1 - x[y] + x[j]) / classes over the classes y that a row's target names and those, j, that it does not.
/// x and target, integers, are [n, classes] (or [classes]); a negative number ends a row's list of classes.
Tensor multilabel_margin_loss(const Tensor& x, const Tensor& target, Reduction reduction = kMean);

/// Of multilabel_soft_margin_loss.
struct MultiLabelSoftMarginLossOptions {
  Tensor weight = {};           ///< Of each class; broadcast to x.
  Reduction reduction = kMean;  ///< Over the values.
};
/// binary_cross_entropy_with_logits, averaged over the last dimension.
Tensor multilabel_soft_margin_loss(const Tensor& x, const Tensor& target,
                                   const MultiLabelSoftMarginLossOptions& options = {});

// ---- differences ----------------------------------------------------------------------------------------------------

Tensor l1_loss(const Tensor& input, const Tensor& target, Reduction reduction = kMean);   ///< |input - target|
Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction = kMean);  ///< (input - target)²

/// Of smooth_l1_loss.
struct SmoothL1LossOptions {
  double beta = 1;              ///< Where the parabola ends; 0 is l1_loss.
  Reduction reduction = kMean;  ///< Over the values.
};
///@{
/// d² / (2 beta) below beta and d - beta / 2 above, d = |input - target| (Girshick 2015).
Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, const SmoothL1LossOptions& options = {});
inline Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  return smooth_l1_loss(input, target, {.reduction = reduction});
}
///@}

/// Of huber_loss.
struct HuberLossOptions {
  double delta = 1;             ///< Where the parabola ends.
  Reduction reduction = kMean;  ///< Over the values.
};
///@{
/// d² / 2 below delta and delta (d - delta / 2) above (Huber 1964).
Tensor huber_loss(const Tensor& input, const Tensor& target, const HuberLossOptions& options = {});
inline Tensor huber_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  return huber_loss(input, target, {.reduction = reduction});
}
///@}

// ---- probabilities --------------------------------------------------------------------------------------------------

/// Of binary_cross_entropy.
struct BCELossOptions {
  Tensor weight = {};           ///< Of each element; broadcast.
  Reduction reduction = kMean;  ///< Over the values.
};
///@{
/// -t log p - (1 - t) log(1 - p), elementwise for equal shapes. Logarithms are clamped at -100; p or t outside [0, 1]
/// is an Error.
Tensor binary_cross_entropy(const Tensor& probability, const Tensor& target, const BCELossOptions& options = {});
inline Tensor binary_cross_entropy(const Tensor& probability, const Tensor& target, Reduction reduction) {
  return binary_cross_entropy(probability, target, {.reduction = reduction});
}
///@}

/// Of binary_cross_entropy_with_logits.
struct BCEWithLogitsLossOptions {
  Tensor weight = {};           ///< Of each element; broadcast.
  Tensor pos_weight = {};       ///< The weight of positive targets; broadcast.
  Reduction reduction = kMean;  ///< Over the values.
};
///@{
/// binary_cross_entropy(sigmoid(logits), target) without overflow.
Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target,
                                        const BCEWithLogitsLossOptions& options = {});
inline Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target, Reduction reduction) {
  return binary_cross_entropy_with_logits(logits, target, {.reduction = reduction});
}
///@}

/// Of kl_div.
struct KLDivLossOptions {
  bool log_target = false;      ///< The target is given as logarithms, too.
  Reduction reduction = kMean;  ///< kBatchMean, the sum over size(0), is the divergence itself.
};
///@{
/// target (log target - input), for a distribution `target` and the logarithms `input` of another; 0 log 0 is 0.
Tensor kl_div(const Tensor& input, const Tensor& target, const KLDivLossOptions& options = {});
inline Tensor kl_div(const Tensor& input, const Tensor& target, Reduction reduction) {
  return kl_div(input, target, {.reduction = reduction});
}
///@}

/// Of poisson_nll_loss.
struct PoissonNLLLossOptions {
  bool log_input = true;        ///< The input is the logarithm of the rate.
  bool full = false;            ///< Adds Stirling's approximation of log target!, for targets above 1.
  double eps = 1e-8;            ///< Keeps the logarithm from 0 without log_input.
  Reduction reduction = kMean;  ///< Over the values.
};
/// exp(input) - target input, or input - target log(input + eps): counts under a Poisson distribution.
Tensor poisson_nll_loss(const Tensor& input, const Tensor& target, const PoissonNLLLossOptions& options = {});

/// Of gaussian_nll_loss.
struct GaussianNLLLossOptions {
  bool full = false;            ///< Adds the constant log(2π) / 2.
  double eps = 1e-6;            ///< Lower bound of the variance. The gradient ignores it.
  Reduction reduction = kMean;  ///< Over the values.
};
/// (log var + (input - target)² / var) / 2. var, never negative, is of input's shape, or without its last dimension, or
/// broadcasts to it.
Tensor gaussian_nll_loss(const Tensor& input, const Tensor& target, const Tensor& var,
                         const GaussianNLLLossOptions& options = {});

// ---- margins: targets are 1 and -1 ----------------------------------------------------------------------------------

/// log(1 + exp(-target x))
Tensor soft_margin_loss(const Tensor& x, const Tensor& target, Reduction reduction = kMean);

/// Of hinge_embedding_loss.
struct HingeEmbeddingLossOptions {
  double margin = 1;            ///< How far dissimilar pairs should be apart.
  Reduction reduction = kMean;  ///< Over the values.
};
/// x where the target is 1, max(0, margin - x) where it is -1.
Tensor hinge_embedding_loss(const Tensor& x, const Tensor& target, const HingeEmbeddingLossOptions& options = {});

/// Of margin_ranking_loss and cosine_embedding_loss.
struct MarginLossOptions {
  double margin = 0;            ///< How far a should exceed b, or the cosine below which pairs count as dissimilar.
  Reduction reduction = kMean;  ///< Over the values.
};
/// max(0, -target (a - b) + margin): a should rank above b where the target is 1. Of one shape; b
/// and the target may be numbers.
Tensor margin_ranking_loss(const Tensor& a, const Tensor& b, const Tensor& target,
                           const MarginLossOptions& options = {});
/// 1 - cos(a, b) where the target is 1, max(0, cos(a, b) - margin) where it is -1, for vectors a and b [n, d] (or [d])
/// and target [n] (or []).
Tensor cosine_embedding_loss(const Tensor& a, const Tensor& b, const Tensor& target,
                             const MarginLossOptions& options = {});

/// Of triplet_margin_loss.
struct TripletMarginLossOptions {
  double margin = 1;            ///< How much further the negative should be than the positive.
  double p = 2;                 ///< Of the norm that is the distance.
  double eps = 1e-6;            ///< Is added to each difference.
  bool swap = false;            ///< The negative's distance is that to the anchor or the positive, whichever is less.
  Reduction reduction = kMean;  ///< Over the values.
};
/// max(0, margin + distance(anchor, positive) - distance(anchor, negative)) for vectors [n, d] (Schroff et al. 2015;
/// swap: Balntas et al. 2016).
Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletMarginLossOptions& options = {});

/// Of triplet_margin_with_distance_loss.
struct TripletMarginWithDistanceLossOptions {
  /// From two batches of vectors to a distance for each pair; pairwise_distance if there is none.
  std::function<Tensor(const Tensor& a, const Tensor& b)> distance = {};
  double margin = 1;            ///< How much further the negative should be than the positive.
  bool swap = false;            ///< As in TripletMarginLossOptions.
  Reduction reduction = kMean;  ///< Over the values.
};
/// max(0, margin + distance(anchor, positive) - distance(anchor, negative)) for a user-defined distance.
Tensor triplet_margin_with_distance_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                                         const TripletMarginWithDistanceLossOptions& options = {});

}  // namespace reel
#pragma GCC visibility pop
