#include "test/op_rows.h"

namespace reel {

// clang-format off
const std::vector<Row>& rnn_rows() {
  static const std::vector<Row> rows{

// ---- recurrent cells

{"lstm_cell", [](In x) { const CellState s = lstm_cell(x[0], x[1]); return cat({s.h, s.c}, 1); },
 [](Ref x) { return ref::lstm_cell(x[0], x[1]); }, {{{2, 12}}, {{2, 3}}}},
{"lstm_cell(long)", [](In x) { const CellState s = lstm_cell(x[0], x[1]); return cat({s.h, s.c}, 1); },
 [](Ref x) { return ref::lstm_cell(x[0], x[1]); }, {{{1, 76}}, {{1, 19}}}},
{"lstm_cell(h)", [](In x) { return lstm_cell(x[0], x[1]).h; },
 [](Ref x) { return along(ref::lstm_cell(x[0], x[1]), 1, [](const Line& v) { return ref::first(v, 3); }); },
 {{{2, 12}}, {{2, 3}}}},
{"lstm_cell(c)", [](In x) { return lstm_cell(x[0], x[1]).c; },
 [](Ref x) { return along(ref::lstm_cell(x[0], x[1]), 1, [](const Line& v) { return Line(v.begin() + 3, v.end()); }); },
 {{{2, 12}}, {{2, 3}}}},
{"tree_lstm_cell", [](In x) { const CellState s = tree_lstm_cell(x[0], {x[1], x[2]}); return cat({s.h, s.c}, 1); },
 ref::tree_lstm_cell, {{{2, 15}}, {{2, 3}}, {{2, 3}}}},
{"tree_lstm_cell(leaf)", [](In x) { const CellState s = tree_lstm_cell(x[0], {}); return cat({s.h, s.c}, 1); },
 ref::tree_lstm_cell, {{{2, 9}}}},
{"tree_lstm_cell(one)", [](In x) { const CellState s = tree_lstm_cell(x[0], {x[1]}); return cat({s.h, s.c}, 1); },
 ref::tree_lstm_cell, {{{2, 12}}, {{2, 3}}}},
{"tree_lstm_cell(three)",
 [](In x) { const CellState s = tree_lstm_cell(x[0], {x[1], x[2], x[3]}); return cat({s.h, s.c}, 1); },
 ref::tree_lstm_cell, {{{1, 102}}, {{1, 17}}, {{1, 17}}, {{1, 17}}}},
{"tree_lstm_cell(c)", [](In x) { return tree_lstm_cell(x[0], {x[1]}).c; },
 [](Ref x) { return along(ref::tree_lstm_cell(x), 1, [](const Line& v) { return Line(v.begin() + 3, v.end()); }); },
 {{{2, 12}}, {{2, 3}}}},

};
  return rows;
}
// clang-format on

}  // namespace reel
