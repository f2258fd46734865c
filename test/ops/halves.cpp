// Half types: kernels read and write them and compute in float32, on the CPU as on a GPU. So results are those of
// float32 rounded once, and on a GPU no op launches more kernels than in float32.
#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "reel/amp.h"
#include "reel/autograd.h"
#include "reel/cuda.h"
#include "reel/nn.h"
#include "reel/ops.h"
#include "reel/random.h"

namespace reel {
namespace {

using Tensors = std::vector<Tensor>;

constexpr size_t kUncounted = 1000;  // What copies numbers from the host cannot be captured.

struct Case {
  const char* name;
  Tensors (*call)(const Tensors&);
  std::vector<Shape> shapes;
  double ulps = 1;  // of the largest element, where more than one rounding follow each other
  size_t more = 0;  // launches: for conversions of losses, which are small
};

/// n numbers below `end`, with repetitions, where x is. They are made once, outside of graphs.
Tensor ids(const Tensor& x, int64_t n, int64_t end) {
  static std::map<std::tuple<bool, int64_t, int64_t>, Tensor> made;
  Tensor& all = made[{x.device() == kCPU, n, end}];
  if (!all.defined()) all = remainder(arange(n, {.dtype = kInt64, .device = kCPU}), end).to(x.device());
  return all;
}

/// The results of a call, and the gradients for all its inputs under the given ones of the results.
Tensors with_gradients(const Case& c, const Tensors& inputs, const Tensors& cotangents) {
  Tensors arguments;
  for (const Tensor& x : inputs) arguments.push_back(x.detach().requires_grad_());
  Tensors all = c.call(arguments);
  for (const Tensor& g : grad(all, arguments, cotangents, {.allow_unused = true})) all.push_back(g);
  return all;
}

Tensors numbers(const std::vector<Shape>& shapes, DType dtype, Device device) {
  Tensors all;
  for (const Shape& shape : shapes)
    all.push_back(randn(shape, {.dtype = kFloat64, .device = kCPU}).to(dtype).to(device));
  return all;
}
Tensors cotangents_of(const Case& c, const Tensors& inputs) {
  std::vector<Shape> shapes;
  for (const Tensor& y : c.call(inputs)) shapes.push_back(y.shape());
  return numbers(shapes, inputs[0].dtype(), inputs[0].device());
}
Tensors as(DType dtype, const Tensors& all) {
  Tensors result;
  for (const Tensor& x : all) result.push_back(x.to(dtype));
  return result;
}

/// The distance between neighbours of a half type at x.
double spacing(DType dtype, double x) {
  const int digits = dtype == kFloat16 ? 10 : 7, least = dtype == kFloat16 ? -14 : -126;
  return std::ldexp(1, std::max(x == 0 ? least : std::ilogb(x), least) - digits);
}

void compare(const Tensor& found, const Tensor& expected, double ulps) {
  const std::vector<double> a = found.to(kCPU).to_vector<double>(), b = expected.to(kCPU).to_vector<double>();
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (double e : b) largest = std::max(largest, std::abs(e));
  for (size_t i = 0; i < a.size(); ++i) {
    const double error =
        ulps == 1 ? spacing(found.dtype(), b[i]) + 4e-6 * largest : ulps * spacing(found.dtype(), largest);
    if (std::abs(a[i] - b[i]) <= error) continue;
    INFO("element " << i << " of " << found.shape() << ": " << a[i] << ", not " << b[i]);
    REQUIRE(std::abs(a[i] - b[i]) <= error);
  }
}

/// cuBLAS may split a product of one type between two kernels, and not that of another; test/simt's does not.
bool launches_are_counted() { return cuda::is_available() && cuda::device_name() == "a CPU as an H100"; }

size_t launches(const Case& c, const Tensors& inputs, const Tensors& cotangents) {
  with_gradients(c, inputs, cotangents);  // makes plans
  cuda::Graph graph;
  graph.capture([&] { with_gradients(c, inputs, cotangents); });
  return graph.size();
}

/// Recurrent layers over x[0]; the others are their parameters, which are made small.
std::span<const Tensor> parameters(const Tensors& x, Tensors& small) {
  for (size_t i = 1; i < x.size(); ++i) small.push_back(x[i] * 0.125);
  return small;
}
Tensors run_lstm(const Tensors& x, const RecurrentOptions& options = {}) {
  Tensors small;
  const auto result = lstm(x[0], {}, parameters(x, small), options);
  return {result.output, result.state.h, result.state.c};
}
Tensors run_gru(const Tensors& x) {
  Tensors small;
  const auto result = gru(x[0], {}, parameters(x, small));
  return {result.output, result.h};
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"sum", [](const Tensors& x) { return Tensors{sum(x[0])}; }, {Shape{300}}},
      {"sum of rows", [](const Tensors& x) { return Tensors{sum(x[0], -1)}; }, {Shape{5, 70}}},
      {"sum of columns", [](const Tensors& x) { return Tensors{sum(x[0], 0)}; }, {Shape{40, 24}}},
      {"mean", [](const Tensors& x) { return Tensors{mean(x[0])}; }, {Shape{300}}},
      {"mean of the middle", [](const Tensors& x) { return Tensors{mean(x[0], 1, true)}; }, {Shape{3, 40, 5}}},
      {"a broadcast sum", [](const Tensors& x) { return Tensors{x[0] + x[1]}; }, {{20, 8}, {8}}},
      {"a broadcast product", [](const Tensors& x) { return Tensors{x[0] * x[1]}; }, {{20, 8}, {20, 1}}, 4},
      {"linear", [](const Tensors& x) { return Tensors{linear(x[0], x[1], x[2])}; }, {{24, 8}, {16, 8}, {16}}},
      {"layer_norm",
       [](const Tensors& x) { return Tensors{layer_norm(x[0], {32}, x[1], x[2])}; },
       {{9, 32}, {32}, {32}}},
      {"layer_norm of odd rows",
       [](const Tensors& x) { return Tensors{layer_norm(x[0], {21}, x[1], x[2])}; },
       {{5, 21}, {21}, {21}}},
      {"rms_norm", [](const Tensors& x) { return Tensors{rms_norm(x[0], {32}, x[1])}; }, {{9, 32}, {32}}},
      {"group_norm", [](const Tensors& x) { return Tensors{group_norm(x[0], 2, x[1], x[2])}; }, {{3, 6, 10}, {6}, {6}}},
      {"batch_norm",
       [](const Tensors& x) { return Tensors{batch_norm(x[0], {}, {}, x[1], x[2], true)}; },
       {{5, 3, 16}, {3}, {3}}},
      {"instance_norm",
       [](const Tensors& x) { return Tensors{instance_norm(x[0], {}, {}, x[1], x[2])}; },
       {{5, 3, 16}, {3}, {3}}},
      {"amax", [](const Tensors& x) { return Tensors{amax(x[0], -1)}; }, {Shape{5, 30}}},
      {"max along a dimension", [](const Tensors& x) { return Tensors{max(x[0], 1).values}; }, {Shape{5, 30}}},
      {"a comparison", [](const Tensors& x) { return Tensors{where(x[0] > 0.1, x[0], x[1])}; }, {{6, 9}, {6, 9}}},
      {"cumsum", [](const Tensors& x) { return Tensors{cumsum(x[0], 1)}; }, {Shape{5, 30}}},
      {"softmax", [](const Tensors& x) { return Tensors{softmax(x[0], -1)}; }, {Shape{5, 30}}, 2},
      {"log_softmax", [](const Tensors& x) { return Tensors{log_softmax(x[0], -1)}; }, {Shape{5, 30}}, 2},
      {"lstm_cell",
       [](const Tensors& x) {
         const CellState s = lstm_cell(x[0], x[1]);
         return Tensors{s.h, s.c};
       },
       {{5, 28}, {5, 7}},
       3},
      {"tree_lstm_cell",
       [](const Tensors& x) {
         const CellState s = tree_lstm_cell(x[0], std::span(x).subspan(1));
         return Tensors{s.h, s.c};
       },
       {{5, 35}, {5, 7}, {5, 7}},
       3},
      {"dropout", [](const Tensors& x) { return Tensors{dropout(x[0], 0.3)}; }, {Shape{7, 30}}},
      {"cross_entropy",
       [](const Tensors& x) { return Tensors{cross_entropy(x[0] * 4, ids(x[0], 7, 5))}; },
       {Shape{7, 5}},
       1,
       2},
      {"cross_entropy of each row",
       [](const Tensors& x) {
         return Tensors{cross_entropy(x[0], ids(x[0], 7, 5), {.reduction = kNoReduction, .label_smoothing = 0.1})};
       },
       {Shape{7, 5}},
       1,
       2},
      {"nll_loss", [](const Tensors& x) { return Tensors{nll_loss(x[0], ids(x[0], 7, 5))}; }, {Shape{7, 5}}, 1, 4},
      {"embedding", [](const Tensors& x) { return Tensors{embedding(x[0], ids(x[0], 24, 3))}; }, {Shape{9, 6}}},
      {"embedding_bag",
       [](const Tensors& x) {
         return Tensors{embedding_bag(x[0], ids(x[0], 24, 5).view({4, 6}))};
       },
       {Shape{9, 6}},
       3,
       kUncounted},
      {"index_add",
       [](const Tensors& x) { return Tensors{index_add(x[0], 0, ids(x[0], 20, 3), x[1])}; },
       {{4, 6}, {20, 6}},
       3},
      {"scaled_dot_product_attention",
       [](const Tensors& x) {
         const Tensor mask = ids(x[0], 24, 5).view({4, 6}).to(kBool);
         return Tensors{scaled_dot_product_attention(x[0], x[1], x[2], {.mask = mask})};
       },
       {{2, 3, 4, 8}, {2, 3, 6, 8}, {2, 3, 6, 8}},
       12},
      {"lstm in both directions",
       [](const Tensors& x) { return run_lstm(x, {.bidirectional = true}); },
       {{4, 3, 6}, {28, 6}, {28, 7}, {28}, {28}, {28, 6}, {28, 7}, {28}, {28}},
       4},
      {"lstm of few rows, too large for one launch",
       [](const Tensors& x) { return run_lstm(x); },
       {{3, 2, 6}, {560, 6}, {560, 140}, {560}, {560}},
       4},
      {"lstm by products",
       [](const Tensors& x) { return run_lstm(x); },
       {{3, 9, 6}, {560, 6}, {560, 140}, {560}, {560}},
       4},
      {"lstm with a projection",
       [](const Tensors& x) { return run_lstm(x); },
       {{3, 4, 6}, {32, 6}, {32, 5}, {32}, {32}, {5, 8}},
       4},
      {"gru", run_gru, {{4, 3, 6}, {21, 6}, {21, 7}, {21}, {21}}, 4},
      {"gru of few rows, too large for one launch", run_gru, {{3, 2, 6}, {540, 6}, {540, 180}, {540}, {540}}, 4},
      {"gru by products", run_gru, {{3, 9, 6}, {540, 6}, {540, 180}, {540}, {540}}, 4},
      {"rnn_tanh",
       [](const Tensors& x) {
         Tensors small;
         return Tensors{rnn_tanh(x[0], {}, parameters(x, small)).output};
       },
       {{4, 3, 6}, {7, 6}, {7, 7}, {7}, {7}},
       4},
  };
  return all;
}

