#include "cuda/dnn.h"
#include "lib/device/kernels/attention.h"
#include "lib/device/kernels/convolution.h"
#include "lib/device/kernels/recurrence.h"

// A build without cuDNN: every convolution is a matrix product (cuda/conv.cu), attention is composed, and recurrent
// layers are reel's own (cuda/recurrence.cu).
namespace reel::cuda {

bool cudnn_convolve(ConvPart, const Convolution&) { return false; }
bool cudnn_sdpa(const RaggedAttention&, bool) { return false; }
int64_t cudnn_rnn_workspace(const RnnLayer&) { return -1; }
bool cudnn_rnn(const RnnLayer&, bool) { return false; }

}  // namespace reel::cuda
