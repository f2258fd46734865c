#include <cblas.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string_view>

#include "lib/base/lazy.h"
#include "lib/cpu/kernels.h"
#include "lib/cpu/onednn.h"
#include "lib/device/kernels/gemm.h"
#include "reel/threads.h"

// Large matrix products: by oneDNN in float32 with AVX-512, where it is some 10 % faster, otherwise by OpenBLAS.
namespace reel::cpu {
namespace {

CBLAS_TRANSPOSE side(bool transposed) { return transposed ? CblasTrans : CblasNoTrans; }

void multiply(const Gemm& g, bool onednn, int64_t m, int64_t n, const float* a, const float* b, double beta, float* c) {
  const auto alpha = static_cast<float>(g.alpha), add = static_cast<float>(beta);
  if (onednn) {
    const OnednnCall call;
    const char ta = g.trans_a ? 'T' : 'N', tb = g.trans_b ? 'T' : 'N';
    if (call && dnnl_sgemm(ta, tb, m, n, g.k, alpha, a, g.lda, b, g.ldb, add, c, g.ldc) == dnnl_success) {
      static constinit std::atomic<uint32_t> kinds = 0;  // of products so far, by a bit each
      const uint32_t kind = 1u << (g.trans_a + 2 * g.trans_b + 4 * (add == 0) + 8 * (m == 1 || n == 1));
      if (!(kinds.load(std::memory_order_relaxed) & kind) && !(kinds.fetch_or(kind) & kind)) [[unlikely]]
        OnednnCall::outlive_what_it_made();
      return;
    }
  }
  const OpenblasCall call;
  cblas_sgemm(CblasRowMajor, side(g.trans_a), side(g.trans_b), m, n, g.k, alpha, a, g.lda, b, g.ldb, add, c, g.ldc);
}
void multiply(const Gemm& g, bool, int64_t m, int64_t n, const double* a, const double* b, double beta, double* c) {
  const OpenblasCall call;
  cblas_dgemm(CblasRowMajor, side(g.trans_a), side(g.trans_b), m, n, g.k, g.alpha, a, g.lda, b, g.ldb, beta, c, g.ldc);
}

/// Measured with oneDNN 2.6 against OpenBLAS 0.3.21: oneDNN takes some 300 ns to begin, but not with Bᵀ and few rows,
/// and is slow where C is narrow.
bool is_faster_with_onednn(const Gemm& g) {
  const int64_t work = g.m * g.n * g.k, least = !g.trans_b ? 1 << 19 : g.m <= 12 ? 1 << 14 : 1 << 17;
  return g.n >= 32 ? work >= least : g.n >= 8 && work >= 1 << 20;
}

/// One tile of C: `rows` and `columns` from (i, j) on.
template <class T>
void run_tile(const Gemm& g, bool onednn, int64_t batch, int64_t i, int64_t rows, int64_t j, int64_t columns) {
  T* const c = static_cast<T*>(g.c) + batch * g.stride_c + i * g.ldc + j;
  double beta = g.beta;
  if (g.bias) {
    for (int64_t row = 0; row < rows; ++row) std::copy_n(static_cast<const T*>(g.bias) + j, columns, c + row * g.ldc);
    beta = 1;
  }
  multiply(g, onednn, rows, columns, static_cast<const T*>(g.a) + batch * g.stride_a + i * (g.trans_a ? 1 : g.lda),
           static_cast<const T*>(g.b) + batch * g.stride_b + j * (g.trans_b ? g.ldb : 1), beta, c);
}

/// Into how many rows and columns of tiles a product is divided. They depend on the product alone: an element's terms
/// are added in an order that depends, with some kernels of both libraries, on its place in the product.
struct Tiling {
  int64_t down = 1, across = 1;
};

/// What one more row of tiles costs with one thread, as a share of the time, is `down` / m, one more column
/// `across` / n: the operand that it shares is packed or read once more. Fitted to measurements of both libraries.
struct TilingCosts {
  double down, across, limit, limit_of_two;
};

TilingCosts costs_of(const Gemm& g, bool onednn) {
  if (!onednn) return {.down = 8, .across = 16, .limit = .03, .limit_of_two = .08};
  if (g.trans_b) return {.down = 30, .across = 3, .limit = .08, .limit_of_two = .08};
  if (g.trans_a) return {.down = 10, .across = 25, .limit = .08, .limit_of_two = .08};
  return {.down = 12, .across = 12, .limit = .08, .limit_of_two = .08};
}

Tiling tiling_of(const Gemm& g, bool onednn) {
  constexpr int64_t kTileWork = int64_t{1} << 22, kMaxTiles = 16;  // multiplications; 40 to 100 µs
  const int64_t min_columns = onednn ? 128 : 1;
  const TilingCosts costs = costs_of(g, onednn);
  const auto m = static_cast<double>(g.m), n = static_cast<double>(g.n);
  const int64_t most = std::min(kMaxTiles / g.batch, g.m * g.n * g.k / kTileWork);
  Tiling best;
  double best_cost = 0;
  for (int64_t down = 1; down <= most; down *= 2)
    for (int64_t across = 1; down * across <= most; across *= 2) {
      if (across > 1 && g.n < across * min_columns) break;
      const double cost =
          costs.down * static_cast<double>(down - 1) / m + costs.across * static_cast<double>(across - 1) / n;
      const int64_t gain = down * across - best.down * best.across;
      if (cost > (down * across == 2 ? costs.limit_of_two : costs.limit) || gain < 0 ||
          (gain == 0 && cost >= best_cost))
        continue;
      best = {down, across}, best_cost = cost;
    }
  return best;
}

template <class T>
void run(const Gemm& g, bool onednn) {
  constexpr int64_t kPartWork = int64_t{1} << 20, kUnit = 64;  // rows and columns in whole blocks of the kernels
  const auto edge = [](int64_t size, int64_t parts, int64_t i) {
    return std::min(size, (size + kUnit - 1) / kUnit * i / parts * kUnit);
  };
  const int64_t work = std::max<int64_t>(g.m * g.n * g.k, 1);
  if (g.batch * work < 2 * kPartWork) {
    for (int64_t i = 0; i < g.batch; ++i) run_tile<T>(g, onednn, i, 0, g.m, 0, g.n);
    return;
  }
  const auto [down, across] = tiling_of(g, onednn);
  const int64_t tiles = down * across;
  const int64_t grain = tiles > 1 ? 1 : std::max<int64_t>(1, kPartWork / work);  // products of a batch
  parallel_for(g.batch * tiles, grain, [&, down = down, across = across](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      // Tiles of one row share pages of C, which two threads at once measured up to 20 % slower.
      const int64_t row = t % down, column = t % tiles / down;
      const int64_t i = edge(g.m, down, row), j = edge(g.n, across, column);
      run_tile<T>(g, onednn, t / tiles, i, edge(g.m, down, row + 1) - i, j, edge(g.n, across, column + 1) - j);
    }
  });
}

}  // namespace

bool openblas_has_avx512() {
  static constinit Lazy<bool> known;
  return known.get([] {
    const std::string_view core = openblas_get_corename();
    return core == "SkylakeX" || core == "Cooperlake" || core == "Sapphirerapids";
  });
}

void large_gemm(const Gemm& gemm, bool avx512) {
  // The tiles are divided among reel's own threads.
  static constinit Lazy<bool> single;
  single.get([] {
    const OpenblasCall call;
    openblas_set_num_threads(1);
    return true;
  });
  gemm.dtype == kFloat32 ? run<float>(gemm, avx512 && is_faster_with_onednn(gemm)) : run<double>(gemm, false);
}

}  // namespace reel::cpu
