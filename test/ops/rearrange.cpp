#include "test/support/op_rows.h"

namespace reel {

// clang-format off
const std::vector<Row>& rearrange_rows() {
  static const std::vector<Row> rows{

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
{"reshape(function)", [](In x) { return reshape(x[0], {4, -1}); }, [](Ref x) { return Array{{4, 6}, x[0].data}; },
 {{kCube}}, kMoves},
{"unflatten", [](In x) { return unflatten(x[0], 1, {2, -1}); }, [](Ref x) { return Array{{3, 2, 2}, x[0].data}; },
 {{kMatrix}}, kMoves},
{"ravel", [](In x) { return ravel(x[0]); }, [](Ref x) { return Array{{24}, x[0].data}; }, {{kCube}}, kMoves},
{"swapaxes", [](In x) { return swapaxes(x[0], 0, -1); },
 [](Ref x) { return build({4, 3, 2}, [&](const Index& at) { return x[0]({at[2], at[1], at[0]}); }); }, {{kCube}}, kMoves},
{"swapdims", [](In x) { return swapdims(x[0], 1, 0); },
 [](Ref x) { return build({3, 2, 4}, [&](const Index& at) { return x[0]({at[1], at[0], at[2]}); }); }, {{kCube}}, kMoves},
{"movedim", [](In x) { return movedim(x[0], 0, -1); },
 [](Ref x) { return build({3, 4, 2}, [&](const Index& at) { return x[0]({at[2], at[0], at[1]}); }); }, {{kCube}}, kMoves},
{"movedim(two)", [](In x) { return movedim(x[0], {2, 0}, {0, 1}); },
 [](Ref x) { return build({4, 2, 3}, [&](const Index& at) { return x[0]({at[1], at[2], at[0]}); }); }, {{kCube}}, kMoves},
{"broadcast_to", [](In x) { return broadcast_to(x[0], {2, 3, 4}); },
 [](Ref x) { return build(kCube, [&](const Index& at) { return x[0]({at[1], 0}); }); }, {{{3, 1}}}, kMoves},
{"broadcast_tensors", [](In x) { return stack(broadcast_tensors({x[0], x[1]})); },
 [](Ref x) { return build({2, 3, 4}, [&](const Index& at) { return at[0] ? x[1]({at[2]}) : x[0]({at[1], 0}); }); },
 {{{3, 1}}, {{4}}}, kMoves},
{"atleast_1d", [](In x) { return atleast_1d(x[0]); }, [](Ref x) { return Array{{1}, x[0].data}; }, {{kNumber}}, kMoves},
{"atleast_2d", [](In x) { return atleast_2d(x[0]); }, [](Ref x) { return Array{{1, 6}, x[0].data}; }, {{kVector}}, kMoves},
{"atleast_3d", [](In x) { return atleast_3d(x[0]); }, [](Ref x) { return Array{{1, 6, 1}, x[0].data}; }, {{kVector}},
 kMoves},
{"diagonal", [](In x) { return diagonal(x[0], -1, 1, 2); },
 [](Ref x) { return build({2, 2}, [&](const Index& at) { return x[0]({at[0], at[1] + 1, at[1]}); }); }, {{kCube}}, kMoves},
{"diagonal(0, 2)", [](In x) { return diagonal(x[0], 1, 0, 2); },
 [](Ref x) { return build({3, 2}, [&](const Index& at) { return x[0]({at[1], at[0], at[1] + 1}); }); }, {{kCube}}, kMoves},
{"diagonal(outside)", [](In x) { return diagonal(x[0], 9); }, [](Ref) { return Array{{0}, {}}; }, {{kMatrix}}, kMoves},
{"fliplr", [](In x) { return fliplr(x[0]); },
 [](Ref x) { return build(kMatrix, [&](const Index& at) { return x[0]({at[0], 3 - at[1]}); }); }, {{kMatrix}}, kMoves},
{"flipud", [](In x) { return flipud(x[0]); },
 [](Ref x) { return build(kMatrix, [&](const Index& at) { return x[0]({2 - at[0], at[1]}); }); }, {{kMatrix}}, kMoves},
{"rot90", [](In x) { return rot90(x[0]); },
 [](Ref x) { return build({4, 3}, [&](const Index& at) { return x[0]({at[1], 3 - at[0]}); }); }, {{kMatrix}}, kMoves},
{"rot90(-1)", [](In x) { return rot90(x[0], -1, {1, 2}); },
 [](Ref x) { return build({2, 4, 3}, [&](const Index& at) { return x[0]({at[0], 2 - at[2], at[1]}); }); }, {{kCube}},
 kMoves},
{"rot90(2)", [](In x) { return rot90(x[0], 2); },
 [](Ref x) { return build(kMatrix, [&](const Index& at) { return x[0]({2 - at[0], 3 - at[1]}); }); }, {{kMatrix}}, kMoves},
{"tile", [](In x) { return tile(x[0], {2}); },
 [](Ref x) { return build({2, 6}, [&](const Index& at) { return x[0]({at[0], at[1] % 3}); }); }, {{{2, 3}}}, kMoves},
{"repeat_interleave", [](In x) { return repeat_interleave(x[0], 3, 1); },
 [](Ref x) { return build({2, 9, 4}, [&](const Index& at) { return x[0](with(at, 1, at[1] / 3)); }); }, {{kCube}}, kMoves},
{"repeat_interleave(flat)", [](In x) { return repeat_interleave(x[0], 2); },
 [](Ref x) { return build({24}, [&](const Index& at) { return x[0].data[at[0] / 2]; }); }, {{kMatrix}}, kMoves},
{"repeat_interleave(each)", [](In x) { return repeat_interleave(x[0], tensor({2, 0, 3}, {.device = test_device()}), 0); },
 [](Ref x) { return build({5, 4}, [&](const Index& at) { return x[0](with(at, 0, at[0] < 2 ? 0 : 2)); }); }, {{kMatrix}},
 kMoves},
{"meshgrid", [](In x) { return meshgrid({x[0], x[1]})[1]; },
 [](Ref x) { return build({3, 2}, [&](const Index& at) { return x[1]({at[1]}); }); }, {{{3}}, {{2}}}, kMoves},
{"meshgrid(xy)", [](In x) { return stack(meshgrid({x[0], x[1], x[2]}, kXY)); },
 [](Ref x) {
   return build({3, 2, 3, 1}, [&](const Index& at) {
     return at[0] == 0 ? x[0]({at[2]}) : at[0] == 1 ? x[1]({at[1]}) : x[2]({});
   });
 },
 {{{3}}, {{2}}, {kNumber}}, kMoves},
{"cartesian_prod", [](In x) { return cartesian_prod({x[0], x[1]}); },
 [](Ref x) { return build({6, 2}, [&](const Index& at) { return at[1] ? x[1]({at[0] % 2}) : x[0]({at[0] / 2}); }); },
 {{{3}}, {{2}}}, kMoves},
{"combinations", [](In x) { return combinations(x[0]); },
 [](Ref x) {
   const int places[] = {0, 1, 0, 2, 1, 2};
   return build({3, 2}, [&](const Index& at) { return x[0].data[places[2 * at[0] + at[1]]]; });
 },
 {{{3}}}, kMoves},
{"combinations(with_replacement)", [](In x) { return combinations(x[0], 3, true); },
 [](Ref x) {
   const int places[] = {0, 0, 0, 0, 0, 1, 0, 1, 1, 1, 1, 1};
   return build({4, 3}, [&](const Index& at) { return x[0].data[places[3 * at[0] + at[1]]]; });
 },
 {{{2}}}, kMoves},

};
  return rows;
}
// clang-format on

}  // namespace reel
