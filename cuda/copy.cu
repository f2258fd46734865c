#include "cuda/kernels.h"
#include "cuda/runtime.h"

namespace reel::cuda {

void install_copy(Backend&) {}

}  // namespace reel::cuda
