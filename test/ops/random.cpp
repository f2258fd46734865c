#include "test/support/op_rows.h"

namespace reel {

namespace {
// Undoes the scale and shift of alpha_dropout(x, 0.25) for positive x, and puts back what was dropped.
Tensor kept(const Tensor& x, const Tensor& y) {
  const double limit = 1.7580993408473766, scale = 1 / std::sqrt((limit * limit * 0.25 + 1) * 0.75);
  return where(y < 0, x, (y - limit * scale * 0.25) / scale);
}
}  // namespace

// clang-format off
const std::vector<Row>& random_rows() {
  static const std::vector<Row> rows{

// ---- chance: what is kept is scaled, the rest is put back here

{"dropout", [](In x) { manual_seed(3); const Tensor y = dropout(x[0], 0.25); return where(y == 0, x[0], y * 0.75); },
 [](double x) { return x; }, {range(1, 2)}},
{"dropout1d", [](In x) { manual_seed(3); const Tensor y = dropout1d(x[0], 0.25); return where(y == 0, x[0], y * 0.75); },
 [](Ref x) { return x[0]; }, {{kCube, 1, 2}}},
{"dropout2d", [](In x) { manual_seed(3); const Tensor y = dropout2d(x[0], 0.25); return where(y == 0, x[0], y * 0.75); },
 [](Ref x) { return x[0]; }, {{kCube, 1, 2}}},
{"dropout3d", [](In x) { manual_seed(3); const Tensor y = dropout3d(x[0], 0.25); return where(y == 0, x[0], y * 0.75); },
 [](Ref x) { return x[0]; }, {{{2, 3, 2, 2}, 1, 2}}},
{"alpha_dropout", [](In x) { return manual_seed(3), kept(x[0], alpha_dropout(x[0], 0.25)); }, [](double x) { return x; },
 {range(1, 2)}},
{"feature_alpha_dropout", [](In x) { return manual_seed(3), kept(x[0], feature_alpha_dropout(x[0], 0.25)); },
 [](Ref x) { return x[0]; }, {{kCube, 1, 2}}},
{"dropout(not training)", [](In x) { return dropout(x[0], 0.5, false); }, [](double x) { return x; }, {range(1, 2)}},

};
  return rows;
}
// clang-format on

}  // namespace reel
