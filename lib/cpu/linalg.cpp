#include <algorithm>
#include <cmath>
#include <new>
#include <tuple>
#include <type_traits>
#include <xtensor-blas/xblas.hpp>  // declares CBLAS, too
#include <xtensor-blas/xlapack.hpp>
#include <xtensor/xtensor.hpp>

#include "lib/cpu/kernels.h"
#include "lib/cpu/library_call.h"
#include "lib/device/dispatch.h"
#include "reel/error.h"

// Decompositions and solvers by LAPACK, which takes column-major matrices: each matrix of a batch is copied into one,
// and the results are copied back. A row-major matrix is its transpose, column-major: where that will do, as for
// singular values, the elements are copied in their order.
namespace reel::cpu {
namespace {

template <class T>
using Columns = xt::xtensor<T, 2, xt::layout_type::column_major>;
template <class T>
using Values = xt::uvector<T>;
using xt::blas_index_t;

// Matrix i of a contiguous batch [b, rows, cols].
template <class T>
struct Matrix {
  T* data;
  size_t rows, cols;
  Matrix(const View& batch, int64_t i)
      : data(batch.as<T>() + i * batch.shape[1] * batch.shape[2]),
        rows(static_cast<size_t>(batch.shape[1])),
        cols(static_cast<size_t>(batch.shape[2])) {}
  Columns<T> load() const {
    Columns<T> columns({rows, cols});
    load(columns);
    return columns;
  }
  void load(Columns<T>& columns) const { transpose(data, rows, cols, columns.data()); }
  void store(const Columns<T>& columns) const { transpose(columns.data(), cols, rows, data); }
  /// Copies the transpose of the matrix.
  void load_transposed(Columns<T>& columns) const {
    columns.resize({cols, rows});
    std::copy_n(data, rows * cols, columns.data());
  }

 private:
  /// Copies a row-major matrix to a column-major one, a tile at a time: both sides of it stay in the cache.
  static void transpose(const T* from, size_t rows, size_t cols, T* to) {
    constexpr size_t kTile = 16;
    for (size_t r = 0; r < rows; r += kTile)
      for (size_t c = 0; c < cols; c += kTile)
        for (size_t j = c; j < std::min(cols, c + kTile); ++j)
          for (size_t i = r; i < std::min(rows, r + kTile); ++i) to[j * rows + i] = from[i * cols + j];
  }
};

enum class Triangle { kAll, kLower, kUpper };

// LAPACK may make numbers of NaN.
template <class T>
bool all_finite(const Columns<T>& columns, Triangle part = Triangle::kAll) {
  const size_t rows = columns.shape(0);
  for (size_t c = 0; c < columns.shape(1); ++c) {
    const size_t begin = part == Triangle::kLower ? c : 0, end = part == Triangle::kUpper ? c + 1 : rows;
    for (size_t r = begin; r < end; ++r)
      if (!std::isfinite(columns.data()[c * rows + r])) return false;
  }
  return true;
}

/// A PerType holds memory that all matrices of a batch use, for either type of their elements.
template <template <class> class Kept>
using PerType = std::tuple<Kept<float>, Kept<double>>;

/// A Workspace is the memory that a routine works in. The routine says how much it needs when it is called with a size
/// of -1.
template <class T>
struct Workspace {
  Values<T> numbers;
  Values<blas_index_t> integers;

