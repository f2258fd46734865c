#include "cuda/kernels.h"
#include "cuda/runtime.h"

namespace reel::cuda {

void install_segment(Backend&) {}

}  // namespace reel::cuda
