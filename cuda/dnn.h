#pragma once
#include "lib/kernels/convolution.h"

namespace reel::cuda {

/// Backend::convolve by cuDNN, but for the bias, which the caller adds; false where it has no engine for the problem,
/// and nothing was done. Also for float16 and bfloat16.
bool dnn_convolve(ConvPart wanted, const Convolution& conv);

}  // namespace reel::cuda
