// Compiles the kernels of the mathematical functions of one argument.
#include "cuda/unary.h"
#include "lib/functors/math.h"

namespace reel::cuda {

void fill_math(KernelTable::Unary* rows) { fill_unary(rows, static_cast<functors::MathList*>(nullptr)); }

}  // namespace reel::cuda
