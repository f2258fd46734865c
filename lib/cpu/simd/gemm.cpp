#include <algorithm>

#include "lib/cpu/halves.h"
#include "lib/cpu/kernels.h"
#include "lib/cpu/scratch.h"
#include "lib/cpu/simd/halves.h"
#include "lib/cpu/simd/map.h"
#include "lib/cpu/simd/transpose.h"
#include "lib/device/kernels/gemm.h"
#include "lib/functors/unary.h"
#include "reel/threads.h"

// Matrix products with few rows, at which libraries are slow (batch size 1, above all); all others go to them
// (lib/cpu/gemm.cpp). Blocks of C of up to eight rows are kept in registers. A is not packed, which few rows would not
// pay for; B only where its columns are not contiguous.
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

/// Some columns of C, at least a batch of them, and some terms of their sums. The last of the batches may overlap the
/// one before it, so that none is a part of one.
template <class T>
struct Panel {
  int64_t j, last;  // the first column; the last batch is at column j + last
  int64_t begin, end;
  const T* b;  // row `begin` of B, or of a packed copy of these columns; the last batch is at b + last_b
  int64_t ldb, last_b;
  const T* start;  // what the sums are added to, `factor` times; for column j of the first row
  int64_t start_row;
  T factor;
};

/// Rows i … i + M of C in a panel of C batches. Not inlined, so that the registers are enough.
template <int M, int C, class T>
[[gnu::noinline]] void block(const Product<T>& g, const Panel<T>& panel, int64_t i) {
  constexpr int64_t kStep = kWidth<T>;
  Batch<T> sum[M][C];
  for (auto& row : sum)
    for (auto& s : row) s = Batch<T>(T(0));
  const T *a = g.a + i * g.a_row + panel.begin * g.a_column, *b = panel.b;
  for (int64_t p = panel.begin; p < panel.end; ++p, a += g.a_column, b += panel.ldb) {
    Batch<T> column[C];
    for (int c = 0; c + 1 < C; ++c) column[c] = load(b + c * kStep);
    column[C - 1] = load(b + panel.last_b);
    for (int r = 0; r < M; ++r) {
      const Batch<T> x(a[r * g.a_row]);
      for (int c = 0; c < C; ++c) sum[r][c] = fma(x, column[c], sum[r][c]);
    }
  }
  T* to = g.c + i * g.ldc + panel.j;
  const auto finish = [&](const auto& result) {
#pragma GCC unroll 8
    for (int r = 0; r < M; ++r, to += g.ldc) {
      const Batch<T> end = result(r, sum[r][C - 1], panel.last);  // before the batch that it overlaps is stored
      for (int c = 0; c + 1 < C; ++c) store(to + c * kStep, result(r, sum[r][c], c * kStep));
      store(to + panel.last, end);
    }
  };
  const Batch<T> alpha(g.alpha), factor(panel.factor);
  if (const T* const start = panel.start ? panel.start + i * panel.start_row : nullptr)
    finish([&](int r, const Batch<T>& s, int64_t at) {
      return fma(alpha, s, factor * load(start + r * panel.start_row + at));
    });
  else
    finish([&](int, const Batch<T>& s, int64_t) { return alpha * s; });
}

constexpr int64_t kBlockRows = kManyRegisters ? 8 : 6;
/// The batches of a block of so many rows, of which all sums are kept in registers.
constexpr int64_t batches_of(int64_t rows) {
  return kManyRegisters ? (rows > 6 ? 3 : 4) : rows > 3 ? 2 : rows > 2 ? 3 : 4;
}

template <int M, int C, class T>
void block_if_it_fits(const Product<T>& g, const Panel<T>& panel, int64_t i) {
  if constexpr (M <= kBlockRows && C <= batches_of(M)) block<M, C>(g, panel, i);
}

/// The last two blocks are of equal size: one of few rows would wait for its own results.
constexpr int64_t rows_of_block(int64_t left) {
  return left <= kBlockRows ? left : left < 2 * kBlockRows ? (left + 1) / 2 : kBlockRows;
}

