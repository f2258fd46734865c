#include "cuda/kernels.h"
#include "cuda/runtime.h"

namespace reel::cuda {

void install_update(Backend&) {}

}  // namespace reel::cuda
