#include "test/op_rows.h"

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
{"linear(used twice)", [](In x) { return linear(linear(x[0], x[1], x[2]), x[1], x[2]); },
 [](Ref x) {
   return along(x[0], 1, [&](const Line& v) { return ref::linear(ref::linear(v, x[1], x[2]), x[1], x[2]); });
 },
 {{{3, 4}}, {{4, 4}}, {{4}}}, kProduct},

};
  return rows;
}
// clang-format on

}  // namespace reel
