#include "cuda/kernels.h"
#include "cuda/runtime.h"

namespace reel::cuda {

void install_crf(Backend&) {}

}  // namespace reel::cuda
