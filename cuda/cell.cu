#include "cuda/kernels.h"
#include "cuda/runtime.h"

namespace reel::cuda {

void install_cell(Backend&) {}

}  // namespace reel::cuda
