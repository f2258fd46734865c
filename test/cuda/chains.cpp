// Sequential algorithms on a GPU against the CPU's: recurrent layers with sizes for each implementation, CRFs, CTC,
// triangular systems, optimizers. Sizes that the op table does not have.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <optional>
#include <string>

#include "reel/autograd.h"
#include "reel/cuda.h"
#include "reel/nn.h"
#include "reel/ops.h"
#include "reel/optim.h"
#include "reel/precision.h"
#include "reel/random.h"

namespace reel::cuda {
// Absent from a build without CUDA.
[[gnu::weak]] unsigned long long fallbacks();   // cuda/runtime.h
[[gnu::weak]] extern int64_t cudnn_min_hidden;  // cuda/rnn_layer.cu
}  // namespace reel::cuda
namespace simt {
[[gnu::weak]] extern unsigned long long launches();
[[gnu::weak]] extern bool dnn_layers();  // test/simt/dnn.h
}  // namespace simt

using namespace reel;

namespace {

using Tensors = std::vector<Tensor>;
using Function = std::function<Tensors(const Tensors&)>;

TensorOptions host(DType dtype = kFloat64) { return {.dtype = dtype, .device = kCPU}; }
Tensor numbers(const Shape& shape, double scale = 1) { return randn(shape, host()) * scale; }

void compare(const Tensor& expected, const Tensor& result, double tolerance = 1e-9) {
  REQUIRE(result.device() == kCUDA);
  REQUIRE(result.shape() == expected.shape());
  const auto wanted = expected.to(kFloat64).to_vector<double>(),
             found = result.to(kCPU).to(kFloat64).to_vector<double>();
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] == found[i] || (std::isnan(wanted[i]) && std::isnan(found[i])) ||
        std::abs(wanted[i] - found[i]) <= tolerance * (1 + std::abs(wanted[i])))
      continue;
    CAPTURE(i, wanted[i], found[i], expected.shape());
    FAIL_CHECK();
    return;
  }
  SUCCEED();
}

/// f's results and the gradients of its floating-point inputs, for random gradients of its results.
void check(const Function& f, const Tensors& inputs, double tolerance = 1e-9) {
  Tensors cotangents, results[2], grads[2];
  for (const Device device : {kCPU, kCUDA}) {
    const int which = device == kCUDA;
    Tensors own;
    for (const Tensor& x : inputs)
      own.push_back(!x.defined()            ? x
                    : x.is_floating_point() ? x.detach().to(device).clone().requires_grad_()
                                            : x.to(device));
    Tensor total;
    size_t i = 0;
    for (const Tensor& y : f(own)) {
      results[which].push_back(y.detach());
      if (!y.is_floating_point() || !y.requires_grad()) continue;
      if (which == 0) cotangents.push_back(numbers(y.shape()));
      const Tensor part = sum(y * cotangents[i++].to(device));
      total = total.defined() ? total + part : part;
    }
    if (!total.defined()) continue;
    total.backward();
    for (const Tensor& x : own)
      if (x.defined() && x.is_floating_point() && x.grad().defined()) grads[which].push_back(x.grad());
  }
  REQUIRE(grads[0].size() == grads[1].size());
  for (size_t i = 0; i < results[0].size(); ++i) compare(results[0][i], results[1][i], tolerance);
  for (size_t i = 0; i < grads[0].size(); ++i) compare(grads[0][i], grads[1][i], tolerance);
}

// ---- recurrent layers -----------------------------------------------------------------------------------------------

enum Kind { kLstm, kGru, kTanh, kRelu };

Tensors parameters(Kind kind, int64_t in, int64_t hidden, int64_t width, int directions, bool bias) {
  Tensors all;
  const int64_t gates = (kind == kLstm ? 4 : kind == kGru ? 3 : 1) * hidden;
  const double scale = 1 / std::sqrt(static_cast<double>(hidden));
  for (int d = 0; d < directions; ++d) {
    all.push_back(numbers({gates, in}, scale)), all.push_back(numbers({gates, width}, scale));
    if (bias) all.push_back(numbers({gates}, scale)), all.push_back(numbers({gates}, scale));
    if (width != hidden) all.push_back(numbers({width, hidden}, scale));
  }
  return all;
}

