#include <algorithm>

#include "lib/cpu/halves.h"
#include "lib/cpu/kernels.h"
#include "lib/cpu/simd/map.h"
#include "lib/functors/pointwise.h"
#include "lib/kernels/gemm.h"
#include "reel/threads.h"

// Matrix products with few rows, at which BLAS is slow (batch size 1, above all); all others go to libraries
// (lib/cpu/gemm.cpp). Blocks of C of up to four rows are kept in registers; neither A nor B is packed, which few rows
// would not pay for.
namespace reel::cpu::REEL_ISA {
namespace {

constexpr bool kManyRegisters = sizeof(Batch<float>) == 64;  // AVX-512: 32 vector registers instead of 16

/// One product; element (i, p) of A is at a[i * a_row + p * a_column].
template <class T>
struct Product {
  int64_t m, n, k;
  const T* a;
  int64_t a_row, a_column;
  const T* b;
  int64_t ldb;
  T* c;
  int64_t ldc;
  T alpha, beta;
  const T* bias;
};

/// What alpha A B is added to: `n` elements of beta C or the bias from (i, j) on.
template <class T, class Load>
Batch<T> base(const Product<T>& g, int64_t i, int64_t j, const Load& get) {
  if (g.bias) return get(g.bias + j);
  if (g.beta == T(0)) return Batch<T>(T(0));
  return Batch<T>(g.beta) * get(g.c + i * g.ldc + j);
}

/// Rows i … i + M of C, C batches of columns from j on; of these the last `keep` elements are stored.
template <int M, int C, class T>
void block_nn(const Product<T>& g, int64_t i, int64_t j, int64_t keep = C * kWidth<T>) {
  constexpr int64_t kStep = kWidth<T>;
  Batch<T> sum[M][C];
  for (auto& row : sum)
    for (auto& s : row) s = Batch<T>(T(0));
  const T *a = g.a + i * g.a_row, *b = g.b + j;
  for (int64_t p = 0; p < g.k; ++p, a += g.a_column, b += g.ldb) {
    Batch<T> column[C];
    for (int c = 0; c < C; ++c) column[c] = load(b + c * kStep);
    for (int r = 0; r < M; ++r) {
      const Batch<T> x(a[r * g.a_row]);
      for (int c = 0; c < C; ++c) sum[r][c] = fma(x, column[c], sum[r][c]);
    }
  }
  for (int r = 0; r < M; ++r) {
    T* to = g.c + (i + r) * g.ldc + j;
    for (int c = 0; c < C; ++c) {
      const int64_t at = j + c * kStep;
      const Batch<T> y = fma(Batch<T>(g.alpha), sum[r][c], base(g, i + r, at, [](const T* p) { return load(p); }));
      if (keep == C * kStep) {
        store(to + c * kStep, y);
      } else {
        T lanes[kWidth<T>];
        store(lanes, y);
        std::copy(lanes + kStep - keep, lanes + kStep, to + kStep - keep);
      }
    }
  }
}

/// Fewer columns than a batch has lanes.
template <class T>
void block_nn_part(const Product<T>& g, int64_t i, int64_t j, int64_t n) {
  const auto term = [&](int64_t p, const Batch<T>& sum) {
    return fma(Batch<T>(g.a[i * g.a_row + p * g.a_column]), load_part(g.b + p * g.ldb + j, n), sum);
  };
  Batch<T> part[4] = {Batch<T>(T(0)), Batch<T>(T(0)), Batch<T>(T(0)), Batch<T>(T(0))};
  int64_t p = 0;
  for (; p + 4 <= g.k; p += 4)
    for (int u = 0; u < 4; ++u) part[u] = term(p + u, part[u]);
  for (; p < g.k; ++p) part[0] = term(p, part[0]);
  const Batch<T> sum = (part[0] + part[1]) + (part[2] + part[3]);
  const Batch<T> y = fma(Batch<T>(g.alpha), sum, base(g, i, j, [n](const T* p) { return load_part(p, n); }));
  store_part(g.c + i * g.ldc + j, y, n);
}

template <int M, int C, class T>
void rows_nn(const Product<T>& g, int64_t i) {
  constexpr int64_t kStep = kWidth<T>;
  int64_t j = 0;
  for (; j + C * kStep <= g.n; j += C * kStep) block_nn<M, C>(g, i, j);
  if constexpr (C > 4)
    for (; j + 4 * kStep <= g.n; j += 4 * kStep) block_nn<M, 4>(g, i, j);
  if constexpr (C > 2)
    for (; j + 2 * kStep <= g.n; j += 2 * kStep) block_nn<M, 2>(g, i, j);
  for (; j + kStep <= g.n; j += kStep) block_nn<M, 1>(g, i, j);
  if (j == g.n) return;
  if (g.n >= kStep) {
    block_nn<M, 1>(g, i, g.n - kStep, g.n - j);  // a last vector that overlaps the one before it
  } else {
    for (int r = 0; r < M; ++r) block_nn_part(g, i + r, j, g.n - j);
  }
}

/// One row of C, `n` ≥ kWidth columns from j on: C batches, of which the last may overlap the one before it. Few of
/// them are not enough to hide the latency of an fma, so that every sum is split into U.
template <int C, class T>
void block_row(const Product<T>& g, int64_t i, int64_t j, int64_t n) {
  constexpr int64_t kStep = kWidth<T>;
  constexpr int U = C > 4 ? 1 : C > 2 ? 2 : C == 2 ? 4 : 8;
  const int64_t last = n - kStep;
  Batch<T> sum[U][C];
  for (auto& part : sum)
    for (auto& s : part) s = Batch<T>(T(0));
  const T *a = g.a + i * g.a_row, *b = g.b + j;
  const auto step = [&](Batch<T>(&part)[C], int64_t p) {
    const Batch<T> x(a[p * g.a_column]);
    const T* row = b + p * g.ldb;
    for (int c = 0; c + 1 < C; ++c) part[c] = fma(x, load(row + c * kStep), part[c]);
    part[C - 1] = fma(x, load(row + last), part[C - 1]);
  };
  int64_t p = 0;
  for (; p + U <= g.k; p += U)
    for (int u = 0; u < U; ++u) step(sum[u], p + u);
  for (; p < g.k; ++p) step(sum[0], p);
  for (int half = U / 2; half > 0; half /= 2)
    for (int u = 0; u < half; ++u)
      for (int c = 0; c < C; ++c) sum[u][c] += sum[u + half][c];
  T* to = g.c + i * g.ldc + j;
  const auto result = [&](int c, int64_t at) {
    return fma(Batch<T>(g.alpha), sum[0][c], base(g, i, j + at, [](const T* from) { return load(from); }));
  };
  const Batch<T> end = result(C - 1, last);  // before the batch that it overlaps is stored
  for (int c = 0; c + 1 < C; ++c) store(to + c * kStep, result(c, c * kStep));
  store(to + last, end);
}

/// The only row of C, or the last.
template <class T>
void row_nn(const Product<T>& g, int64_t i) {
  constexpr int64_t kStep = kWidth<T>, kMaxBatches = 8;
  if (g.n < kStep) return block_nn_part(g, i, 0, g.n);
  for (int64_t j = 0; j < g.n;) {
    // Not so many columns that fewer than a batch would be left over.
    const int64_t left = g.n - j, n = left <= kMaxBatches * kStep        ? left
                                      : left < (kMaxBatches + 1) * kStep ? 4 * kStep
                                                                         : kMaxBatches * kStep;
    switch ((n + kStep - 1) / kStep) {
      case 1: block_row<1>(g, i, j, n); break;
      case 2: block_row<2>(g, i, j, n); break;
      case 3: block_row<3>(g, i, j, n); break;
      case 4: block_row<4>(g, i, j, n); break;
      case 5: block_row<5>(g, i, j, n); break;
      case 6: block_row<6>(g, i, j, n); break;
      case 7: block_row<7>(g, i, j, n); break;
      default: block_row<8>(g, i, j, n); break;
    }
    j += n;
  }
}

template <class T>
void product_nn(const Product<T>& g) {
  int64_t i = 0;
  constexpr int kWide = kManyRegisters ? 4 : 2;
  for (; i + 4 <= g.m; i += 4) rows_nn<4, kWide>(g, i);
  switch (g.m - i) {
    case 1: return row_nn(g, i);
    case 2: return rows_nn<2, 4>(g, i);
    case 3: return rows_nn<3, kWide>(g, i);
  }
}

/// M × N elements of C from (i, j) on: dot products of rows of A (contiguous) with rows of Bᵀ.
template <int M, int N, class T>
void block_nt(const Product<T>& g, int64_t i, int64_t j) {
  constexpr int64_t kStep = kWidth<T>;
  const T *a = g.a + i * g.a_row, *b = g.b + j * g.ldb;
  Batch<T> sum[M][N];
  for (auto& row : sum)
    for (auto& s : row) s = Batch<T>(T(0));
  const auto step = [&](const auto& get, int64_t p) {
    Batch<T> x[M];
    for (int r = 0; r < M; ++r) x[r] = get(a + r * g.a_row + p);
    for (int c = 0; c < N; ++c) {
      const Batch<T> y = get(b + c * g.ldb + p);
      for (int r = 0; r < M; ++r) sum[r][c] = fma(x[r], y, sum[r][c]);
    }
  };
  int64_t p = 0;
  for (; p + kStep <= g.k; p += kStep) step([](const T* from) { return load(from); }, p);
  if (p < g.k) step([rest = g.k - p](const T* from) { return load_part(from, rest); }, p);
  for (int r = 0; r < M; ++r) {
    T* to = g.c + (i + r) * g.ldc + j;
    for (int c = 0; c < N; ++c) {
      const T start = g.bias ? g.bias[j + c] : g.beta == T(0) ? T(0) : g.beta * to[c];
      to[c] = g.alpha * hadd(sum[r][c]) + start;
    }
  }
}

template <int M, int N, class T>
void rows_nt(const Product<T>& g, int64_t i) {
  int64_t j = 0;
  for (; j + N <= g.n; j += N) block_nt<M, N>(g, i, j);
  for (; j < g.n; ++j) block_nt<M, 1>(g, i, j);
}

template <class T>
void product_nt(const Product<T>& g) {
  int64_t i = 0;
  if constexpr (kManyRegisters)
    for (; i + 4 <= g.m; i += 4) rows_nt<4, 4>(g, i);
  for (; i + 2 <= g.m; i += 2) rows_nt<2, 4>(g, i);
  if (i < g.m) rows_nt<1, kManyRegisters ? 8 : 4>(g, i);
}

// Limits measured against OpenBLAS 0.3.21, which spends its time on packing when there are few rows, and, with AVX-512,
// against oneDNN 2.6. With AVX-512 these loops are at par with it for up to 64 rows if B stays in the second-level
// cache, from where it is read again for every four rows. With trans_b they lose to it (by up to 1.7 times) unless rows
// of B are long: it is slow to transpose those, above all at steps of a page.
constexpr int64_t kMaxRows = 8, kMaxRowsInCache = kManyRegisters ? 64 : kMaxRows, kCacheBytes = 1 << 20;
constexpr int64_t kPartWork = int64_t{1} << 17, kUnit = 64;  // of a product that is divided

template <class T>
bool is_faster_than_library(const Gemm& g) {
  if (g.m <= kMaxRows || g.k == 0) return true;
  if (g.m > kMaxRowsInCache || g.n * g.k * int64_t(sizeof(T)) > kCacheBytes) return false;
  const bool onednn_is_fast = kManyRegisters && std::is_same_v<T, float> && g.m * g.n * g.k >= 1 << 17;
  return g.k >= (g.trans_b ? (onednn_is_fast ? 512 : 128) : 8);
}

template <class T>
bool run(const Gemm& g);

/// Parts of some columns or some products of a batch: of about 30 µs of work, in which reading an element of B counts
/// as much as the multiplications with 8 rows.
template <class T>
void run_parts(const Gemm& g, int64_t work_of_column) {
  const int64_t columns = std::max<int64_t>(kPartWork / work_of_column / kUnit, 1) * kUnit;
  const int64_t across = (g.n + columns - 1) / columns;
  const int64_t grain = across > 1 ? 1 : std::max<int64_t>(kPartWork / (g.n * work_of_column), 1);
  parallel_for(g.batch * across, grain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t i = t / across, j = t % across * columns;
      Gemm part = g;
      part.batch = 1, part.n = std::min(columns, g.n - j);
      part.a = static_cast<const T*>(g.a) + i * g.stride_a;
      part.b = static_cast<const T*>(g.b) + i * g.stride_b + j * (g.trans_b ? g.ldb : 1);
      part.c = static_cast<T*>(g.c) + i * g.stride_c + j;
      if (g.bias) part.bias = static_cast<const T*>(g.bias) + j;
      run<T>(part);
    }
  });
}

