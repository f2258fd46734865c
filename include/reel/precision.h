#pragma once
#include "reel/version.h"

#pragma GCC visibility push(default)
/// The precision of float32 products on a GPU, and how cuDNN's engines are chosen.
namespace reel {

/// The precision of float32 matrix products and convolutions on a GPU: kHighest rounds as float32 does, kHigh lets
/// tensor cores multiply in TF32, which has 10 bits of mantissa instead of 23, several times as fast. kHighest is the
/// default, for matrices and convolutions alike, so that a GPU and the CPU agree. For all threads of the program, from
/// their next op on. It has no effect on the CPU and on other dtypes.
enum class MatmulPrecision { kHighest, kHigh };
void set_matmul_precision(MatmulPrecision precision);  ///< Sets it.
MatmulPrecision matmul_precision();                    ///< What is set.

/// How one of cuDNN's engines is chosen: PyTorch's torch.backends.cudnn. For all threads of the program, from their
/// next op on; no effect on the CPU.
namespace cuda {

/// Whether the first run of each problem (sizes, types, precision) outside of captures times the first six engines that
/// cuDNN's heuristics name, which waits for the GPU, and the fastest one stays. Likewise, whether cuBLASLt sums a bias'
/// gradient along with the product that is the weight's. By default the first is taken: then each run of a program has
/// the same bits.
void set_cudnn_benchmark(bool benchmark);
bool cudnn_benchmark();  ///< What is set.

/// Whether engines are left out that may give other bits in each run, as sums in an accidental order do. By default
/// they are; PyTorch's default is false. With false, attention of half types over 512 and more queries and keys,
/// without a mask other than is_causal and without dropout, is trained in flash form, which keeps no scores in memory
/// (Dao et al. 2022); where no gradients are wanted it is computed so in either case.
void set_cudnn_deterministic(bool deterministic);
bool cudnn_deterministic();  ///< What is set.

}  // namespace cuda
}  // namespace reel
#pragma GCC visibility pop
