// Compiles the kernels of the gradients of the mathematical functions of one argument.
#include "cuda/unary.h"
#include "lib/functors/math.h"

namespace reel::cuda {

void fill_math_grad(KernelTable::UnaryGrad* rows) { fill_unary_grad(rows, static_cast<functors::MathList*>(nullptr)); }

}  // namespace reel::cuda