template <class Sequence>
Tensors layer(Kind kind, const Sequence& x, const Tensor& h, const Tensor& c, std::span<const Tensor> weights,
              const RecurrentOptions& options) {
  const auto join = [](const auto& output, Tensors states) {
    if constexpr (std::is_same_v<std::decay_t<decltype(output)>, Tensor>)
      states.push_back(output);
    else
      states.insert(states.end(), output.begin(), output.end());
    return states;
  };
  if (options.training) manual_seed(5);  // the same masks on both devices
  if (kind == kLstm) {
    const auto result = lstm(x, {h, c}, weights, options);
    return join(result.output, {result.state.h, result.state.c});
  }
  const auto result = kind == kGru    ? gru(x, h, weights, options)
                      : kind == kTanh ? rnn_tanh(x, h, weights, options)
                                      : rnn_relu(x, h, weights, options);
  return join(result.output, {result.h});
}

struct LayerCase {
  int64_t rows, hidden;
  int64_t width = 0;  // of h, if projected
};
// In float64: one block a row, a warp a unit, products; those projected; more rows than one launch takes.
constexpr LayerCase kLayers[] = {{1, 1}, {3, 20}, {5, 150}, {1, 160}, {12, 150}, {4, 12, 5}, {3, 5, 12}, {130, 3}};

}  // namespace

TEST_CASE("recurrent layers of all sizes match the CPU on a GPU", "[cuda]") {
  if (!cuda::is_available()) return;
  for (const Kind kind : {kLstm, kGru, kTanh, kRelu})
    for (const LayerCase& c : kLayers)
      for (const auto& [given, dropped] : {std::pair{false, false}, {true, false}, {true, true}}) {
        if (c.width && kind != kLstm) continue;
        CAPTURE(kind, c.rows, c.hidden, c.width, given, dropped);
        const int directions = c.hidden < 100 ? 2 : 1;
        const int64_t in = 3, steps = 4, width = c.width ? c.width : c.hidden;
        const RecurrentOptions options{.bias = given,
                                       .bidirectional = directions == 2,
                                       .training = dropped,
                                       .input_dropout = 0.3,
                                       .recurrent_dropout = 0.4};
        const Tensors weights = parameters(kind, in, c.hidden, width, directions, given);
        Tensors inputs{given ? numbers({directions, c.rows, width}) : Tensor(),
                       given && kind == kLstm ? numbers({directions, c.rows, c.hidden}) : Tensor()};
        inputs.insert(inputs.end(), weights.begin(), weights.end());
        const size_t first_x = inputs.size();
        inputs.push_back(numbers({steps, c.rows, in}));
        check(
            [&](const Tensors& x) {
              return layer(kind, x.back(), x[0], x[1], std::span(x).subspan(2, weights.size()), options);
            },
            inputs);
        inputs.pop_back();
        for (int64_t row = 0; row < std::min<int64_t>(c.rows, 12); ++row)
          inputs.push_back(numbers({1 + row * 7 % 5, in}));
        if (given && c.rows > 12) continue;
        check(
            [&](const Tensors& x) {
              return layer(kind, std::span(x).subspan(first_x), x[0], x[1], std::span(x).subspan(2, weights.size()),
                           options);
            },
            inputs);
      }
}

// ---- recurrent layers by cuDNN --------------------------------------------------------------------------------------

namespace {

/// While it lives, states from this size on are large.
class Large {
 public:
  explicit Large(int64_t from = 1) : before_(cuda::cudnn_min_hidden) { cuda::cudnn_min_hidden = from; }
  ~Large() { cuda::cudnn_min_hidden = before_; }

