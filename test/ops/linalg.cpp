#include <catch2/catch.hpp>
#include <utility>

#include "reel/autograd.h"
#include "reel/testing.h"
#include "test/support/op_rows.h"
#include "test/support/wrong_calls.h"

namespace reel {

namespace {

// ---- plain arithmetic on one matrix at a time, to compare with ------------------------------------------------------

/// f(matrix) for every matrix of a batch, put together again.
Array each(const Array& x, const std::function<Array(const Array&)>& f) {
  const int64_t m = x.shape[x.shape.size() - 2], n = x.shape.back();
  Array y;
  y.shape = x.shape;
  y.shape.resize(x.shape.size() - 2);
  Shape last;
  for (size_t at = 0; at < x.data.size(); at += static_cast<size_t>(m * n)) {
    const Array part = f({{m, n}, Line(x.data.begin() + at, x.data.begin() + at + m * n)});
    y.data.insert(y.data.end(), part.data.begin(), part.data.end());
    last = part.shape;
  }
  for (const int64_t size : last) y.shape.push_back(size);
  return y;
}
Array transposed(const Array& x) {
  return build({x.shape[1], x.shape[0]}, [&](const Index& at) { return x({at[1], at[0]}); });
}
Array plus_diagonal(const Array& x, double first, double step) {
  return build(x.shape, [&](const Index& at) {
    const int64_t r = at[at.size() - 2], c = at[at.size() - 1];
    return x(at) + (r == c ? first + step * static_cast<double>(r) : 0);
  });
}
/// Gauss-Jordan elimination with pivots: a⁻¹ b, and det(a).
std::pair<Array, double> eliminate(Array a, Array b) {
  const int64_t n = a.shape[0], k = b.shape[1];
  double det = 1;
  for (int64_t c = 0; c < n; ++c) {
    int64_t pivot = c;
    for (int64_t r = c + 1; r < n; ++r)
      if (std::abs(a({r, c})) > std::abs(a({pivot, c}))) pivot = r;
    if (pivot != c) det = -det;
    for (int64_t j = 0; j < n; ++j) std::swap(a.data[c * n + j], a.data[pivot * n + j]);
    for (int64_t j = 0; j < k; ++j) std::swap(b.data[c * k + j], b.data[pivot * k + j]);
    const double p = a({c, c});
    det *= p;
    if (p == 0) return {b, 0};
    for (int64_t r = 0; r < n; ++r) {
      if (r == c) continue;
      const double f = a({r, c}) / p;
      for (int64_t j = 0; j < n; ++j) a.data[r * n + j] -= f * a.data[c * n + j];
      for (int64_t j = 0; j < k; ++j) b.data[r * k + j] -= f * b.data[c * k + j];
    }
    for (int64_t j = 0; j < n; ++j) a.data[c * n + j] /= p;
    for (int64_t j = 0; j < k; ++j) b.data[c * k + j] /= p;
  }
  return {b, det};
}
Array identity(int64_t n) {
  return build({n, n}, [](const Index& at) { return double(at[0] == at[1]); });
}
Array inverse(const Array& a) { return eliminate(a, identity(a.shape[0])).first; }
double determinant(const Array& a) { return eliminate(a, identity(a.shape[0])).second; }
Array lower_factor(const Array& a) {  // Cholesky
  Array l{a.shape, Line(a.data.size())};
  const int64_t n = a.shape[0];
  for (int64_t r = 0; r < n; ++r)
    for (int64_t c = 0; c <= r; ++c) {
      double rest = a({r, c});
      for (int64_t k = 0; k < c; ++k) rest -= l({r, k}) * l({c, k});
      l.data[r * n + c] = r == c ? std::sqrt(rest) : rest / l({c, c});
    }
  return l;
}
/// Eigenvalues, ascending, and the absolute values of the eigenvectors' elements, by Jacobi's rotations.
std::pair<Line, Array> eigen(Array a) {
  const int64_t n = a.shape[0];
  Array v = identity(n);
  for (int sweep = 0; sweep < 60; ++sweep)
    for (int64_t p = 0; p < n; ++p)
      for (int64_t q = p + 1; q < n; ++q) {
        if (a({p, q}) == 0) continue;
        const double theta = (a({q, q}) - a({p, p})) / (2 * a({p, q}));
        const double t = (theta < 0 ? -1 : 1) / (std::abs(theta) + std::sqrt(theta * theta + 1));
        const double c = 1 / std::sqrt(t * t + 1), s = t * c;
        for (int64_t k = 0; k < n; ++k) {
          const double x = a({k, p}), y = a({k, q}), u = v({k, p}), w = v({k, q});
          a.data[k * n + p] = c * x - s * y, a.data[k * n + q] = s * x + c * y;
          v.data[k * n + p] = c * u - s * w, v.data[k * n + q] = s * u + c * w;
        }
        for (int64_t k = 0; k < n; ++k) {
          const double x = a({p, k}), y = a({q, k});
          a.data[p * n + k] = c * x - s * y, a.data[q * n + k] = s * x + c * y;
        }
      }
  Line values;
  for (int64_t k = 0; k < n; ++k) values.push_back(a({k, k}));
  const Line order = ref::order(values);
  Array vectors = build({n, n}, [&](const Index& at) {
    return std::abs(v({at[0], static_cast<int64_t>(order[at[1]])}));
  });
  return {ref::sorted(values), vectors};
}
/// The k largest singular values, descending, and |U|.
std::pair<Line, Array> singular(const Array& a) {
  auto [values, vectors] = eigen(ref::matmul(a, transposed(a)));
  const int64_t n = a.shape[0];
  std::reverse(values.begin(), values.end());
  values.resize(static_cast<size_t>(std::min(a.shape[0], a.shape[1])));
  for (double& v : values) v = std::sqrt(v);
  const Array& all = vectors;
  return {values, build({n, static_cast<int64_t>(values.size())}, [&](const Index& at) {
            return all({at[0], n - 1 - at[1]});
          })};
}
Array line_of(const Line& values) { return {{static_cast<int64_t>(values.size())}, values}; }
/// Gram & Schmidt: R with a positive diagonal.
Array upper_factor(const Array& a) { return transposed(lower_factor(ref::matmul(transposed(a), a))); }

// ---- well-conditioned inputs out of any
// ------------------------------------------------------------------------------

/// Half types are made float32 first, so that only the inputs are rounded.
Tensor wide(const Tensor& x) { return is_half(x.dtype()) ? x.to(kFloat32) : x; }
Tensor mt(const Tensor& x) { return x.transpose(-2, -1); }
Tensor shifted(const Tensor& x, double first, double step = 0) {
  const Tensor y = wide(x);
  const int64_t m = x.size(-2), n = x.size(-1);
  const TensorOptions like{.dtype = y.dtype(), .device = y.device()};
  return y + eye(m, n, like) * (first + step * arange(n, like));
}
Array shifted(const Array& x, double first, double step = 0) { return plus_diagonal(x, first, step); }
Tensor positive(const Tensor& x) { return shifted(matmul(wide(x), mt(wide(x))), 2); }
Array positive(const Array& x) {
  return each(x, [](const Array& a) { return plus_diagonal(ref::matmul(a, transposed(a)), 2, 0); });
}
Tensor symmetric(const Tensor& x) { return shifted(wide(x) + mt(wide(x)), 0, 4); }
Array symmetric(const Array& x) {
  return each(x, [](const Array& a) {
    return plus_diagonal(build(a.shape, [&](const Index& at) { return a(at) + a({at[1], at[0]}); }), 0, 4);
  });
}

/// The signs of R's diagonal: with them QR is unique.
Tensor signs(const Tensor& r) { return sign(diagonal(r.detach(), 0, -2, -1)); }

const Input kSquares{{2, 3, 3}, -1, 1}, kTall{{2, 4, 3}, -0.5, 0.5}, kFlat{{2, 3, 4}, -0.5, 0.5};
const Traits kSolves{.tolerance = 32}, kFactors{.tolerance = 64};

}  // namespace

// clang-format off
const std::vector<Row>& linalg_rows() {
  using namespace linalg;
  static const std::vector<Row> rows{

{"inv", [](In x) { return inv(shifted(x[0], 5)).to(x[0].dtype()); },
 [](Ref x) { return each(shifted(x[0], 5), inverse); }, {kSquares}, kSolves},
{"det", [](In x) { return det(shifted(x[0], 2)).to(x[0].dtype()); },
 [](Ref x) { return each(shifted(x[0], 2), [](const Array& a) { return Array{{}, {determinant(a)}}; }); }, {kSquares}, kSolves},
{"slogdet", [](In x) { return slogdet(shifted(x[0], -5)).logabsdet.to(x[0].dtype()); },
 [](Ref x) {
   return each(shifted(x[0], -5), [](const Array& a) { return Array{{}, {std::log(std::abs(determinant(a)))}}; });
 },
 {kSquares}, kSolves},
{"slogdet(sign)", [](In x) { return slogdet(shifted(x[0], -5)).sign.to(x[0].dtype()); },
 [](Ref x) { return each(shifted(x[0], -5), [](const Array& a) { return Array{{}, {determinant(a) < 0 ? -1. : 1.}}; }); },
 {kSquares}, {.differentiable = false}},
{"cholesky", [](In x) { return cholesky(positive(x[0])).to(x[0].dtype()); },
 [](Ref x) { return each(positive(x[0]), lower_factor); }, {kSquares}, kSolves},
{"cholesky(upper)", [](In x) { return cholesky(positive(x[0]), true).to(x[0].dtype()); },
 [](Ref x) { return transposed(lower_factor(positive(x[0]))); }, {{{3, 3}, -1, 1}}, kSolves},
{"qr", [](In x) { const auto [q, r] = qr(shifted(x[0], 3, 3)); return matmul(q, r).to(x[0].dtype()); },
 [](Ref x) { return shifted(x[0], 3, 3); }, {kTall}, kSolves},
{"qr(r)", [](In x) { const Tensor r = qr(shifted(x[0], 3, 3)).r; return (signs(r).unsqueeze(-1) * r).to(x[0].dtype()); },
 [](Ref x) { return each(shifted(x[0], 3, 3), upper_factor); }, {kTall}, kFactors},
{"qr(q)", [](In x) { const auto [q, r] = qr(shifted(x[0], 3, 3)); return (q * signs(r).unsqueeze(-2)).to(x[0].dtype()); },
 [](Ref x) {
   return each(shifted(x[0], 3, 3), [](const Array& a) { return ref::matmul(a, inverse(upper_factor(a))); });
 },
 {kTall}, kFactors},
{"qr(flat)", [](In x) { const auto [q, r] = qr(shifted(x[0], 3, 3)); return (signs(r.narrow(-1, 0, 3)).unsqueeze(-1) * r).to(x[0].dtype()); },
 [](Ref x) {
   return each(shifted(x[0], 3, 3), [](const Array& a) {
     const Array left = build({3, 3}, a), r = upper_factor(left);
     return ref::matmul(transposed(ref::matmul(left, inverse(r))), a);
   });
 },
 {kFlat}, kFactors},
{"svd", [](In x) {
   const auto [u, s, vh] = svd(shifted(x[0], 3, 3));
   return matmul(u * s.unsqueeze(-2), vh).to(x[0].dtype());
 },
 [](Ref x) { return shifted(x[0], 3, 3); }, {kTall}, kSolves},
{"svd(u)", [](In x) { return abs(svd(shifted(x[0], 3, 3)).u).to(x[0].dtype()); },
 [](Ref x) { return each(shifted(x[0], 3, 3), [](const Array& a) { return singular(a).second; }); }, {kTall}, kFactors},
{"svd(vh)", [](In x) { return abs(svd(shifted(x[0], 3, 3)).vh).to(x[0].dtype()); },
 [](Ref x) {
   return each(shifted(x[0], 3, 3), [](const Array& a) { return transposed(singular(transposed(a)).second); });
 },
 {kFlat}, kFactors},
{"svdvals", [](In x) { return svdvals(shifted(x[0], 3, 3)).to(x[0].dtype()); },
 [](Ref x) { return each(shifted(x[0], 3, 3), [](const Array& a) { return line_of(singular(a).first); }); }, {kFlat},
 kFactors},
{"eigh", [](In x) { return abs(eigh(symmetric(x[0])).eigenvectors).to(x[0].dtype()); },
 [](Ref x) { return each(symmetric(x[0]), [](const Array& a) { return eigen(a).second; }); },
 {{{2, 3, 3}, -0.5, 0.5}}, kFactors},
{"eigvalsh", [](In x) { return eigvalsh(symmetric(x[0])).to(x[0].dtype()); },
 [](Ref x) { return each(symmetric(x[0]), [](const Array& a) { return line_of(eigen(a).first); }); },
 {{{2, 3, 3}, -0.5, 0.5}}, kFactors},
{"solve", [](In x) { return solve(shifted(x[0], 5), wide(x[1])).to(x[0].dtype()); },
 [](Ref x) { return eliminate(shifted(x[0], 5), x[1]).first; }, {{{3, 3}, -1, 1}, {{3, 2}}}, kSolves},
{"solve(broadcast)", [](In x) { return solve(shifted(x[0], 5), wide(x[1])).to(x[0].dtype()); },
 [](Ref x) { return each(x[1], [&](const Array& b) { return eliminate(shifted(x[0], 5), b).first; }); },
 {{{3, 3}, -1, 1}, {{2, 3, 2}}}, kSolves},
{"solve(vector)", [](In x) { return solve(shifted(x[0], 5), wide(x[1])).to(x[0].dtype()); },
 [](Ref x) { return Array{{3}, eliminate(shifted(x[0], 5), {{3, 1}, x[1].data}).first.data}; },
 {{{3, 3}, -1, 1}, {{3}}}, kSolves},
{"solve_triangular", [](In x) { return solve_triangular(shifted(x[0], 3), wide(x[1]), {.upper = true}).to(x[0].dtype()); },
 [](Ref x) {
   const Array a = shifted(x[0], 3);
   return eliminate(build(a.shape, [&](const Index& at) { return at[0] <= at[1] ? a(at) : 0; }), x[1]).first;
 },
 {{{3, 3}, -1, 1}, {{3, 2}}}, kSolves},
{"solve_triangular(right)", [](In x) {
   return solve_triangular(wide(x[0]), wide(x[1]), {.upper = false, .left = false, .unitriangular = true}).to(x[0].dtype());
 },
 [](Ref x) {
   const Array a = build({3, 3}, [&](const Index& at) { return at[0] > at[1] ? x[0](at) : double(at[0] == at[1]); });
   return ref::matmul(x[1], inverse(a));
 },
 {{{3, 3}, -1, 1}, {{2, 3}}}, kSolves},
{"lstsq", [](In x) { return lstsq(shifted(x[0], 3, 3), wide(x[1])).to(x[0].dtype()); },
 [](Ref x) {
   const Array a = shifted(x[0], 3, 3), at = transposed(a);
   return eliminate(ref::matmul(at, a), ref::matmul(at, x[1])).first;
 },
 {{{4, 3}, -0.5, 0.5}, {{4, 2}}}, kFactors},
{"pinv", [](In x) { return pinv(shifted(x[0], 3, 3)).to(x[0].dtype()); },
 [](Ref x) {
   return each(shifted(x[0], 3, 3), [](const Array& a) {
     return ref::matmul(transposed(a), inverse(ref::matmul(a, transposed(a))));
   });
 },
 {kFlat}, kFactors},
{"matrix_rank", [](In x) { return matrix_rank(matmul(wide(x[0]).unsqueeze(1), wide(x[0]).unsqueeze(0))); },
 [](Ref) { return Array{{}, {1}}; }, {{{3}, 1, 2}}, {.floats_give = Result::kInt64, .differentiable = false}},
{"vector_norm", [](In x) { return vector_norm(x[0], 3, {0, 2}); },
 [](Ref x) { return fold(x[0], {0, 2}, [](const Line& v) { return ref::norm(v, 3); }); }, {{kCube}}, kProduct},
{"vector_norm(0)", [](In x) { return vector_norm(x[0], 0, 1); },
 [](Ref x) { return fold(x[0], {1}, [](const Line& v) { return double(v.size()) - double(std::count(v.begin(), v.end(), 0)); }); },
 {{kCube, -1, 1, Input::kWholeNumbers}}, {.differentiable = false}},
{"vector_norm(-inf)", [](In x) { return vector_norm(x[0], -linalg::kInfinity, 1); },
 [](Ref x) { return fold(x[0], {1}, [](Line v) { for (double& e : v) e = std::abs(e); return ref::smallest(v); }); },
 {{kCube}}},
{"matrix_norm", [](In x) { return matrix_norm(x[0]); },
 [](Ref x) { return fold(x[0], {1, 2}, [](const Line& v) { return ref::norm(v, 2); }); }, {{kCube}}, kProduct},
{"matrix_norm(nuclear)", [](In x) { return matrix_norm(shifted(x[0], 3, 3), linalg::kNuclear).to(x[0].dtype()); },
 [](Ref x) { return each(shifted(x[0], 3, 3), [](const Array& a) { return Array{{}, {ref::total(singular(a).first)}}; }); },
 {kTall}, kFactors},
{"matrix_norm(2)", [](In x) { return matrix_norm(shifted(x[0], 3, 3), 2).to(x[0].dtype()); },
 [](Ref x) { return each(shifted(x[0], 3, 3), [](const Array& a) { return Array{{}, {singular(a).first[0]}}; }); },
 {kTall}, kFactors},
{"matrix_norm(1)", [](In x) { return matrix_norm(x[0], 1, true); },
 [](Ref x) {
   return fold(fold(x[0], {1}, [](const Line& v) { return ref::norm(v, 1); }, true), {1, 2}, ref::largest, true);
 },
 {{kCube}}, kProduct},
{"matrix_power", [](In x) { return matrix_power(x[0], 3); },
 [](Ref x) { return ref::matmul(x[0], ref::matmul(x[0], x[0])); }, {kSquares}, kSolves},
{"matrix_power(-2)", [](In x) { return matrix_power(shifted(x[0], 5), -2).to(x[0].dtype()); },
 [](Ref x) { return each(shifted(x[0], 5), [](const Array& a) { return ref::matmul(inverse(a), inverse(a)); }); },
 {kSquares}, kSolves},
{"matrix_power(0)", [](In x) { return matrix_power(x[0], 0); }, [](Ref x) { return each(x[0], [](const Array&) { return identity(3); }); },
 {kSquares}, {.differentiable = false}},
};
  return rows;
}
// clang-format on

TEST_CASE("the determinant of a singular matrix has a gradient", "[ops]") {
  // Rank 2: the matrix of cofactors is not zero.
  const Tensor a = tensor({{1., 2., 3.}, {4., 5., 6.}, {7., 8., 9.}}, {.dtype = kFloat64}).requires_grad_();
  const Tensor d = linalg::det(a);
  CHECK(std::abs(d.item<double>()) < 1e-12);
  const Tensor zero = tensor({{1., 2., 0.}, {3., 4., 0.}, {5., 6., 0.}}, {.dtype = kFloat64}).requires_grad_();
  const Tensor e = linalg::det(zero);
  CHECK(e.item<double>() == 0);
  testing::assert_close(grad({e}, {zero})[0], tensor({{0., 0., -2.}, {0., 0., 4.}, {0., 0., -2.}}, {.dtype = kFloat64}),
                        {.atol = 1e-12});
}

TEST_CASE("the determinant of a matrix that is singular, but for rounding, has derivatives of any order", "[ops]") {
  const auto d = [](const Tensors& in) { return linalg::det(in[0]); };
  const Tensor ones_below = tensor({{-1.39, -1.39}, {-0.89, -0.89}}, {.dtype = kFloat64});
  const Tensor rank_2 = tensor({{1., 2., 3.}, {4., 5., 6.}, {7., 8., 9.}}, {.dtype = kFloat64});
  const Tensor rank_1 = outer(rank_2[0], rank_2[1]), nothing = zeros({2, 2}, kFloat64);
  for (const Tensor& a : {ones_below, rank_2, rank_1, nothing, eye(4, {}, {.dtype = kFloat64}),
                          stack({rank_2, rank_1, eye(3, {}, {.dtype = kFloat64})}), zeros({1, 1}, kFloat64)})
    testing::gradgradcheck(d, {a});

  // Beyond the size of the recurrence, repeated values, and a regular matrix beside them.
  const Tensor i = eye(26, {}, {.dtype = kFloat64}), but_one = i.clone();
  but_one[25][25].fill_(0);
  for (const Tensor& a : {but_one, zeros({26, 26}, kFloat64), stack({i, but_one})})
    testing::gradgradcheck(d, {a}, {.fast = true});

  // Rows of all sizes, and values that decay: the gradient is the one without a graph.
  const Tensor units = exp2(arange(6).to(kFloat64) * 3), n = arange(8).to(kFloat64);
  const Tensor hilbert = 1 / (n.unsqueeze(1) + n + 1);
  const Tensor vandermonde = pow(n.unsqueeze(1) + 1, n);
  const Tensor scaled = (eye(6, {}, {.dtype = kFloat64}) + 0.5) * units.unsqueeze(1) * square(units);
  for (const Tensor& a : {diag(tensor({1e6, 1.3e-3, 1.7}, {.dtype = kFloat64})), hilbert, vandermonde, scaled}) {
    const Tensor at = a.clone().requires_grad_(), y = linalg::det(at);
    const Tensor plain = grad({y}, {at}, {}, {.retain_graph = true})[0];
    const Tensor recorded = grad({y}, {at}, {}, {.create_graph = true})[0];
    testing::assert_close(recorded.detach() / plain, ones_like(a).masked_fill(plain == 0, std::nan("")),
                          {.rtol = 1e-5, .equal_nan = true});
  }

  // One that is no number leaves those beside it alone.
  Tensor odd = stack({rank_2, rank_2}).clone();
  odd[1][0][0].fill_(std::nan(""));
  odd.requires_grad_();
  const Tensor of_odd = grad({linalg::det(odd)}, {odd}, {ones({2}, kFloat64)}, {.create_graph = true})[0];
  CHECK(all(isfinite(of_odd[0])).item<bool>());
  CHECK(!any(isfinite(of_odd[1])).item<bool>());

  // Where the value leaves the range of its dtype.
  for (const double size : {1e-20, 1e25}) {
    const Tensor at = (eye(2) * size).requires_grad_();
    testing::assert_close(grad({linalg::det(at)}, {at})[0] / size, eye(2));
  }

  const Tensor x = ones_below.to(kFloat32).requires_grad_(), weight = tensor({{1., 2.}, {3., 4.}});
  const Tensor slope = grad({linalg::det(x)}, {x}, {}, {.create_graph = true})[0];
  testing::assert_close(grad({slope}, {x}, {weight})[0], tensor({{4., -3.}, {-2., 1.}}));
}

TEST_CASE("one equation of a batch of them keeps its dimensions", "[ops]") {
  CHECK(linalg::solve(full({1, 1, 1}, 2.), full({1}, 6.)).shape() == Shape{1, 1});
  CHECK(linalg::solve(full({2, 1, 1}, 2.), full({2, 1}, 6.)).shape() == Shape{2, 1});
  CHECK(linalg::solve(full({2, 2, 2}, 1.) + eye(2), full({2, 2}, 6.)).shape() == Shape{2, 2});
}

TEST_CASE("matrices of NaN or infinity have no factors", "[ops]") {
  const double nan = std::nan(""), inf = INFINITY;
  for (const Tensor& a : {tensor({{nan, 1.}, {2., 3.}}), tensor({{inf, 0.}, {0., 1.}})}) {
    CHECK_THROWS_WITH(linalg::eigvalsh(a), Catch::Contains("holds NaN or infinity"));
    CHECK_THROWS_WITH(linalg::svdvals(a), Catch::Contains("holds NaN or infinity"));
  }
  CHECK_NOTHROW(linalg::eigvalsh(tensor({{1., nan}, {2., 3.}})));  // of the upper triangle nothing is read
}

TEST_CASE("factors are orthonormal and complete where asked for", "[ops]") {
  const Tensor a = randn({5, 3}, {.dtype = kFloat64}), i = eye(5, {}, {.dtype = kFloat64});
  const auto [q, r] = linalg::qr(a, linalg::kComplete);
  testing::assert_close(matmul(q.t(), q), i);
  testing::assert_close(matmul(q, r), a);
  const auto [u, s, vh] = linalg::svd(a, true);
  CHECK(u.shape() == Shape({5, 5}));
  CHECK(vh.shape() == Shape({3, 3}));
  testing::assert_close(matmul(u.t(), u), i);
  testing::assert_close(matmul(u.narrow(1, 0, 3) * s, vh), a);
  const Tensor p = linalg::pinv(outer(a[0], a[1]));  // of rank 1
  testing::assert_close(p, outer(a[1], a[0]) / (dot(a[0], a[0]) * dot(a[1], a[1])));
}

TEST_CASE("an infinite gradient of a singular value or an eigenvalue is infinite along its vectors", "[ops]") {
  const Tensor a = tensor({{3., 0.}, {0., 2.}});
  for (Tensor (*const values)(const Tensor&) : {linalg::svdvals, linalg::eigvalsh}) {
    const Tensor x = a.clone().requires_grad_();
    const Tensor y = values(x), towards = where(y == 3, INFINITY, 1.);
    const Tensor g = grad({y}, {x}, {towards.to(y.dtype())})[0];
    CHECK(g[0][0].item<double>() == INFINITY);
    CHECK(g[1][1].item<double>() != g[1][1].item<double>());  // 0 times infinity beside it
  }
}

TEST_CASE("matrices without elements have inverses and determinants", "[ops]") {
  CHECK(linalg::inv(zeros({2, 0, 0})).shape() == Shape({2, 0, 0}));
  CHECK(linalg::det(zeros({0, 0})).item<double>() == 1);
  CHECK(linalg::det(zeros({0, 3, 3})).shape() == Shape({0}));
  CHECK(linalg::svdvals(zeros({0, 3})).shape() == Shape({0}));
  CHECK(equal(linalg::svd(zeros({2, 3, 0}), true).u, eye(3).expand({2, 3, 3})));
  CHECK(equal(linalg::svd(zeros({0, 2}), true).vh, eye(2)));
}

TEST_CASE("a batch of matrices is solved for a batch of vectors", "[ops]") {
  const Tensor a = randn({3, 3, 3}, {.dtype = kFloat64}), b = randn({3, 3}, {.dtype = kFloat64});
  const Tensor x = linalg::solve(a, b);
  CHECK(x.shape() == Shape{3, 3});
  testing::assert_close(matmul(a, x.unsqueeze(-1)).squeeze(-1), b);
}

TEST_CASE("the first power of a matrix is not the matrix itself", "[ops]") {
  const Tensor a = ones({2, 2});
  linalg::matrix_power(a, 1).fill_(9);
  CHECK(equal(a, ones({2, 2})));
}

TEST_CASE("linear algebra says what is wrong", "[errors]") {
  static const WrongCall calls[] = {
      {[](World& w) { linalg::inv(w.matrix); }, "linalg.inv: matrices of shape [3, 4] are not square"},
      {[](World& w) { linalg::inv(w.vector); }, "linalg.inv: a tensor of shape [3], not a matrix or a batch of them"},
      {[](World& w) { linalg::det(w.ids); }, "linalg.det: a tensor of int64; convert it to a floating type first"},
      {[](World&) {
         linalg::inv(zeros({2, 3, 3}));
       },
       "linalg.inv: matrix 0 of the batch is singular"},
      {[](World&) { linalg::cholesky(-eye(2)); }, "linalg.cholesky: matrix 0 of the batch is not positive definite"},
      {[](World&) {
         linalg::solve(eye(3), ones({2, 1}));
       },
       "linalg.solve: sizes differ, a [3, 3] and b [2, 1]"},
      {[](World&) {
         linalg::solve(ones({2, 2}), ones({2, 0}));
       },
       "linalg.solve: matrix 0 of the batch is singular"},
      {[](World& w) { linalg::solve(w.doubles.narrow(0, 0, 3), w.vector); },
       "linalg.solve: operands of different types, float64 and float32"},
      {[](World& w) { linalg::matrix_norm(w.matrix, 3.); },
       "linalg.matrix_norm: ord 3 is none of 1, -1, 2, -2, inf, -inf"},
      {[](World& w) {
         einsum("ij,jk", {w.matrix, w.matrix});
       },
       "einsum: 'j' has size 4 and 3"},
      {[](World& w) { einsum("ijk", {w.matrix}); }, "einsum: \"ijk\" names 3 dimensions, operand 0 has shape [3, 4]"},
      {[](World& w) { einsum("ij->k", {w.matrix}); }, "einsum: no operand has the result's 'k', \"ij->k\""},
      {[](World& w) {
         einsum("ij", {w.matrix, w.matrix});
       },
       "einsum: \"ij\" has 1 operands, given 2"},
      {[](World& w) { einsum("ij,jk", {w.matrix}); }, "einsum: \"ij,jk\" has more operands than the 1 given"},
      {[](World& w) { tensordot(w.matrix, w.matrix, 1); },
       "tensordot: dimension 1 of [3, 4] and dimension 0 of [3, 4] differ"},
      {[](World& w) { mv(w.matrix, w.matrix); }, "mv: expected a matrix and a vector, got shapes [3, 4] and [3, 4]"},
  };
  check_wrong_calls(calls);
}

TEST_CASE("the additional columns and rows of full matrices have gradients", "[ops]") {
  const auto projection = [](const Tensor& basis) { return matmul(basis, basis.transpose(-1, -2)); };
  const auto tall = [&](const std::vector<Tensor>& x) {
    const auto [u, s, vh] = linalg::svd(x[0], true);
    return projection(u.narrow(-1, 3, 2)) + projection(u.narrow(-1, 0, 1));
  };
  const auto flat = [&](const std::vector<Tensor>& x) {
    const auto [u, s, vh] = linalg::svd(x[0], true);
    const Tensor v = vh.transpose(-1, -2);
    return projection(v.narrow(-1, 3, 2)) + projection(v.narrow(-1, 0, 1));
  };
  const TensorOptions options{.dtype = kFloat64, .requires_grad = true};
  testing::gradcheck(tall, {randn({2, 5, 3}, options)});
  testing::gradcheck(flat, {randn({2, 3, 5}, options)});
  testing::gradgradcheck(tall, {randn({5, 3}, options)});
  testing::gradgradcheck(flat, {randn({3, 5}, options)});
}

TEST_CASE("values without vectors are those with them", "[ops]") {
  for (const DType dtype : {kFloat32, kFloat64})
    for (const auto& [m, n] : {std::pair<int64_t, int64_t>{1, 1}, {3, 7}, {7, 3}, {40, 40}, {0, 3}}) {
      INFO(dtype << ", " << m << " x " << n);
      const Tensor a = randn({2, m, n}).to(dtype), recorded = a.detach().clone().requires_grad_();
      testing::assert_close(linalg::svdvals(a), linalg::svd(a, false).s);
      testing::assert_close(linalg::svdvals(a), linalg::svdvals(recorded).detach());
      if (m != n) continue;
      // The upper triangle is not read.
      const Tensor lower = where(triu(ones({m, m}), 1) > 0, double{NAN}, a);
      testing::assert_close(linalg::eigvalsh(lower), linalg::eigh(lower).eigenvalues);
    }
  CHECK_THROWS_WITH(linalg::svdvals(full({2, 2}, double{NAN})),
                    Catch::Contains("linalg.svd: matrix 0 of the batch holds NaN or infinity"));
}

TEST_CASE("a determinant out of the range of its dtype has the gradient of its logarithm, times it", "[ops]") {
  for (const double scale : {1e-3, 1e3}) {
    INFO("scale " << scale);
    const Tensor a = ((eye(40) + 0.1 * randn({40, 40})) * scale).requires_grad_();
    const Tensor g = grad({linalg::det(a)}, {a})[0];
    const Tensor wide = a.detach().to(kFloat64).requires_grad_();
    CHECK(allclose(g, grad({linalg::det(wide)}, {wide})[0].to(kFloat32), 1e-3, 0, true));
  }
  // The determinant is 1e-42, but the cofactor of the smallest element is not that small.
  const Tensor b = diag(tensor({1e-21f, 1e-18f, 1e-3f})).requires_grad_();
  CHECK(grad({linalg::det(b)}, {b})[0][0][0].item<double>() == Approx(1e-21).epsilon(1e-4));
}

}  // namespace reel
