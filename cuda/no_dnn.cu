#include "cuda/dnn.h"
#include "lib/kernels/convolution.h"

// A build without cuDNN: convolutions are products with columns.
namespace reel::cuda {

bool dnn_convolve(ConvPart, const Convolution&) { return false; }

}  // namespace reel::cuda