 private:
  int64_t before_;
};
/// While it lives, test/simt's cuDNN behaves in this way.
class Library {
 public:
  explicit Library(const char* way) { setenv("SIMT_DNN", way, 1); }
  ~Library() { unsetenv("SIMT_DNN"); }
};
/// Whether that computes recurrent layers, and counts launches.
bool has_library() { return cuda::is_available() && simt::dnn_layers && simt::dnn_layers(); }

/// A layer of 12 or more sequences, as a function of its inputs: h and c or nothing, parameters, sequences.
struct LargeLayer {
  Kind kind = kLstm;
  int64_t hidden = 10;
  bool given = true;   // biases and first states
  bool packed = true;  // sequences of 1 to 5 steps, else all of 5
  int directions = 2, layers = 2;
  int64_t rows = 12, in = 7;
  double dropout = 0;

  RecurrentOptions options() const {
    return {.num_layers = layers,
            .bias = given,
            .dropout = dropout,
            .bidirectional = directions == 2,
            .training = dropout > 0};
  }
  size_t count() const { return static_cast<size_t>(layers) * static_cast<size_t>(directions) * (given ? 4 : 2); }
  Tensors inputs() const {
    const auto state = [&] { return numbers({layers * directions, rows, hidden}); };
    Tensors all{given ? state() : Tensor(), given && kind == kLstm ? state() : Tensor()};
    for (int l = 0; l < layers; ++l)
      for (const Tensor& p : parameters(kind, l ? directions * hidden : in, hidden, hidden, directions, given))
        all.push_back(p);
    if (!packed) all.push_back(numbers({5, rows, in}));
    for (int64_t row = 0; packed && row < rows; ++row) all.push_back(numbers({1 + row * 7 % 5, in}));
    return all;
  }
  Tensors operator()(const Tensors& x) const {
    const std::span<const Tensor> all(x), weights = all.subspan(2, count()), sequences = all.subspan(2 + count());
    if (packed) return layer(kind, sequences, x[0], x[1], weights, options());
    return layer(kind, sequences[0], x[0], x[1], weights, options());
  }
};

Tensors on_gpu(const Tensors& all, DType dtype = kFloat64) {
  Tensors copies;
  for (const Tensor& x : all)
    copies.push_back(x.defined() ? x.detach().to(dtype).to(kCUDA).clone().requires_grad_() : Tensor());
  return copies;
}
/// The gradients of the sum of squares of f's results.
Tensors gradients(const Function& f, const Tensors& inputs) {
  Tensor total;
  for (const Tensor& y : f(inputs)) total = total.defined() ? total + sum(square(y)) : sum(square(y));
  total.backward();
  Tensors grads;
  for (const Tensor& x : inputs)
    if (x.defined()) grads.push_back(x.grad());
  return grads;
}

}  // namespace

TEST_CASE("recurrent layers that cuDNN computes match the CPU", "[cuda][cudnn]") {
  if (!cuda::is_available()) return;
  const Large large;
  const auto before = cuda::fallbacks();
  for (const Kind kind : {kLstm, kGru, kTanh, kRelu})
    for (const bool given : {false, true})
      for (const bool packed : {false, true})
        for (const int number : {1, 2}) {
          CAPTURE(kind, given, packed, number);
          const LargeLayer f{
              .kind = kind, .given = given, .packed = packed, .directions = 3 - number, .layers = number};
          check(f, f.inputs());
        }
  const LargeLayer dropped{.dropout = 0.4}, wide{.hidden = 40, .directions = 1, .layers = 1, .rows = 130, .in = 1};
  check(dropped, dropped.inputs());
  check(wide, wide.inputs());
  if (has_library()) CHECK(cuda::fallbacks() == before);
}

