#include <array>
#include <catch2/catch.hpp>

#include "reel/autograd.h"
#include "reel/memory.h"
#include "reel/random.h"
#include "test/support/op_rows.h"

namespace reel {

// clang-format off
const std::vector<Row>& product_rows() {
  static const std::vector<Row> rows{

// ---- products

{"matmul", [](In x) { return matmul(x[0], x[1]); }, [](Ref x) { return ref::matmul(x[0], x[1]); }, {{{3, 4}}, {{4, 2}}},
 kProduct},
{"matmul(none)", [](In x) { return matmul(x[0], x[1]); }, [](Ref x) { return ref::matmul(x[0], x[1]); },
 {{{3, 0}}, {{0, 2}}}, kProduct},
{"matmul(row)", [](In x) { return matmul(x[0], x[1]); }, [](Ref x) { return ref::matmul(x[0], x[1]); },
 {{{1, 9}}, {{9, 17}}}, kProduct},
{"matmul(large)", [](In x) { return matmul(x[0], x[1]); }, [](Ref x) { return ref::matmul(x[0], x[1]); },
 {{{11, 13}}, {{13, 18}}}, kProduct},
{"matmul(larger)", [](In x) { return matmul(x[0], x[1]); }, [](Ref x) { return ref::matmul(x[0], x[1]); },
 {{{70, 65}}, {{65, 80}}}, {.differentiable = false, .tolerance = 8}},
{"matmul(batches)", [](In x) { return matmul(x[0], x[1]); }, [](Ref x) { return ref::matmul(x[0], x[1]); },
 {{{2, 3, 4}}, {{2, 4, 2}}}, kProduct},
{"matmul(broadcast)", [](In x) { return matmul(x[0], x[1]); }, [](Ref x) { return ref::matmul(x[0], x[1]); },
 {{{2, 1, 3, 4}}, {{3, 4, 2}}}, kProduct},
{"matmul(batch, matrix)", [](In x) { return matmul(x[0], x[1]); }, [](Ref x) { return ref::matmul(x[0], x[1]); },
 {{{2, 3, 4}}, {{4, 2}}}, kProduct},
{"matmul(matrix, batch)", [](In x) { return matmul(x[0], x[1]); }, [](Ref x) { return ref::matmul(x[0], x[1]); },
 {{{3, 4}}, {{2, 4, 2}}}, kProduct},
{"matmul(vectors)", [](In x) { return matmul(x[0], x[1]); },
 [](Ref x) { return fold(ref::zip(x[0], x[1], [](double a, double b) { return a * b; }), {}, ref::total); },
 {{{7}}, {{7}}}, kProduct},
{"matmul(matrix, vector)", [](In x) { return matmul(x[0], x[1]); },
 [](Ref x) {
   return fold(build(x[0].shape, [&](const Index& at) { return x[0](at) * x[1]({at[1]}); }), {1}, ref::total);
 },
 {{{3, 4}}, {{4}}}, kProduct},
{"matmul(vector, matrix)", [](In x) { return matmul(x[0], x[1]); },
 [](Ref x) {
   return fold(build(x[1].shape, [&](const Index& at) { return x[1](at) * x[0]({at[0]}); }), {0}, ref::total);
 },
 {{{4}}, {{4, 3}}}, kProduct},
{"matmul(vector, batch)", [](In x) { return matmul(x[0], x[1]); },
 [](Ref x) {
   return fold(build(x[1].shape, [&](const Index& at) { return x[1](at) * x[0]({at[1]}); }), {1}, ref::total);
 },
 {{{4}}, {{2, 4, 3}}}, kProduct},
{"matmul(batch, vector)", [](In x) { return matmul(x[0], x[1]); },
 [](Ref x) {
   return fold(build(x[0].shape, [&](const Index& at) { return x[0](at) * x[1]({at[2]}); }), {2}, ref::total);
 },
 {{{2, 3, 4}}, {{4}}}, kProduct},
{"mm", [](In x) { return mm(x[0], x[1]); }, [](Ref x) { return ref::matmul(x[0], x[1]); }, {{{2, 5}}, {{5, 3}}},
 kProduct},
{"bmm", [](In x) { return bmm(x[0], x[1]); }, [](Ref x) { return ref::matmul(x[0], x[1]); }, {{{3, 2, 4}}, {{3, 4, 2}}},
 kProduct},
{"dot", [](In x) { return dot(x[0], x[1]); },
 [](Ref x) { return fold(ref::zip(x[0], x[1], [](double a, double b) { return a * b; }), {}, ref::total); },
 {{{7}}, {{7}}}, kProduct},
{"outer", [](In x) { return outer(x[0], x[1]); },
 [](Ref x) { return build({3, 4}, [&](const Index& at) { return x[0]({at[0]}) * x[1]({at[1]}); }); }, {{{3}}, {{4}}},
 kProduct},
{"addmm", [](In x) { return addmm(x[0], x[1], x[2]); },
 [](Ref x) { return ref::zip(x[0], ref::matmul(x[1], x[2]), [](double c, double ab) { return c + ab; }); },
 {{{3, 2}}, {{3, 4}}, {{4, 2}}}, kProduct},
{"addmm(scaled)", [](In x) { return addmm(x[0], x[1], x[2], 0.5, 2); },
 [](Ref x) {
   const Array ab = ref::matmul(x[1], x[2]);
   return build(ab.shape, [&](const Index& at) { return x[0]({at[1]}) / 2 + 2 * ab(at); });
 },
 {{{2}}, {{3, 4}}, {{4, 2}}}, kProduct},
{"linear", [](In x) { return linear(x[0], x[1], x[2]); },
 [](Ref x) { return along(x[0], 1, [&](const Line& v) { return ref::linear(v, x[1], x[2]); }); },
 {{{3, 4}}, {{5, 4}}, {{5}}}, kProduct},
{"linear(no bias)", [](In x) { return linear(x[0], x[1]); },
 [](Ref x) { return along(x[0], 2, [&](const Line& v) { return ref::linear(v, x[1]); }); }, {{{2, 3, 4}}, {{5, 4}}},
 kProduct},
{"linear(vector)", [](In x) { return linear(x[0], x[1], x[2]); },
 [](Ref x) { return along(x[0], 0, [&](const Line& v) { return ref::linear(v, x[1], x[2]); }); },
 {{{4}}, {{5, 4}}, {{5}}}, kProduct},
{"linear_relu", [](In x) { return linear_relu(x[0], x[1], x[2]); },
 [](Ref x) {
   return along(x[0], 2, [&](const Line& v) {
     Line y = ref::linear(v, x[1], x[2]);
     for (double& value : y) value = std::max(value, 0.);
     return y;
   });
 },
 {{{2, 10, 4}}, {{5, 4}}, {{5}}}, kProduct},
{"linear(used twice)", [](In x) { return linear(linear(x[0], x[1], x[2]), x[1], x[2]); },
 [](Ref x) {
   return along(x[0], 1, [&](const Line& v) { return ref::linear(ref::linear(v, x[1], x[2]), x[1], x[2]); });
 },
 {{{3, 4}}, {{4, 4}}, {{4}}}, kProduct},

{"mv", [](In x) { return mv(x[0], x[1]); },
 [](Ref x) {
   return fold(build(x[0].shape, [&](const Index& at) { return x[0](at) * x[1]({at[1]}); }), {1}, ref::total);
 },
 {{{3, 4}}, {{4}}}, kProduct},
{"baddbmm", [](In x) { return baddbmm(x[0], x[1], x[2], 0.5, 2); },
 [](Ref x) {
   return ref::zip(build({2, 3, 2}, [&](const Index& at) { return ref::broadcast(x[0], at); }), ref::matmul(x[1], x[2]),
                   [](double a, double b) { return 0.5 * a + 2 * b; });
 },
 {{{3, 1}}, {{2, 3, 4}}, {{2, 4, 2}}}, kProduct},
{"inner", [](In x) { return inner(x[0], x[1]); },
 [](Ref x) {
   return build({2, 3, 2}, [&](const Index& at) {
     double sum = 0;
     for (int64_t k = 0; k < 4; ++k) sum += x[0]({at[0], at[1], k}) * x[1]({at[2], k});
     return sum;
   });
 },
 {{{2, 3, 4}}, {{2, 4}}}, kProduct},
{"kron", [](In x) { return kron(x[0], x[1]); },
 [](Ref x) {
   return build({4, 6}, [&](const Index& at) { return x[0]({at[0] / 2, at[1] / 3}) * x[1]({at[0] % 2, at[1] % 3}); });
 },
 {{{2, 2}}, {{2, 3}}}, kArithmetic},
{"kron(ranks)", [](In x) { return kron(x[0], x[1]); },
 [](Ref x) { return build({2, 6}, [&](const Index& at) { return x[0]({at[1] / 3}) * x[1]({at[0], at[1] % 3}); }); },
 {{{2}}, {{2, 3}}}, kArithmetic},
{"tensordot", [](In x) { return tensordot(x[0], x[1], {2, 0}, {0, 1}); },
 [](Ref x) {
   return build({3, 2}, [&](const Index& at) {
     double sum = 0;
     for (int64_t i = 0; i < 2; ++i)
       for (int64_t k = 0; k < 4; ++k) sum += x[0]({i, at[0], k}) * x[1]({k, i, at[1]});
     return sum;
   });
 },
 {{kCube}, {{4, 2, 2}}}, kProduct},
{"tensordot(last)", [](In x) { return tensordot(x[0], x[1], 1); }, [](Ref x) { return ref::matmul(x[0], x[1]); },
 {{{3, 4}}, {{4, 2}}}, kProduct},
{"einsum", [](In x) { return einsum("bij,bjk->bik", {x[0], x[1]}); }, [](Ref x) { return ref::matmul(x[0], x[1]); },
 {{kCube}, {{2, 4, 2}}}, kProduct},
{"einsum(implicit)", [](In x) { return einsum("kj, ik", {x[0], x[1]}); }, [](Ref x) { return ref::matmul(x[1], x[0]); },
 {{{4, 2}}, {{3, 4}}}, kProduct},
{"einsum(ellipsis)", [](In x) { return einsum("...ij,jk->...ki", {x[0], x[1]}); },
 [](Ref x) {
   const Array y = ref::matmul(x[0], x[1]);
   return build({2, 2, 3}, [&](const Index& at) { return y({at[0], at[2], at[1]}); });
 },
 {{kCube}, {{4, 2}}}, kProduct},
{"einsum(three)", [](In x) { return einsum("ij,jk,ik->i", {x[0], x[1], x[2]}); },
 [](Ref x) {
   return fold(ref::zip(ref::matmul(x[0], x[1]), x[2], [](double a, double b) { return a * b; }), {1}, ref::total);
 },
 {{{3, 4}}, {{4, 2}}, {{3, 2}}}, kProduct},
{"einsum(diagonal)", [](In x) { return einsum("iij->j", {x[0]}); },
 [](Ref x) {
   return build({2}, [&](const Index& at) { return x[0]({0, 0, at[0]}) + x[0]({1, 1, at[0]}) + x[0]({2, 2, at[0]}); });
 },
 {{{3, 3, 2}}}, kProduct},
{"einsum(trace)", [](In x) { return einsum("ii", {x[0]}); },
 [](Ref x) { return build({}, [&](const Index&) { return x[0]({0, 0}) + x[0]({1, 1}) + x[0]({2, 2}); }); }, {{{3, 3}}},
 kProduct},
{"einsum(implicit)", [](In x) { return einsum("iji,k", {x[0], x[1]}); },
 [](Ref x) {
   return build({2, 4}, [&](const Index& at) {
     return (x[0]({0, at[0], 0}) + x[0]({1, at[0], 1}) + x[0]({2, at[0], 2})) * x[1]({at[1]});
   });
 },
 {{{3, 2, 3}}, {{4}}}, kProduct},
{"einsum(outer)", [](In x) { return einsum("i,j->ji", {x[0], x[1]}); },
 [](Ref x) { return build({4, 3}, [&](const Index& at) { return x[0]({at[1]}) * x[1]({at[0]}); }); }, {{{3}}, {{4}}},
 kProduct},
{"einsum(transpose)", [](In x) { return einsum("ijk->kij", {x[0]}); },
 [](Ref x) { return build({4, 2, 3}, [&](const Index& at) { return x[0]({at[1], at[2], at[0]}); }); }, {{kCube}},
 kArithmetic},

{"bilinear", [](In x) { return bilinear(x[0], x[1], x[2], x[3]); },
 [](Ref x) {
   return build({2, 2}, [&](const Index& at) {
     double y = x[3]({at[1]});
     for (int64_t i = 0; i < 3; ++i)
       for (int64_t j = 0; j < 4; ++j) y += x[0]({at[0], i}) * x[2]({at[1], i, j}) * x[1]({at[0], j});
     return y;
   });
 },
 {{{2, 3}}, {{2, 4}}, {{2, 3, 4}}, {{2}}}, kProduct},

};
  return rows;
}
// clang-format on

TEST_CASE("NaN passes the gradient of linear_relu, also one that is differentiable", "[ops]") {
  Tensor w = ones({3, 2}).requires_grad_();
  const Tensor x = tensor({{1.f, 1.f}, {-1.f, 0.f}, {NAN, 1.f}});
  for (const bool create_graph : {false, true}) {
    Tensor b = zeros({3}).requires_grad_();
    const Tensor y = linear_relu(x, w, b);
    const Tensor g = grad({sum(y)}, {b}, {}, {.create_graph = create_graph})[0];
    CHECK(g.to_vector<float>() == std::vector<float>{2, 2, 2});
  }
}

TEST_CASE("linear_relu keeps NaN, whichever library multiplies", "[ops][isa]") {
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16, kFloat16})
    for (const int64_t n : {3, 64, 200}) {
      const Tensor x = randn({n, n}), w = randn({n, n});
      x[1].fill_(NAN);
      for (const Tensor& bias : {Tensor(), randn({n}).to(dtype)}) {
        const Tensor y = linear_relu(x.to(dtype), w.to(dtype), bias);
        CAPTURE(dtype, n);
        CHECK(isnan(y[1]).all().item<bool>());
        CHECK(isnan(y).sum().item<int64_t>() == n);
        CHECK((y[0] >= 0).all().item<bool>());
      }
    }
}

