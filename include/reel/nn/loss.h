#pragma once
#include <utility>
#include <vector>

#include "reel/nn/module.h"
#include "reel/ops/crf.h"
#include "reel/ops/loss.h"

#pragma GCC visibility push(default)
/// Losses as modules: each is its op (reel/ops/loss.h, crf.h) with options that are set at construction,
///
///   nn::CrossEntropyLoss loss{{.label_smoothing = 0.1}};
///   loss(model(x), y).backward();
///
/// Class weights and the like are buffers, so they move with the module.
namespace reel::nn {

/// What the losses have in common: their options, which do not change, and buffers "weight" and "pos_weight" for those
/// that have one.
template <class Derived, class Given>
struct Loss : Layer<Derived> {
  /// With options for all calls.
  explicit Loss(Given given = {}) : options(std::move(given)) {
    if constexpr (requires { options.weight; }) tensors_.emplace_back(*this, "weight", options.weight);
    if constexpr (requires { options.pos_weight; }) tensors_.emplace_back(*this, "pos_weight", options.pos_weight);
  }
  /// The same, as a part of `parent`.
  Loss(Module& parent, std::string name, Given given = {}) : Loss(std::move(given)) {
    parent.register_module(std::move(name), *this);
  }
  const Given options;  ///< Those of all calls.

 private:
  std::vector<Buffer> tensors_;  // the same tensors as in options
};

/// Options of losses that have only a reduction.
struct LossOptions {
  Reduction reduction = kMean;  ///< Over the elements.
};

// ---- classes --------------------------------------------------------------------------------------------------------

/// nll_loss of log probabilities [n, classes, …] and targets int64 [n, …].
struct NLLLoss : Loss<NLLLoss, NLLLossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& log_probs, const Tensor& target) const { return nll_loss(log_probs, target, options); }
};
/// cross_entropy of logits [n, classes, …] and targets, classes int64 [n, …] or probabilities of logits' shape.
struct CrossEntropyLoss : Loss<CrossEntropyLoss, CrossEntropyLossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& logits, const Tensor& target) const { return cross_entropy(logits, target, options); }
};
/// multi_margin_loss of scores [n, classes] and targets int64 [n].
struct MultiMarginLoss : Loss<MultiMarginLoss, MultiMarginLossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& x, const Tensor& target) const { return multi_margin_loss(x, target, options); }
};
/// multilabel_margin_loss of scores [n, classes] and targets int64 [n, classes].
struct MultiLabelMarginLoss : Loss<MultiLabelMarginLoss, LossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& x, const Tensor& target) const {
    return multilabel_margin_loss(x, target, options.reduction);
  }
};
/// multilabel_soft_margin_loss of scores [n, classes] and targets of 0 and 1 of that shape.
struct MultiLabelSoftMarginLoss : Loss<MultiLabelSoftMarginLoss, MultiLabelSoftMarginLossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& x, const Tensor& target) const {
    return multilabel_soft_margin_loss(x, target, options);
  }
};

// ---- differences ----------------------------------------------------------------------------------------------------

/// l1_loss: |input - target|.
struct L1Loss : Loss<L1Loss, LossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& input, const Tensor& target) const { return l1_loss(input, target, options.reduction); }
};
/// mse_loss: (input - target)².
struct MSELoss : Loss<MSELoss, LossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& input, const Tensor& target) const { return mse_loss(input, target, options.reduction); }
};
/// smooth_l1_loss: squared below beta, absolute above.
struct SmoothL1Loss : Loss<SmoothL1Loss, SmoothL1LossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& input, const Tensor& target) const { return smooth_l1_loss(input, target, options); }
};
/// huber_loss: squared below delta, delta times absolute above.
struct HuberLoss : Loss<HuberLoss, HuberLossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& input, const Tensor& target) const { return huber_loss(input, target, options); }
};

// ---- probabilities --------------------------------------------------------------------------------------------------

/// binary_cross_entropy of probabilities and targets of their shape.
struct BCELoss : Loss<BCELoss, BCELossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& probability, const Tensor& target) const {
    return binary_cross_entropy(probability, target, options);
  }
};
/// binary_cross_entropy_with_logits of logits and targets of their shape.
struct BCEWithLogitsLoss : Loss<BCEWithLogitsLoss, BCEWithLogitsLossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& logits, const Tensor& target) const {
    return binary_cross_entropy_with_logits(logits, target, options);
  }
};
/// kl_div of log probabilities and a target distribution.
struct KLDivLoss : Loss<KLDivLoss, KLDivLossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& input, const Tensor& target) const { return kl_div(input, target, options); }
};
/// poisson_nll_loss of a rate, or its logarithm, and counts.
struct PoissonNLLLoss : Loss<PoissonNLLLoss, PoissonNLLLossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& input, const Tensor& target) const { return poisson_nll_loss(input, target, options); }
};
/// gaussian_nll_loss of means, targets and variances.
struct GaussianNLLLoss : Loss<GaussianNLLLoss, GaussianNLLLossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& input, const Tensor& target, const Tensor& var) const {
    return gaussian_nll_loss(input, target, var, options);
  }
};

/// ctc_loss of log probabilities [len, n, classes] and targets with the lengths of both.
struct CTCLoss : Loss<CTCLoss, CTCLossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                 const Tensor& target_lengths) const {
    return ctc_loss(log_probs, targets, input_lengths, target_lengths, options);
  }
};

// ---- margins --------------------------------------------------------------------------------------------------------

/// soft_margin_loss of scores and targets of ±1: log(1 + e^(-target x)).
struct SoftMarginLoss : Loss<SoftMarginLoss, LossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& x, const Tensor& target) const { return soft_margin_loss(x, target, options.reduction); }
};
/// hinge_embedding_loss of distances and targets of ±1.
struct HingeEmbeddingLoss : Loss<HingeEmbeddingLoss, HingeEmbeddingLossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& x, const Tensor& target) const { return hinge_embedding_loss(x, target, options); }
};
/// margin_ranking_loss of two scores and targets of ±1: max(0, margin - target (a - b)).
struct MarginRankingLoss : Loss<MarginRankingLoss, MarginLossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& a, const Tensor& b, const Tensor& target) const {
    return margin_ranking_loss(a, b, target, options);
  }
};
/// cosine_embedding_loss of pairs of rows and targets of ±1.
struct CosineEmbeddingLoss : Loss<CosineEmbeddingLoss, MarginLossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& a, const Tensor& b, const Tensor& target) const {
    return cosine_embedding_loss(a, b, target, options);
  }
};
/// triplet_margin_loss: max(0, margin + |anchor - positive| - |anchor - negative|).
struct TripletMarginLoss : Loss<TripletMarginLoss, TripletMarginLossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& anchor, const Tensor& positive, const Tensor& negative) const {
    return triplet_margin_loss(anchor, positive, negative, options);
  }
};
/// The same with a user-defined distance.
struct TripletMarginWithDistanceLoss : Loss<TripletMarginWithDistanceLoss, TripletMarginWithDistanceLossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& anchor, const Tensor& positive, const Tensor& negative) const {
    return triplet_margin_with_distance_loss(anchor, positive, negative, options);
  }
};

}  // namespace reel::nn
#pragma GCC visibility pop
