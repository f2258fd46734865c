#pragma once
#include "lib/kernels/convolution.h"

// The one entry to cuDNN, so that builds without it replace a single function (no_dnn.cu).
namespace reel::cuda {

/// KernelTable::convolve by cuDNN, without the bias, which the caller adds. Returns false, having done nothing, where
/// cuDNN has no engine for the problem. Also for float16 and bfloat16.
bool dnn_convolve(ConvPart wanted, const Convolution& conv);

}  // namespace reel::cuda
