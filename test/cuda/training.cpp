// Short trainings of whole models on the CPU and on a GPU: the same numbers at every step.
#include <catch2/catch.hpp>

#include "reel/cuda.h"
#include "reel/nn.h"
#include "reel/ops.h"
#include "reel/optim.h"
#include "reel/random.h"

using namespace reel;
using Catch::Matchers::Contains;

namespace {

/// What is made while one lives is made on that device.
class Default {
 public:
  explicit Default(Device device) : before_(default_device()) { set_default_device(device); }
  ~Default() { set_default_device(before_); }
  Default(const Default&) = delete;
  Default& operator=(const Default&) = delete;

 private:
  Device before_;
};

/// The losses of `steps` steps of Model on a device.
template <class Model>
std::vector<double> losses(Device device, int steps = 4) {
  const Default here(device);
  manual_seed(3);
  Model model;
  optim::Adam adam(model.parameters(), {.lr = 0.01});
  std::vector<double> result;
  for (int i = 0; i < steps; ++i) {
    const Tensor loss = model.loss(i);
    adam.zero_grad();
    loss.backward();
    optim::clip_grad_norm(model.parameters(), 5.0);
    adam.step();
    result.push_back(loss.template item<double>());
  }
  return result;
}

template <class Model>
void check_same_losses() {
  if (!cuda::is_available()) return;
  const std::vector<double> expected = losses<Model>(kCPU), found = losses<Model>(kCUDA);
  for (size_t i = 0; i < expected.size(); ++i) CHECK(found[i] == Approx(expected[i]).epsilon(2e-4));
  CHECK(expected[2] < expected[0]);
}

/// One tree of seven nodes a step.
struct Tree : nn::Module {
  nn::Embedding words{*this, "words", 10, 12, {.sparse = false}};
  nn::NaryTreeLSTM cell{*this, "cell", 12, 16};
  nn::Linear out{*this, "out", 16, 3};

  CellState leaf(int64_t word) const { return cell(words(tensor({word}))); }
  Tensor loss(int) const {
    const CellState left = cell({}, {leaf(1), leaf(2)}), right = cell({}, {leaf(3), leaf(1)});
    std::vector<Tensor> losses;
    for (const CellState& node : {left, right, cell({}, {left, right})})
      losses.push_back(cross_entropy(out(node.h), tensor({int64_t{2}})));
    return sum(stack(losses));
  }
};

/// Sentences of different lengths through a BiLSTM and a CRF.
struct Tagger : nn::Module {
  nn::Embedding words{*this, "words", 20, 8};
  nn::LSTM lstm{*this, "lstm", 8, 6, {.bidirectional = true}};
  nn::Linear out{*this, "out", 12, 4};
  nn::CRF crf{*this, "crf", 4};

  Tensor loss(int step) const {
    const int64_t length = 3 + step % 2;
    const Tensor ids = remainder(arange(length) * 7 + 2, 20), tags = remainder(arange(length), 4);
    const Tensor states = lstm(words(ids).unsqueeze(1)).output.squeeze(1);
    return -crf(out(dropout(states, 0.1)).unsqueeze(1), tags.unsqueeze(1));
  }
};

struct LeNet : nn::Module {
  nn::Conv2d conv1{*this, "conv1", 1, 4, 5, {.padding = 2}}, conv2{*this, "conv2", 4, 6, 3};
  nn::BatchNorm2d norm{*this, "norm", 4};
  nn::Linear hidden{*this, "hidden", 54, 20}, out{*this, "out", 20, 5};

  Tensor loss(int) const {
    const Tensor images = sin(arange(4 * 16 * 16).to(kFloat32)).view({4, 1, 16, 16});
    const Tensor x = max_pool2d(relu(norm(conv1(images))), 2);
    const Tensor y = max_pool2d(relu(conv2(x)), 2);
    return cross_entropy(out(relu(hidden(flatten(y, 1)))), arange(4));
  }
};

}  // namespace

TEST_CASE("a Tree-LSTM learns on a GPU what it learns on the CPU", "[cuda][training]") { check_same_losses<Tree>(); }
TEST_CASE("a tagger learns on a GPU what it learns on the CPU", "[cuda][training]") { check_same_losses<Tagger>(); }
TEST_CASE("LeNet learns on a GPU what it learns on the CPU", "[cuda][training]") { check_same_losses<LeNet>(); }