TEST_CASE("large recurrent layers of all types are what products make of them", "[cuda][cudnn]") {
  if (!cuda::is_available()) return;
  const auto compare_norms = [](const Tensor& expected, const Tensor& found, double tolerance) {
    const Tensor wanted = expected.to(kFloat64), difference = abs(found.to(kFloat64) - wanted);
    CHECK(max(difference).item<double>() <= tolerance * (max(abs(wanted)).item<double>() + tolerance));
  };
  for (const DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16})
    for (const Kind kind : {kLstm, kGru, kTanh, kRelu})
      for (const bool tf32 : {false, true}) {
        if ((tf32 || is_half(dtype)) && (kind == kTanh || kind == kRelu)) continue;
        if (tf32 && dtype != kFloat32) continue;
        if (tf32) set_matmul_precision(MatmulPrecision::kHigh);
        CAPTURE(dtype, kind, tf32);
        const LargeLayer f{.kind = kind, .hidden = 130, .layers = 1};  // an LSTM too large for one launch
        const Tensors inputs = f.inputs();
        Tensors results[2], grads[2];
        for (const bool library : {false, true}) {
          const Large large(library ? 1 : 1 << 30);
          const Tensors own = on_gpu(inputs, dtype);
          results[library] = f(own), grads[library] = gradients(f, own);
        }
        const double tolerance = dtype == kFloat64   ? 1e-12
                                 : dtype == kFloat32 ? (tf32 ? 1e-2 : 1e-5)
                                 : dtype == kFloat16 ? 1e-2
                                                     : 5e-2;
        for (size_t i = 0; i < results[0].size(); ++i) compare_norms(results[0][i], results[1][i], tolerance);
        for (size_t i = 0; i < grads[0].size(); ++i) compare_norms(grads[0][i], grads[1][i], tolerance);
        set_matmul_precision(MatmulPrecision::kHighest);
      }
}

TEST_CASE("a large recurrent layer is a few calls of cuDNN", "[cuda][cudnn]") {
  if (!has_library()) return;
  const LargeLayer f{.hidden = 150, .packed = false, .layers = 1};
  const Tensors inputs = on_gpu(f.inputs());
  const auto launched = [&](const auto& work) {
    work();
    const auto before = simt::launches();
    work();
    return simt::launches() - before;
  };
  const auto forward = [&] { no_grad([&] { f(inputs); }); };
  const auto both = [&] {
    for (const Tensor& x : inputs) Tensor(x).set_grad({});
    f(inputs).back().backward(ones({5, 12, 300}, {.dtype = kFloat64, .device = kCUDA}));
  };
  const auto forward_by_steps = launched(forward), both_by_steps = launched(both);
  const Large large;
  const auto forward_at_once = launched(forward), both_at_once = launched(both);
  CAPTURE(forward_by_steps, both_by_steps, both_at_once);
  CHECK(forward_at_once == 1);  // which puts the parameters together
  CHECK(forward_by_steps >= 10);
  CHECK(both_at_once <= 4);
  CHECK(both_by_steps >= 30);
}

TEST_CASE("what nobody asks of a large recurrent layer is left out", "[cuda][cudnn]") {
  if (!cuda::is_available()) return;
  const Large large;
  for (const Kind kind : {kLstm, kGru}) {
    const LargeLayer f{.kind = kind};
    for (const Tensors& inputs = f.inputs();
         const size_t wanted : {size_t{0}, size_t{1}, size_t{2}, size_t{5}, inputs.size() - 1}) {
      if (!inputs[wanted].defined()) continue;
      for (const size_t result : {size_t{0}, size_t{1}, size_t{4}}) {
        CAPTURE(kind, wanted, result);
        Tensor grads[2];
        for (const Device device : {kCPU, kCUDA}) {
          Tensors own;
          for (const Tensor& x : inputs) own.push_back(x.defined() ? x.to(device) : x);
          own[wanted] = own[wanted].clone().requires_grad_();
          sum(square(f(own)[result])).backward();
          grads[device == kCUDA] = own[wanted].grad();
        }
        compare(grads[0], grads[1]);
      }
    }
  }
}