template <int C, class T>
void all_rows(const Product<T>& g, const Panel<T>& panel) {
  for (int64_t i = 0, rows; i < g.m; i += rows) {
    rows = rows_of_block(g.m - i);
    switch (rows) {
      case 1: block_if_it_fits<1, C>(g, panel, i); break;
      case 2: block_if_it_fits<2, C>(g, panel, i); break;
      case 3: block_if_it_fits<3, C>(g, panel, i); break;
      case 4: block_if_it_fits<4, C>(g, panel, i); break;
      case 5: block_if_it_fits<5, C>(g, panel, i); break;
      case 6: block_if_it_fits<6, C>(g, panel, i); break;
      case 7: block_if_it_fits<7, C>(g, panel, i); break;
      default: block_if_it_fits<8, C>(g, panel, i); break;
    }
  }
}

/// The panel's part of B, of which Bᵀ is given, at `to`: batches of rows become columns of vectors.
template <class T>
void pack_transposed(const Product<T>& g, Panel<T>& panel, int64_t batches, T* to) {
  constexpr int64_t kStep = kWidth<T>;
  panel.b = to, panel.ldb = batches * kStep, panel.last_b = (batches - 1) * kStep;
  for (int64_t c = 0; c < batches; ++c) {
    const T* from = g.b + (panel.j + (c + 1 < batches ? c * kStep : panel.last)) * g.ldb;
    T* at = to + c * kStep;
    for (int64_t p = panel.begin; p < panel.end; p += kStep) {
      Batch<T> rows[kStep];
      for (int64_t r = 0; r < kStep; ++r) rows[r] = load_up_to(from + r * g.ldb + p, panel.end - p);
      transpose(rows);
      for (int64_t r = 0; r < kStep && p + r < panel.end; ++r, at += panel.ldb) store(at, rows[r]);
    }
  }
}

