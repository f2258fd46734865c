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
  CHECK(equal(got, wanted));
  const std::vector<Tensor> grads = grad({sum(got * weight)}, {x, y});
  testing::assert_close(grads[0], expected_x);
  testing::assert_close(grads[1], expected_y);
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