TEST_CASE("a large recurrent layer has second derivatives and a second backward pass", "[cuda][cudnn]") {
  if (!cuda::is_available()) return;
  const Large large;
  for (const Kind kind : {kLstm, kGru, kTanh}) {
    const LargeLayer f{.kind = kind, .layers = 1};
    const Tensors inputs = f.inputs();
    const auto second = [&](const Tensors& x) {
      Tensors of_grad;
      for (const Tensor& input : x)
        if (input.defined()) of_grad.push_back(input);
      const Tensors loss{sum(square(f(x).back()))};
      return grad(std::span(loss), of_grad, {}, {.create_graph = true});
    };
    check(second, inputs);
    const Tensors once = on_gpu(inputs), twice = on_gpu(inputs);
    const Tensors expected = gradients(f, once);
    Tensor total;
    for (const Tensor& y : f(twice)) total = total.defined() ? total + sum(square(y)) : sum(square(y));
    total.backward({}, {.retain_graph = true});
    total.backward();
    size_t i = 0;
    for (const Tensor& x : twice)
      if (x.defined()) compare((expected[i++] * 2).to(kCPU), x.grad());
  }
}

TEST_CASE("a large recurrent layer runs backward again after a backward pass that has failed", "[cuda][cudnn]") {
  if (!cuda::is_available()) return;
  const Large large;
  const LargeLayer f{.packed = false, .layers = 1};
  const Tensors once = on_gpu(f.inputs());
  Tensors twice;
  for (const Tensor& x : once) twice.push_back(x.clone().detach().requires_grad_());
  // The last state: a root of which nothing is freed before the layer itself.
  const Tensor expected = f(once)[0], result = f(twice)[0], slope = ones_like(result);
  expected.backward(slope);
  bool failed = false;
  twice[2].register_hook([&](const Tensor& g) {
    if (!failed) failed = true, throw std::runtime_error("once");
    return g;
  });
  CHECK_THROWS(result.backward(slope));
  for (Tensor& x : twice) x.set_grad({});
  result.backward(slope);
  for (size_t i = 0; i < once.size(); ++i) compare(once[i].grad().to(kCPU), twice[i].grad());
}

TEST_CASE("a large recurrent layer's backward pass alone is captured", "[cuda][cudnn]") {
  if (!has_library()) return;
  const Large large;
  const LargeLayer f{.packed = false, .layers = 1};
  const Tensors inputs = on_gpu(f.inputs());
  sum(f(inputs).back()).backward();
  Tensors expected;
  for (Tensor x : inputs) expected.push_back(x.grad()), x.set_grad({});
  const Tensor loss = sum(f(inputs).back());
  cuda::Graph graph;
  graph.capture([&] { loss.backward(); });
  for (int i = 1; i <= 3; ++i) graph.replay();
  for (size_t i = 0; i < inputs.size(); ++i) compare(expected[i].to(kCPU), inputs[i].grad());
}

TEST_CASE("a large recurrent layer's gradients have the precision of its results", "[cuda][cudnn]") {
  if (!has_library()) return;  // test/simt's looks at it
  const Large large;
  const LargeLayer f{.layers = 1};
  const Tensors inputs = on_gpu(f.inputs(), kFloat32);
  set_matmul_precision(MatmulPrecision::kHigh);
  const Tensor loss = sum(f(inputs).back());
  set_matmul_precision(MatmulPrecision::kHighest);
  loss.backward();
  CHECK(inputs.back().grad().defined());
}

