#include "test/op_rows.h"

namespace reel {

const std::vector<Row>& resize_rows() {
  static const std::vector<Row> rows;
  return rows;
}

}  // namespace reel