// ---- whole models ---------------------------------------------------------------------------------------------------

struct Encoder : nn::Module {
  nn::TransformerEncoderLayer layer{*this, "layer", 16, 2, {.dim_feedforward = 24}};
  Tensor x = randn({5, 3, 16}, {.device = kCUDA});
  Tensor loss() const { return mean(layer(x.to(layer.norm1.weight.dtype()))); }
};
struct BiLstm : nn::Module {
  nn::LSTM lstm{*this, "lstm", 8, 6, {.num_layers = 2, .bidirectional = true}};
  nn::Linear out{*this, "out", 12, 5};
  Tensor x = randn({4, 3, 8}, {.device = kCUDA});
  Tensor loss() const { return cross_entropy(out(lstm(x.to(out.weight.dtype())).output.flatten(0, 1)), ids(x, 12, 5)); }
};
struct Tree : nn::Module {
  nn::Embedding words{*this, "words", 10, 12, {.sparse = false}};
  nn::NaryTreeLSTM cell{*this, "cell", 12, 16};
  nn::Linear out{*this, "out", 16, 3};
  Tensor loss() const {
    const auto leaf = [&](int64_t first) { return cell(words(ids(out.weight, 8, 10).narrow(0, first, 2))); };
    const CellState left = cell({}, {leaf(0), leaf(2)}), root = cell({}, {left, cell({}, {leaf(4), leaf(6)})});
    return cross_entropy(out(root.h), ids(root.h, 2, 3));
  }
};

