#include "test/op_rows.h"

namespace reel {

// clang-format off
const std::vector<Row>& random_rows() {
  static const std::vector<Row> rows{

// ---- chance: what is kept is scaled, the rest is put back here

{"dropout", [](In x) { manual_seed(3); const Tensor y = dropout(x[0], 0.25); return where(y == 0, x[0], y * 0.75); },
 [](double x) { return x; }, {range(1, 2)}},
{"dropout(not training)", [](In x) { return dropout(x[0], 0.5, false); }, [](double x) { return x; }, {range(1, 2)}},

};
  return rows;
}
// clang-format on

}  // namespace reel
