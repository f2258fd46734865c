// This file declares the convolution that is compiled once, for the kernels that leave problems to it.
#pragma once
#include "lib/device/kernels/convolution.h"

namespace reel::cpu {

/// Convolves by oneDNN or as a product of matrices; returns false where it takes no channels that lie last.
bool convolve(ConvPart wanted, const Convolution& conv);

}  // namespace reel::cpu