TEST_CASE("an iteration that was captured goes on as it would have by itself", "[cuda][training]") {
  if (!cuda::is_available()) return;
  const Default here(kCUDA);
  const auto run = [](bool captured) {
    manual_seed(5);
    const nn::Linear hidden(6, 8), out(8, 3);
    std::vector<Tensor> parameters = hidden.parameters();
    for (const Tensor& p : out.parameters()) parameters.push_back(p);
    optim::Adam adam(parameters, {.lr = 0.05});
    Tensor x = randn({4, 6});
    const Tensor y = remainder(arange(4), 3);
    Tensor loss;
    const auto step = [&] {
      adam.zero_grad();
      loss = cross_entropy(out(dropout(relu(hidden(x)), 0.25)), y);
      loss.backward();
      adam.step();
    };
    std::vector<double> losses;
    step(), step();
    cuda::Graph graph;
    if (captured) graph.capture(step);
    for (int i = 0; i < 4; ++i) {
      x.copy_(x + 0.125);
      if (i == 2) adam.set_lr(0.01);
      captured ? graph.replay() : step();
      losses.push_back(loss.item<double>());
    }
    return losses;
  };
  CHECK(run(true) == run(false));
}

TEST_CASE("averages in a captured iteration take the weights of its replays", "[cuda][training]") {
  if (!cuda::is_available()) return;
  const Default here(kCUDA);
  const auto run = [](bool captured) {
    const Tensor p = tensor({1., -2.}).requires_grad_();
    optim::SGD sgd({p}, {.lr = 0.1});
    optim::StochasticWeightAverage swa({p});
    optim::ExponentialMovingAverage ema({p}, 0.75);
    const auto step = [&] {
      swa.update();
      sgd.zero_grad();
      sum(square(p)).backward();
      sgd.step();
      ema.update();
    };
    cuda::Graph graph;
    if (captured) CHECK_THROWS_WITH(cuda::Graph().capture(step), Contains("the first one, which copies"));
    step();
    if (captured) graph.capture(step);
    for (int i = 0; i < 4; ++i) captured ? graph.replay() : step();
    CHECK(swa.num_updates() == 5);
    return cat({swa.averages()[0], ema.averages()[0], p.detach()}).to_vector<double>();
  };
  CHECK(run(true) == run(false));
}

TEST_CASE("gradients of a captured backward are new in every replay, for whoever steps by them", "[cuda][training]") {
  if (!cuda::is_available()) return;
  const Default here(kCUDA);
  const auto run = [](bool captured) {
    manual_seed(6);
    const nn::Linear hidden(6, 8), out(8, 3);
    std::vector<Tensor> parameters = hidden.parameters();
    for (const Tensor& p : out.parameters()) parameters.push_back(p);
    optim::SGD sgd(parameters, {.lr = 0.1});
    Tensor x = randn({4, 6}), loss;
    const Tensor y = remainder(arange(4), 3);
    const auto walk = [&] {
      sgd.zero_grad();
      loss = cross_entropy(out(relu(hidden(x))), y);
      loss.backward();
    };
    walk();
    cuda::Graph graph;
    if (captured) graph.capture(walk);
    std::vector<double> losses;
    for (int i = 0; i < 3; ++i) {
      x.copy_(x + 0.125);
      captured ? graph.replay() : walk();
      losses.push_back(optim::clip_grad_norm(parameters, 0.5).item<double>());
      sgd.step();
      losses.push_back(loss.item<double>());
    }
    return losses;
  };
  CHECK(run(true) == run(false));
}

TEST_CASE("an iteration with clipped gradients waits for nothing and can be captured", "[cuda][training]") {
  if (!cuda::is_available()) return;
  const Default here(kCUDA);
  const auto run = [](bool captured) {
    manual_seed(7);
    const nn::Linear hidden(6, 8), out(8, 3);
    std::vector<Tensor> parameters = hidden.parameters();
    for (const Tensor& p : out.parameters()) parameters.push_back(p);
    optim::Adam adam(parameters, {.lr = 0.05});
    Tensor x = randn({4, 6}), loss, norm;
    const Tensor y = tensor({0, 2, -100, 1}).to(kInt64);
    const auto step = [&] {
      adam.zero_grad();
      loss = cross_entropy(out(relu(hidden(x))), y);
      loss.backward();
      norm = optim::clip_grad_norm(parameters, 0.25);
      adam.step();
    };
    struct NoWaits {
      NoWaits() { cuda::set_sync_debug_mode(cuda::SyncDebugMode::kError); }
      ~NoWaits() { cuda::set_sync_debug_mode(cuda::SyncDebugMode::kDefault); }
    };
    step();
    {
      const NoWaits guard;
      step();
    }
    cuda::Graph graph;
    if (captured) graph.capture(step);
    std::vector<double> numbers;
    for (int i = 0; i < 4; ++i) {
      x.copy_(x * 1.5);
      captured ? graph.replay() : step();
      CHECK(norm.device() == kCUDA);
      numbers.push_back(loss.item<double>());
      numbers.push_back(norm.item<double>());
    }
    return numbers;
  };
  const std::vector<double> plain = run(false);
  CHECK(run(true) == plain);
  CHECK(plain[1] > 0.25);  // something was clipped
}

