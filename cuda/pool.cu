#include "cuda/kernels.h"
#include "cuda/runtime.h"

namespace reel::cuda {

void install_pool(Backend&) {}

}  // namespace reel::cuda
