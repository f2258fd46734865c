#include "cuda/kernels.h"
#include "cuda/runtime.h"

namespace reel::cuda {

void install_linalg(Backend&) {}

}  // namespace reel::cuda