/// Of forward and backward.
template <class Model>
size_t launches_of(DType dtype, DType autocast = kFloat32) {
  manual_seed(31);
  Model model;
  model.to(kCUDA);
  model.to(dtype);
  const auto walk = [&] {
    model.zero_grad();
    const amp::Autocast guard(autocast == kFloat32 ? kBFloat16 : autocast, autocast != kFloat32);
    model.loss().backward();
  };
  walk();
  cuda::Graph graph;
  graph.capture(walk);
  return graph.size();
}
template <class Model>
void check_launches(size_t more, size_t of_autocast) {
  const size_t most = launches_of<Model>(kFloat32);
  for (const DType dtype : {kFloat16, kBFloat16}) {
    INFO(dtype);
    CHECK(launches_of<Model>(dtype) <= most + more);
    CHECK(launches_of<Model>(kFloat32, dtype) <= most + of_autocast);
  }
}

}  // namespace

TEST_CASE("GPU: models of half types launch no more than those of float32", "[cuda]") {
  if (!launches_are_counted()) return;
  // More are casts of the input and the loss; under autocast, those of a parameter and of its gradient.
  SECTION("a Transformer's layer") { check_launches<Encoder>(1, 23); }
  SECTION("an LSTM in both directions") { check_launches<BiLstm>(3, 33); }
  SECTION("a Tree-LSTM") { check_launches<Tree>(2, 20); }
}

