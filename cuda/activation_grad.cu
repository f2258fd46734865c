// Compiles the kernels of the gradients of the activation functions of one argument.
#include "cuda/unary.h"
#include "lib/functors/activation.h"

namespace reel::cuda {

void fill_activation_grad(KernelTable::UnaryGrad* rows) {
  fill_unary_grad(rows, static_cast<functors::ActivationList*>(nullptr));
}

}  // namespace reel::cuda