TEST_CASE("a large recurrent layer takes data at any address", "[cuda][cudnn]") {
  if (!cuda::is_available()) return;
  const Large large;
  const int64_t rows = 9, hidden = 11, steps = 3, in = 5;
  const TensorOptions halves{.dtype = kFloat16, .device = kCUDA};
  const auto odd = [&](const Shape& shape) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    return randn({count + 1}, halves).narrow(0, 1, count).view(shape);
  };
  Tensors weights, inputs{odd({1, rows, hidden}), odd({1, rows, hidden}), odd({steps, rows, in})};
  for (const Shape& shape : {Shape{4 * hidden, in}, {4 * hidden, hidden}, {4 * hidden}, {4 * hidden}})
    weights.push_back(odd(shape));
  const Tensors cotangents{odd({1, rows, hidden}), odd({1, rows, hidden}), odd({steps, rows, hidden})};
  Tensors grads[2];
  for (const bool shifted : {false, true}) {
    const auto place = [&](const Tensor& x) { return shifted ? x : x.clone(); };
    Tensors x;
    for (const Tensors* all : {&inputs, &weights})
      for (const Tensor& given : *all) x.push_back(place(given.detach()).requires_grad_());
    const Tensors results = layer(kLstm, x[2], x[0], x[1], std::span(x).subspan(3), {});
    const Tensors with{place(cotangents[0]), place(cotangents[1]), place(cotangents[2])};
    grads[shifted] = grad(std::span(results), std::span(x), std::span(with));
  }
  for (size_t i = 0; i < grads[0].size(); ++i) CHECK((grads[0][i] == grads[1][i]).all().item<bool>());
}

TEST_CASE("batches of other lengths may come between a large layer's forward and backward pass", "[cuda][cudnn]") {
  if (!cuda::is_available()) return;
  const Large large;
  const LargeLayer packed, dense{.packed = false}, more{.rows = 20};
  Tensors inputs[3], grads[2];
  for (const bool mixed : {false, true}) {
    manual_seed(3);
    std::vector<Tensor> losses;
    grads[mixed].clear();
    size_t which = 0;
    for (const LargeLayer* f : {&packed, &dense, &more}) {
      Tensors& own = inputs[which++];
      own = on_gpu(f->inputs());
      losses.push_back(sum(square((*f)(own).back())));
      if (!mixed) losses.back().backward();
    }
    for (const Tensor& loss : losses)
      if (mixed) loss.backward();
    for (const Tensors& own : inputs)
      for (const Tensor& x : own) grads[mixed].push_back(x.grad().to(kCPU));
  }
  for (size_t i = 0; i < grads[0].size(); ++i) CHECK((grads[0][i] == grads[1][i]).all().item<bool>());
}

TEST_CASE("a large recurrent layer that cuDNN refuses is computed all the same", "[cuda][cudnn]") {
  if (!has_library()) return;
  const Large large;
  int64_t hidden = 11;  // another one each time: refusals are remembered
  for (const char* way : {"0", "no_forward", "no_backward", "apart", "no_memory"}) {
    CAPTURE(way);
    const LargeLayer f{.hidden = hidden++, .layers = 1};
    const Tensors inputs = f.inputs();
    const auto before = cuda::fallbacks();
    {
      const Library library(way);
      check(f, inputs);
      CHECK(cuda::fallbacks() > before);
    }
    const auto after = cuda::fallbacks();
    check(f, inputs);
    CHECK(cuda::fallbacks() == after);  // remembered, or no failure any more
    const auto launched = simt::launches();
    no_grad([&] { f(on_gpu(inputs)); });
    // A failure is forgotten.
    if (std::string(way) == "no_memory") CHECK(simt::launches() - launched < 60);
    if (std::string(way) != "no_forward") continue;
    LargeLayer of_other_lengths = f;
    of_other_lengths.packed = false;
    const Tensors others = on_gpu(of_other_lengths.inputs());
    const auto before_others = simt::launches();
    no_grad([&] { of_other_lengths(others); });
    CHECK(simt::launches() - before_others <= 2);
  }
}

