#pragma once

namespace reel {

/// How exact products of float32 matrices and convolutions are on a GPU: kHighest rounds as float32 does, kHigh lets
/// tensor cores multiply in TF32, which has 10 bits of mantissa instead of 23, several times as fast. kHighest at
/// first, for matrices and convolutions alike, so that a GPU and the CPU agree. For all threads of the program, from
/// their next op on. The CPU and other dtypes do not ask.
enum class MatmulPrecision { kHighest, kHigh };
void set_matmul_precision(MatmulPrecision precision);
MatmulPrecision matmul_precision();

}  // namespace reel
