#pragma once
#include "reel/nn/dropout.h"
#include "reel/nn/embedding.h"
#include "reel/nn/init.h"
#include "reel/nn/linear.h"
#include "reel/nn/module.h"
#include "reel/nn/rnn.h"
#include "reel/nn/sequential.h"
#include "reel/nn/tree_lstm.h"
#include "reel/ops.h"

namespace reel::nn {

// Losses have no parameters: they are ops, found here as well.
using reel::binary_cross_entropy;
using reel::binary_cross_entropy_with_logits;
using reel::cross_entropy;
using reel::mse_loss;
using reel::nll_loss;

}  // namespace reel::nn