template <class T>
bool run(const Gemm& g) {
  if (!is_faster_than_library<T>(g)) return false;
  Product<T> p{.m = g.m,
               .n = g.n,
               .k = g.k,
               .a = static_cast<const T*>(g.a),
               .a_row = g.trans_a ? 1 : g.lda,
               .a_column = g.trans_a ? g.lda : 1,
               .b = static_cast<const T*>(g.b),
               .ldb = g.ldb,
               .c = static_cast<T*>(g.c),
               .ldc = g.ldc,
               .alpha = T(g.alpha),
               .beta = T(g.beta),
               .bias = static_cast<const T*>(g.bias)};
  if (g.trans_b && p.a_column != 1) return false;
  const int64_t work_of_column = g.k * (g.m + 7) / 8;
  if (g.batch * g.n * work_of_column >= 2 * kPartWork && (g.batch > 1 || g.n > kUnit)) {
    run_parts<T>(g, work_of_column);
    return true;
  }
  for (int64_t i = 0; i < g.batch; ++i) {
    g.trans_b ? product_nt(p) : product_nn(p);
    p.a += g.stride_a;
    p.b += g.stride_b;
    p.c += g.stride_c;
  }
  return true;
}

/// A product with one column as one with one row: Cᵀ = op(B)ᵀ op(A)ᵀ.
Gemm as_row(const Gemm& g) {
  Gemm t = g;
  t.m = g.n, t.n = g.m;
  t.a = g.b, t.lda = g.ldb, t.trans_a = !g.trans_b, t.stride_a = g.stride_b;
  t.b = g.a, t.ldb = g.lda, t.trans_b = !g.trans_a, t.stride_b = g.stride_a;
  if (t.trans_a && t.lda == 1) t.trans_a = false, t.lda = t.k;  // one row: transposed or not is the same
  return t;
}

template <class T>
void rectify(const Gemm& g) {
  constexpr int64_t kPartSize = 1 << 16;
  parallel_for(g.batch * g.m, kPartSize / std::min(g.n, kPartSize), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      T* const c = static_cast<T*>(g.c) + i / g.m * g.stride_c + i % g.m * g.ldc;
      map_flat<T>(functors::Relu(), g.n, c, c);
    }
  });
}

void gemm(const Gemm& g) {
  if (g.m == 0 || g.n == 0) return;
  if (is_half(g.dtype)) return gemm(Widened().of(g));
  const bool column = g.n == 1 && g.ldc == 1 && g.m > 1 && !g.bias;
  const Gemm& product = column ? as_row(g) : g;
  if (!(g.dtype == kFloat32 ? run<float>(product) : run<double>(product))) large_gemm(g, kManyRegisters);
  if (g.relu) g.dtype == kFloat32 ? rectify<float>(g) : rectify<double>(g);
}

}  // namespace

void install_gemm(KernelTable& table) { table.gemm = gemm; }

}  // namespace reel::cpu::REEL_ISA
