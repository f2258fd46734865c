#include <cmath>
#include <new>
#include <type_traits>
#include <xtensor-blas/xblas.hpp>  // declares CBLAS, too
#include <xtensor-blas/xlapack.hpp>
#include <xtensor/xtensor.hpp>

#include "lib/cpu/kernels.h"
#include "lib/cpu/library_call.h"
#include "lib/device/dispatch.h"
#include "reel/error.h"

// Decompositions and solvers by LAPACK, which takes column-major matrices: each matrix of a batch is copied into one,
// and the results are copied back.
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
    for (size_t r = 0; r < rows; ++r)
      for (size_t c = 0; c < cols; ++c) columns(r, c) = data[r * cols + c];
    return columns;
  }
  void store(const Columns<T>& columns) const {
    for (size_t r = 0; r < rows; ++r)
      for (size_t c = 0; c < cols; ++c) data[r * cols + c] = columns(r, c);
  }
};

// LAPACK may make numbers of NaN.
template <class T>
bool all_finite(const Columns<T>& columns, bool lower_alone = false) {
  for (size_t c = 0; c < columns.shape(1); ++c)
    for (size_t r = lower_alone ? c : 0; r < columns.shape(0); ++r)
      if (!std::isfinite(columns(r, c))) return false;
  return true;
}

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
  first_failure(a, [&](int64_t i, auto type) {
    using T = decltype(type);
    Columns<T> lu = Matrix<T>(a, i).load();
    const size_t n = lu.shape(0);
    Values<blas_index_t> pivots(n);
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
  return first_failure(a, [&](int64_t i, auto type) {
    using T = decltype(type);
    Columns<T> lower = Matrix<T>(a, i).load();
    if (xt::lapack::potr(lower, 'L') != 0) return false;
    for (size_t r = 0; r < lower.shape(0); ++r)
      for (size_t c = r + 1; c < lower.shape(1); ++c) lower(r, c) = 0;
    Matrix<T>(l, i).store(lower);
    return true;
  });
}

void qr(const View& a, const View& q, const View& r) {
  first_failure(a, [&](int64_t i, auto type) {
    using T = decltype(type);
    Columns<T> factors = Matrix<T>(a, i).load();
    const size_t m = factors.shape(0), n = factors.shape(1), wide = static_cast<size_t>(q.shape[2]);
    Values<T> tau(std::min(m, n));
    xt::lapack::geqrf(factors, tau);
    Columns<T> upper = xt::zeros<T>({static_cast<size_t>(r.shape[1]), n}), orthogonal({m, wide});
    for (size_t row = 0; row < upper.shape(0) && row < m; ++row)
      for (size_t col = row; col < n; ++col) upper(row, col) = factors(row, col);
    for (size_t row = 0; row < m; ++row)
      for (size_t col = 0; col < wide; ++col) orthogonal(row, col) = col < n ? factors(row, col) : T(0);
    xt::lapack::orgqr(orthogonal, tau, static_cast<blas_index_t>(wide));
    Matrix<T>(q, i).store(orthogonal);
    Matrix<T>(r, i).store(upper);
    return true;
  });
}

int64_t svd(const View& a, const View& u, const View& s, const View& vh) {
  const int64_t m = a.shape[1], n = a.shape[2];
  const char job = u.shape[2] == m && vh.shape[1] == n ? 'A' : 'S';
  return first_failure(a, [&](int64_t i, auto type) {
    using T = decltype(type);
    Columns<T> work = Matrix<T>(a, i).load();
    if (!all_finite(work)) return false;
    auto [info, left, values, right] = xt::lapack::gesdd(work, job);
    if (info != 0) return false;
    Matrix<T>(u, i).store(left);
    std::copy(values.begin(), values.end(), s.as<T>() + i * s.shape[1]);
    Matrix<T>(vh, i).store(right);
    return true;
  });
}

int64_t eigh(const View& a, const View& values, const View& vectors) {
  return first_failure(a, [&](int64_t i, auto type) {
    using T = decltype(type);
    Columns<T> columns = Matrix<T>(a, i).load();
    Values<T> w(columns.shape(0));
    if (!all_finite(columns, true) || xt::lapack::syevd(columns, 'V', 'L', w) != 0) return false;
    std::copy(w.begin(), w.end(), values.as<T>() + i * values.shape[1]);
    Matrix<T>(vectors, i).store(columns);
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
