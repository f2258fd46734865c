#include <catch2/catch.hpp>

#include "test/support/op_rows.h"
#include "test/support/wrong_calls.h"

namespace reel {
namespace {

using Around = std::vector<int64_t>;  // before and behind the last dimension, around the one before, …

/// x with every element at i of a dimension taken from source(i - before, size), `value` where that is outside.
Array padded(const Array& x, const Around& around, int64_t (*source)(int64_t, int64_t), double value = 0) {
  Shape shape = x.shape;
  const auto before = [&](int d) -> int64_t {
    const size_t i = 2 * static_cast<size_t>(shape.size() - 1 - d);
    return i < around.size() ? around[i] : 0;
  };
  for (size_t i = 0; i < around.size(); ++i) shape[shape.size() - 1 - static_cast<int>(i / 2)] += around[i];
  return build(shape, [&](const Index& at) {
    Index from = at;
    for (int d = 0; d < at.size(); ++d) {
      from[d] = source(at[d] - before(d), x.shape[d]);
      if (from[d] < 0 || from[d] >= x.shape[d]) return value;
    }
    return x(from);
  });
}

int64_t itself(int64_t i, int64_t) { return i; }
int64_t mirrored(int64_t i, int64_t size) { return i < 0 ? -i : i < size ? i : 2 * size - 2 - i; }
int64_t nearest(int64_t i, int64_t size) { return i < 0 ? 0 : i < size ? i : size - 1; }
int64_t around(int64_t i, int64_t size) { return (i % size + size) % size; }

}  // namespace

// clang-format off
const std::vector<Row>& pad_rows() {
  static const std::vector<Row> rows{

{"pad", [](In x) { return pad(x[0], {1, 2, 0, 1}); }, [](Ref x) { return padded(x[0], {1, 2, 0, 1}, itself); },
 {{kCube}}, kMoves},
{"pad(value)", [](In x) { return pad(x[0], {1, 0, 2, 1, 1, 1}, kConstant, 1); },
 [](Ref x) { return padded(x[0], {1, 0, 2, 1, 1, 1}, itself, 1); }, {{kCube}}, kMoves},
{"pad(cut)", [](In x) { return pad(x[0], {-1, 2, 1, -2}, kConstant, 1); },
 [](Ref x) { return padded(x[0], {-1, 2, 1, -2}, itself, 1); }, {{kCube}}, kMoves},
{"pad(only cut)", [](In x) { return pad(x[0], {-1, -1}); }, [](Ref x) { return padded(x[0], {-1, -1}, itself); },
 {{kMatrix}}, kMoves},
{"pad(nothing)", [](In x) { return pad(x[0], {}); }, [](Ref x) { return x[0]; }, {{kMatrix}}, kMoves},
{"pad(empty)", [](In x) { return pad(x[0], {1, 1}, kConstant, 1); },
 [](Ref x) { return padded(x[0], {1, 1}, itself, 1); }, {{{2, 0}}}, kMoves},
{"pad(reflect)", [](In x) { return pad(x[0], {2, 3}, kReflect); },
 [](Ref x) { return padded(x[0], {2, 3}, mirrored); }, {{kCube}}, kMoves},
{"pad(reflect, 3-d)", [](In x) { return pad(x[0], {1, 1, 2, 0, -1, 1}, kReflect); },
 [](Ref x) { return padded(x[0], {1, 1, 2, 0, -1, 1}, mirrored); }, {{{2, 2, 3, 2}}}, kMoves},
{"pad(replicate)", [](In x) { return pad(x[0], {5, 1, -1, 2}, kReplicate); },
 [](Ref x) { return padded(x[0], {5, 1, -1, 2}, nearest); }, {{kCube}}, kMoves},
{"pad(circular)", [](In x) { return pad(x[0], {4, 1, 2, 3}, kCircular); },
 [](Ref x) { return padded(x[0], {4, 1, 2, 3}, around); }, {{kCube}}, kMoves},
{"pad(reflect, many images)", [](In x) { return pad(x[0], {1, 2, 0, 0, 1, 1}, kReflect); },
 [](Ref x) { return padded(x[0], {1, 2, 0, 0, 1, 1}, mirrored); }, {{{9, 2, 2, 3}}}, kMoves},
{"pad(replicate, many images)", [](In x) { return pad(x[0], {0, 0, 2, 1, -1, 2}, kReplicate); },
 [](Ref x) { return padded(x[0], {0, 0, 2, 1, -1, 2}, nearest); }, {{{5, 2, 3, 2, 2}}}, kMoves},
{"pad(circular, cut)", [](In x) { return pad(x[0], {2, -1, -1, 1}, kCircular); },
 [](Ref x) { return padded(padded(x[0], {0, -1, -1, 0}, itself), {2, 0, 0, 1}, around); }, {{kCube}}, kMoves},

};
  return rows;
}
// clang-format on

TEST_CASE("wrong padding says what is wrong", "[pad][errors]") {
  const WrongCall calls[] = {
      {[](World& w) {
         pad(w.undefined, {1, 1});
       },
       "pad: undefined tensor"},
      {[](World& w) { pad(w.matrix, {1}); }, "pad: 1 amounts; there are two a dimension"},
      {[](World& w) {
         pad(w.vector, {1, 1, 1, 1});
       },
       "pad: 4 amounts for a tensor of shape [3]"},
      {[](World& w) {
         pad(w.vector, {-2, -2});
       },
       "pad: -2 and -2 leave nothing of size 3 in dimension 0 of shape [3]"},
      {[](World& w) {
         pad(w.vector, {-4, 2});
       },
       "pad: -4 and 2 cut more than the size of dimension 0 of shape [3]"},
      {[](World& w) {
         pad(w.vector, {1, 1}, kReflect);
       },
       "pad: 2 amounts for a tensor of shape [3]; but for kConstant 2, 4 or 6 pad the last dimensions, with 1 or 2 in "
       "front"},
      {[](World& w) {
         pad(w.matrix, {4, 0}, kReflect);
       },
       "pad: kReflect pads by less than the size, got 4 for size 4 of shape [3, 4]"},
      {[](World& w) {
         pad(w.matrix, {0, 5}, kCircular);
       },
       "pad: kCircular pads by at most the size, got 5 for size 4 of shape [3, 4]"},
      {[](World&) {
         pad(zeros({2, 0}), {1, 1}, kReplicate);
       },
       "pad: shape [2, 0] has no elements to repeat in dimension 1"},
  };
  check_wrong_calls(calls);
}

TEST_CASE("padding by any numbers is done or refused", "[pad][errors]") {
  const Tensor x = ones({2, 5});
  const int64_t amounts[] = {INT64_MIN, INT64_MIN + 1,    -(int64_t{1} << 62), -6,       -5, -1, 0,
                             4,         int64_t{1} << 62, INT64_MAX - 5,       INT64_MAX};
  for (const PadMode mode : {kConstant, kReflect, kReplicate, kCircular})
    for (const int64_t before : amounts)
      for (const int64_t after : amounts) {
        INFO("mode " << static_cast<int>(mode) << ": " << before << ", " << after);
        const bool is_small = std::max(before, after) < 5 && std::min(before, after) > -7;
        try {
          const int64_t size = pad(x, {before, after}, mode).size(1);
          REQUIRE(is_small);
          CHECK(size == 5 + before + after);
        } catch (const Error&) {
          CHECK((!is_small || std::min(before, after) < -4 || before + after < -4));
        }
      }
}

}  // namespace reel
