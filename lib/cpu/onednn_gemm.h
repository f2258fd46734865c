// These functions multiply matrices of bfloat16 by oneDNN.
#pragma once
#include "lib/device/kernels/gemm.h"

namespace reel::cpu {

/// Returns whether the processor has instructions for products of bfloat16.
bool multiplies_bfloat16();

/// Computes products of bfloat16, with alpha 1, beta 0 or 1 and without ReLU, on the calling thread: sums are of
/// float32, and each is rounded once. Returns false, having changed nothing that it reads, where products of a batch
/// share an operand or are added, or oneDNN fails.
bool onednn_multiply(const Gemm& g);

}  // namespace reel::cpu
