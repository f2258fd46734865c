#include "cuda/dnn.h"
#include "lib/kernels/attention.h"
#include "lib/kernels/convolution.h"

// A build without cuDNN: every convolution is a matrix product (cuda/conv.cu), and attention is composed.
namespace reel::cuda {

bool dnn_convolve(ConvPart, const Convolution&) { return false; }
bool dnn_attend(const RaggedAttention&, bool) { return false; }

}  // namespace reel::cuda
