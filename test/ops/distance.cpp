#include <array>
#include <catch2/catch.hpp>

#include "reel/autograd.h"
#include "reel/memory.h"
#include "reel/random.h"
#include "reel/testing.h"
#include "test/support/op_rows.h"
#include "test/support/wrong_calls.h"

namespace reel {
namespace {

double distance(const Array& a, const Array& b, Index i, Index j, double p, double eps) {
  Line gaps;
  for (int64_t k = 0; k < a.shape.back(); ++k)
    gaps.push_back(a(with(i, i.size() - 1, double(k))) - b(with(j, j.size() - 1, double(k))) + eps);
  return ref::norm(gaps, p);
}
double cosine(const Line& a, const Line& b, double eps) {
  double product = 0;
  for (size_t k = 0; k < a.size(); ++k) product += a[k] * b[k];
  return product / (std::max(ref::norm(a, 2), eps) * std::max(ref::norm(b, 2), eps));
}
Line line_of(const Array& x, Index at, int dim) {
  Line line;
  for (int64_t k = 0; k < x.shape[dim]; ++k) line.push_back(x(with(at, dim, double(k))));
  return line;
}

}  // namespace

// clang-format off
const std::vector<Row>& distance_rows() {
  static const std::vector<Row> rows{

{"cosine_similarity", [](In x) { return cosine_similarity(x[0], x[1]); },
 [](Ref x) {
   return build({2, 4}, [&](Index at) {
     at.insert(1, 0);
     return cosine(line_of(x[0], at, 1), line_of(x[1], at, 1), 1e-8);
   });
 },
 {{kCube}, {kCube}}, kProduct},
{"cosine_similarity(broadcast)", [](In x) { return cosine_similarity(x[0], x[1], -1, 2.5); },
 [](Ref x) { return build({3}, [&](const Index& at) { return cosine(line_of(x[0], {at[0], 0}, 1), x[1].data, 2.5); }); },
 {{kMatrix}, {{4}}}, kProduct},
{"pairwise_distance", [](In x) { return pairwise_distance(x[0], x[1]); },
 [](Ref x) {
   return build({3}, [&](const Index& at) { return distance(x[0], x[1], {at[0], 0}, {at[0], 0}, 2, 1e-6); });
 },
 {{kMatrix}, {kMatrix, -3, 1}}, kProduct},
{"pairwise_distance(p)", [](In x) { return pairwise_distance(x[0], x[1], {.p = 1, .eps = 0.01, .keepdim = true}); },
 [](Ref x) { return build({3, 1}, [&](const Index& at) { return distance(x[0], x[1], {at[0], 0}, {0}, 1, 0.01); }); },
 {{kMatrix}, {{4}, -3, 1}}, kProduct},
{"cdist", [](In x) { return cdist(x[0], x[1]); },
 [](Ref x) {
   return build({2, 3, 2}, [&](const Index& at) {
     return distance(x[0], x[1], {at[0], at[1], 0}, {at[0], at[2], 0}, 2, 0);
   });
 },
 {{kCube}, {{2, 2, 4}, -3, 1}}, kProduct},
{"cdist(p)", [](In x) { return cdist(x[0], x[1], 1.5); },
 [](Ref x) {
   return build({2, 3, 5}, [&](const Index& at) { return distance(x[0], x[1], {at[0], at[1], 0}, {at[2], 0}, 1.5, 0); });
 },
 {{kCube}, {{5, 4}, -3, 1}}, kProduct},
{"cdist(largest)", [](In x) { return cdist(x[0], x[1], INFINITY); },
 [](Ref x) {
   return build({3, 2}, [&](const Index& at) {
     return distance(x[0], x[1], {at[0], 0}, {at[1], 0}, ref::kInfinity, 0);
   });
 },
 {{kMatrix}, {{2, 4}, -3, 1}}, kProduct},
{"pdist", [](In x) { return pdist(x[0]); },
 [](Ref x) {
   const int64_t first[] = {0, 0, 1}, second[] = {1, 2, 2};
   return build({3}, [&](const Index& at) {
     return distance(x[0], x[0], {first[at[0]], 0}, {second[at[0]], 0}, 2, 0);
   });
 },
 {{kMatrix}}, kProduct},

};
  return rows;
}
// clang-format on

TEST_CASE("the gradient of a distance is zero where the distance is", "[ops]") {
  for (double p : {1., 1.5, 2., 3.}) {
    const Tensor x = tensor({{1., 2.}, {3., 5.}}).requires_grad_();
    sum(cdist(x, x, p)).backward();
    INFO(p);
    CHECK(all(abs(x.grad()) < 100).item<bool>());
    CHECK(std::abs(sum(x.grad()).item<double>()) < 1e-6);
  }
  const Tensor zero = zeros({2, 3}, {.requires_grad = true});
  sum(cosine_similarity(zero, ones({2, 3}))).backward();
  CHECK(all(zero.grad() < 1e9).item<bool>());
}

TEST_CASE("distances of many vectors take little room, and are those of one row at a time", "[ops]") {
  const Tensor x = randn({300, 64}, {.requires_grad = true}), y = randn({200, 64}, {.requires_grad = true});
  const auto rows = [&] {
    std::vector<Tensor> lines;
    for (int64_t i = 0; i < x.size(0); ++i) lines.push_back(norm(x[i] - y, 2, -1));
    return stack(lines);
  };
  const Tensor weight = randn({300, 200}), wanted = rows(), expected_x = grad({sum(wanted * weight)}, {x})[0],
               expected_y = grad({sum(rows() * weight)}, {y})[0];
  reset_peak_memory_stats();
  const int64_t before = memory_stats().peak_in_use;
  const Tensor got = cdist(x, y);
  CHECK(memory_stats().peak_in_use - before < 8 << 20);  // all differences take 15 MiB
  testing::assert_close(got, wanted);
  const std::vector<Tensor> grads = grad({sum(got * weight)}, {x, y});
  testing::assert_close(grads[0], expected_x);
  testing::assert_close(grads[1], expected_y);
}

TEST_CASE("distances and their gradients are those of all differences, at every edge of their blocks", "[ops]") {
  for (const double p : {0., 1., 1.5, 2., 3., double{INFINITY}})
    for (const auto& [m, n, d] :
         {std::array<int64_t, 3>{1, 1, 1}, {5, 33, 3}, {70, 2, 17}, {9, 40, 40}, {3, 70, 300}}) {
      INFO("p " << p << ", " << m << " and " << n << " vectors of " << d);
      const TensorOptions options{.dtype = kFloat64, .requires_grad = true};
      const Tensor x = randn({2, m, d}, options), y = randn({n, d}, options), g = randn({2, m, n}, {.dtype = kFloat64});
      const auto all = [&](const Tensor& a, const Tensor& b) { return norm(a.unsqueeze(-2) - b.unsqueeze(-3), p, -1); };
      const Tensor got = cdist(x, y, p), wanted = all(x, y);
      testing::assert_close(got, wanted);
      const auto grads = grad({got}, {x, y}, {g}), expected = grad({wanted}, {x, y}, {g});
      testing::assert_close(grads[0], expected[0]);
      testing::assert_close(grads[1], expected[1]);
      testing::assert_close(cdist(x.to(kFloat32), y.to(kFloat32), p), wanted.to(kFloat32));
      if (n < 2) continue;
      const Tensor pairs = triu_indices(n, n, 1), matrix = all(y, y);
      const Tensor chosen = index_select(matrix.flatten(), 0, pairs[0] * n + pairs[1]), of_pairs = pdist(y, p);
      testing::assert_close(of_pairs, chosen);
      const Tensor gp = randn(chosen.shape(), {.dtype = kFloat64});
      testing::assert_close(grad({of_pairs}, {y}, {gp})[0], grad({chosen}, {y}, {gp})[0]);
    }
}

TEST_CASE("distances have second derivatives", "[ops]") {
  for (const double p : {1.5, 2., 3.}) {
    INFO("p " << p);
    const TensorOptions options{.dtype = kFloat64, .requires_grad = true};
    const Tensor x = randn({3, 4}, options), y = randn({2, 4}, options);
    testing::gradgradcheck([&](const std::vector<Tensor>& in) { return cdist(in[0], in[1], p); }, {x, y});
    testing::gradgradcheck([&](const std::vector<Tensor>& in) { return pdist(in[0], p); }, {x});
  }
}

TEST_CASE("distances of NaN and of infinite vectors are those of their differences", "[ops]") {
  Tensor x = randn({5, 6});
  x[0][2].fill_(NAN), x[1][3].fill_(INFINITY), x[2][3].fill_(-INFINITY), x[3].fill_(3e38);
  const Tensor y = randn({4, 6});
  for (const double p : {1., 2., 3., double{INFINITY}}) {
    INFO("p " << p);
    CHECK(allclose(cdist(x, y, p), norm(x.unsqueeze(1) - y, p, -1), 1e-5, 1e-6, true));
  }
}

TEST_CASE("distances of vectors without elements, of counts and of huge vectors", "[ops]") {
  CHECK(equal(cdist(zeros({2, 0}), zeros({3, 0}), INFINITY), zeros({2, 3})));
  CHECK(pairwise_distance(tensor({{1., 2., 3.}}), tensor({{1., 5., 4.}}), {.p = 0, .eps = 0}).item<double>() == 2);
  CHECK(cosine_similarity(full({1, 2}, 1e15), full({1, 2}, 1e15)).item<double>() == Approx(1));
}

TEST_CASE("pdist of one row has no slope, also where the row is not finite", "[ops]") {
  const Tensor row = tensor({{0., double{NAN}}}).requires_grad_();
  CHECK(equal(grad({pdist(row)}, {row}, {zeros({0}, row.dtype())})[0], zeros_like(row)));
}

TEST_CASE("distances say what is wrong", "[ops]") {
  static constexpr WrongCall calls[] = {
      {[](World& w) { cdist(w.matrix, w.vector); },
       "cdist: vectors of shape [3, 4] and [3], not […, m, d] and […, n, d]"},
      {[](World& w) { cosine_similarity(w.ids, w.ids); },
       "cosine_similarity: int64 and int64 tensors, neither of a floating point type"},
      {[](World& w) { pdist(w.vector); }, "pdist: vectors of shape [3], not [n, d]"},
      {[](World& w) { pdist(w.matrix.to(kInt64)); },
       "pdist: a tensor of int64; convert it to a floating point type first"},
      {[](World& w) { pairwise_distance(w.undefined, w.ids); }, "pairwise_distance: undefined tensor"},
  };
  check_wrong_calls(calls);
}

}  // namespace reel
