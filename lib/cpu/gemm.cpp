#include <cblas.h>

#include <algorithm>

#include "lib/cpu/kernels.h"
#include "lib/kernels/gemm.h"
#include "reel/threads.h"

// Matrix products by OpenBLAS, for what simd/gemm.cpp leaves to it.
namespace reel::cpu {
namespace {

CBLAS_TRANSPOSE side(bool transposed) { return transposed ? CblasTrans : CblasNoTrans; }

void multiply(const Gemm& g, int64_t m, int64_t n, const float* a, const float* b, double beta, float* c) {
  cblas_sgemm(CblasRowMajor, side(g.trans_a), side(g.trans_b), m, n, g.k, g.alpha, a, g.lda, b, g.ldb, beta, c, g.ldc);
}
void multiply(const Gemm& g, int64_t m, int64_t n, const double* a, const double* b, double beta, double* c) {
  cblas_dgemm(CblasRowMajor, side(g.trans_a), side(g.trans_b), m, n, g.k, g.alpha, a, g.lda, b, g.ldb, beta, c, g.ldc);
}

/// One tile of C: `rows` and `columns` from (i, j) on.
template <class T>
void run_tile(const Gemm& g, int64_t batch, int64_t i, int64_t rows, int64_t j, int64_t columns) {
  T* const c = static_cast<T*>(g.c) + batch * g.stride_c + i * g.ldc + j;
  double beta = g.beta;
  if (g.bias) {
    for (int64_t row = 0; row < rows; ++row) std::copy_n(static_cast<const T*>(g.bias) + j, columns, c + row * g.ldc);
    beta = 1;
  }
  multiply(g, rows, columns, static_cast<const T*>(g.a) + batch * g.stride_a + i * (g.trans_a ? 1 : g.lda),
           static_cast<const T*>(g.b) + batch * g.stride_b + j * (g.trans_b ? g.ldb : 1), beta, c);
}

/// Into how many rows and columns of tiles a product is divided. They depend on the product alone: OpenBLAS adds an
/// element's terms in an order that depends, with some of its kernels, on the element's place in the product.
struct Tiling {
  int64_t down = 1, across = 1;
};

Tiling tiling_of(const Gemm& g) {
  constexpr int64_t kTileWork = int64_t{1} << 22, kMaxTiles = 16;  // multiplications; 50 to 100 µs
  // Every tile packs its rows of A and its columns of B anew. One more row of tiles costs B's packing once more, which
  // is 1 / m of the work times a constant, one more column about twice as much for its n. The first limit costs 2 to
  // 3 % of the time with one thread. Small products may lose a little more for their second tile.
  constexpr double kMaxPacking = 1. / 256, kMaxPackingOfTwo = 1. / 100;
  const auto m = static_cast<double>(g.m), n = static_cast<double>(g.n);
  const int64_t most = std::min(kMaxTiles / g.batch, g.m * g.n * g.k / kTileWork);
  Tiling best;
  double best_packing = 0;
  for (int64_t down = 1; down <= most; down *= 2)
    for (int64_t across = 1; down * across <= most; across *= 2) {
      const double packing = static_cast<double>(down - 1) / m + 2 * static_cast<double>(across - 1) / n;
      const int64_t gain = down * across - best.down * best.across;
      if (packing > (down * across == 2 ? kMaxPackingOfTwo : kMaxPacking) || gain < 0 ||
          (gain == 0 && packing >= best_packing))
        continue;
      best = {down, across}, best_packing = packing;
    }
  return best;
}

template <class T>
void run(const Gemm& g) {
  constexpr int64_t kPartWork = int64_t{1} << 20, kUnit = 64;  // rows and columns in whole blocks of OpenBLAS's kernels
  const auto edge = [](int64_t size, int64_t parts, int64_t i) {
    return std::min(size, (size + kUnit - 1) / kUnit * i / parts * kUnit);
  };
  const int64_t work = std::max<int64_t>(g.m * g.n * g.k, 1);
  if (g.batch * work < 2 * kPartWork) {
    for (int64_t i = 0; i < g.batch; ++i) run_tile<T>(g, i, 0, g.m, 0, g.n);
    return;
  }
  const auto [down, across] = tiling_of(g);
  const int64_t tiles = down * across;
  const int64_t grain = tiles > 1 ? 1 : std::max<int64_t>(1, kPartWork / work);  // products of a batch
  parallel_for(g.batch * tiles, grain, [&, down = down, across = across](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      // Tiles of one row share pages of C, which two threads at once measured up to 20 % slower.
      const int64_t row = t % down, column = t % tiles / down;
      const int64_t i = edge(g.m, down, row), j = edge(g.n, across, column);
      run_tile<T>(g, t / tiles, i, edge(g.m, down, row + 1) - i, j, edge(g.n, across, column + 1) - j);
    }
  });
}

}  // namespace

void blas_gemm(const Gemm& gemm) {
  // The tiles are divided among reel's own threads.
  static const bool single = (openblas_set_num_threads(1), true);
  static_cast<void>(single);
  gemm.dtype == kFloat32 ? run<float>(gemm) : run<double>(gemm);
}

}  // namespace reel::cpu
