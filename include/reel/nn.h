#pragma once
// Modules: layers, containers and losses, and what models are made of.
#include "reel/nn/activation.h"
#include "reel/nn/attention.h"
#include "reel/nn/bert.h"
#include "reel/nn/check.h"
#include "reel/nn/container.h"
#include "reel/nn/conv.h"
#include "reel/nn/crf.h"
#include "reel/nn/distance.h"
#include "reel/nn/dropout.h"
#include "reel/nn/embedding.h"
#include "reel/nn/fuse.h"
#include "reel/nn/init.h"
#include "reel/nn/linear.h"
#include "reel/nn/loss.h"
#include "reel/nn/module.h"
#include "reel/nn/norm.h"
#include "reel/nn/padding.h"
#include "reel/nn/parametrize.h"
#include "reel/nn/pooling.h"
#include "reel/nn/rnn.h"
#include "reel/nn/sampled.h"
#include "reel/nn/sequential.h"
#include "reel/nn/summary.h"
#include "reel/nn/transformer.h"
#include "reel/nn/tree_lstm.h"
#include "reel/nn/utils.h"
#include "reel/nn/vision.h"
#include "reel/ops.h"

#pragma GCC visibility push(default)
namespace reel::nn {

// Losses and distances have no parameters: they are ops, found here as well.
using reel::binary_cross_entropy;
using reel::binary_cross_entropy_with_logits;
using reel::cosine_embedding_loss;
using reel::cosine_similarity;
using reel::cross_entropy;
using reel::ctc_loss;
using reel::gaussian_nll_loss;
using reel::hinge_embedding_loss;
using reel::huber_loss;
using reel::kl_div;
using reel::l1_loss;
using reel::margin_ranking_loss;
using reel::mse_loss;
using reel::multi_margin_loss;
using reel::multilabel_margin_loss;
using reel::multilabel_soft_margin_loss;
using reel::nll_loss;
using reel::pairwise_distance;
using reel::poisson_nll_loss;
using reel::smooth_l1_loss;
using reel::soft_margin_loss;
using reel::triplet_margin_loss;
using reel::triplet_margin_with_distance_loss;

}  // namespace reel::nn
#pragma GCC visibility pop
