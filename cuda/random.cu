#include "cuda/kernels.h"
#include "cuda/runtime.h"

namespace reel::cuda {

void install_random(Backend&) {}

}  // namespace reel::cuda
