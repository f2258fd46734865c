// This file has the kernels of whole recurrent layers: cuDNN's, for those that cuda/recurrence.cu would compute by a
// GEMM and a pointwise kernel for each step, if their states are large.
#include "cuda/dnn.h"
#include "cuda/kernels.h"
#include "cuda/recurrence.h"

namespace reel::cuda {

/// The minimum hidden size of layers that cuDNN computes. A GEMM of [rows, hidden] x [hidden, G hidden] leaves most of
/// a GPU idle if `hidden` is small. What cuDNN gains, by steps that overlap with the input's product and with each
/// other's pointwise parts, has to outweigh the copy of all weights into its own buffer in each call. The value is a
/// guess and has not been measured, so it is high. Tests and benchmarks set it.
int64_t cudnn_min_hidden = 512;

void install_rnn_layer(KernelTable& table) {
  table.rnn_layer_workspace = [](const RnnLayer& layer) {
    const bool suitable =
        layer.hidden >= cudnn_min_hidden && layer.rows > kMaxWarpPerUnitBatch && layer.steps > 1 && layer.in > 0;
    return suitable ? cudnn_rnn_workspace(layer) : -1;
  };
  table.rnn_layer = [](const RnnLayer& layer) { return cudnn_rnn(layer, false); };
  table.rnn_layer_grad = [](const RnnLayer& layer) { return cudnn_rnn(layer, true); };
}

}  // namespace reel::cuda
