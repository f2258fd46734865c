#include "cuda/kernels.h"
#include "cuda/runtime.h"

namespace reel::cuda {

void install_conv(Backend&) {}

}  // namespace reel::cuda