/// At least a batch of columns. Of a panel of B no more terms are taken at a time than stay in the caches.
template <class T>
void product_in_panels(const Product<T>& g, bool trans_b) {
  constexpr int64_t kStep = kWidth<T>, kTerms = 256;
  const int64_t most = batches_of(rows_of_block(g.m)) * kStep, terms = std::min(g.k, kTerms);
  const Scratch packed(trans_b ? terms * most * sizeof(T) : 0);
  int64_t begin = 0;
  do {
    const int64_t end = std::min(g.k, begin + terms);
    for (int64_t j = 0, n; j < g.n; j += n) {
      const int64_t left = g.n - j, half = (left / 2 + kStep - 1) / kStep * kStep;
      n = left <= most ? left : left < 2 * most ? std::min(half, left - kStep) : most;
      const int64_t batches = (n + kStep - 1) / kStep;
      Panel<T> panel{.j = j,
                     .last = n - kStep,
                     .begin = begin,
                     .end = end,
                     .b = nullptr,
                     .ldb = g.ldb,
                     .last_b = n - kStep,
                     .start = nullptr,
                     .start_row = g.ldc,
                     .factor = T(1)};
      if (begin > 0) {
        panel.start = g.c + j;
      } else if (g.bias) {
        panel.start = g.bias + j, panel.start_row = 0;
      } else if (g.beta != T(0)) {
        panel.start = g.c + j, panel.factor = g.beta;
      }
      if (trans_b) {
        pack_transposed(g, panel, batches, packed.data<T>());
      } else {
        panel.b = g.b + begin * g.ldb + j;
      }
      switch (batches) {
        case 1: all_rows<1>(g, panel); break;
        case 2: all_rows<2>(g, panel); break;
        case 3: all_rows<3>(g, panel); break;
        default: all_rows<4>(g, panel); break;
      }
    }
    begin = end;
  } while (begin < g.k);
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

/// Fewer columns than a batch has lanes: those of B, and of the product, are padded.
template <class T>
void product_of_few_columns(const Product<T>& g, bool trans_b) {
  constexpr int64_t kStep = kWidth<T>;
  const Scratch scratch((g.k + g.m) * kStep * sizeof(T));
  T *const b = scratch.data<T>(), *const c = b + g.k * kStep;
  if (trans_b) {
    rows_to_lanes(g.b, g.ldb, g.k, g.n, b);
  } else {
    for (int64_t p = 0; p < g.k; ++p) store(b + p * kStep, load_part(g.b + p * g.ldb, g.n));
  }
  Product<T> padded = g;
  padded.n = padded.ldb = padded.ldc = kStep;
  padded.b = b, padded.c = c, padded.bias = nullptr, padded.beta = T(0);
  product_in_panels(padded, false);
  for (int64_t i = 0; i < g.m; ++i)
    store_part(g.c + i * g.ldc, load(c + i * kStep) + base(g, i, 0, [&](const T* p) { return load_part(p, g.n); }),
               g.n);
}

template <class T>
void product_nn(const Product<T>& g, bool trans_b) {
  if (g.m == 1 && !trans_b) return row_nn(g, 0);
  if (g.n >= kWidth<T>) return product_in_panels(g, trans_b);
  if (g.m >= 4 || trans_b) return product_of_few_columns(g, trans_b);
  for (int64_t i = 0; i < g.m; ++i) block_nn_part(g, i, 0, g.n);
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

constexpr int64_t kPartWork = int64_t{1} << 17;  // of a product that is divided

/// Whether a product with Bᵀ is computed in panels, not by dot products, which are slow to begin and to end.
template <class T>
bool is_in_panels(const Gemm& g) {
  if (g.trans_a) return true;
  if (g.m < 4 || (g.n < kWidth<T> && (g.m <= 8 || g.k >= 128))) return false;
  if (g.m < 8) return kManyRegisters && g.k <= 64;
  return g.m > 16 || g.k < (g.m == 8 ? 200 : 512) || !kManyRegisters;
}

/// Limits measured against OpenBLAS 0.3.21, which spends its time on packing when there are few rows, but has kernels
/// of AVX-512 for small products, and oneDNN 2.6. With AVX-512, oneDNN is the fastest with Bᵀ of few rows, unless they
/// are 4 or 8, or of many columns of short sums; and where B is too large for the caches, which panels cross in steps.
template <class T>
bool is_faster_than_library(const Gemm& g) {
  constexpr int64_t kMaxRows = 64, kFewRows = 8;
  const int64_t size = g.n * g.k, work = g.m * size;
  if (g.m == 1) return true;
  if (kManyRegisters && std::is_same_v<T, float>) {
    if (!g.trans_b && size > 1 << 20) return false;
    if (g.trans_b && !g.trans_a && g.n >= 32 && size >= 1 << 13) {
      if (g.m < 8 ? g.m != 4 || g.k < 128 : g.m > 8 && g.m <= 12 && g.k < 512) return false;
      if (g.m > 12 && g.n >= 384 && g.n >= 3 * g.k) return false;
    }
  }
  if (g.m <= kFewRows) return true;
  if (g.m > kMaxRows || g.k < 8 || work > 1 << 25 || kWidth<float> < 8) return false;
  if (!openblas_has_avx512()) return true;
  return kManyRegisters && !(g.trans_b && (g.k < 128 ? work < 1 << 17 : g.n < kWidth<T> && work >= 1 << 17));
}

/// Returns Σ a[i] b[i], added over blocks of a few hundred terms in vectors and then in double precision.
template <class A, class B>
double dot_of(const A* a, const B* b, int64_t n) {
  using T = Compute<A>;
  constexpr int kChains = 4;
  constexpr int64_t kStep = kWidth<T>, kBlock = 128 * kStep;
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = std::min(n, begin + kBlock);
    Batch<T> sum[kChains];
    for (auto& s : sum) s = Batch<T>(T(0));
    int64_t i = begin;
    for (; i + kChains * kStep <= end; i += kChains * kStep)
      for (int c = 0; c < kChains; ++c)
        sum[c] = fma(load_wide(a + i + c * kStep), load_wide(b + i + c * kStep), sum[c]);
    for (; i + kStep <= end; i += kStep) sum[0] = fma(load_wide(a + i), load_wide(b + i), sum[0]);
    if (i < end) sum[1] = fma(load_part_wide(a + i, end - i), load_part_wide(b + i, end - i), sum[1]);
    total += static_cast<double>(hadd((sum[0] + sum[1]) + (sum[2] + sum[3])));
  }
  return total;
}

/// Returns whether a product is that of two long contiguous vectors.
bool is_dot(const Gemm& g) {
  constexpr int64_t kMinLength = 256;  // below it a panel is as fast
  return g.m == 1 && g.n == 1 && g.k >= kMinLength && (!g.trans_a || g.lda == 1) && (g.trans_b || g.ldb == 1);
}

/// Writes element j of the one row of C, whose sum of products is given.
template <class T>
void finish_element(const Gemm& g, int64_t j, double sum, T* c) {
  using Wide = Compute<T>;
  const Wide start = g.bias        ? widen(static_cast<const T*>(g.bias)[j])
                     : g.beta == 0 ? Wide(0)
                                   : Wide(g.beta) * widen(*c);
  const Wide y = Wide(g.alpha) * static_cast<Wide>(sum) + start;
  if constexpr (std::is_same_v<T, Wide>)
    *c = y;
  else
    convert(&y, c, 1);
}

/// Computes such a product, a long one in parts that depend on its length alone.
template <class T>
void multiply_vectors(const Gemm& g) {
  constexpr int64_t kPart = int64_t{1} << 17;
  const int64_t parts = (g.k - 1) / kPart + 1;
  const Scratch scratch(static_cast<size_t>(parts) * sizeof(double));
  double* const sums = scratch.data<double>();
  for (int64_t i = 0; i < g.batch; ++i) {
    const T *const a = static_cast<const T*>(g.a) + i * g.stride_a, *const b =
                                                                        static_cast<const T*>(g.b) + i * g.stride_b;
    parallel_for(parts, 1, [&](int64_t first, int64_t last) {
      for (int64_t p = first; p < last; ++p)
        sums[p] = dot_of(a + p * kPart, b + p * kPart, std::min(kPart, g.k - p * kPart));
    });
    double sum = 0;
    for (int64_t p = 0; p < parts; ++p) sum += sums[p];
    finish_element(g, 0, sum, static_cast<T*>(g.c) + i * g.stride_c);
  }
}

/// Returns whether a product is that of one contiguous row of halves and a matrix whose columns are contiguous: it is
/// one pass over the matrix, in which it is widened.
bool is_row_of_halves(const Gemm& g) {
  constexpr int64_t kMinTerms = 64;  // of a sum, below which its end costs too much
  return is_half(g.dtype) && g.m == 1 && g.batch == 1 && g.trans_b && g.k >= kMinTerms && (!g.trans_a || g.lda == 1);
}

/// Computes such a product.
template <class T>
void multiply_row_of_halves(const Gemm& g) {
  const Scratch scratch(static_cast<size_t>(g.k) * sizeof(float));
  float* const row = scratch.data<float>();
  convert(static_cast<const T*>(g.a), row, g.k);
  parallel_for(g.n, std::max<int64_t>((int64_t{1} << 17) / g.k, 1), [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j)
      finish_element(g, j, dot_of(row, static_cast<const T*>(g.b) + j * g.ldb, g.k), static_cast<T*>(g.c) + j);
  });
}

