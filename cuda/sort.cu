#include "cuda/kernels.h"
#include "cuda/runtime.h"

namespace reel::cuda {

void install_sort(Backend&) {}

}  // namespace reel::cuda