TEST_CASE("a captured large recurrent layer goes on as it would have by itself", "[cuda][cudnn]") {
  if (!cuda::is_available()) return;
  const Large large;
  for (const bool warm : {false, true}) {
    if (!warm && !has_library()) continue;  // a GPU may not have what cuDNN does at first in a graph
    const LargeLayer f{.hidden = 21 + warm, .packed = false};
    std::vector<double> sums[2];
    for (const bool captured : {false, true}) {
      manual_seed(9);
      const Tensors inputs = on_gpu(f.inputs());
      Tensor result;
      const auto step = [&] {
        for (const Tensor& x : inputs) Tensor(x).set_grad({});
        result = sum(square(f(inputs).back()));
        result.backward();
        for (const Tensor& x : inputs) result = result + sum(abs(x.grad()));
      };
      if (warm) step();
      cuda::Graph graph;
      if (captured) graph.capture(step);
      for (int i = 0; i < 3; ++i) {
        no_grad([&] { Tensor(inputs.back()).mul_(0.75); });
        // A call of other lengths comes between.
        LargeLayer other = f;
        other.rows = f.rows + 3 + i;
        no_grad([&] { other(on_gpu(other.inputs())); });
        captured ? graph.replay() : step();
        sums[captured].push_back(result.item<double>());
      }
    }
    CHECK(sums[0] == sums[1]);
  }
}

TEST_CASE("what a large recurrent layer keeps for its gradient is freed", "[cuda][cudnn]") {
  if (!cuda::is_available()) return;
  const Large large;
  const LargeLayer f{.hidden = 64, .packed = false, .layers = 1, .rows = 64};
  const Tensors inputs = on_gpu(f.inputs());
  const auto in_use = [] { return cuda::memory_stats().in_use; };
  const auto before = in_use();
  {
    const Tensors results = no_grad([&] { return f(inputs); });
    const auto without = in_use() - before;
    const Tensors recorded = f(inputs);
    if (has_library()) CHECK(in_use() - before >= 2 * without + 5 * 64 * 2 * 5 * 64 * 8);
  }
  CHECK(in_use() == before);
  {
    const Tensors results = f(inputs);
    const Tensors grads = grad({sum(results.back())}, {inputs.back()});
  }
  CHECK(in_use() == before);
}

TEST_CASE("Tree-LSTM cells have any number of children on a GPU", "[cuda]") {
  if (!cuda::is_available()) return;
  for (const int children : {0, 1, 2, 16, 17, 40}) {
    Tensors inputs;
    for (int k = 0; k < children; ++k) inputs.push_back(numbers({3, 37}));
    inputs.push_back(numbers({3, (3 + children) * 37}));
    check(
        [](const Tensors& x) {
          const CellState state = tree_lstm_cell(x.back(), std::span(x).first(x.size() - 1));
          return Tensors{state.h, state.c};
        },
        inputs);
  }
}

// ---- chains ---------------------------------------------------------------------------------------------------------

TEST_CASE("CRFs of all sizes are summed on a GPU as on the CPU", "[cuda]") {
  if (!cuda::is_available()) return;
  for (const auto [n, steps, tags] :
       {std::array<int64_t, 3>{1, 1, 1}, {3, 5, 4}, {300, 3, 3}, {2, 4, 70}, {1, 3, 170}, {2, 150, 40}}) {
    CAPTURE(n, steps, tags);
    Tensor transitions = numbers({tags, tags});
    if (tags > 1) transitions[0][1].fill_(-std::numeric_limits<double>::infinity());
    const Tensors inputs{numbers({steps, n, tags}), transitions, numbers({tags}), numbers({tags})};
    const Tensor observed = randint(0, tags, {steps, n}, host(kInt64)),
                 lengths = randint(1, steps + 1, {n}, host(kInt64));
    check(
        [&](const Tensors& x) {
          const Tensor l = lengths.to(x[0].device());
          NoGrad guard;
          const CrfPaths paths = crf_decode(x[0], x[1], x[2], x[3], l);
          return Tensors{
              enable_grad([&] { return crf_log_likelihood(x[0], observed.to(x[0].device()), x[1], x[2], x[3], l); }),
              crf_marginals(x[0], x[1], x[2], x[3], l), paths.tags, paths.scores};
        },
        inputs);
  }
}

