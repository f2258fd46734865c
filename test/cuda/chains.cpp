// Sequential algorithms on a GPU against the CPU's: recurrent layers with sizes for each implementation, CRFs, CTC,
// triangular systems, optimizers. Sizes that the op table does not have.
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>

#include "reel/autograd.h"
#include "reel/cuda.h"
#include "reel/nn.h"
#include "reel/ops.h"
#include "reel/optim.h"
#include "reel/random.h"

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

TEST_CASE("recurrent layers of all sizes walk on a GPU as on the CPU", "[cuda]") {
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
