#pragma once
#include <utility>

#include "reel/nn/module.h"
#include "reel/ops/crf.h"
#include "reel/ops/loss.h"

/// Losses as modules: each is its op (reel/ops/loss.h, crf.h) with options that are given once,
///
///   nn::CrossEntropyLoss loss{{.label_smoothing = 0.1}};
///   loss(model(x), y).backward();
///
/// Class weights and the like are buffers, so they move with the module.
namespace reel::nn {

template <class Derived, class Given>
struct Loss : Layer<Derived> {
  explicit Loss(Given given = {}) : options(std::move(given)) {
    if constexpr (requires { options.weight; }) this->register_buffer("weight", options.weight);
    if constexpr (requires { options.pos_weight; }) this->register_buffer("pos_weight", options.pos_weight);
  }
  Loss(Module& parent, std::string name, Given given = {}) : Loss(std::move(given)) {
    parent.register_module(std::move(name), *this);
  }
  Given options;
};

struct LossOptions {
  Reduction reduction = kMean;
};

// ---- classes --------------------------------------------------------------------------------------------------------

struct NLLLoss : Loss<NLLLoss, NLLLossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& log_probs, const Tensor& target) const { return nll_loss(log_probs, target, options); }
};
struct CrossEntropyLoss : Loss<CrossEntropyLoss, CrossEntropyLossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& logits, const Tensor& target) const { return cross_entropy(logits, target, options); }
};
struct MultiMarginLoss : Loss<MultiMarginLoss, MultiMarginLossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& x, const Tensor& target) const { return multi_margin_loss(x, target, options); }
};
struct MultiLabelMarginLoss : Loss<MultiLabelMarginLoss, LossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& x, const Tensor& target) const {
    return multilabel_margin_loss(x, target, options.reduction);
  }
};
struct MultiLabelSoftMarginLoss : Loss<MultiLabelSoftMarginLoss, MultiLabelSoftMarginLossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& x, const Tensor& target) const {
    return multilabel_soft_margin_loss(x, target, options);
  }
};

// ---- differences ----------------------------------------------------------------------------------------------------

struct L1Loss : Loss<L1Loss, LossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& input, const Tensor& target) const { return l1_loss(input, target, options.reduction); }
};
struct MSELoss : Loss<MSELoss, LossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& input, const Tensor& target) const { return mse_loss(input, target, options.reduction); }
};
struct SmoothL1Loss : Loss<SmoothL1Loss, SmoothL1LossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& input, const Tensor& target) const { return smooth_l1_loss(input, target, options); }
};
struct HuberLoss : Loss<HuberLoss, HuberLossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& input, const Tensor& target) const { return huber_loss(input, target, options); }
};

// ---- probabilities --------------------------------------------------------------------------------------------------

struct BCELoss : Loss<BCELoss, BCELossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& probability, const Tensor& target) const {
    return binary_cross_entropy(probability, target, options);
  }
};
struct BCEWithLogitsLoss : Loss<BCEWithLogitsLoss, BCEWithLogitsLossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& logits, const Tensor& target) const {
    return binary_cross_entropy_with_logits(logits, target, options);
  }
};
struct KLDivLoss : Loss<KLDivLoss, KLDivLossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& input, const Tensor& target) const { return kl_div(input, target, options); }
};
struct PoissonNLLLoss : Loss<PoissonNLLLoss, PoissonNLLLossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& input, const Tensor& target) const { return poisson_nll_loss(input, target, options); }
};
struct GaussianNLLLoss : Loss<GaussianNLLLoss, GaussianNLLLossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& input, const Tensor& target, const Tensor& var) const {
    return gaussian_nll_loss(input, target, var, options);
  }
};

struct CTCLoss : Loss<CTCLoss, CTCLossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                 const Tensor& target_lengths) const {
    return ctc_loss(log_probs, targets, input_lengths, target_lengths, options);
  }
};

// ---- margins --------------------------------------------------------------------------------------------------------

struct SoftMarginLoss : Loss<SoftMarginLoss, LossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& x, const Tensor& target) const { return soft_margin_loss(x, target, options.reduction); }
};
struct HingeEmbeddingLoss : Loss<HingeEmbeddingLoss, HingeEmbeddingLossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& x, const Tensor& target) const { return hinge_embedding_loss(x, target, options); }
};
struct MarginRankingLoss : Loss<MarginRankingLoss, MarginLossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& a, const Tensor& b, const Tensor& target) const {
    return margin_ranking_loss(a, b, target, options);
  }
};
struct CosineEmbeddingLoss : Loss<CosineEmbeddingLoss, MarginLossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& a, const Tensor& b, const Tensor& target) const {
    return cosine_embedding_loss(a, b, target, options);
  }
};
struct TripletMarginLoss : Loss<TripletMarginLoss, TripletMarginLossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& anchor, const Tensor& positive, const Tensor& negative) const {
    return triplet_margin_loss(anchor, positive, negative, options);
  }
};
struct TripletMarginWithDistanceLoss : Loss<TripletMarginWithDistanceLoss, TripletMarginWithDistanceLossOptions> {
  using Loss::Loss;
  Tensor forward(const Tensor& anchor, const Tensor& positive, const Tensor& negative) const {
    return triplet_margin_with_distance_loss(anchor, positive, negative, options);
  }
};

}  // namespace reel::nn
