#pragma once
#include <limits>
#include <optional>

#include "reel/ops/common.h"

/// Linear algebra on matrices [m, n] and batches of them […, m, n], float32 or float64 (half types by way of float32).
/// Where LAPACK finds no result (a singular matrix, say) the Error names the matrix. Gradients are of any order; those
/// of qr, svd and eigh need full rank or distinct values, as the derivatives themselves do.
namespace reel::linalg {

Tensor inv(const Tensor& a);
Tensor det(const Tensor& a);  ///< Also of singular matrices.

struct SignLogDet {
  Tensor sign, logabsdet;  ///< Of a singular matrix 0 and -infinity.
};
SignLogDet slogdet(const Tensor& a);

/// The lower triangular L of a symmetric positive definite a = L Lᵀ, of which only the lower triangle is read.
/// With `upper` the transpose of L.
Tensor cholesky(const Tensor& a, bool upper = false);

struct QR {
  Tensor q, r;
};
enum class QRMode { kReduced, kComplete };
inline constexpr QRMode kReduced = QRMode::kReduced, kComplete = QRMode::kComplete;
/// a = Q R with orthonormal columns in Q [m, k], R [k, n] upper triangular, k = min(m, n), or m when complete (which
/// has a gradient only where m <= n).
QR qr(const Tensor& a, QRMode mode = QRMode::kReduced);

struct SVD {
  Tensor u, s, vh;
};
/// a = U diag(S) Vh with S [k] descending, k = min(m, n), and U [m, k], Vh [k, n], or [m, m] and [n, n] with
/// full_matrices (whose additional columns have no gradient, and must get none).
SVD svd(const Tensor& a, bool full_matrices = false);
Tensor svdvals(const Tensor& a);

struct Eigh {
  Tensor eigenvalues, eigenvectors;
};
/// Of symmetric matrices, of which only the lower triangle is read: a = V diag(L) Vᵀ, L ascending.
Eigh eigh(const Tensor& a);
Tensor eigvalsh(const Tensor& a);

/// x with a x = b, for a […, n, n] and b […, n, k], or [n] as one column.
Tensor solve(const Tensor& a, const Tensor& b);

struct SolveTriangularOptions {
  bool upper;
  bool left = true;            ///< a x = b; otherwise x a = b.
  bool unitriangular = false;  ///< The diagonal counts as ones.
};
/// The same for a triangular a, whose other triangle is not read.
Tensor solve_triangular(const Tensor& a, const Tensor& b, SolveTriangularOptions options);

/// The x of least norm among those that make |a x - b| least, for a […, m, n] and b […, m, k]. Singular values below
/// rcond times the largest count as zero; by default that is the dtype's epsilon times max(m, n).
Tensor lstsq(const Tensor& a, const Tensor& b, std::optional<double> rcond = {});
/// The Moore-Penrose inverse […, n, m], with rcond as for lstsq. Differentiable where the rank is locally constant
/// (Golub & Pereyra 1973).
Tensor pinv(const Tensor& a, std::optional<double> rcond = {});
Tensor matrix_rank(const Tensor& a, std::optional<double> rcond = {});  ///< int64

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// The norm of the elements: |x|ᵖ summed, to the 1/p; ord 0 counts what is not zero, ±infinity is the largest or least.
Tensor vector_norm(const Tensor& x, double ord = 2, const Dims& dims = {}, bool keepdim = false);
enum class MatrixNorm { kFrobenius, kNuclear };
inline constexpr MatrixNorm kFrobenius = MatrixNorm::kFrobenius, kNuclear = MatrixNorm::kNuclear;
Tensor matrix_norm(const Tensor& a, MatrixNorm ord = MatrixNorm::kFrobenius, bool keepdim = false);
/// ord 1, -1: largest, least column sum; ±infinity: row sum; 2, -2: singular value.
Tensor matrix_norm(const Tensor& a, double ord, bool keepdim = false);

/// a multiplied with itself n times; n < 0: its inverse; n = 0: the identity.
Tensor matrix_power(const Tensor& a, int64_t n);

}  // namespace reel::linalg
