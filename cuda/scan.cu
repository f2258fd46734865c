#include "cuda/kernels.h"
#include "cuda/runtime.h"

namespace reel::cuda {

void install_scan(Backend&) {}

}  // namespace reel::cuda
