#include "reel/ops/linalg.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <vector>

#include "lib/ops/internal.h"

// Rules: Giles 2008, "An extended collection of matrix derivative results"; Walter & Lehmann 2018 (QR); Golub & Pereyra
// 1973 (pseudo-inverse); all written in ops, so that they can be differentiated again.
namespace reel::linalg {
namespace {

Tensor mt(const Tensor& a) { return a.transpose(-2, -1); }
Tensor eye_like(const Tensor& a, int64_t n) { return eye(n, {}, {.dtype = a.dtype(), .device = a.device()}); }
Tensor diag_embed(const Tensor& d) { return d.unsqueeze(-1) * eye_like(d, d.size(-1)); }

const Tensor& check_matrix(const char* op, const Tensor& a) {
  const View& view = view_of(a, op);
  REEL_CHECK(is_floating_point(view.dtype), op, ": a tensor of ", view.dtype, "; convert it to a floating type first");
  REEL_CHECK(view.shape.size() >= 2, op, ": a tensor of shape ", view.shape, ", not a matrix or a batch of them");
  return a;
}
const Tensor& check_square(const char* op, const Tensor& a) {
  check_matrix(op, a);
  REEL_CHECK(a.size(-2) == a.size(-1), op, ": matrices of shape ", a.shape(), " are not square");
  return a;
}

/// […, m, n] as a contiguous batch [b, m, n] of float32 or float64, without history.
Tensor batch_of(const Tensor& a) {
  NoGrad guard;
  int64_t batch = 1;
  for (int d = 0; d < a.dim() - 2; ++d) batch *= a.size(d);
  return to_compute(a).reshape({batch, a.size(-2), a.size(-1)}).contiguous();
}
/// a's leading dimensions before `last`.
Shape shape_with(const Tensor& a, std::initializer_list<int64_t> last) {
  Shape shape(std::span(a.shape().begin(), static_cast<size_t>(a.dim() - 2)));
  for (const int64_t size : last) shape.push_back(size);
  return shape;
}
/// A result of shape […, last] for a's leading dimensions, and the same as kernels take it, as a batch. The result is
/// no view: an in-place change of part of it would be recorded for the tensor that it views.
struct Result {
  Tensor tensor;
  View batch;
  Result(const Tensor& a, std::initializer_list<int64_t> last)
      : tensor(make_tensor(shape_with(a, last), compute_dtype(a.dtype()), a.device())), batch(view_of(tensor)) {
    batch.shape = {shape_with(a, {}).numel()};
    for (const int64_t size : last) batch.shape.push_back(size);
    batch.strides = contiguous_strides(batch.shape);
  }
};
void check_solved(const char* op, int64_t failure, const char* why) {
  REEL_CHECK(failure < 0, op, ": matrix ", failure, " of the batch ", why);
}

constexpr const char* kNotDecomposed = "holds NaN or infinity, or did not converge";

Tensor solve_batch(const char* op, const Tensor& a, const Tensor& b) {
  // Also where there is nothing to solve a singular matrix is an error.
  if (b.size(-1) == 0 && a.numel()) solve_batch(op, a, a.narrow(-1, 0, 1));
  const Tensor ab = batch_of(a), bb = batch_of(b);
  const Result x(a, {a.size(-1), b.size(-1)});
  if (x.batch.numel) check_solved(op, kernels_of(a).linalg.solve(view_of(ab), view_of(bb), x.batch), "is singular");
  return x.tensor;
}

/// Leading dimensions of a and b broadcast against each other.
std::pair<Tensor, Tensor> broadcast_batches(const char* op, const Tensor& a, const Tensor& b) {
  const auto leading = [](const Tensor& x) {
    return Shape(std::span(x.shape().begin(), static_cast<size_t>(x.dim() - 2)));
  };
  Shape as = broadcast_shapes(leading(a), leading(b), op), bs = as;
  as.push_back(a.size(-2)), as.push_back(a.size(-1));
  bs.push_back(b.size(-2)), bs.push_back(b.size(-1));
  return {a.expand(as), b.expand(bs)};
}

void check_same_type(const char* op, const Tensor& a, const Tensor& b) {
  REEL_CHECK(view_of(a, op).dtype == view_of(b, op).dtype, op, ": operands of different types, ", a.dtype(), " and ",
             b.dtype());
  common_device(op, {&a, &b});
}

}  // namespace

// ---- inverse and determinant ----------------------------------------------------------------------------------------

Tensor inv(const Tensor& a) {
  check_square("linalg.inv", a);
  return call("linalg.inv", {a}, {}, [](const Tensor& x) {
    const Tensor identity = eye_like(x, x.size(-1)).expand(x.shape());
    const Tensor y = solve_batch("linalg.inv", x, identity);
    if (recording(x))
      record("linalg.inv", y, inputs(x), [y = SavedTensor::output(y)](Backward& back) {
        const Tensor t = mt(back.get(y));
        back.set(0, -matmul(matmul(t, back.grad()), t));
      });
    return y;
  });
}

SignLogDet slogdet(const Tensor& a) {
  check_square("linalg.slogdet", a);
  return call("linalg.slogdet", {a}, {}, [](const Tensor& a) {
    const Tensor batch = batch_of(a);
    const Result sign(a, {}), log(a, {});
    kernels_of(a).linalg.slogdet(view_of(batch), sign.batch, log.batch);
    if (recording(a))
      record("linalg.slogdet", log.tensor, inputs(a), [a = SavedTensor(a)](Backward& back) {
        back.set(0, back.grad().unsqueeze(-1).unsqueeze(-1) * mt(inv(back.get(a))));
      });
    record_constant("linalg.slogdet", sign.tensor, a);
    return SignLogDet{sign.tensor, log.tensor};
  });
}

// The derivative of a determinant is the matrix of cofactors. det(A) A⁻ᵀ is that of a regular matrix; of one that is
// singular, or nearly so, it is nothing or a difference of large numbers, and its derivatives are rounding errors.
// cofactors() is for these: it divides by nothing small, and so has all derivatives.
namespace {

struct Adjugate {
  Tensor matrix, det;
};
/// Of one matrix, as polynomials of it, by the recurrence of Leverrier and Faddeev (Householder, The Theory of Matrices
/// in Numerical Analysis, 1964, section 6.7). The errors are those of the largest cofactors.
Adjugate adjugate_of_small(const Tensor& a) {
  const int64_t n = a.size(-1);
  const Tensor identity = eye_like(a, n);
  Tensor m = identity, det = ones({}, {.dtype = a.dtype(), .device = a.device()});
  for (int64_t k = 1; k <= n; ++k) {
    const Tensor next = matmul(a, m), trace = sum(diagonal(next)) / static_cast<double>(k);
    if (k < n)
      m = next - trace * identity;
    else
      det = trace;
  }
  return n % 2 || n == 0 ? Adjugate{m, det} : Adjugate{-m, -det};
}

/// Of one matrix. With its singular vectors U and V as constants, B = UᵀAV = [P Q; R W], where P has the singular
/// values that are not small. S = W - R P⁻¹ Q is small, adj(A) = det(U) det(V) V adj(B) Uᵀ, and (by the Schur
/// complement: Horn & Johnson, Matrix Analysis, section 0.8.5)
///
///   adj(B) = det(P) [P⁻¹ det(S) + P⁻¹Q adj(S) R P⁻¹, -P⁻¹Q adj(S); -adj(S) R P⁻¹, adj(S)].
Tensor adjugate(const Tensor& a) {
  const int64_t n = a.size(-1);
  const auto [u, s, vh] = no_grad([&] { return svd(a); });
  const std::vector<double> values = s.to_vector<double>();
  // P is so regular that is_nearly_singular(), below, is false of it, and det(P) does not come here again.
  const auto is_small = [&](double value) { return value <= 2 * std::sqrt(DBL_EPSILON) * values[0]; };
  const int64_t large = std::find_if(values.begin(), values.end(), is_small) - values.begin(), small = n - large;
  const Tensor b = matmul(matmul(mt(u), a), mt(vh));
  const auto part = [&](bool below, bool right) {
    return b.narrow(0, below ? large : 0, below ? small : large).narrow(1, right ? large : 0, right ? small : large);
  };
  const Tensor p = part(false, false), inverse = inv(p);
  const Tensor down = matmul(inverse, part(false, true)), across = matmul(part(true, false), inverse);
  const auto [adj, rest] = adjugate_of_small(part(true, true) - matmul(part(true, false), down));
  const Tensor below = matmul(adj, across), above = inverse * rest + matmul(down, below);
  const Tensor of_b = cat({cat({above, -matmul(down, adj)}, 1), cat({-below, adj}, 1)}, 0) * det(p);
  const Tensor sign = no_grad([&, u = u, vh = vh] { return slogdet(u).sign * slogdet(vh).sign; });
  return matmul(matmul(mt(vh), of_b), mt(u)) * sign;
}

/// Powers of two by which rows and columns of a are as large as one another, about.
struct Exponents {
  Tensor rows, columns;  // […, n, 1], […, 1, n]
  explicit Exponents(const Tensor& a) {
    const NoGrad guard;
    Tensor left = abs(a);
    const auto take = [&](int64_t dim) {
      const Tensor largest = amax(left, dim, true);
      const Tensor exponents = where((largest > 0) & isfinite(largest), round(log2(largest)), 0.);
      left = left * exp2(-exponents);
      return exponents;
    };
    rows = take(-1), columns = take(-2);
    rows = rows + take(-1), columns = columns + take(-2);
  }
};

/// The cofactors of matrices […, n, n], of NaN where one is not finite. One matrix after the other: each has its own P.
Tensor cofactors(const Tensor& matrices) {
  const Tensor a = matrices.to(kFloat64);
  const int64_t n = a.size(-1);
  const auto [rows, columns] = Exponents(a);
  const Tensor even = a * exp2(-rows) * exp2(-columns);
  std::vector<Tensor> result;
  for (const Tensor& one : unbind(even.reshape({-1, n, n}), 0))
    result.push_back(all(isfinite(one.detach())).item<bool>() ? mt(adjugate(one)) : one * std::nan(""));
  const Tensor exponents = sum(rows, -2, true) + sum(columns, -1, true) - rows - columns;
  return (stack(result).reshape(a.shape()) * exp2(exponents)).to(matrices.dtype());
}

/// Whether one of the matrices is so close to a singular one that derivatives of det(a) a⁻¹ lose half of their digits.
bool is_nearly_singular(const Tensor& a) {
  const NoGrad guard;
  if (!a.numel() || !all(isfinite(a)).item<bool>()) return false;
  const Tensor s = svdvals(a);
  const double least = std::sqrt(a.dtype() == kFloat64 ? DBL_EPSILON : FLT_EPSILON);
  return any(s.select(-1, -1) <= s.select(-1, 0) * least).item<bool>();
}
/// Whether a determinant has lost digits to the range of its dtype, or all of them.
bool is_out_of_range(const Tensor& det) {
  const NoGrad guard;
  const Tensor size = abs(det);
  const double least = det.dtype() == kFloat64 ? DBL_MIN : static_cast<double>(FLT_MIN);
  return any((size < least) | isinf(size)).item<bool>();
}
/// Returns the cofactors det(A) A⁻ᵀ of matrices whose determinants are out of range, if all are regular, and undefined
/// if one may be singular.
Tensor cofactors_by_inverse(const Tensor& a) {
  const auto [sign, log_det] = slogdet(a);
  if (!all((sign != 0) & isfinite(log_det)).item<bool>()) return {};
  const auto largest = [](const Tensor& x) { return amax(abs(x), {-2, -1}, true); };
  const Tensor inverse = inv(a), size = largest(inverse);
  const double max_condition = 1 / std::sqrt(a.dtype() == kFloat64 ? DBL_EPSILON : FLT_EPSILON);
  if (!all(size * largest(a) * static_cast<double>(a.size(-1)) < max_condition).item<bool>()) return {};
  const auto column = [](const Tensor& x) { return x.unsqueeze(-1).unsqueeze(-1); };
  return column(sign) * exp(column(log_det) + log(size)) * mt(inverse / size);
}
}  // namespace

Tensor det(const Tensor& a) {
  check_square("linalg.det", a);
  return call("linalg.det", {a}, {}, [](const Tensor& x) {
    const auto [sign, log] = no_grad([&] { return slogdet(x); });
    const Tensor y = no_grad([&, sign = sign, log = log] { return sign * exp(log); });
    if (recording(x))
      record("linalg.det", y, inputs(x), [x = SavedTensor(x), y = SavedTensor::output(y)](Backward& back) {
        const Tensor xt = back.get(x), d = back.get(y);
        Tensor slope;
        if (is_out_of_range(d)) {
          if (!back.create_graph()) slope = cofactors_by_inverse(xt);
        } else if (!back.create_graph() || !is_nearly_singular(xt)) {
          slope = d.unsqueeze(-1).unsqueeze(-1) * mt(inv(xt));
        }
        if (!slope.defined()) slope = cofactors(xt);
        back.set(0, back.grad().unsqueeze(-1).unsqueeze(-1) * slope);
      });
    return y;
  });
}

// ---- factorisations -------------------------------------------------------------------------------------------------

namespace {
/// The lower triangle with half of the diagonal.
Tensor half_lower(const Tensor& x) { return tril(x) - x * eye_like(x, x.size(-1)) * 0.5; }
}  // namespace

Tensor cholesky(const Tensor& a, bool upper) {
  check_square("linalg.cholesky", a);
  if (upper) return mt(cholesky(a));
  return call("linalg.cholesky", {a}, {}, [](const Tensor& x) {
    const Tensor batch = batch_of(x);
    const Result factor(x, {x.size(-1), x.size(-1)});
    if (factor.batch.numel)
      check_solved("linalg.cholesky", kernels_of(x).linalg.cholesky(view_of(batch), factor.batch),
                   "is not positive definite");
    const Tensor& y = factor.tensor;
    if (recording(x))
      record("linalg.cholesky", y, inputs(x), [y = SavedTensor::output(y)](Backward& back) {
        const Tensor l = back.get(y), lt = mt(l);
        const Tensor inner = half_lower(matmul(lt, back.grad()));
        // L⁻ᵀ inner L⁻¹, made symmetric.
        const Tensor left = solve_triangular(lt, inner, {.upper = true});
        const Tensor both = solve_triangular(l, left, {.upper = false, .left = false});
        back.set(0, (both + mt(both)) * 0.5);
      });
    return y;
  });
}

namespace {
QR qr_square_or_tall(const Tensor& a, const Tensor& q, const Tensor& r) {
  const Tensor outputs[] = {q, r};
  record("linalg.qr", outputs, {&a, 1}, [q = SavedTensor::output(q, 0), r = SavedTensor::output(r, 1)](Backward& back) {
    const Tensor qt = back.get(q), rt = back.get(r);
    const Tensor gq = back.grad_or_zeros(0), gr = back.grad_or_zeros(1);
    const Tensor m = matmul(rt, mt(gr)) - matmul(mt(gq), qt);
    const Tensor symmetric = tril(m) + mt(tril(m, -1));
    back.set(0, solve_triangular(mt(rt), gq + matmul(qt, symmetric), {.upper = false, .left = false}));
  });
  return {q, r};
}

QR qr_of(const Tensor& a, QRMode mode) {
  const int64_t m = a.size(-2), n = a.size(-1), k = std::min(m, n), wide = mode == QRMode::kComplete ? m : k;
  if (recording(a) && m < n) {
    // a = [x | y] with a square x = Q U gives R = [U | Qᵀ y].
    const auto [q, u] = qr_of(a.narrow(-1, 0, m), QRMode::kReduced);
    return {q, cat({u, matmul(mt(q), a.narrow(-1, m, n - m))}, -1)};
  }
  const Tensor batch = batch_of(a);
  const Result q(a, {m, wide}), r(a, {wide, n});
  if (k == 0)  // of an empty matrix any basis will do
    Tensor(q.tensor).copy_(eye_like(q.tensor, m).narrow(-1, 0, wide));
  else
    kernels_of(a).linalg.qr(view_of(batch), q.batch, r.batch);
  if (!recording(a)) return {q.tensor, r.tensor};
  REEL_CHECK(wide == k, "linalg.qr: the complete factors of a tall matrix, shape ", a.shape(), ", have no gradient");
  return qr_square_or_tall(a, q.tensor, r.tensor);
}
}  // namespace

QR qr(const Tensor& a, QRMode mode) {
  check_matrix("linalg.qr", a);
  return call("linalg.qr", {a}, {}, [&](const Tensor& a) { return qr_of(a, mode); });
}

namespace {
Tensor skew(const Tensor& x) { return x - mt(x); }
/// v_j - v_i at (i, j), and 1 on the diagonal.
Tensor differences(const Tensor& v) { return v.unsqueeze(-2) - v.unsqueeze(-1) + eye_like(v, v.size(-1)); }
/// basis · (diag(values) + inner), of which one may be undefined. Zeros beside a diagonal would make infinities NaN.
Tensor weighted(const Tensor& basis, const Tensor& values, const Tensor& inner) {
  if (!inner.defined()) return basis * values.unsqueeze(-2);
  return matmul(basis, values.defined() ? inner + diag_embed(values) : inner);
}

SVD svd_of(const Tensor& a, bool full_matrices) {
  const int64_t m = a.size(-2), n = a.size(-1), k = std::min(m, n);
  const Tensor batch = batch_of(a);
  const Result u(a, {m, full_matrices ? m : k}), s(a, {k}), vh(a, {full_matrices ? n : k, n});
  SVD y{u.tensor, s.tensor, vh.tensor};
  if (!y.s.numel())  // of an empty matrix any basis will do
    y.u.copy_(eye_like(y.u, m).narrow(-1, 0, y.u.size(-1))), y.vh.copy_(eye_like(y.vh, n).narrow(-2, 0, y.vh.size(-2)));
  else
    check_solved("linalg.svd", kernels_of(a).linalg.svd(view_of(batch), &u.batch, s.batch, &vh.batch), kNotDecomposed);
  if (!recording(a)) return y;
  const Tensor outputs[] = {y.u, y.s, y.vh};
  record("linalg.svd", outputs, {&a, 1},
         [u = SavedTensor::output(y.u, 0), s = SavedTensor::output(y.s, 1), vh = SavedTensor::output(y.vh, 2),
          k](Backward& back) {
           const Tensor ut = back.get(u).narrow(-1, 0, k), st = back.get(s), vt = back.get(vh).narrow(-2, 0, k);
           Tensor inner;
           const auto add = [&](const Tensor& part) { inner = inner.defined() ? inner + part : part; };
           const Tensor gaps = differences(square(st));
           Tensor outer;
           if (back.grad(0).defined()) {
             const Tensor gu = back.grad(0).narrow(-1, 0, k), utgu = matmul(mt(ut), gu);
             add(skew(utgu) / gaps * st.unsqueeze(-2));
             if (ut.size(-2) > k) {
               outer = gu - matmul(ut, utgu);
               if (const int64_t more = back.grad(0).size(-1) - k)
                 outer =
                     outer - matmul(back.get(u).narrow(-1, k, more), matmul(mt(back.grad(0).narrow(-1, k, more)), ut));
               outer = matmul(outer / st.unsqueeze(-2), vt);
             }
           }
           if (back.grad(2).defined()) {
             const Tensor gvh = back.grad(2).narrow(-2, 0, k), vtgv = matmul(vt, mt(gvh));
             add(st.unsqueeze(-1) * (skew(vtgv) / gaps));
             if (vt.size(-1) > k) {
               Tensor beyond = gvh - matmul(mt(vtgv), vt);
               if (const int64_t more = back.grad(2).size(-2) - k)
                 beyond = beyond -
                          matmul(matmul(vt, mt(back.grad(2).narrow(-2, k, more))), back.get(vh).narrow(-2, k, more));
               beyond = matmul(ut, beyond / st.unsqueeze(-1));
               outer = outer.defined() ? outer + beyond : beyond;
             }
           }
           const Tensor g = matmul(weighted(ut, back.grad(1), inner), vt);
           back.set(0, outer.defined() ? g + outer : g);
         });
  return y;
}
}  // namespace

SVD svd(const Tensor& a, bool full_matrices) {
  check_matrix("linalg.svd", a);
  return call("linalg.svd", {a}, {}, [&](const Tensor& a) { return svd_of(a, full_matrices); });
}
Tensor svdvals(const Tensor& a) {
  check_matrix("linalg.svdvals", a);
  if (recording(a)) return svd(a).s;
  return call("linalg.svd", {a}, {}, [](const Tensor& a) {
    const Tensor batch = batch_of(a);
    const Result s(a, {std::min(a.size(-2), a.size(-1))});
    if (s.batch.numel)
      check_solved("linalg.svd", kernels_of(a).linalg.svd(view_of(batch), nullptr, s.batch, nullptr), kNotDecomposed);
    return s.tensor;
  });
}

Eigh eigh(const Tensor& a) {
  check_square("linalg.eigh", a);
  return call("linalg.eigh", {a}, {}, [](const Tensor& a) {
    const int64_t n = a.size(-1);
    const Tensor batch = batch_of(a);
    const Result values(a, {n}), vectors(a, {n, n});
    if (n)
      check_solved("linalg.eigh", kernels_of(a).linalg.eigh(view_of(batch), values.batch, &vectors.batch),
                   kNotDecomposed);
    const Eigh y{values.tensor, vectors.tensor};
    if (!recording(a)) return y;
    const Tensor outputs[] = {y.eigenvalues, y.eigenvectors};
    record("linalg.eigh", outputs, {&a, 1},
           [w = SavedTensor::output(y.eigenvalues, 0), v = SavedTensor::output(y.eigenvectors, 1)](Backward& back) {
             const Tensor vt = back.get(v);
             Tensor inner;  // Only turns of the vectors count, which are antisymmetric.
             if (back.grad(1).defined()) inner = skew(matmul(mt(vt), back.grad(1))) * 0.5 / differences(back.get(w));
             back.set(0, matmul(weighted(vt, back.grad(0), inner), mt(vt)));
           });
    return y;
  });
}
Tensor eigvalsh(const Tensor& a) {
  check_square("linalg.eigvalsh", a);
  if (recording(a)) return eigh(a).eigenvalues;
  return call("linalg.eigh", {a}, {}, [](const Tensor& a) {
    const Tensor batch = batch_of(a);
    const Result values(a, {a.size(-1)});
    if (values.batch.numel)
      check_solved("linalg.eigh", kernels_of(a).linalg.eigh(view_of(batch), values.batch, nullptr), kNotDecomposed);
    return values.tensor;
  });
}

// ---- systems of equations -------------------------------------------------------------------------------------------

namespace {
/// For b of one or more columns.
Tensor solve_columns(const char* op, const Tensor& a, const Tensor& b) {
  REEL_CHECK(a.size(-1) == b.size(-2), op, ": sizes differ, a ", a.shape(), " and b ", b.shape());
  const auto [as, bs] = broadcast_batches(op, a, b);
  const Tensor x = solve_batch(op, as, bs);
  if (recording(as, bs))
    record(op, x, inputs(as, bs), [a = SavedTensor(as), x = SavedTensor::output(x)](Backward& back) {
      const Tensor gb = solve_columns("linalg.solve", mt(back.get(a)), back.grad());
      if (back.needs(0)) back.set(0, -matmul(gb, mt(back.get(x))));
      if (back.needs(1)) back.set(1, gb);
    });
  return x;
}
}  // namespace

Tensor solve(const Tensor& a, const Tensor& b) {
  constexpr Op op = "linalg.solve";
  check_square(op, a);
  return call(op, {a, b}, {}, [&](const Tensor& a, const Tensor& b) {
    check_same_type(op, a, b);
    const Shape rows(std::span(a.shape().begin(), static_cast<size_t>(a.dim() - 1)));
    const bool one_column = b.dim() == 1 || b.shape() == rows;
    return one_column ? solve_columns(op, a, b.unsqueeze(-1)).squeeze(-1) : solve_columns(op, a, b);
  });
}

namespace {
Tensor solve_triangles(const char* op, const Tensor& a, const Tensor& b, SolveTriangularOptions options) {
  check_same_type(op, a, b);
  if (!options.left) {  // x a = b is aᵀ xᵀ = bᵀ
    REEL_CHECK(a.size(-1) == b.size(-1), op, ": sizes differ, a ", a.shape(), " and b ", b.shape());
    return mt(solve_triangles(op, mt(a), mt(b), {.upper = !options.upper, .unitriangular = options.unitriangular}));
  }
  REEL_CHECK(a.size(-1) == b.size(-2), op, ": sizes differ, a ", a.shape(), " and b ", b.shape());
  const auto [as, bs] = broadcast_batches(op, a, b);
  const Tensor triangle = batch_of(as);
  const Result solved(bs, {bs.size(-2), bs.size(-1)});
  const Tensor& x = solved.tensor;
  copy_between(bs.device(), view_of(bs), x.device(), view_of(x));
  if (x.numel())
    kernels_of(x).linalg.solve_triangular(options.upper, options.unitriangular, view_of(triangle), solved.batch);
  if (recording(as, bs))
    record(op, x, inputs(as, bs), [a = SavedTensor(as), x = SavedTensor::output(x), options](Backward& back) {
      const Tensor at = mt(back.get(a));
      const Tensor gb =
          solve_triangular(at, back.grad(), {.upper = !options.upper, .unitriangular = options.unitriangular});
      if (back.needs(0)) {
        const Tensor g = -matmul(gb, mt(back.get(x)));
        const int64_t skipped = options.unitriangular ? 1 : 0;
        back.set(0, options.upper ? triu(g, skipped) : tril(g, -skipped));
      }
      if (back.needs(1)) back.set(1, gb);
    });
  return x;
}
}  // namespace

Tensor solve_triangular(const Tensor& a, const Tensor& b, SolveTriangularOptions options) {
  constexpr Op op = "linalg.solve_triangular";
  check_square(op, a);
  check_matrix(op, b);
  return call(op, {a, b}, {}, [&](const Tensor& a, const Tensor& b) { return solve_triangles(op, a, b, options); });
}

namespace {
/// Which singular values count, and the inverse of these; the others are 0.
Tensor inverse_values(const Tensor& s, int64_t m, int64_t n, std::optional<double> rcond) {
  const double epsilon =
      s.dtype() == kFloat64 ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
  const double least = rcond.value_or(epsilon * static_cast<double>(std::max(m, n)));
  return where(s > amax(s, -1, true) * least, 1 / s, 0.);
}
}  // namespace

Tensor pinv(const Tensor& a, std::optional<double> rcond) {
  check_matrix("linalg.pinv", a);
  return call("linalg.pinv", {a}, {}, [&](const Tensor& x) {
    const Tensor y = no_grad([&] {
      const auto [u, s, vh] = svd(x);
      if (!s.numel()) return zeros(shape_with(x, {x.size(-1), x.size(-2)}), {.dtype = x.dtype()});
      return matmul(mt(vh) * inverse_values(s, x.size(-2), x.size(-1), rcond).unsqueeze(-2), mt(u)).contiguous();
    });
    if (recording(x))
      record("linalg.pinv", y, inputs(x), [x = SavedTensor(x), y = SavedTensor::output(y)](Backward& back) {
        const Tensor at = back.get(x), p = back.get(y), pt = mt(p), g = back.grad(), gt = mt(g);
        const Tensor beside = gt - matmul(at, matmul(p, gt)), within = gt - matmul(matmul(gt, p), at);
        back.set(0, matmul(matmul(beside, p), pt) + matmul(matmul(pt, p), within) - matmul(matmul(pt, g), pt));
      });
    return y;
  });
}

Tensor lstsq(const Tensor& a, const Tensor& b, std::optional<double> rcond) {
  constexpr Op op = "linalg.lstsq";
  check_matrix(op, a);
  check_matrix(op, b);
  return call(op, {a, b}, {}, [&](const Tensor& a, const Tensor& b) {
    check_same_type(op, a, b);
    REEL_CHECK(a.size(-2) == b.size(-2), op, ": sizes differ, a ", a.shape(), " and b ", b.shape());
    return matmul(pinv(a, rcond), b);
  });
}

Tensor matrix_rank(const Tensor& a, std::optional<double> rcond) {
  check_matrix("linalg.matrix_rank", a);
  const NoGrad guard;
  return call("linalg.matrix_rank", {a}, {}, [&](const Tensor& a) {
    const Tensor s = svdvals(a);
    if (!s.numel()) return zeros(shape_with(a, {}), {.dtype = kInt64});
    return sum(inverse_values(s, a.size(-2), a.size(-1), rcond) != 0, -1);
  });
}

// ---- norms and powers -----------------------------------------------------------------------------------------------

Tensor vector_norm(const Tensor& x, double ord, const Dims& dims, bool keepdim) {
  REEL_CHECK(is_floating_point(view_of(x, "linalg.vector_norm").dtype), "linalg.vector_norm: a tensor of ", x.dtype(),
             "; convert it to a floating type first");
  return call("linalg.vector_norm", {x}, {}, [&](const Tensor& x) { return norm(x, ord, dims, keepdim); });
}

Tensor matrix_norm(const Tensor& a, MatrixNorm ord, bool keepdim) {
  check_matrix("linalg.matrix_norm", a);
  return call("linalg.matrix_norm", {a}, {}, [&](const Tensor& a) {
    if (ord == MatrixNorm::kFrobenius) return norm(a, 2, {-2, -1}, keepdim);
    const Tensor y = sum(svdvals(a), -1);
    return keepdim ? y.unsqueeze(-1).unsqueeze(-1) : y;
  });
}

Tensor matrix_norm(const Tensor& a, double ord, bool keepdim) {
  check_matrix("linalg.matrix_norm", a);
  const double size = std::abs(ord);
  REEL_CHECK(size == 1 || size == 2 || size == kInfinity, "linalg.matrix_norm: ord ", ord,
             " is none of 1, -1, 2, -2, inf, -inf");
  return call("linalg.matrix_norm", {a}, {}, [&](const Tensor& a) {
    Tensor values = size == 2 ? svdvals(a) : sum(abs(a), size == 1 ? -2 : -1);
    // The largest of none is 0, as sums of none are.
    values = ord < 0 ? amin(values, -1) : values.size(-1) ? amax(values, -1) : sum(values, -1);
    return keepdim ? values.unsqueeze(-1).unsqueeze(-1) : values;
  });
}

Tensor matrix_power(const Tensor& a, int64_t n) {
  constexpr Op op = "linalg.matrix_power";
  check_square(op, a);
  return call(op, {a}, {}, [&](const Tensor& a) {
    if (n == 0) {
      const Tensor y = eye_like(a, a.size(-1)).expand(a.shape()).clone();
      record_constant(op, y, a);
      return y;
    }
    Tensor square = n < 0 ? inv(a) : a, result;
    for (uint64_t rest = n < 0 ? -static_cast<uint64_t>(n) : static_cast<uint64_t>(n); rest; rest >>= 1) {
      if (rest & 1) result = result.defined() ? matmul(result, square) : square.clone();
      if (rest > 1) square = matmul(square, square);
    }
    return result;
  });
}

}  // namespace reel::linalg
