#include "test/support/op_rows.h"

namespace reel {

// clang-format off
const std::vector<Row>& join_rows() {
  static const std::vector<Row> rows{

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
{"split(rows)", [](In x) { const Tensors parts = split(x[0], 2); return cat({parts[2], parts[0] * 2}); },
 [](Ref x) { return build({3, 2}, [&](const Index& at) { return (at[0] ? 2 : 1) * x[0](with(at, 0, (at[0] + 4) % 5)); }); },
 {{{5, 2}}}},
{"chunk(rows)", [](In x) { return chunk(x[0], 3)[1]; },
 [](Ref x) { return build({2, 2}, [&](const Index& at) { return x[0](with(at, 0, at[0] + 2)); }); }, {{{5, 2}}}, kMoves},
{"chunk", [](In x) { return chunk(x[0], 3, -1)[1]; },
 [](Ref x) { return build({2, 2}, [&](const Index& at) { return x[0](with(at, 1, at[1] + 2)); }); }, {{{2, 5}}},
 kMoves},
{"hstack", [](In x) { return hstack({x[0], x[1]}); },
 [](Ref x) { return build({2, 4}, [&](const Index& at) { return at[1] < 3 ? x[0](at) : x[1]({at[0], 0}); }); },
 {{{2, 3}}, {{2, 1}}}, kMoves},
{"hstack(vectors)", [](In x) { return hstack({x[0], x[1]}); },
 [](Ref x) { return build({4}, [&](const Index& at) { return at[0] < 3 ? x[0](at) : x[1]({}); }); },
 {{{3}}, {kNumber}}, kMoves},
{"vstack", [](In x) { return vstack({x[0], x[1]}); },
 [](Ref x) { return build({3, 3}, [&](const Index& at) { return at[0] ? x[1]({at[0] - 1, at[1]}) : x[0]({at[1]}); }); },
 {{{3}}, {{2, 3}}}, kMoves},
{"dstack", [](In x) { return dstack({x[0], x[1]}); },
 [](Ref x) { return build({2, 3, 2}, [&](const Index& at) { return x[at[2]]({at[0], at[1]}); }); },
 {{{2, 3}}, {{2, 3}}}, kMoves},
{"column_stack", [](In x) { return column_stack({x[0], x[1]}); },
 [](Ref x) { return build({3, 3}, [&](const Index& at) { return at[1] ? x[1]({at[0], at[1] - 1}) : x[0]({at[0]}); }); },
 {{{3}}, {{3, 2}}}, kMoves},
{"block_diag", [](In x) { return block_diag({x[0], x[1], x[2]}); },
 [](Ref x) {
   return build({4, 6}, [&](const Index& at) {
     if (at[0] < 2) return at[1] < 3 ? x[0](at) : 0;
     if (at[0] == 2) return at[1] > 2 && at[1] < 5 ? x[1]({at[1] - 3}) : 0;
     return at[1] == 5 ? x[2]({}) : 0;
   });
 },
 {{{2, 3}}, {{2}}, {kNumber}}, kMoves},
{"tensor_split", [](In x) { const Tensors parts = tensor_split(x[0], 3); return cat({parts[2], parts[0]}); },
 [](Ref x) { return build({5, 2}, [&](const Index& at) { return x[0]({at[0] < 2 ? at[0] + 5 : at[0] - 2, at[1]}); }); },
 {{{7, 2}}}, kMoves},
{"tensor_split(starts)",
 [](In x) { const Tensors parts = tensor_split(x[0], {1, 1, 9}, -1); return cat({parts[2], parts[1], parts[0], parts[3]}, 1); },
 [](Ref x) { return build({2, 5}, [&](const Index& at) { return x[0]({at[0], (at[1] + 1) % 5}); }); }, {{{2, 5}}}, kMoves},
{"unbind", [](In x) { return unbind(x[0], 1)[2]; },
 [](Ref x) { return build({2, 4}, [&](const Index& at) { return x[0]({at[0], 2, at[1]}); }); }, {{kCube}}, kMoves},
{"unbind(rows)", [](In x) { const Tensors rows = unbind(x[0]); return stack({rows[1], rows[0]}); },
 [](Ref x) { return build({2, 3, 4}, [&](const Index& at) { return x[0](with(at, 0, 1 - at[0])); }); }, {{kCube}}, kMoves},

};
  return rows;
}
// clang-format on

}  // namespace reel
