#include <vector>

#include "reel/batching.h"
#include "reel/reel.h"
#include "reel/testing.h"
#include "test/support/pch.h"

using namespace reel;

// Weights that are large enough for the groups of a map to keep copies of them.

namespace {

constexpr int64_t kIn = 96, kHidden = 40;

/// The state of a chain of so many nodes.
CellState read(const nn::NaryTreeLSTM& cell, const Tensor& x, int64_t nodes) {
  CellState state = cell(x);
  for (int64_t i = 1; i < nodes; ++i) state = cell({}, {state, cell(x)});
  return state;
}

}  // namespace

TEST_CASE("weights that many groups share give the values and gradients of single calls") {
  const DType dtype = GENERATE(kFloat32, kFloat64);
  const double tolerance = dtype == kFloat32 ? 1e-5 : 1e-12;
  manual_seed(1);
  nn::NaryTreeLSTM cell(kIn, kHidden);
  cell.to(dtype);
  std::vector<Tensor> inputs;
  for (int64_t i = 0; i < 12; ++i) inputs.push_back(randn({1 + i % 2, kIn}, {.dtype = dtype}));
  const auto one = [&](const Tensor& x) { return sum(sin(read(cell, x, 3 + x.size(0)).h)); };

  std::vector<Tensor> expected;
  for (const Tensor& x : inputs) expected.push_back(one(x));
  sum(stack(expected)).backward();
  std::vector<Tensor> gradients;
  for (const Tensor& parameter : cell.parameters()) gradients.push_back(parameter.grad());
  cell.zero_grad();

  const std::vector<Tensor> found = batching::map(inputs, one);
  sum(stack(found)).backward();
  CHECK(allclose(stack(found), stack(expected), tolerance, tolerance));
  const std::vector<Tensor> parameters = cell.parameters();
  for (size_t i = 0; i < parameters.size(); ++i)
    CHECK(allclose(parameters[i].grad(), gradients[i], 10 * tolerance, 10 * tolerance));
}

TEST_CASE("an op that changes a weight in a map is seen by the groups behind it") {
  manual_seed(1);
  nn::Linear layer(kIn, kIn);
  const size_t examples = 8;
  std::vector<int> numbers(examples);
  const Tensor x = randn({1, kIn});
  size_t arrived = 0;
  NoGrad guard;
  const Tensor before = layer(x);
  const auto doubled = batching::map(numbers, [&](int) {
    for (int i = 0; i < 3; ++i) CHECK(allclose(layer(x), before, 1e-5, 1e-5));
    if (++arrived == examples) layer.weight.mul_(2), layer.bias.mul_(2);  // the others wait in the next call
    layer(x);
    return std::vector<Tensor>{layer(x), layer(x)};
  });
  for (const auto& results : doubled)
    for (const Tensor& y : results) CHECK(allclose(y, 2 * before, 1e-5, 1e-5));
  CHECK(allclose(layer(x), 2 * before, 1e-5, 1e-5));
}

TEST_CASE("a weight that is replaced in a map is seen by the groups behind it") {
  manual_seed(1);
  nn::Linear layer(kIn, kIn);
  const size_t examples = 8;
  std::vector<int> numbers(examples);
  const Tensor x = randn({1, kIn});
  size_t arrived = 0;
  NoGrad guard;
  const auto found = batching::map(numbers, [&](int) {
    for (int i = 0; i < 3; ++i) layer(x);
    if (++arrived == examples) layer.weight = zeros({kIn, kIn});
    layer(x);
    return layer(x);
  });
  for (const Tensor& y : found) CHECK(allclose(y, layer.bias.unsqueeze(0), 1e-6, 1e-6));
}

TEST_CASE("cells compute the same whether they are recorded or not") {
  const DType dtype = GENERATE(kFloat32, kFloat64, kFloat16, kBFloat16);
  manual_seed(1);
  const Tensor gates = randn({3, 5 * kHidden}).to(dtype), c1 = randn({3, kHidden}).to(dtype),
               c2 = randn({3, kHidden}).to(dtype);
  const CellState alone = tree_lstm_cell(gates, {c1, c2});
  Tensor leaf = gates.clone();
  leaf.requires_grad_();
  const CellState recorded = tree_lstm_cell(leaf, {c1, c2});
  CHECK(equal(alone.h, recorded.h.detach()));
  CHECK(equal(alone.c, recorded.c.detach()));
}
