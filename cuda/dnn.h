#pragma once
#include "lib/device/kernels/attention.h"
#include "lib/device/kernels/convolution.h"
#include "lib/device/kernels/recurrence.h"

// The entries to cuDNN, so that builds without it replace these functions alone (no_dnn.cu).
namespace reel::cuda {

/// KernelTable::convolve by cuDNN. Returns false, having done nothing, where cuDNN has no engine for the problem, and
/// where not all parts are channels_last, or none. Also for float16 and bfloat16.
bool cudnn_convolve(ConvPart wanted, const Convolution& conv);
/// Whether all parts are laid out alike. Plans for others convert some of them in each run.
inline bool has_one_layout(const Convolution& c) {
  return c.channels_last[kConvX] == c.channels_last[kConvWeight] && c.channels_last[kConvX] == c.channels_last[kConvY];
}
/// Adds the bias to y: for convolutions whose engine does not.
void add_bias(const Convolution& conv);

/// KernelTable::ragged_attention, or with `backward` ragged_attention_grad, of a batch, by cuDNN. Returns false, having
/// done nothing, where cuDNN has no engine for the problem.
bool cudnn_sdpa(const RaggedAttention& attention, bool backward);

/// KernelTable::rnn_layer_workspace by cuDNN: -1 where it does not support the problem.
int64_t cudnn_rnn_workspace(const RnnLayer& layer);
/// KernelTable::rnn_layer by cuDNN, or with `backward` rnn_layer_grad. Returns false, having done nothing, where cuDNN
/// does not support the problem.
bool cudnn_rnn(const RnnLayer& layer, bool backward);

}  // namespace reel::cuda
