#pragma once
#include "lib/device/kernels/table.h"

// What the files of the CPU backend share. Kernels in simd/ are compiled once for each instruction set, into a
// namespace of that name, and fill in their rows of the table; everything else is compiled once.
namespace reel::cpu {

enum class Isa { kBaseline, kAvx2, kAvx512 };
/// Keeps oneDNN from using more than that.
void limit_onednn(Isa isa);

// Each family of kernels fills in its slots.
void install_conv(KernelTable& table);
void install_linalg(KernelTable& table);
void install_random(KernelTable& table);
void install_sort(KernelTable& table);

// Those of simd/ (simd/table.cpp).
namespace baseline {
void install(KernelTable& table);
}
namespace avx2 {
void install(KernelTable& table);
}
namespace avx512 {
void install(KernelTable& table);
}

// What kernels call of other files.
void copy(const View& from, const View& to);
void fill(const View& to, Scalar value);
/// Convolves by oneDNN, in float32 or bfloat16; returns false, having done nothing of use, where it refuses the
/// problem.
bool onednn_convolve(ConvPart wanted, const Convolution& conv);

// What kernels of simd/ leave to those that are compiled once.
void large_gemm(const Gemm& gemm, bool avx512);
/// Computes a product of bfloat16 where the processor has instructions for it that are worth their call; returns false,
/// having done nothing, where not.
bool bfloat16_gemm(const Gemm& gemm);
bool openblas_has_avx512();  // its kernels for this processor, whatever reel's own are
/// Writes 4 `blocks` lanes, of Philox blocks first, first + 1, … (lib/device/philox.h has `extra`).
using FillLanes = void (*)(uint64_t seed, uint32_t extra, uint64_t first, int64_t blocks, uint32_t* lanes);
struct RandomLoops {
  FillLanes fill;
  /// Writes two normal numbers for each of `pairs` of lanes.
  void (*to_normal)(const uint32_t* lanes, int64_t pairs, float* y);
  /// Writes n integers in [start, start + range).
  void (*to_integers)(const uint32_t* lanes, const uint32_t* extra, int64_t n, uint64_t start, uint64_t range,
                      int64_t* y);
};
void random(RandomLoops loops, RandomKind kind, double a, double b, uint64_t seed, uint64_t offset, const View& y);
void dropout(FillLanes fill, double p, uint64_t seed, uint64_t offset, const View& x, const View& y, const View& keep);

}  // namespace reel::cpu