template <class T>
void multiply(const Gemm& g) {
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
  const bool dots = g.trans_b && !is_in_panels<T>(g);
  for (int64_t i = 0; i < g.batch; ++i) {
    dots ? product_nt(p) : product_nn(p, g.trans_b);
    p.a += g.stride_a;
    p.b += g.stride_b;
    p.c += g.stride_c;
  }
}

template <class T>
bool run(const Gemm& g) {
  if (is_dot(g)) {
    multiply_vectors<T>(g);
    return true;
  }
  if (!is_faster_than_library<T>(g)) return false;
  // Parts of some columns or some products of a batch: of about 30 µs of work, in which reading an element of B counts
  // as much as the multiplications with 8 rows.
  const int64_t work_of_column = g.k * (g.m + 7) / 8;
  if (g.batch * g.n * work_of_column < 2 * kPartWork) {
    multiply<T>(g);
    return true;
  }
  const int64_t panel = batches_of(rows_of_block(g.m)) * kWidth<T>, unit = panel * std::max<int64_t>(64 / panel, 1);
  const int64_t columns = std::max<int64_t>(kPartWork / work_of_column / unit, 1) * unit;
  const int64_t across = std::max<int64_t>((g.n + columns / 2) / columns, 1);  // the last part takes what is left over
  const int64_t grain = across > 1 ? 1 : std::max<int64_t>(kPartWork / (g.n * work_of_column), 1);
  parallel_for(g.batch * across, grain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t i = t / across, j = t % across * columns;
      Gemm part = g;
      part.batch = 1, part.n = t % across + 1 < across ? columns : g.n - j;
      part.a = static_cast<const T*>(g.a) + i * g.stride_a;
      part.b = static_cast<const T*>(g.b) + i * g.stride_b + j * (g.trans_b ? g.ldb : 1);
      part.c = static_cast<T*>(g.c) + i * g.stride_c + j;
      if (g.bias) part.bias = static_cast<const T*>(g.bias) + j;
      multiply<T>(part);
    }
  });
  return true;
}

