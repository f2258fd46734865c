#include "cuda/kernels.h"
#include "cuda/runtime.h"

namespace reel::cuda {

void install_pointwise(Backend&) {}

}  // namespace reel::cuda
