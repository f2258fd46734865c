#include "cuda/kernels.h"
#include "cuda/runtime.h"

namespace reel::cuda {

void install_reduce(Backend&) {}

}  // namespace reel::cuda
