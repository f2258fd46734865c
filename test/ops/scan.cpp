#include <catch2/catch.hpp>

#include "test/support/op_rows.h"

namespace reel {
namespace {

Line running_product(const Line& x) {
  Line y(x.size());
  std::partial_sum(x.begin(), x.end(), y.begin(), std::multiplies());
  return y;
}
Line running_logsumexp(const Line& x) {
  Line y;
  for (size_t i = 1; i <= x.size(); ++i) y.push_back(ref::logsumexp(Line(x.begin(), x.begin() + i)));
  return y;
}
/// Positions of the largest so far, of x or of -x, the last of equals.
Line running_best(const Line& x, double sign) {
  Line y;
  size_t best = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (sign * x[i] >= sign * x[best]) best = i;
    y.push_back(static_cast<double>(best));
  }
  return y;
}
Line at(const Line& x, Line positions) {
  for (double& p : positions) p = x[static_cast<size_t>(p)];
  return positions;
}
Line differences(const Line& x) {
  Line y;
  for (size_t i = 1; i < x.size(); ++i) y.push_back(x[i] - x[i - 1]);
  return y;
}

}  // namespace

// clang-format off
const std::vector<Row>& scan_rows() {
  static const std::vector<Row> rows{

{"cumsum", [](In x) { return cumsum(x[0], -1); }, [](Ref x) { return along(x[0], 2, ref::running_total); }, {{kCube}},
 kSums},
{"cumsum(first)", [](In x) { return cumsum(x[0], 0); }, [](Ref x) { return along(x[0], 0, ref::running_total); },
 {{kCube}}, kSums},
{"cumsum(0-d)", [](In x) { return cumsum(x[0], 0); }, [](Ref x) { return x[0]; }, {{kNumber}}, kSums},
{"cumprod", [](In x) { return cumprod(x[0], -1); }, [](Ref x) { return along(x[0], 2, running_product); },
 {{kCube, -2, 2}}, kSums},
{"cumprod(zeros)", [](In x) { return cumprod(x[0], 0); }, [](Ref x) { return along(x[0], 0, running_product); },
 {{{6, 3}, -1, 1, Input::kWholeNumbers}}, kSums},
{"cumprod(0-d)", [](In x) { return cumprod(x[0], 0); }, [](Ref x) { return x[0]; }, {{kNumber, 0, 0}}, kSums},
{"cummax", [](In x) { return cummax(x[0], 1).values; },
 [](Ref x) { return along(x[0], 1, [](const Line& v) { return at(v, running_best(v, 1)); }); }, {{{2, 9, 3}}},
 kArithmetic},
{"cummax.indices", [](In x) { return cummax(x[0], 0).indices; },
 [](Ref x) { return along(x[0], 0, [](const Line& v) { return running_best(v, 1); }); },
 {{{20, 2}, -2, 2, Input::kWholeNumbers}}, kFinds},
{"cummin", [](In x) { return cummin(x[0], -1).values; },
 [](Ref x) { return along(x[0], 1, [](const Line& v) { return at(v, running_best(v, -1)); }); }, {{{3, 9}}},
 kArithmetic},
{"cummin.indices", [](In x) { return cummin(x[0], 1).indices; },
 [](Ref x) { return along(x[0], 1, [](const Line& v) { return running_best(v, -1); }); },
 {{{2, 20}, -2, 2, Input::kWholeNumbers}}, kFinds},
{"logcumsumexp", [](In x) { return logcumsumexp(x[0], 1); },
 [](Ref x) { return along(x[0], 1, running_logsumexp); }, {{{2, 5, 3}, -4, 4}}},
{"logcumsumexp(0-d)", [](In x) { return logcumsumexp(x[0], 0); }, [](Ref x) { return x[0]; }, {{kNumber}}},
{"diff", [](In x) { return diff(x[0]); }, [](Ref x) { return along(x[0], 2, differences); }, {{kCube}}, kArithmetic},
{"diff(twice)", [](In x) { return diff(x[0], 2, 0); },
 [](Ref x) { return along(x[0], 0, [](const Line& v) { return differences(differences(v)); }); }, {{{5, 3}}},
 kArithmetic},
{"diff(prepend, append)", [](In x) { return diff(x[0], 1, 1, x[1], x[2]); },
 [](Ref x) {
   return build({2, 5}, [&](const Index& i) {
     const auto value = [&](int64_t j) { return j == 0 ? x[1]({i[0], 0}) : j <= 3 ? x[0]({i[0], j - 1}) : x[2]({i[0], j - 4}); };
     return value(i[1] + 1) - value(i[1]);
   });
 },
 {{{2, 3}}, {{2, 1}}, {{2, 2}}}, kArithmetic},

};
  return rows;
}
// clang-format on

TEST_CASE("scans of adjacent lines are those of each line by itself, NaN and infinities included", "[ops][isa]") {
  manual_seed(1);
  for (const DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16, kInt64, kInt32, kUInt8})
    for (const Shape& shape : {Shape{5, 300}, Shape{7, 1}, Shape{1, 3}, Shape{2, 9, 17}, Shape{0, 4}, Shape{4, 0}}) {
      const int dim = static_cast<int>(shape.size()) - 2;
      Tensor x = randint(-3, 4, shape).to(kFloat32) * (is_floating_point(dtype) ? 0.75f : 1.f);
      if (is_floating_point(dtype) && x.numel() > 100) {
        for (const double value : {std::nan(""), ref::kInfinity, -ref::kInfinity, -0.})
          x = where(rand(shape) < 0.03, value, x);
      }
      x = (dtype == kUInt8 ? abs(x) : x).to(dtype);
      const Tensor lines = x.transpose(-1, -2).contiguous();
      const auto check = [&](const char* name, const Tensor& got, const Tensor& by_line) {
        INFO(name << " of " << dtype << ' ' << shape);
        CHECK(all(isclose(got, by_line.transpose(-1, -2), 0, 0, true)).item<bool>());
      };
      check("cumsum", cumsum(x, dim), cumsum(lines, -1));
      check("cumprod", cumprod(x, dim), cumprod(lines, -1));
      if (is_floating_point(dtype)) check("logcumsumexp", logcumsumexp(x, dim), logcumsumexp(lines, -1));
      const auto largest = cummax(x, dim), largest_by_line = cummax(lines, -1);
      check("cummax", largest.values, largest_by_line.values);
      check("cummax.indices", largest.indices, largest_by_line.indices);
      const auto smallest = cummin(x, dim), smallest_by_line = cummin(lines, -1);
      check("cummin", smallest.values, smallest_by_line.values);
      check("cummin.indices", smallest.indices, smallest_by_line.indices);
    }
}

}  // namespace reel
