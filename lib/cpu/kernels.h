#pragma once
#include "lib/kernels/table.h"

// What the files of the CPU backend share. Kernels in simd/ are compiled once for each instruction set, into a
// namespace of that name, and fill in their rows of the table; everything else is compiled once.
namespace reel::cpu {

enum class Isa { kBaseline, kAvx2, kAvx512 };
/// Keeps oneDNN from using more than that.
void limit_onednn(Isa isa);

void copy(const View& from, const View& to);
void copy_blocks(std::span<const BlockCopy> blocks);
void fill(const View& to, Scalar value);

// The integer rows of the pointwise tables; nullptr where the functor is not defined for integers.
extern const KernelTable::Unary* const integer_unary;
extern const KernelTable::Binary* const integer_binary;
extern const KernelTable::Binary* const integer_bits;
void reduce(ReduceOp op, const View& x, const View& y);  // all but float32 and float64
void arg_reduce(bool largest, const View& x, int dim, const View& y);
void scan(ScanOp op, const View& x, int dim, const View& y);
void logcumsumexp_grad(const View& g, const View& x, const View& y, int dim, const View& gx);
void cum_extreme(bool largest, const View& x, int dim, const View& values, const View& indices);

void blas_gemm(const Gemm& gemm);

void convolve(ConvPart wanted, const Convolution& conv);
/// By oneDNN, float32 only; false, having done nothing, where it refuses the problem.
bool onednn_convolve(ConvPart wanted, const Convolution& conv);
void unfold(const Convolution& conv);
void fold(const Convolution& conv);

bool check_bounds(const char* op, const View& ids, int64_t low, int64_t high, int64_t* bad);
void index_select(const View& x, int dim, const View& ids, const View& y);
void index_copy(const View& y, int dim, const View& ids, const View& from);
void index_add(const View& y, int dim, const View& ids, const View& from);
void gather(const View& x, int dim, const View& index, const View& y);
void scatter(ScatterOp op, const View& y, int dim, const View& index, const View& from);
void embedding_bag(const EmbeddingBag& job);
int64_t count_nonzero(const View& x);
void nonzero(const View& x, const View& positions);
void sort(bool descending, const View& x, const View& values, const View& indices);
void kthvalue(int64_t k, bool nan_wins, const View& x, const View& indices);
void lexsort(const View& x, const View& order);
void searchsorted(bool right, const View& sorted, const View& values, const View& positions);

int64_t solve(const View& a, const View& b, const View& x);
void slogdet(const View& a, const View& sign, const View& logabsdet);
int64_t cholesky(const View& a, const View& l);
void qr(const View& a, const View& q, const View& r);
int64_t svd(const View& a, const View& u, const View& s, const View& vh);
int64_t eigh(const View& a, const View& values, const View& vectors);
void solve_triangular(bool upper, bool unit, const View& a, const View& x);

/// Writes 4 `blocks` lanes, of Philox blocks first, first + 1, ….
using FillLanes = void (*)(uint64_t seed, uint64_t first, int64_t blocks, uint32_t* lanes);
void random(FillLanes fill, RandomKind kind, double a, double b, uint64_t seed, uint64_t offset, const View& y);
void poisson(uint64_t seed, uint64_t offset, const View& rate, const View& y);
void multinomial(uint64_t seed, uint64_t offset, const View& sums, const View& y);
void dropout(FillLanes fill, double p, uint64_t seed, uint64_t offset, const View& x, const View& y, const View& keep);

// Fill in the rows of simd/ (simd/table.cpp).
namespace baseline {
void install(KernelTable& table);
}
namespace avx2 {
void install(KernelTable& table);
}
namespace avx512 {
void install(KernelTable& table);
}

}  // namespace reel::cpu
