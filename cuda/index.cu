#include "cuda/kernels.h"
#include "cuda/runtime.h"

namespace reel::cuda {

void install_index(Backend&) {}

}  // namespace reel::cuda