TEST_CASE("a product of integers takes little room", "[ops]") {
  const Tensor a = randint(-9, 9, {300, 200}), b = randint(-9, 9, {200, 100});
  reset_peak_memory_stats();
  const int64_t before = memory_stats().peak_in_use;
  const Tensor y = mm(a, b);
  CHECK(memory_stats().peak_in_use - before < 16 << 20);  // all products take 48 MiB
  CHECK(equal(y, mm(a.to(kFloat64), b.to(kFloat64)).to(kInt64)));
  CHECK(mm(zeros({0, 3}, {.dtype = kInt64}), b.narrow(0, 0, 3)).shape() == Shape{0, 100});
}

TEST_CASE("products are right at every edge of their blocks", "[ops]") {
  manual_seed(1);
  const auto turned = [](const Tensor& x) { return x.t().contiguous().t(); };
  for (const DType dtype : {kFloat32, kFloat64})
    for (const int64_t m : {2, 3, 4, 6, 8, 9, 12, 13, 17, 31, 64, 65})
      for (const int64_t n : {1, 5, 15, 16, 17, 33, 49, 64, 97, 200})
        for (const int64_t k : {1, 7, 17, 64, 130, 257, 600}) {
          // Integers are exact; a vector tells columns apart.
          const auto integers = [&](const Shape& shape) { return randint(-2, 3, shape).to(dtype); };
          const Tensor a = integers({m, k}), b = integers({k, n}), bias = integers({n});
          const Tensor x = randint(-9, 10, {n}).to(dtype), expected = mv(a, mv(b, x));
          INFO(m << " x " << n << " x " << k);
          for (const Tensor& left : {a, turned(a)})
            for (const Tensor& right : {b, turned(b)}) REQUIRE(equal(mv(mm(left, right), x), expected));
          REQUIRE(equal(mv(linear(a, b.t().contiguous(), bias) - bias, x), expected));
        }
}