namespace {
void check_rounding(Device device) {
  manual_seed(21);
  for (const Case& c : cases())
    for (const DType dtype : {kFloat16, kBFloat16}) {
      INFO(c.name << ", " << dtype);
      const Tensors inputs = numbers(c.shapes, dtype, device), cotangents = cotangents_of(c, inputs);
      manual_seed(5);
      const Tensors found = with_gradients(c, inputs, cotangents);
      manual_seed(5);
      const Tensors expected = with_gradients(c, as(kFloat64, inputs), as(kFloat64, cotangents));
      REQUIRE(found.size() == expected.size());
      for (size_t i = 0; i < found.size(); ++i) {
        INFO("output " << i);
        REQUIRE(found[i].dtype() == dtype);
        compare(found[i], expected[i], c.ulps);
      }
    }
}
}  // namespace
TEST_CASE("ops of half types round once", "[ops][isa]") { check_rounding(kCPU); }
TEST_CASE("GPU: ops of half types round once", "[cuda]") {
  if (cuda::is_available()) check_rounding(kCUDA);
}

TEST_CASE("GPU: ops of half types launch no more than those of float32", "[cuda]") {
  if (!launches_are_counted()) return;
  manual_seed(22);
  for (const Case& c : cases()) {
    if (c.more == kUncounted) continue;
    INFO(c.name);
    const Tensors inputs = numbers(c.shapes, kFloat32, kCUDA), cotangents = cotangents_of(c, inputs);
    const size_t most = launches(c, inputs, cotangents);
    for (const DType dtype : {kFloat16, kBFloat16}) {
      INFO(dtype);
      CHECK(launches(c, as(dtype, inputs), as(dtype, cotangents)) <= most + c.more);
    }
  }
}