  /// Calls routine(work, size), which returns 0 on success.
  template <class Routine>
  bool run(const Routine& routine) {
    if (numbers.size() == 0) {
      T size = 0;
      if (routine(&size, blas_index_t(-1)) != 0) return false;
      numbers.resize(static_cast<size_t>(size) + 1);  // float32 may have rounded it
    }
    return routine(numbers.data(), static_cast<blas_index_t>(numbers.size())) == 0;
  }
};

// The first i for which `solved(i, type)` is false, -1 if there is none.
template <class Solved>
int64_t first_failure(const View& a, Solved solved) {
  for (int64_t i = 0; i < a.shape[0]; ++i) {
    const OpenblasCall call;
    if (!(a.dtype == kFloat32 ? solved(i, float()) : solved(i, double()))) return i;
  }
  return -1;
}

int64_t solve(const View& a, const View& b, const View& x) {
  return first_failure(a, [&](int64_t i, auto type) {
    using T = decltype(type);
    Columns<T> lu = Matrix<T>(a, i).load(), columns = Matrix<T>(b, i).load();
    const bool solved = xt::lapack::gesv(lu, columns) == 0;
    if (solved) Matrix<T>(x, i).store(columns);
    return solved;
  });
}

void slogdet(const View& a, const View& sign, const View& logabsdet) {
  const auto n = static_cast<size_t>(a.shape[1]);
  Values<blas_index_t> pivots(n);
  PerType<Columns> all;
  first_failure(a, [&](int64_t i, auto type) {
    using T = decltype(type);
    Columns<T>& lu = std::get<Columns<T>>(all);
    lu.resize({n, n});
    // Not the transpose: the errors of its factors are not those of solve(), with which they cancel in det's gradient.
    Matrix<T>(a, i).load(lu);
    if (n) xt::lapack::getrf(lu, pivots);
    T s = 1, log = 0;
    for (size_t k = 0; k < n; ++k) {
      if (pivots[k] != static_cast<blas_index_t>(k + 1)) s = -s;
      if (lu(k, k) < 0) s = -s;
      if (lu(k, k) == 0) s = 0;
      log += std::log(std::abs(lu(k, k)));
    }
    sign.as<T>()[i] = s;
    logabsdet.as<T>()[i] = log;
    return true;
  });
}

int64_t cholesky(const View& a, const View& l) {
  PerType<Columns> all;
  return first_failure(a, [&](int64_t i, auto type) {
    using T = decltype(type);
    // The transpose Lᵀ of the factor is upper triangular.
    Columns<T>& upper = std::get<Columns<T>>(all);
    Matrix<T>(a, i).load_transposed(upper);
    if (xt::lapack::potr(upper, 'U') != 0) return false;
    const size_t n = upper.shape(0);
    for (size_t c = 0; c < n; ++c) std::fill_n(upper.data() + c * n + c + 1, n - c - 1, T(0));
    std::copy_n(upper.data(), n * n, Matrix<T>(l, i).data);
    return true;
  });
}

void qr(const View& a, const View& q, const View& r) {
  const size_t m = static_cast<size_t>(a.shape[1]), n = static_cast<size_t>(a.shape[2]);
  const size_t wide = static_cast<size_t>(q.shape[2]), rank = std::min(m, n);
  PerType<Columns> all, bases, triangles;
  PerType<Values> taus;
  PerType<Workspace> factoring, forming;
  first_failure(a, [&](int64_t i, auto type) {
    using T = decltype(type);
    const auto rows = static_cast<blas_index_t>(m), columns = static_cast<blas_index_t>(wide);
    auto& factors = std::get<Columns<T>>(all);
    auto& basis = std::get<Columns<T>>(bases);
    auto& triangle = std::get<Columns<T>>(triangles);
    auto& tau = std::get<Values<T>>(taus);
    factors.resize({m, n}), basis.resize({m, wide}), triangle.resize({wide, n}), tau.resize(rank);
    Matrix<T>(a, i).load(factors);
    std::get<Workspace<T>>(factoring).run([&](T* work, blas_index_t size) {
      return cxxlapack::geqrf<blas_index_t>(rows, static_cast<blas_index_t>(n), factors.data(), rows, tau.data(), work,
                                            size);
    });
    std::fill(triangle.begin(), triangle.end(), T(0));
    for (size_t column = 0; column < n; ++column)
      std::copy_n(factors.data() + column * m, std::min(column + 1, rank), triangle.data() + column * wide);
    Matrix<T>(r, i).store(triangle);
    const size_t copied = m * std::min(n, wide);
    std::copy_n(factors.data(), copied, basis.data());
    std::fill(basis.data() + copied, basis.data() + m * wide, T(0));
    std::get<Workspace<T>>(forming).run([&](T* work, blas_index_t size) {
      return cxxlapack::orgqr<blas_index_t>(rows, columns, static_cast<blas_index_t>(std::min(rank, wide)),
                                            basis.data(), rows, tau.data(), work, size);
    });
    Matrix<T>(q, i).store(basis);
    return true;
  });
}

/// Computes the singular values of a matrix alone.
template <class T>
bool singular_values(Columns<T>& a, Workspace<T>& space, T* values) {
  const auto m = static_cast<blas_index_t>(a.shape(0)), n = static_cast<blas_index_t>(a.shape(1));
  space.integers.resize(static_cast<size_t>(8 * std::min(m, n)));
  T none;
  return space.run([&](T* work, blas_index_t size) {
    return cxxlapack::gesdd<blas_index_t>('N', m, n, a.data(), m, values, &none, blas_index_t(1), &none,
                                          blas_index_t(1), work, size, space.integers.data());
  });
}

int64_t svd(const View& a, const View* u, const View& s, const View* vh) {
  const int64_t m = a.shape[1], n = a.shape[2];
  PerType<Columns> all;
  PerType<Workspace> spaces;
  if (!u)
    return first_failure(a, [&](int64_t i, auto type) {
      using T = decltype(type);
      Columns<T>& columns = std::get<Columns<T>>(all);
      Matrix<T>(a, i).load_transposed(columns);
      return all_finite(columns) &&
             singular_values(columns, std::get<Workspace<T>>(spaces), s.as<T>() + i * s.shape[1]);
    });
  const char job = u->shape[2] == m && vh->shape[1] == n ? 'A' : 'S';
  return first_failure(a, [&](int64_t i, auto type) {
    using T = decltype(type);
    Columns<T> work = Matrix<T>(a, i).load();
    if (!all_finite(work)) return false;
    auto [info, left, values, right] = xt::lapack::gesdd(work, job);
    if (info != 0) return false;
    Matrix<T>(*u, i).store(left);
    std::copy(values.begin(), values.end(), s.as<T>() + i * s.shape[1]);
    Matrix<T>(*vh, i).store(right);
    return true;
  });
}

/// Computes the eigenvalues of a matrix whose upper triangle is given, alone.
template <class T>
bool eigenvalues(Columns<T>& a, Workspace<T>& space, T* values) {
  const auto n = static_cast<blas_index_t>(a.shape(0));
  space.integers.resize(1);
  return space.run([&](T* work, blas_index_t size) {
    return cxxlapack::syevd<blas_index_t>('N', 'U', n, a.data(), n, values, work, size, space.integers.data(),
                                          blas_index_t(1));
  });
}

int64_t eigh(const View& a, const View& values, const View* vectors) {
  PerType<Columns> all;
  PerType<Workspace> spaces;
  return first_failure(a, [&](int64_t i, auto type) {
    using T = decltype(type);
    T* const w = values.as<T>() + i * values.shape[1];
    if (!vectors) {
      Columns<T>& columns = std::get<Columns<T>>(all);
      Matrix<T>(a, i).load_transposed(columns);
      return all_finite(columns, Triangle::kUpper) && eigenvalues(columns, std::get<Workspace<T>>(spaces), w);
    }
    Columns<T> columns = Matrix<T>(a, i).load();
    Values<T> found(columns.shape(0));
    if (!all_finite(columns, Triangle::kLower) || xt::lapack::syevd(columns, 'V', 'L', found) != 0) return false;
    std::copy(found.begin(), found.end(), w);
    Matrix<T>(*vectors, i).store(columns);
    return true;
  });
}

void solve_triangular(bool upper, bool unit, const View& a, const View& x) {
  const auto uplo = upper ? CblasUpper : CblasLower;
  const auto diagonal = unit ? CblasUnit : CblasNonUnit;
  const int n = static_cast<int>(x.shape[1]), k = static_cast<int>(x.shape[2]);
  first_failure(a, [&](int64_t i, auto type) {
    using T = decltype(type);
    const Matrix<T> triangle(a, i), columns(x, i);
    if constexpr (std::is_same_v<T, float>)
      cblas_strsm(CblasRowMajor, CblasLeft, uplo, CblasNoTrans, diagonal, n, k, 1, triangle.data, n, columns.data, k);
    else
      cblas_dtrsm(CblasRowMajor, CblasLeft, uplo, CblasNoTrans, diagonal, n, k, 1, triangle.data, n, columns.data, k);
    return true;
  });
}

}  // namespace

void install_linalg(KernelTable& table) { table.linalg = {solve, slogdet, cholesky, qr, svd, eigh, solve_triangular}; }

}  // namespace reel::cpu
