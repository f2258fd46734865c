#pragma once

#pragma GCC visibility push(default)
namespace reel {

/// The precision of float32 matrix products and convolutions on a GPU: kHighest rounds as float32 does, kHigh lets
/// tensor cores multiply in TF32, which has 10 bits of mantissa instead of 23, several times as fast. kHighest is the
/// default, for matrices and convolutions alike, so that a GPU and the CPU agree. For all threads of the program, from
/// their next op on. It has no effect on the CPU and on other dtypes.
enum class MatmulPrecision { kHighest, kHigh };
void set_matmul_precision(MatmulPrecision precision);  ///< Sets it.
MatmulPrecision matmul_precision();                    ///< What is set.

}  // namespace reel
#pragma GCC visibility pop