namespace {
void check_mean(Device device) {
  const Tensor x = full({1000}, 30000, {.dtype = kFloat16, .device = device});
  CHECK(mean(x).item<double>() == 30000);
  CHECK(sum(x).item<double>() == INFINITY);
}
}  // namespace
TEST_CASE("a mean of half types overflows only where its result does", "[ops]") { check_mean(kCPU); }
TEST_CASE("GPU: a mean of half types overflows only where its result does", "[cuda]") {
  if (cuda::is_available()) check_mean(kCUDA);
}

namespace {
void check_norms_of_float32_parameters(Device device) {
  manual_seed(23);
  using Op = Tensor (*)(const Tensor&, const Tensor&, const Tensor&);
  const Op ops[] = {
      [](const Tensor& x, const Tensor& w, const Tensor& b) { return layer_norm(x, {16}, w, b); },
      [](const Tensor& x, const Tensor& w, const Tensor&) { return rms_norm(x, {16}, w); },
      [](const Tensor& x, const Tensor& w, const Tensor& b) { return group_norm(x, 4, w, b); },
      [](const Tensor& x, const Tensor& w, const Tensor& b) {
        return group_norm(x.unsqueeze(2).expand({6, 16, 5}), 4, w, b);
      },
      [](const Tensor& x, const Tensor& w, const Tensor& b) { return batch_norm(x, {}, {}, w, b, true); },
  };
  for (const Op op : ops)
    for (const DType dtype : {kFloat16, kBFloat16})
      for (const auto& [of_weight, of_bias] : {std::pair(kFloat32, kFloat32), std::pair(dtype, kFloat32)}) {
        INFO("op " << &op - ops << ", " << dtype << ", a weight of " << of_weight);
        const auto run = [&](const Tensor& x, const Tensor& w, const Tensor& b) {
          const Tensors in{x.detach().requires_grad_(), w.detach().requires_grad_(), b.detach().requires_grad_()};
          const Tensor y = op(in[0], in[1], in[2]), g = y.detach() * 0.5;
          Tensors grads = grad({&y, 1}, in, {&g, 1}, {.allow_unused = true});
          grads.push_back(y);
          return grads;
        };
        const Tensors in = numbers({{6, 16}, {16}, {16}}, dtype, device);
        const Tensor w = in[1].to(of_weight) * 1.001, b = in[2].to(of_bias);
        const Tensors found = run(in[0], w, b), expected = run(in[0].to(kFloat64), w.to(kFloat64), b.to(kFloat64));
        CHECK(found[3].dtype() == dtype);
        CHECK(found[0].dtype() == dtype);
        CHECK(found[1].dtype() == of_weight);
        for (const size_t i : {3, 0, 1, 2})
          if (found[i].defined())
            CHECK(
                reel::all(abs(found[i].to(kFloat64) - expected[i]) <= 0.02 * (1 + max(abs(expected[i])))).item<bool>());
      }
}
}  // namespace
TEST_CASE("norms of half types take a weight and a bias of float32", "[ops]") {
  check_norms_of_float32_parameters(kCPU);
}
TEST_CASE("GPU: norms of half types take a weight and a bias of float32", "[cuda]") {
  if (cuda::is_available()) check_norms_of_float32_parameters(kCUDA);
}

TEST_CASE("sums at equal indices are rounded once in half types, too", "[ops]") {
  // Each step of a sum of ones in bfloat16 would be lost from 256 on.
  const Tensor ones_of = ones({1000, 2}, {.dtype = kBFloat16}), at = zeros({1000}, {.dtype = kInt64});
  const Tensor few = zeros({3, 2}, {.dtype = kBFloat16}), many = zeros({2000, 2}, {.dtype = kBFloat16});
  for (const Tensor& x : {few, many}) {
    CHECK(index_add(x, 0, at, ones_of)[0][1].item<double>() == 1000);
    CHECK(scatter_add(x, 0, at.unsqueeze(1).expand({1000, 2}), ones_of)[0][1].item<double>() == 1000);
  }
  CHECK(embedding_bag(ones_of, arange(1000).unsqueeze(0), {.mode = Reduce::kSum})[0][0].item<double>() == 1000);
}

}  // namespace reel
