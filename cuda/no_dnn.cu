#include "cuda/dnn.h"
#include "lib/kernels/convolution.h"

// A build without cuDNN: every convolution is a matrix product (cuda/conv.cu).
namespace reel::cuda {

bool dnn_convolve(ConvPart, const Convolution&) { return false; }

}  // namespace reel::cuda
