#include "test/op_rows.h"

namespace reel {

// clang-format off
const std::vector<Row>& index_rows() {
  static const std::vector<Row> rows{

// ---- indexing

{"index_select", [](In x) { return index_select(x[0], 0, x[1]); },
 [](Ref x) { return build({5, 3}, [&](const Index& at) { return x[0](with(at, 0, x[1]({at[0]}))); }); },
 {{{4, 3}}, ids({5}, 4)}, kMoves},
{"index_select(dim)", [](In x) { return index_select(x[0], -2, x[1]); },
 [](Ref x) { return build({2, 5, 4}, [&](const Index& at) { return x[0](with(at, 1, x[1]({at[1]}))); }); },
 {{kCube}, ids({5}, 3)}, kMoves},
{"gather", [](In x) { return gather(x[0], 1, x[1]); },
 [](Ref x) { return build({3, 2}, [&](const Index& at) { return x[0](with(at, 1, x[1](at))); }); },
 {{kMatrix}, ids({3, 2}, 4)}, kMoves},
{"gather(dim)", [](In x) { return gather(x[0], 0, x[1]); },
 [](Ref x) { return build({5, 2}, [&](const Index& at) { return x[0](with(at, 0, x[1](at))); }); },
 {{kMatrix}, ids({5, 2}, 3)}, kMoves},
{"scatter", [](In x) { return scatter(x[0], 1, x[1], x[2]); },
 [](Ref x) { return ref::scatter(x[0], 1, x[1], x[2], false); },
 {{kMatrix}, {{2, 3}, 0, 4, Input::kDistinctIds}, {{2, 3}}}, kMoves},
{"scatter_add", [](In x) { return scatter_add(x[0], 1, x[1], x[2]); },
 [](Ref x) { return ref::scatter(x[0], 1, x[1], x[2], true); }, {{kMatrix}, ids({3, 6}, 4), {{3, 6}}}, kArithmetic},
{"scatter_add(dim)", [](In x) { return scatter_add(x[0], 0, x[1], x[2]); },
 [](Ref x) { return ref::scatter(x[0], 0, x[1], x[2], true); }, {{kMatrix}, ids({5, 2}, 3), {{5, 2}}}, kArithmetic},
{"masked_select", [](In x) { return masked_select(x[0], x[1]); }, [](Ref x) { return ref::where(x[1], x[0]); },
 {{kMatrix}, mask(kMatrix)}, kMoves},
{"masked_fill", [](In x) { return masked_fill(x[0], x[1], x[2]); },
 [](Ref x) { return build(kMatrix, [&](const Index& at) { return x[1](at) ? x[2]({}) : x[0](at); }); },
 {{kMatrix}, mask(kMatrix), {kNumber}}, kMoves},
{"masked_fill(broadcast)", [](In x) { return masked_fill(x[0], x[1], 7); },
 [](Ref x) { return build(kMatrix, [&](const Index& at) { return x[1]({at[1]}) ? 7 : x[0](at); }); },
 {{kMatrix}, mask({4})}, kArithmetic},
{"embedding", [](In x) { return embedding(x[0], x[1]); },
 [](Ref x) { return build({2, 4, 3}, [&](const Index& at) { return x[0]({int64_t(x[1]({at[0], at[1]})), at[2]}); }); },
 {{{5, 3}}, ids({2, 4}, 5)}},
{"embedding(one)", [](In x) { return embedding(x[0], x[1]); },
 [](Ref x) { return build({3}, [&](const Index& at) { return x[0]({int64_t(x[1]({})), at[0]}); }); },
 {{{5, 3}}, ids({}, 5)}},
{"nonzero", [](In x) { return nonzero(x[0]); }, [](Ref x) { return ref::nonzero(x[0]); },
 {{kMatrix, -1, 1, Input::kWholeNumbers}}, kFinds},
{"nonzero(bools)", [](In x) { return nonzero(x[0]); }, [](Ref x) { return ref::nonzero(x[0]); }, {mask({3, 2, 2})},
 {.floats_give = Result::kInt64, .differentiable = false}},
{"sort", [](In x) { return sort(x[0]).values; },
 [](Ref x) { return along(x[0], 2, [](const Line& v) { return ref::sorted(v); }); }, {{kCube}}, kArithmetic},
{"sort(dim)", [](In x) { return sort(x[0], 0, true).values; },
 [](Ref x) { return along(x[0], 0, [](const Line& v) { return ref::sorted(v, true); }); }, {{{7, 3}}}, kArithmetic},
{"sort.indices", [](In x) { return sort(x[0]).indices; },
 [](Ref x) { return along(x[0], 1, [](const Line& v) { return ref::order(v); }); },
 {{{2, 30}, -2, 2, Input::kWholeNumbers}}, kFinds},
{"sort(descending).indices", [](In x) { return sort(x[0], 1, true).indices; },
 [](Ref x) { return along(x[0], 1, [](const Line& v) { return ref::order(v, true); }); },
 {{{2, 30}, -2, 2, Input::kWholeNumbers}}, kFinds},
{"topk", [](In x) { return topk(x[0], 3).values; },
 [](Ref x) { return along(x[0], 2, [](const Line& v) { return ref::first(ref::sorted(v, true), 3); }); }, {{kCube}},
 kArithmetic},
{"topk(smallest)", [](In x) { return topk(x[0], 2, 0, false).values; },
 [](Ref x) { return along(x[0], 0, [](const Line& v) { return ref::first(ref::sorted(v), 2); }); }, {{{7, 3}}},
 kArithmetic},
{"topk.indices", [](In x) { return topk(x[0], 3, 1).indices; },
 [](Ref x) { return along(x[0], 1, [](const Line& v) { return ref::first(ref::order(v, true), 3); }); },
 {{{2, 9}, 0, 10}}, kFinds},
{"one_hot", [](In x) { return one_hot(x[0], 6); },
 [](Ref x) { return build({4, 6}, [&](const Index& at) { return double(x[0]({at[0]}) == at[1]); }); }, {ids({4}, 6)},
 {.floats_give = Result::kInt64, .differentiable = false}},
{"one_hot(largest)", [](In x) { return one_hot(x[0]); },
 [](Ref x) {
   const int64_t classes = int64_t(ref::largest(x[0].data)) + 1;
   return build({2, 2, classes}, [&](const Index& at) { return double(x[0]({at[0], at[1]}) == at[2]); });
 },
 {ids({2, 2}, 6)}, {.floats_give = Result::kInt64, .differentiable = false}},

};
  return rows;
}
// clang-format on

}  // namespace reel