TEST_CASE("the gradient of a weight too wide for a pack comes from few rows, too", "[cuda]") {
  if (!cuda::is_available()) return;
  const Default here(kCUDA);
  constexpr int64_t kRows = 15, kOut = 240000;  // 8 MiB are 8 rows
  Tensor w = zeros({kOut, 2}).requires_grad_();
  const Tensor x = arange(2 * kRows).to(kFloat32).reshape({kRows, 2});
  const Tensor before = zeros({1 << 20}), after = zeros({1 << 20});
  linear(x, w).backward(ones({kRows, kOut}));
  CHECK(w.grad()[-1].to_vector<float>() == std::vector<float>{210, 225});
  CHECK(sum(w.grad()).item<float>() == 435.f * kOut);
  CHECK(sum(before + after).item<float>() == 0);
}

TEST_CASE("what cannot be captured says so, and the graph stays empty", "[cuda]") {
  if (!cuda::is_available()) return;
  Tensor x = ones({3}, {.device = kCUDA});
  cuda::Graph graph;
  CHECK_THROWS_WITH(graph.capture([&] { sum(x * 2).item<double>(); }), Contains("cannot be captured"));
  CHECK_THROWS_WITH(graph.capture([&] { nonzero(x); }), Contains("nonzero"));
  CHECK_THROWS_WITH(graph.replay(), Contains("nothing has been captured"));
  CHECK(graph.size() == 0);
  Tensor y;
  graph.capture([&] { y = x + 1; });
  CHECK(graph.size() == 1);
  x.fill_(5);
  graph.replay();
  CHECK(y.to_vector<double>() == std::vector<double>{6, 6, 6});
}

TEST_CASE("waits that are forbidden say who waits", "[cuda]") {
  if (!cuda::is_available()) return;
  const Tensor x = ones({3}, {.device = kCUDA});
  cuda::set_sync_debug_mode(cuda::SyncDebugMode::kError);
  CHECK_THROWS_WITH(x.to(kCPU), Contains("SyncDebugMode::kError"));
  cuda::set_sync_debug_mode(cuda::SyncDebugMode::kDefault);
  CHECK(sum(x).item<double>() == 3);
}

TEST_CASE("pinned memory is copied from, streams wait for events, statistics count", "[cuda]") {
  if (!cuda::is_available()) return;
  const Tensor x = arange(1000, {.dtype = kFloat32, .device = kCPU}).pin_memory();
  CHECK(x.is_pinned());
  CHECK(x.pin_memory().is_same(x));
  const int64_t before = cuda::memory_stats().in_use;
  Tensor there;
  const cuda::Stream side;
  cuda::Event copied;
  {
    const cuda::StreamGuard guard(side);
    there = x.to(kCUDA);
    copied.record();
  }
  copied.wait(cuda::Stream::current());
  there.record_stream(cuda::Stream::current());
  CHECK(cuda::memory_stats().in_use >= before + 4000);
  CHECK(sum(there * 2).item<double>() == 999000);
  there.reset();
  CHECK(cuda::memory_stats().in_use < before + 4000);
  cuda::synchronize();
  cuda::empty_cache();
}

TEST_CASE("a gradient is set on the device of its tensor", "[cuda]") {
  if (!cuda::is_available()) return;
  Tensor w = ones({2}, {.device = kCUDA, .requires_grad = true});
  CHECK_THROWS_WITH(w.set_grad(ones({2}, {.device = kCPU})),
                    Contains("set_grad: a gradient on cpu for a tensor on cuda"));
  CHECK(!w.grad().defined());
  w.set_grad(ones({2}, {.device = kCUDA}));
  CHECK(w.grad().device() == w.device());
}
