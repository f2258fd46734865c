#include "test/op_rows.h"

namespace reel {

// clang-format off
const std::vector<Row>& join_rows() {
  static const std::vector<Row> rows{

// ---- joining and rearranging

{"cat", [](In x) { return cat({x[0], x[1]}); },
 [](Ref x) {
   return build({5, 3}, [&](const Index& at) { return at[0] < 2 ? x[0](at) : x[1](with(at, 0, at[0] - 2)); });
 },
 {{{2, 3}}, {{3, 3}}}, kMoves},
{"cat(dim)", [](In x) { return cat({x[0], x[1], x[0]}, -1); },
 [](Ref x) { return build({2, 7}, [&](const Index& at) { return x[at[1] == 3](with(at, 1, at[1] % 4 % 3)); }); },
 {{{2, 3}}, {{2, 1}}}, kMoves},
{"cat(none)", [](In x) { return cat({x[0], x[1]}, 1); }, [](Ref x) { return x[1]; }, {{{2, 0}}, {{2, 3}}}, kMoves},
{"stack", [](In x) { return stack({x[0], x[1]}); },
 [](Ref x) { return build({2, 2, 3}, [&](const Index& at) { return x[at[0]]({at[1], at[2]}); }); },
 {{{2, 3}}, {{2, 3}}}, kMoves},
{"stack(last)", [](In x) { return stack({x[0], x[1]}, -1); },
 [](Ref x) { return build({2, 3, 2}, [&](const Index& at) { return x[at[2]]({at[0], at[1]}); }); },
 {{{2, 3}}, {{2, 3}}}, kMoves},
{"split", [](In x) { const Tensors parts = split(x[0], 2, 1); return cat({parts[2], parts[0]}, 1); },
 [](Ref x) { return build({2, 3}, [&](const Index& at) { return x[0](with(at, 1, (at[1] + 4) % 5)); }); }, {{{2, 5}}},
 kMoves},
{"split(sizes)",
 [](In x) { const Tensors parts = split(x[0], {1, 0, 3, 1}); return cat({parts[3], parts[1], parts[0]}); },
 [](Ref x) { return build({2, 2}, [&](const Index& at) { return x[0](with(at, 0, at[0] ? 0 : 4)); }); }, {{{5, 2}}},
 kMoves},
{"chunk", [](In x) { return chunk(x[0], 3, -1)[1]; },
 [](Ref x) { return build({2, 2}, [&](const Index& at) { return x[0](with(at, 1, at[1] + 2)); }); }, {{{2, 5}}},
 kMoves},
{"flip", [](In x) { return flip(x[0], {0, -1}); },
 [](Ref x) { return build(kCube, [&](const Index& at) { return x[0]({1 - at[0], at[1], 3 - at[2]}); }); }, {{kCube}},
 kMoves},
{"roll", [](In x) { return roll(x[0], 5, 2); },
 [](Ref x) { return build(kCube, [&](const Index& at) { return x[0](with(at, 2, (at[2] + 3) % 4)); }); }, {{kCube}},
 kMoves},
{"roll(back)", [](In x) { return roll(x[0], -1, 0); },
 [](Ref x) { return build(kMatrix, [&](const Index& at) { return x[0](with(at, 0, (at[0] + 1) % 3)); }); }, {{kMatrix}},
 kMoves},
{"repeat", [](In x) { return repeat(x[0], {2, 1, 3}); },
 [](Ref x) { return build({2, 2, 9}, [&](const Index& at) { return x[0]({at[1], at[2] % 3}); }); }, {{{2, 3}}}, kMoves},
{"tril", [](In x) { return tril(x[0]); },
 [](Ref x) { return build(kMatrix, [&](const Index& at) { return at[1] <= at[0] ? x[0](at) : 0; }); }, {{kMatrix}},
 kMoves},
{"tril(-1)", [](In x) { return tril(x[0], -1); },
 [](Ref x) { return build(kCube, [&](const Index& at) { return at[2] <= at[1] - 1 ? x[0](at) : 0; }); }, {{kCube}},
 kMoves},
{"triu", [](In x) { return triu(x[0]); },
 [](Ref x) { return build(kMatrix, [&](const Index& at) { return at[1] >= at[0] ? x[0](at) : 0; }); }, {{kMatrix}},
 kMoves},
{"triu(2)", [](In x) { return triu(x[0], 2); },
 [](Ref x) { return build(kCube, [&](const Index& at) { return at[2] >= at[1] + 2 ? x[0](at) : 0; }); }, {{kCube}},
 kMoves},
{"diag", [](In x) { return diag(x[0]); },
 [](Ref x) { return build({3}, [&](const Index& at) { return x[0]({at[0], at[0]}); }); }, {{{3, 4}}}, kMoves},
{"diag(1)", [](In x) { return diag(x[0], 1); },
 [](Ref x) { return build({3}, [&](const Index& at) { return x[0]({at[0], at[0] + 1}); }); }, {{{3, 4}}}, kMoves},
{"diag(-1)", [](In x) { return diag(x[0], -1); },
 [](Ref x) { return build({2}, [&](const Index& at) { return x[0]({at[0] + 1, at[0]}); }); }, {{{3, 4}}}, kMoves},
{"diag(vector)", [](In x) { return diag(x[0]); },
 [](Ref x) { return build({3, 3}, [&](const Index& at) { return at[0] == at[1] ? x[0]({at[0]}) : 0; }); }, {{{3}}},
 kMoves},
{"diag(vector, -2)", [](In x) { return diag(x[0], -2); },
 [](Ref x) { return build({5, 5}, [&](const Index& at) { return at[0] == at[1] + 2 ? x[0]({at[1]}) : 0; }); }, {{{3}}},
 kMoves},

};
  return rows;
}
// clang-format on

}  // namespace reel