TEST_CASE("products of integers are exact, and wrap", "[ops]") {
  for (const DType dtype : {kInt64, kInt32, kUInt8})
    for (const auto& [m, k, n] :
         {std::array<int64_t, 3>{1, 1, 1}, {1, 70, 9}, {9, 70, 1}, {2, 7, 600}, {33, 18, 65}, {5, 0, 3}})
      for (const int layout : {0, 1, 2, 3}) {
        INFO(dtype << ", " << m << " x " << k << " x " << n << ", layout " << layout);
        const Tensor a = floor(rand(layout & 1 ? Shape{k, m} : Shape{m, k}) * 2000).to(kInt64).to(dtype);
        const Tensor b = floor(rand(layout & 2 ? Shape{n, k} : Shape{k, n}) * 2000).to(kInt64).to(dtype);
        const Tensor at = layout & 1 ? a.t() : a, bt = layout & 2 ? b.t() : b;
        // Products of doubles are exact, too, as long as they are small.
        const Tensor expected = matmul(at.to(kFloat64), bt.to(kFloat64)).to(kInt64).to(dtype);
        CHECK(equal(matmul(at, bt), expected));
        if (dtype == kInt64)  // numbers below zero that int32 holds, and that it does not
          for (const int64_t less : {int64_t{1000}, int64_t{1} << 31, int64_t{1} << 40})
            CHECK(equal(matmul(at - less, bt), expected - sum(bt, 0) * less));
        CHECK(equal(bmm(stack({at, at + at}), stack({bt, bt})),
                    stack({expected, matmul((at + at).to(kFloat64), bt.to(kFloat64)).to(kInt64).to(dtype)})));
      }
  const Tensor large = full({1, 3}, int64_t{1} << 62, {.dtype = kInt64});
  CHECK(matmul(large, full({3, 1}, 3, {.dtype = kInt64})).item<int64_t>() == int64_t{1} << 62);
  CHECK(equal(matmul(tensor({{true, false}}), tensor({{false, true}, {true, true}})), tensor({{false, true}})));
}

TEST_CASE("the product of long vectors is as exact as its terms", "[ops]") {
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16})
    for (const int64_t n : {0, 1, 255, 256, 1000, 131073, 400000}) {
      INFO(dtype << ", " << n << " elements");
      const Tensor a = rand({n}).to(dtype).requires_grad_(), b = rand({n}).to(dtype).requires_grad_();
      const double expected = sum(a.to(kFloat64) * b.to(kFloat64)).item<double>();
      const double tolerance = dtype == kBFloat16 ? 4e-3 : 1e-6;
      CHECK(dot(a, b).item<double>() == Approx(expected).epsilon(tolerance).margin(1e-30));
      CHECK(matmul(a.unsqueeze(0), b.unsqueeze(1)).item<double>() == Approx(expected).epsilon(tolerance).margin(1e-30));
      const auto grads = grad({dot(a, b) * 2}, {a, b});
      CHECK(equal(grads[0], b * 2));
      CHECK(equal(grads[1], a * 2));
    }
  const Tensor strided = rand({600, 2}).select(1, 1), row = rand({600});
  CHECK(dot(strided, row).item<double>() == Approx(sum(strided * row).item<double>()));
}

}  // namespace reel
