// This file has the pointwise ops on integers and products of their matrices, whose loops the compiler vectorises.
// Overflow wraps around (lib/CMakeLists.txt).
#include "lib/cpu/simd/integer.h"

#include <algorithm>
#include <array>

#include "lib/cpu/kernels.h"
#include "lib/cpu/loop.h"
#include "lib/cpu/scratch.h"
#include "lib/cpu/simd/batch.h"
#include "lib/cpu/simd/tiles.h"
#include "lib/device/kernels/gemm.h"
#include "lib/functors/binary.h"
#include "lib/functors/bits.h"
#include "lib/functors/unary.h"
#include "reel/threads.h"

namespace reel::cpu::REEL_ISA {
namespace {

/// Returns the step from one element of the innermost dimension to the next.
int64_t inner_stride(const View& x) {
  for (int d = x.shape.size() - 1; d >= 0; --d)
    if (x.shape[d] != 1) return x.strides[d];
  return 1;
}

/// Computes y = f(x...) for adjacent elements of y, and operands whose elements are so many steps apart.
template <class T, int64_t... step, class F, class... Operands, size_t... i>
void map_steps(const F& f, std::index_sequence<i...>, const View& y, const Operands&... x) {
  const View* const views[] = {&y, &x...};
  for_each_run(views, [&](int64_t n, char* const* p, const int64_t*) {
    const T* const from[] = {reinterpret_cast<const T*>(p[i + 1])...};
    T* const to = reinterpret_cast<T*>(p[0]);
    for (int64_t k = 0; k < n; ++k) to[k] = static_cast<T>(f(from[i][step * k]...));
  });
}

/// Computes y = f(x...). The compiler vectorises the loops over every second element of the operands, too.
template <class T, class F, class... Operands>
void map_integers(const F& f, const View& y, const Operands&... x) {
  constexpr std::index_sequence_for<Operands...> operands;
  const std::array steps{inner_stride(x)...};
  const auto are = [&](auto... step) { return steps == std::array{int64_t{step}...}; };
  if (inner_stride(y) == 1) {
    if constexpr (sizeof...(Operands) == 1) {
      if (are(2)) return map_steps<T, 2>(f, operands, y, x...);
    } else {
      if (are(2, 2)) return map_steps<T, 2, 2>(f, operands, y, x...);
      if (are(2, 1)) return map_steps<T, 2, 1>(f, operands, y, x...);
      if (are(1, 2)) return map_steps<T, 1, 2>(f, operands, y, x...);
      if (are(2, 0)) return map_steps<T, 2, 0>(f, operands, y, x...);
    }
  }
  map_elements<T, T>(f, y, x...);
}

template <class F, class... Operands>
void apply(const F& f, DType dtype, const View& y, const Operands&... x) {
  switch (dtype) {
    case kInt32: return map_integers<int32_t>(f, y, x...);
    case kInt64: return map_integers<int64_t>(f, y, x...);
    default: return map_integers<uint8_t>(f, y, x...);
  }
}

/// SignOf is the sign of an integer, without branches.
struct SignOf {
  template <class T>
  T operator()(T x) const {
    return static_cast<T>((x > 0) - (x < 0));
  }
};

template <class F>
void unary(const void* functor, const View& x, const View& y) {
  if constexpr (std::is_same_v<F, functors::Sign>)
    apply(SignOf(), x.dtype, y, x);
  else
    apply(*static_cast<const F*>(functor), x.dtype, y, x);
}
template <class F>
void binary(const void* functor, const View& a, const View& b, const View& y) {
  apply(*static_cast<const F*>(functor), a.dtype, y, a, b);
}

template <class F>
constexpr KernelTable::Unary unary_row() {
  if constexpr (F::kIntegers)
    return unary<F>;
  else
    return nullptr;
}
template <class F>
constexpr KernelTable::Binary binary_row() {
  if constexpr (F::kIntegers)
    return binary<F>;
  else
    return nullptr;
}

template <class List>
struct UnaryRows;
template <class... F>
struct UnaryRows<std::tuple<F...>> {
  static constexpr KernelTable::Unary rows[] = {unary_row<F>()...};
};
template <class List>
struct BinaryRows;
template <class... F>
struct BinaryRows<std::tuple<F...>> {
  static constexpr KernelTable::Binary rows[] = {binary_row<F>()...};
};
template <class List>
struct BitRows;
template <class... F>
struct BitRows<std::tuple<F...>> {
  static constexpr KernelTable::Binary rows[] = {Pointwise<binary<F>>::run...};
};

// ---- products of matrices -------------------------------------------------------------------------------------------

constexpr int64_t kManyRows = 16;  // so many that a look at all elements costs little

/// Adds to R rows of C, of n columns, what 4 elements of each row of A and 4 rows of B contribute; unsigned numbers
/// wrap.
template <int R, class T>
void add_terms(const T* a, int64_t a_row, int64_t a_column, const T* __restrict b, int64_t ldb, int64_t n,
               T* __restrict c, int64_t ldc) {
  T x[R][4];
  for (int r = 0; r < R; ++r)
    for (int p = 0; p < 4; ++p) x[r][p] = a[r * a_row + p * a_column];
  const T* __restrict const b0 = b;
  const T* __restrict const b1 = b + ldb;
  const T* __restrict const b2 = b + 2 * ldb;
  const T* __restrict const b3 = b + 3 * ldb;
  if constexpr (R == 1) {
    for (int64_t k = 0; k < n; ++k)
      c[k] = static_cast<T>(c[k] + x[0][0] * b0[k] + x[0][1] * b1[k] + x[0][2] * b2[k] + x[0][3] * b3[k]);
  } else {
    T* __restrict const c1 = c + ldc;
    for (int64_t k = 0; k < n; ++k) {
      c[k] = static_cast<T>(c[k] + x[0][0] * b0[k] + x[0][1] * b1[k] + x[0][2] * b2[k] + x[0][3] * b3[k]);
      c1[k] = static_cast<T>(c1[k] + x[1][0] * b0[k] + x[1][1] * b1[k] + x[1][2] * b2[k] + x[1][3] * b3[k]);
    }
  }
}

#if defined(__AVX2__)
using Words = xsimd::batch<uint64_t, Arch>;
/// Returns products of numbers that int32 holds, as int64.
inline Words short_product(const Words& x, const Words& y) {
#if defined(__AVX512F__)
  return _mm512_mul_epi32(x, y);
#else
  return _mm256_mul_epi32(x, y);
#endif
}

/// Does what add_terms() does with numbers that int32 holds, of which products take one instruction.
template <int R>
void add_short_terms(const uint64_t* a, int64_t a_row, int64_t a_column, const uint64_t* b, int64_t ldb, int64_t n,
                     uint64_t* c, int64_t ldc) {
  constexpr int64_t kStep = Words::size;
  Words x[R][4];
  for (int r = 0; r < R; ++r)
    for (int p = 0; p < 4; ++p) x[r][p] = Words(a[r * a_row + p * a_column]);
  int64_t k = 0;
  for (; k + kStep <= n; k += kStep) {
    Words y[4];
    for (int p = 0; p < 4; ++p) y[p] = Words::load_unaligned(b + p * ldb + k);
    for (int r = 0; r < R; ++r) {
      Words sum = Words::load_unaligned(c + r * ldc + k);
      for (int p = 0; p < 4; ++p) sum += short_product(x[r][p], y[p]);
      sum.store_unaligned(c + r * ldc + k);
    }
  }
  if (k < n) add_terms<R>(a, a_row, a_column, b + k, ldb, n - k, c + k, ldc);
}
#endif

/// Returns whether int32 holds all numbers of a matrix of int64.
bool fits_int32(const uint64_t* x, int64_t rows, int64_t columns, int64_t stride) {
  uint64_t beyond = 0;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) beyond |= (x[i * stride + j] + (uint64_t{1} << 31)) >> 32;
  return beyond == 0;
}

/// Computes a product of unsigned numbers, which wrap; element (p, j) of B is at b[p * ldb + j]. The compiler
/// vectorises the loops over columns. With is_short int32 holds all numbers of A and B.
template <class T>
void multiply_rows(const Gemm& g, [[maybe_unused]] bool is_short, const T* a, const T* b, int64_t ldb, T* c) {
  // Blocks of B stay in the first-level cache. Many rows of A are worth a copy, whose rows do not displace each other.
  constexpr int64_t kTogether = 4, kDepth = 16, kColumns = 1024 / sizeof(T);
  auto add_two = add_terms<2, T>, add_one = add_terms<1, T>;
#if defined(__AVX2__)
  if constexpr (sizeof(T) == 8)
    if (is_short) add_two = add_short_terms<2>, add_one = add_short_terms<1>;
#endif
  const int64_t a_row = g.trans_a ? 1 : g.lda, a_column = g.trans_a ? g.lda : 1;
  T copy[kDepth * kColumns];
  for (int64_t j = 0; j < g.n; j += kColumns) {
    const int64_t n = std::min(kColumns, g.n - j);
    for (int64_t i = 0; i < g.m; ++i) std::fill_n(c + i * g.ldc + j, n, T(0));
    for (int64_t first = 0; first < g.k; first += kDepth) {
      const int64_t depth = std::min(kDepth, g.k - first);
      const T* block = b + first * ldb + j;
      int64_t row_size = ldb;
      if (g.m >= kManyRows) {
        for (int64_t p = 0; p < depth; ++p) std::copy_n(block + p * ldb, n, copy + p * kColumns);
        block = copy, row_size = kColumns;
      }
      for (int64_t i = 0; i < g.m; i += 2) {
        const bool two = i + 1 < g.m;
        T* const sums = c + i * g.ldc + j;
        const T* const x = a + i * a_row + first * a_column;
        int64_t p = 0;
        for (; p + kTogether <= depth; p += kTogether) {
          const T *const from = x + p * a_column, *const rows = block + p * row_size;
          (two ? add_two : add_one)(from, a_row, a_column, rows, row_size, n, sums, g.ldc);
        }
        for (; p < depth; ++p)
          for (int64_t r = 0; r <= int64_t{two}; ++r) {
            const T factor = x[r * a_row + p * a_column];
            T* __restrict const to = sums + r * g.ldc;
            const T* __restrict const row = block + p * row_size;
            for (int64_t k = 0; k < n; ++k) to[k] = static_cast<T>(to[k] + factor * row[k]);
          }
      }
    }
  }
}

/// Does that for a B whose columns, and an A whose rows, are contiguous.
template <class T>
void multiply_dots(const Gemm& g, const T* __restrict a, const T* __restrict b, int64_t ldb, T* __restrict c) {
  for (int64_t i = 0; i < g.m; ++i)
    for (int64_t j = 0; j < g.n; ++j) {
      const T* __restrict const x = a + i * g.lda, * __restrict const y = b + j * ldb;
      T sum = 0;
      for (int64_t p = 0; p < g.k; ++p) sum = static_cast<T>(sum + x[p] * y[p]);
      c[i * g.ldc + j] = sum;
    }
}

template <class T>
void multiply_integers(const Gemm& g) {
  constexpr int64_t kFewRows = 4, kPartWork = int64_t{1} << 17;
  const bool columns = g.trans_b || (g.n == 1 && g.ldb == 1);  // of B are contiguous
  const bool dots = columns && !g.trans_a && (g.m < kFewRows || g.n < kFewRows);
  // Rows of Bᵀ are written once for each product.
  const bool turned = g.trans_b && !dots;
  const Scratch scratch(turned ? static_cast<size_t>(g.k * g.n) * sizeof(T) : 0);
  const int64_t ldb = turned ? g.n : g.ldb;
  for (int64_t i = 0; i < g.batch; ++i) {
    const T *const a = static_cast<const T*>(g.a) + i * g.stride_a, *b = static_cast<const T*>(g.b) + i * g.stride_b;
    T* const c = static_cast<T*>(g.c) + i * g.stride_c;
    if (turned) {
      T* const rows = scratch.data<T>();
      for (int64_t j = 0; j < g.n; ++j)
        for (int64_t p = 0; p < g.k; ++p) rows[p * g.n + j] = b[j * g.ldb + p];
      b = rows;
    }
    bool is_short = false;
    if constexpr (sizeof(T) == 8)
      is_short = !dots && g.m >= kManyRows && fits_int32(b, g.k, g.n, ldb) &&
                 (g.trans_a ? fits_int32(a, g.k, g.m, g.lda) : fits_int32(a, g.m, g.k, g.lda));
    // Each part copies B once more.
    const int64_t work = std::max<int64_t>(g.n * g.k, 1),
                  fewest = dots ? 1 : std::clamp(g.m / 8, kManyRows, 4 * kManyRows);
    parallel_for(g.m, std::max(kPartWork / work, fewest), [&](int64_t begin, int64_t end) {
      Gemm part = g;
      part.m = end - begin;
      const T* const first = a + begin * (g.trans_a ? 1 : g.lda);
      dots ? multiply_dots(part, first, b, ldb, c + begin * g.ldc)
           : multiply_rows(part, is_short, first, b, ldb, c + begin * g.ldc);
    });
  }
}

void integer_gemm(const Gemm& g) {
  if (g.m == 0 || g.n == 0) return;
  switch (g.dtype) {
    case kInt64: return multiply_integers<uint64_t>(g);
    case kInt32: return multiply_integers<uint32_t>(g);
    default: return multiply_integers<uint8_t>(g);
  }
}

}  // namespace

constinit const KernelTable::Unary* const integer_unary = UnaryRows<functors::UnaryList>::rows;
constinit const KernelTable::Binary* const integer_binary = BinaryRows<functors::BinaryList>::rows;

void install_integer(KernelTable& table) {
  table.bits = BitRows<functors::BitList>::rows;
  table.integer_gemm = integer_gemm;
}

}  // namespace reel::cpu::REEL_ISA
