// Compiles the kernels of the activation functions of one argument.
#include "cuda/unary.h"
#include "lib/functors/activation.h"

namespace reel::cuda {

void fill_activation(KernelTable::Unary* rows) { fill_unary(rows, static_cast<functors::ActivationList*>(nullptr)); }

}  // namespace reel::cuda
