#pragma once
#include <catch2/catch.hpp>
#include <cstdlib>
#include <type_traits>
#include <vector>

#include "reel/tensor.h"
#include "test/support/reference.h"

namespace reel {

using reference::Array, reference::Arrays;
using Tensors = std::vector<Tensor>;

/// How an input is made up. Floats are distinct and spread over [low, high]; integer dtypes get the same, rounded.
struct Input {
  enum Draw {
    kFloats,        // of the dtype under test
    kWholeNumbers,  // of the dtype under test, with repetitions
    kMask,          // bool
    kIds,           // int64 in [low, high)
    kDistinctIds,   // the same; along the last dimension no two are equal
  };
  Shape shape;
  double low = -2, high = 2;
  Draw draw = kFloats;
};
/// For pointwise ops, whose shapes the tests choose.
inline Input range(double low, double high) { return {{}, low, high}; }
inline Input whole(double low, double high) { return {{}, low, high, Input::kWholeNumbers}; }
inline Input mask(const Shape& shape = {}) { return {shape, 0, 2, Input::kMask}; }
inline Input ids(const Shape& shape, double end, double begin = 0) { return {shape, begin, end, Input::kIds}; }

/// The formula in double precision: of single elements for a pointwise op, of whole arrays for any other.
struct Reference {
  double (*one)(double) = nullptr;
  double (*two)(double, double) = nullptr;
  double (*three)(double, double, double) = nullptr;
  Array (*arrays)(const Arrays&) = nullptr;

  template <class F>
  Reference(F f) {
    if constexpr (std::is_invocable_v<F, double>)
      one = f;
    else if constexpr (std::is_invocable_v<F, double, double>)
      two = f;
    else if constexpr (std::is_invocable_v<F, double, double, double>)
      three = f;
    else
      arrays = f;
  }
  bool pointwise() const { return !arrays; }
};

enum class Result { kInput, kFloat, kBool, kInt64 };

struct Traits {
  bool integers = false;  // is defined for uint8, int32 and int64, too
  bool bools = false;     // … and for bool
  Result integers_give = Result::kInput;
  Result floats_give = Result::kInput;
  bool differentiable = true;
  double tolerance = 1;  // by this factor less exact than most
};

/// One op. More than one row may test the same: name(what).
struct Row {
  const char* name;
  Tensor (*call)(const Tensors&);
  Reference reference;
  std::vector<Input> inputs;
  Traits traits = {};
};
/// All rows. With REEL_TEST_ROW=NAME in the environment those of NAME and its overloads only; there must be one.
const std::vector<Row>& op_table();

/// check(row) for every row. What one throws is a failure of its own and does not end the others (Catch's sections
/// would do that, too, but their time grows with the square of the rows).
template <class Check>
void for_each_row(const Check& check) {
  for (const Row& row : op_table()) {
    INFO(row.name);
    try {
      check(row);
    } catch (const std::exception& e) {
      FAIL_CHECK(e.what());
    }
  }
}

/// Where the inputs of the rows are made: REEL_TEST_DEVICE=cuda-inputs makes them on the GPU, while everything else is
/// made on the CPU by default, so that an op which forgets where its inputs are is found out.
Device test_device();

/// An input for a row, made up as it says, of a floating-point or integer dtype; position is its place in the row.
Tensor make_input(const Input& input, const Shape& shape, DType dtype, int position);

}  // namespace reel
