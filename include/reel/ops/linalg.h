#pragma once
#include <limits>
#include <optional>

#include "reel/ops/common.h"

#pragma GCC visibility push(default)
/// Linear algebra on matrices [m, n] and batches of them […, m, n], float32 or float64 (half types by way of float32).
/// Throws reel::Error with the index of the matrix for which LAPACK finds no result (a singular matrix, for example).
/// Factorizations and solvers run on the CPU for CUDA tensors, too, and so synchronize. Gradients are of any order;
/// those of qr, svd and eigh need full rank or distinct values, as the derivatives themselves do.
namespace reel::linalg {

Tensor inv(const Tensor& a);  ///< The inverse. An Error of a singular matrix.
Tensor det(const Tensor& a);  ///< The determinant [...], also of singular matrices.

/// What slogdet returns.
struct SignLogDet {
  Tensor sign;       ///< -1 or 1; 0 of a singular matrix.
  Tensor logabsdet;  ///< -infinity of a singular matrix.
};
/// The sign of the determinant and the logarithm of its absolute value, where it would overflow itself.
SignLogDet slogdet(const Tensor& a);

/// The lower triangular L of a symmetric positive definite a = L Lᵀ, of which only the lower triangle is read.
/// With `upper` the transpose of L.
Tensor cholesky(const Tensor& a, bool upper = false);

/// What qr returns.
struct QR {
  Tensor q;  ///< [m, k], orthonormal columns.
  Tensor r;  ///< [k, n], upper triangular.
};
/// How many columns Q has: min(m, n) or m.
enum class QRMode { kReduced, kComplete };
///@{
/// The QRMode of that name.
inline constexpr QRMode kReduced = QRMode::kReduced, kComplete = QRMode::kComplete;
///@}
/// a = Q R with orthonormal columns in Q [m, k], R [k, n] upper triangular, k = min(m, n), or m when complete (which
/// has a gradient only where m <= n).
QR qr(const Tensor& a, QRMode mode = QRMode::kReduced);

/// What svd returns.
struct SVD {
  Tensor u;   ///< [m, k], orthonormal columns.
  Tensor s;   ///< [k], the singular values, descending.
  Tensor vh;  ///< [k, n], orthonormal rows.
};
/// a = U diag(S) Vh with S [k] descending, k = min(m, n), and U [m, k], Vh [k, n], or [m, m] and [n, n] with
/// full_matrices. The additional columns and rows are one basis of many: their gradient is that of what does not depend
/// on the choice, such as a projection on them.
SVD svd(const Tensor& a, bool full_matrices = false);
Tensor svdvals(const Tensor& a);  ///< svd(a).s

/// What eigh returns.
struct Eigh {
  Tensor eigenvalues;   ///< [n], ascending.
  Tensor eigenvectors;  ///< [n, n], one a column.
};
/// Of symmetric matrices, of which only the lower triangle is read: a = V diag(L) Vᵀ, L ascending.
Eigh eigh(const Tensor& a);
Tensor eigvalsh(const Tensor& a);  ///< eigh(a).eigenvalues

/// x with a x = b, for a […, n, n] and b […, n, k], or [n] as one column.
Tensor solve(const Tensor& a, const Tensor& b);

/// Of solve_triangular.
struct SolveTriangularOptions {
  bool upper;                  ///< a is upper triangular, otherwise lower.
  bool left = true;            ///< a x = b; otherwise x a = b.
  bool unitriangular = false;  ///< The diagonal counts as ones.
};
/// The same for a triangular a, whose other triangle is not read.
Tensor solve_triangular(const Tensor& a, const Tensor& b, SolveTriangularOptions options);

/// The minimum-norm x that minimizes ‖a x - b‖₂, for a […, m, n] and b […, m, k]. Singular values below rcond times the
/// largest count as zero; by default that is the dtype's epsilon times max(m, n).
Tensor lstsq(const Tensor& a, const Tensor& b, std::optional<double> rcond = {});
/// The Moore-Penrose inverse […, n, m], with rcond as for lstsq. Differentiable where the rank is locally constant
/// (Golub & Pereyra 1973). The gradient takes the values that rcond cuts off for zeros, and is that much in error if
/// they are more than rounding errors; so is that of lstsq.
Tensor pinv(const Tensor& a, std::optional<double> rcond = {});
/// int64: the number of singular values that count, with rcond as for lstsq.
Tensor matrix_rank(const Tensor& a, std::optional<double> rcond = {});

/// For the order of a norm.
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// |x|ᵖ summed, to the 1/p; ord 0 counts what is not zero, ±infinity is the largest or least. Negative: not of nothing.
Tensor vector_norm(const Tensor& x, double ord = 2, const Dims& dims = {}, bool keepdim = false);
/// The matrix norms without a number: √Σ|aᵢⱼ|², and the sum of the singular values.
enum class MatrixNorm { kFrobenius, kNuclear };
///@{
/// The MatrixNorm of that name.
inline constexpr MatrixNorm kFrobenius = MatrixNorm::kFrobenius, kNuclear = MatrixNorm::kNuclear;
///@}
/// The norm of each matrix: [...], or [..., 1, 1] with keepdim.
Tensor matrix_norm(const Tensor& a, MatrixNorm ord = MatrixNorm::kFrobenius, bool keepdim = false);
/// ord 1, -1: largest, least column sum; ±infinity: row sum; 2, -2: singular value. Second derivatives of norms by
/// singular values need distinct ones.
Tensor matrix_norm(const Tensor& a, double ord, bool keepdim = false);

/// a multiplied with itself n times; n < 0: its inverse; n = 0: the identity.
Tensor matrix_power(const Tensor& a, int64_t n);

}  // namespace reel::linalg
#pragma GCC visibility pop