TEST_CASE("CTC losses of all sizes are summed on a GPU as on the CPU", "[cuda]") {
  if (!cuda::is_available()) return;
  for (const auto [n, steps, classes, most] :
       {std::array<int64_t, 4>{1, 1, 2, 1}, {4, 9, 3, 4}, {3, 20, 300, 7}, {2, 700, 3, 300}})
    for (const bool zero_infinity : {false, true}) {
      CAPTURE(n, steps, classes, most);
      const Tensor targets = randint(1, classes, {n, most}, host(kInt64));
      const Tensor in = randint(0, steps + 1, {n}, host(kInt64)), out = randint(0, most + 1, {n}, host(kInt64));
      check(
          [&](const Tensors& x) {
            const auto on = [&](const Tensor& t) { return t.to(x[0].device()); };
            return Tensors{ctc_loss(log_softmax(x[0], -1), on(targets), on(in), on(out),
                                    {.reduction = kNoReduction, .zero_infinity = zero_infinity})};
          },
          {numbers({steps, n, classes})});
    }
}

// ---- linear algebra -------------------------------------------------------------------------------------------------

TEST_CASE("triangular systems of all sizes are solved on a GPU", "[cuda]") {
  if (!cuda::is_available()) return;
  for (const auto [batch, n, k] : {std::array<int64_t, 3>{1, 1, 1}, {3, 7, 1}, {2, 70, 3}, {5, 33, 40}, {2, 300, 1}})
    for (const bool upper : {false, true})
      check([&](const Tensors& x) { return Tensors{linalg::solve_triangular(x[0], x[1], {.upper = upper})}; },
            {numbers({batch, n, n}) + 3 * std::sqrt(static_cast<double>(n)) * eye(n, {}, host()),
             numbers({batch, n, k})});
}

// ---- optimizers -----------------------------------------------------------------------------------------------------

TEST_CASE("optimizers step many parameters of all types on a GPU as on the CPU", "[cuda]") {
  if (!cuda::is_available()) return;
  using Make = std::function<std::unique_ptr<optim::Optimizer>(Tensors)>;
  const Make makes[] = {
      [](Tensors p) { return std::make_unique<optim::SGD>(p, optim::SGDOptions{.lr = 0.1, .momentum = 0.9}); },
      [](Tensors p) { return std::make_unique<optim::AdamW>(p, optim::AdamWOptions{.lr = 0.1, .amsgrad = true}); },
      [](Tensors p) {
        return std::make_unique<optim::RMSprop>(p, optim::RMSpropOptions{.lr = 0.1, .centered = true});
      }};
  const DType dtypes[] = {kFloat32, kFloat64, kBFloat16, kFloat16};
  for (const Make& make : makes) {
    Tensors on_cpu, on_gpu;
    for (int i = 0; i < 90; ++i) {
      const Tensor p = randn({i == 20 ? 10000 : i * 5 % 37}, host()).to(dtypes[i / 20 % 4]);
      on_cpu.push_back(p.clone().requires_grad_()), on_gpu.push_back(p.to(kCUDA).requires_grad_());
    }
    // What does not begin where 16 bytes do.
    const Tensor whole = randn({50}, host(kFloat32));
    on_cpu.push_back(whole.clone().narrow(0, 1, 41).detach().requires_grad_());
    on_gpu.push_back(whole.to(kCUDA).narrow(0, 1, 41).detach().requires_grad_());
    const auto cpu = make(on_cpu), gpu = make(on_gpu);
    for (int step = 0; step < 3; ++step) {
      for (size_t i = 0; i < on_cpu.size(); ++i) {
        if (i % 7 == 3 && step == 0) continue;
        const Tensor g = randn(on_cpu[i].shape(), host()).to(on_cpu[i].dtype());
        on_cpu[i].set_grad(g), on_gpu[i].set_grad(g.to(kCUDA));
      }
      cpu->step(), gpu->step();
    }
    for (size_t i = 0; i < on_cpu.size(); ++i) {
      const DType dtype = on_cpu[i].dtype();
      compare(on_cpu[i].detach(), on_gpu[i].detach(),
              dtype == kFloat64   ? 1e-12
              : dtype == kFloat32 ? 1e-5
              : dtype == kFloat16 ? 4e-3
                                  : 3e-2);
    }
  }
}