/// A product whose sums have no terms: A and B have no elements, and their pointers may be null.
template <class T>
void start_only(const Gemm& g) {
  const T* const bias = static_cast<const T*>(g.bias);
  const T beta = T(g.beta);
  for (int64_t i = 0; i < g.batch * g.m; ++i) {
    T* const c = static_cast<T*>(g.c) + i / g.m * g.stride_c + i % g.m * g.ldc;
    for (int64_t j = 0; j < g.n; ++j) c[j] = bias ? bias[j] : beta == T(0) ? T(0) : beta * c[j];
  }
}

/// Returns whether a product has one contiguous column, and is no row.
bool is_column(const Gemm& g) { return g.n == 1 && g.ldc == 1 && g.m > 1 && !g.bias; }

/// A product with one column as one with one row: Cᵀ = op(B)ᵀ op(A)ᵀ.
Gemm as_row(const Gemm& g) {
  Gemm t = g;
  t.m = g.n, t.n = g.m;
  t.a = g.b, t.lda = g.ldb, t.trans_a = !g.trans_b, t.stride_a = g.stride_b;
  t.b = g.a, t.ldb = g.lda, t.trans_b = !g.trans_a, t.stride_b = g.stride_a;
  if (t.trans_a && t.lda == 1) t.trans_a = false, t.lda = t.k;  // one row: transposed or not is the same
  return t;
}

/// Computes max(c, 0). NaN stays, which libraries make 0.
void rectify(const Gemm& g) {
  const View c{.data = g.c,
               .numel = g.batch * g.m * g.n,
               .dtype = g.dtype,
               .contiguous = false,
               .host = true,
               .shape = {g.batch, g.m, g.n},
               .strides = {g.stride_c, g.ldc, 1}};
  const functors::Relu relu;
  cpu_kernels().unary[functors::index_of<functors::UnaryList, functors::Relu>](&relu, c, c);
}

/// Computes a product of halves that reads each of its operands once, without copies of these, or returns false.
template <class T>
bool run_halves(const Gemm& g) {
  if (is_dot(g))
    multiply_vectors<T>(g);
  else if (const Gemm row = is_column(g) ? as_row(g) : g; is_row_of_halves(row))
    multiply_row_of_halves<T>(row);
  else
    return false;
  return true;
}

void gemm(const Gemm& g) {
  if (g.m == 0 || g.n == 0) return;
  const bool done = is_half(g.dtype) && (g.dtype == kFloat16 ? run_halves<Float16>(g) : run_halves<BFloat16>(g));
  if (done || (kManyRegisters && bfloat16_gemm(g))) {
    if (g.relu) rectify(g);
    return;
  }
  if (is_half(g.dtype)) return gemm(Widened().of(g));
  const Gemm& product = is_column(g) ? as_row(g) : g;
  if (g.k == 0)
    g.dtype == kFloat32 ? start_only<float>(g) : start_only<double>(g);
  else if (!(g.dtype == kFloat32 ? run<float>(product) : run<double>(product)))
    large_gemm(g, kManyRegisters);
  if (g.relu) rectify(g);
}

}  // namespace

void install_gemm(KernelTable& table) { table.gemm = gemm; }

}  // namespace reel::cpu::REEL_ISA
