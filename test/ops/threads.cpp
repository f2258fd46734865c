#include <catch2/catch.hpp>
#include <cstring>

#include "test/support/op_table.h"
#include "test/support/threads.h"

namespace reel {

TEST_CASE("every op gives the same bits for 1, 2, 3 and 8 threads", "[threads][cpu]") {
  const PartSize small(16);
  for (const Row& row : op_table()) {
    std::vector<std::vector<Shape>> shapes{{}};
    if (row.reference.pointwise()) {
      const size_t n = row.inputs.size();
      shapes = {std::vector<Shape>(n, Shape{5, 19}), std::vector<Shape>(n, Shape{131})};
      if (n == 2 && row.name[std::strlen(row.name) - 1] != '_' && std::string(row.name) != "operator+=")
        shapes.push_back({{23, 1}, {1, 9}});
    }
    for (const DType dtype : {kFloat32, kFloat64, kBFloat16, kInt64}) {
      if (!is_floating_point(dtype) && !row.traits.integers) continue;
      for (const std::vector<Shape>& shape : shapes) {
        Tensors inputs;
        for (size_t i = 0; i < row.inputs.size(); ++i)
          inputs.push_back(make_input(row.inputs[i], shape.empty() ? row.inputs[i].shape : shape[i], dtype, i));
        INFO(row.name << " of " << dtype);
        const auto run = [&] { return with_gradients(row.call, inputs); };
        CHECK(difference(run) == "");
        CHECK(error_of_division(run) == "");
      }
    }
  }
}

}  // namespace reel
