#include <cblas.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string_view>

#include "lib/base/lazy.h"
#include "lib/cpu/halves.h"
#include "lib/cpu/kernels.h"
#include "lib/cpu/onednn.h"
#include "lib/cpu/onednn_gemm.h"
#include "lib/device/kernels/gemm.h"
#include "reel/threads.h"

// Large matrix products: by oneDNN in float32 with AVX-512, where it is some 10 % faster, and in bfloat16, otherwise by
// OpenBLAS.
namespace reel::cpu {
namespace {

CBLAS_TRANSPOSE side(bool transposed) { return transposed ? CblasTrans : CblasNoTrans; }

template <class T>
double start_with_bias(const Gemm& g) {
  if (!g.bias) return g.beta;
  for (int64_t row = 0; row < g.m; ++row)
    std::copy_n(static_cast<const T*>(g.bias), g.n, static_cast<T*>(g.c) + row * g.ldc);
  return 1;
}

void multiply_float32(const Gemm& g, bool onednn) {
  const auto add = static_cast<float>(start_with_bias<float>(g)), alpha = static_cast<float>(g.alpha);
  const auto *a = static_cast<const float*>(g.a), *b = static_cast<const float*>(g.b);
  auto* const c = static_cast<float*>(g.c);
  if (onednn) {
    const OnednnCall call;
    const char ta = g.trans_a ? 'T' : 'N', tb = g.trans_b ? 'T' : 'N';
    if (call && dnnl_sgemm(ta, tb, g.m, g.n, g.k, alpha, a, g.lda, b, g.ldb, add, c, g.ldc) == dnnl_success) {
      static constinit std::atomic<uint32_t> kinds = 0;  // of products so far, by a bit each
      const uint32_t kind = 1u << (g.trans_a + 2 * g.trans_b + 4 * (add == 0) + 8 * (g.m == 1 || g.n == 1));
      if (!(kinds.load(std::memory_order_relaxed) & kind) && !(kinds.fetch_or(kind) & kind)) [[unlikely]]
        OnednnCall::outlive_what_it_made();
      return;
    }
  }
  const OpenblasCall call;
  cblas_sgemm(CblasRowMajor, side(g.trans_a), side(g.trans_b), g.m, g.n, g.k, alpha, a, g.lda, b, g.ldb, add, c, g.ldc);
}
void multiply_float64(const Gemm& g) {
  const double add = start_with_bias<double>(g);
  const OpenblasCall call;
  cblas_dgemm(CblasRowMajor, side(g.trans_a), side(g.trans_b), g.m, g.n, g.k, g.alpha, static_cast<const double*>(g.a),
              g.lda, static_cast<const double*>(g.b), g.ldb, add, static_cast<double*>(g.c), g.ldc);
}

/// Returns one tile of C: `rows` and `columns` from (i, j) on.
Gemm tile_of(const Gemm& g, int64_t batch, int64_t i, int64_t rows, int64_t j, int64_t columns) {
  const int64_t unit = size_of(g.dtype);
  Gemm tile = g;
  tile.batch = 1, tile.m = rows, tile.n = columns;
  tile.a = static_cast<const char*>(g.a) + (batch * g.stride_a + i * (g.trans_a ? 1 : g.lda)) * unit;
  tile.b = static_cast<const char*>(g.b) + (batch * g.stride_b + j * (g.trans_b ? g.ldb : 1)) * unit;
  tile.c = static_cast<char*>(g.c) + (batch * g.stride_c + i * g.ldc + j) * unit;
  if (g.bias) tile.bias = static_cast<const char*>(g.bias) + j * unit;
  return tile;
}

/// Returns products [begin, end) of a batch.
Gemm products_of(const Gemm& g, int64_t begin, int64_t end) {
  Gemm some = tile_of(g, begin, 0, g.m, 0, g.n);
  some.batch = end - begin;
  return some;
}

/// Computes products on the calling thread. `onednn` is true for all those of bfloat16.
void multiply(const Gemm& g, bool onednn) {
  if (g.dtype == kBFloat16 && onednn_multiply(g)) return;
  for (int64_t i = 0; i < g.batch; ++i) {
    const Gemm one = products_of(g, i, i + 1);
    if (one.dtype == kFloat32)
      multiply_float32(one, onednn);
    else if (one.dtype == kFloat64)
      multiply_float64(one);
    else if (g.batch == 1 || !onednn_multiply(one))
      cpu_kernels().gemm(Widened().of(one));
  }
}

/// Measured with oneDNN 2.6 against OpenBLAS 0.3.21: oneDNN takes some 300 ns to begin, but not with Bᵀ and few rows,
/// and is slow where C is narrow.
bool is_faster_with_onednn(const Gemm& g) {
  const int64_t work = g.m * g.n * g.k, least = !g.trans_b ? 1 << 19 : g.m <= 12 ? 1 << 14 : 1 << 17;
  return g.n >= 32 ? work >= least : g.n >= 8 && work >= 1 << 20;
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

void run(const Gemm& g, bool onednn) {
  constexpr int64_t kPartWork = int64_t{1} << 20, kUnit = 64;  // rows and columns in whole blocks of the kernels
  const auto edge = [](int64_t size, int64_t parts, int64_t i) {
    return std::min(size, (size + kUnit - 1) / kUnit * i / parts * kUnit);
  };
  const int64_t work = std::max<int64_t>(g.m * g.n * g.k, 1);
  if (g.batch * work < 2 * kPartWork) return multiply(g, onednn);
  const auto [down, across] = tiling_of(g, onednn);
  const int64_t tiles = down * across;
  if (tiles == 1)
    return parallel_for(g.batch, std::max<int64_t>(1, kPartWork / work),
                        [&](int64_t begin, int64_t end) { multiply(products_of(g, begin, end), onednn); });
  parallel_for(g.batch * tiles, 1, [&, down = down, across = across](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      // Tiles of one row share pages of C, which two threads at once measured up to 20 % slower.
      const int64_t row = t % down, column = t % tiles / down;
      const int64_t i = edge(g.m, down, row), j = edge(g.n, across, column);
      multiply(tile_of(g, t / tiles, i, edge(g.m, down, row + 1) - i, j, edge(g.n, across, column + 1) - j), onednn);
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
  run(gemm, gemm.dtype == kFloat32 && avx512 && is_faster_with_onednn(gemm));
}

bool bfloat16_gemm(const Gemm& g) {
  // oneDNN takes a microsecond to begin, and half of one for each product of a batch.
  constexpr int64_t kMinWork = 1 << 16, kMinWorkOfBatch = 1 << 14;
  const int64_t work = g.m * g.n * g.k;
  if (g.dtype != kBFloat16 || g.batch * work < kMinWork || work < kMinWorkOfBatch || g.alpha != 1 ||
      (g.beta != 0 && g.beta != 1) || !multiplies_bfloat16())
    return false;
  run(g, true);
  return true;
}

}  // namespace reel::cpu
