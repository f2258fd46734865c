#include "cuda/dnn.h"
#include "cuda/recurrence.h"
#include "cuda/runtime.h"

// Which recurrent layers are cuDNN's: those that cuda/recurrence.cu computes by a GEMM and a pointwise kernel for each
// step, if their states are large.
namespace reel::cuda {

/// The least state. From a GEMM of [rows, hidden] x [hidden, G hidden] a small one leaves most of a GPU idle, and what
/// cuDNN gains, by steps that overlap with the input's product and with each other's pointwise parts, has to outweigh
/// the copy of all weights into its own buffer in each call. Not measured: no GPU was at hand when this was chosen, so
/// it is high. Tests and benchmarks set it.
int64_t cudnn_min_hidden = 512;

namespace {

bool suits_cudnn(const RnnLayer& layer) {
  return layer.hidden >= cudnn_min_hidden && layer.rows > kMaxWarpPerUnitBatch && layer.steps > 1 && layer.in > 0;
}

}  // namespace

void run_layer(const RnnLayer& layer, bool backward) {
  *layer.computed = false;
  if (!backward && !suits_cudnn(layer)) return;
  // A graph that is replayed might read lengths from the host's memory, which later calls change.
  if (capturing() && layer.sizes) return;
  const RelaxedCaptureGuard guard(capturing());  // a new plan or its first run may load kernels
  *layer.computed = cudnn_rnn(layer, backward);
}

}  // namespace reel::cuda
