// Iterations of which any part is a captured graph and the rest runs eagerly, against the same iterations without one.
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "reel/autograd.h"
#include "reel/cuda.h"
#include "reel/nn.h"
#include "reel/ops.h"
#include "reel/optim.h"
#include "reel/random.h"

using namespace reel;

namespace {

const TensorOptions kOnGpu{.device = kCUDA};

using MakeOptimizer = std::function<std::unique_ptr<optim::Optimizer>(const std::vector<Tensor>&)>;
template <class O, class Options>
MakeOptimizer optimizer(Options options) {
  return [options](const std::vector<Tensor>& parameters) { return std::make_unique<O>(parameters, options); };
}

const std::vector<std::pair<std::string, MakeOptimizer>>& optimizers() {
  static const std::vector<std::pair<std::string, MakeOptimizer>> all{
      {"SGD", optimizer<optim::SGD>(optim::SGDOptions{.lr = 0.1})},
      {"SGD with momentum", optimizer<optim::SGD>(optim::SGDOptions{.lr = 0.1, .momentum = 0.5, .weight_decay = 0.01})},
      {"Adagrad", optimizer<optim::Adagrad>(optim::AdagradOptions{.lr = 0.1})},
      {"Adam", optimizer<optim::Adam>(optim::AdamOptions{.lr = 0.1})},
      {"AdamW", optimizer<optim::AdamW>(optim::AdamWOptions{.lr = 0.1})},
      {"Adamax", optimizer<optim::Adamax>(optim::AdamaxOptions{.lr = 0.1})},
      {"NAdam", optimizer<optim::NAdam>(optim::NAdamOptions{.lr = 0.1})},
      {"RAdam", optimizer<optim::RAdam>(optim::RAdamOptions{.lr = 0.1})},
      {"RMSprop", optimizer<optim::RMSprop>(optim::RMSpropOptions{.lr = 0.1})},
      {"Adadelta", optimizer<optim::Adadelta>(optim::AdadeltaOptions{.lr = 0.1})},
  };
  return all;
}

/// Forward passes whose weight gradients come in all ways: products of few rows, which are deferred, and of many,
/// small gradients that wait for each other, rows of an embedding matrix.
struct Model : nn::Module {
  nn::Embedding words;
  nn::Linear hidden{*this, "hidden", 4, 5}, out{*this, "out", 5, 2};
  nn::Parameter scale{*this, "scale", ones({5})};
  explicit Model(bool sparse) : words(*this, "words", 6, 4, {.sparse = sparse}) { to(kCUDA); }

  Tensor loss(const Tensor& ids, const Tensor& x) const {
    return mean(square(out(tanh(hidden(words(ids) + x)) * scale) - 1)) + mean(square(scale));
  }
};

/// What an iteration does, a letter for each part: zero_grad(), zero_grad(false), forward and Backward, Clip, Step.
class Iteration {
 public:
  Iteration(const MakeOptimizer& make, bool sparse, int64_t rows)
      : model_(seeded(sparse)), optimizer_(make(model_.parameters())) {
    ids_ = remainder(arange(rows, kOnGpu), 6);
    x_ = randn({rows, 4}, kOnGpu);
  }
  void run(char part) {
    switch (part) {
      case 'Z': return optimizer_->zero_grad();
      case 'z': return optimizer_->zero_grad(false);
      case 'B': return model_.loss(ids_, x_).backward();
      case 'C': return void(optim::clip_grad_norm(model_.parameters(), 0.5));
      default: optimizer_->step();
    }
  }
  void run(const std::string& parts) {
    for (const char part : parts) run(part);
  }
  void next(int i) {
    x_.copy_(x_ * 0.9 + 0.1);
    optimizer_->set_lr(0.1 / (i + 1));
  }
  /// All parameters, and their gradients, zero where there is none.
  std::vector<double> state() {
    std::vector<double> all;
    for (const Tensor& p : model_.parameters())
      for (const Tensor& x : {p.detach(), p.grad().defined() ? p.grad() : zeros_like(p.detach())})
        for (const double value : x.to_vector<double>()) all.push_back(value);
    return all;
  }

 private:
  static bool seeded(bool sparse) {
    manual_seed(1);
    return sparse;
  }

  Model model_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  Tensor ids_, x_;
};

constexpr int kWarmUp = 2, kIterations = 7;

/// The states after each of some iterations, of which parts [begin, end) are captured in the third and replayed since.
/// `looks` says whether the states are read after each iteration, or the last alone, so that gradients stay deferred.
std::vector<double> states(const MakeOptimizer& make, bool sparse, int64_t rows, const std::string& parts, size_t begin,
                           size_t end, bool looks) {
  Iteration iteration(make, sparse, rows);
  std::vector<double> all;
  cuda::Graph graph;
  for (int i = 0; i < kIterations; ++i) {
    iteration.next(i);
    const std::string captured = parts.substr(begin, end - begin);
    iteration.run(parts.substr(0, begin));
    if (i < kWarmUp || captured.empty()) {
      iteration.run(captured);
    } else {
      if (i == kWarmUp) graph.capture([&] { iteration.run(captured); });
      graph.replay();
    }
    iteration.run(parts.substr(end));
    if (!looks && i + 1 < kIterations) continue;
    for (const double value : iteration.state()) all.push_back(value);
  }
  return all;
}

void check_all_parts(const std::string& name, const MakeOptimizer& make, bool sparse, int64_t rows,
                     const std::string& parts, bool looks) {
  const auto expected = states(make, sparse, rows, parts, 0, 0, looks);
  for (size_t begin = 0; begin < parts.size(); ++begin)
    for (size_t end = begin + 1; end <= parts.size(); ++end) {
      INFO(name << ", " << rows << " rows, " << parts << ", captured: " << parts.substr(begin, end - begin)
                << (sparse ? ", sparse" : "") << (looks ? ", read each time" : ""));
      const std::string captured = parts.substr(begin, end - begin);
      if (sparse && captured.find('B') != std::string::npos) continue;  // reads the ids
      const auto found = states(make, sparse, rows, parts, begin, end, looks);
      REQUIRE(found.size() == expected.size());
      bool same = true;
      for (size_t i = 0; i < found.size(); ++i)
        same = same && found[i] == Approx(expected[i]).epsilon(1e-3).margin(1e-5);
      CHECK(same);
    }
}

}  // namespace

TEST_CASE("a captured step takes the gradients of eager passes, deferred ones too", "[cuda]") {
  if (!cuda::is_available()) return;
  manual_seed(1);
  nn::Linear layer(4, 3);
  layer.to(kCUDA);
  optim::SGD sgd(layer.parameters(), {.lr = 1});
  const Tensor x = ones({2, 4}, kOnGpu);
  const auto weight = [&] { return layer.weight.detach().to(kCPU)[0][0].item<double>(); };
  sum(layer(x)).backward();  // still pending when the capture begins
  cuda::Graph graph;
  graph.capture([&] { sgd.step(); });
  const double start = weight();
  graph.replay();
  CHECK(weight() == Approx(start - 2));
  CHECK(layer.weight.grad().to_vector<float>() == std::vector<float>(12, 2));
  for (int i = 1; i < 4; ++i) {
    const bool anew = i % 2;
    sgd.zero_grad(anew);
    sum(layer(x)).backward();
    sum(layer(x)).backward();
    const double before = weight();
    graph.replay();
    CHECK(weight() == Approx(before - 4));
    CHECK(layer.weight.grad().to_vector<float>() == std::vector<float>(12, 4));
  }
}

TEST_CASE("what a captured graph reads of a gradient is complete, and added once", "[cuda]") {
  if (!cuda::is_available()) return;
  const Tensor w = ones({3, 4}, {.device = kCUDA, .requires_grad = true}), x = ones({2, 4}, kOnGpu);
  const auto pass = [&] { sum(linear(x, w)).backward(); };
  Tensor seen;
  pass();
  cuda::Graph reads, adds;
  reads.capture([&] { seen = w.grad() * 1; });
  adds.capture(pass);
  for (int i = 0; i < 3; ++i) {
    reads.replay();
    CHECK(seen.to_vector<float>() == std::vector<float>(12, float(6 * i + 2)));
    adds.replay();
    pass();
    adds.replay();
    CHECK(w.grad().to_vector<float>() == std::vector<float>(12, float(6 * i + 8)));
  }
}

TEST_CASE("a captured graph keeps to the gradients that it has made, whoever clears them", "[cuda]") {
  if (!cuda::is_available()) return;
  Tensor w = ones({3, 4}, {.device = kCUDA, .requires_grad = true});
  const Tensor x = ones({2, 4}, kOnGpu);
  optim::SGD sgd({w}, {.lr = 1});
  const auto pass = [&] { sum(linear(x, w)).backward(); };
  pass();
  cuda::Graph walks, steps;
  walks.capture([&] {
    sgd.zero_grad();
    pass();
  });
  steps.capture([&] { sgd.step(); });
  for (int i = 0; i < 3; ++i) {
    if (i == 1)
      pass();  // which the graph's zero_grad() drops, deferred or not
    else
      sgd.zero_grad();
    walks.replay();
    CHECK(w.grad().to_vector<float>() == std::vector<float>(12, 2));
    steps.replay();
    CHECK(w.to_vector<float>() == std::vector<float>(12, float(-1 - 2 * i)));
  }
}

TEST_CASE("a gradient is what it was until a captured graph is replayed, and where that leaves it alone", "[cuda]") {
  if (!cuda::is_available()) return;
  const Tensor w = ones({2}, {.device = kCUDA, .requires_grad = true}), other = w.detach().clone().requires_grad_();
  optim::SGD sgd({w, other}, {.lr = 1});
  sum(w * 2).backward();
  cuda::Graph steps, clears;
  steps.capture([&] { sgd.step(); });
  clears.capture([&] { sgd.zero_grad(); });
  CHECK(w.grad().to_vector<float>() == std::vector<float>{2, 2});
  sum(other * 3).backward();  // which had no gradient, and takes no step
  steps.replay();
  CHECK(w.grad().to_vector<float>() == std::vector<float>{2, 2});
  CHECK(other.grad().to_vector<float>() == std::vector<float>{3, 3});
  CHECK(w.to_vector<float>() == std::vector<float>{-1, -1});
  CHECK(other.to_vector<float>() == std::vector<float>{1, 1});
  clears.replay();
  CHECK_FALSE(w.grad().defined());
  CHECK_FALSE(other.grad().defined());
}

TEST_CASE("a capture that fails leaves gradients, states and counts of steps as they were", "[cuda]") {
  if (!cuda::is_available()) return;
  for (const auto& [name, make] : optimizers())
    for (const int before : {0, 2}) {  // steps
      INFO(name << ", " << before << " steps before");
      std::vector<double> states[2];
      for (const bool fails : {false, true}) {
        Iteration iteration(make, false, 3);
        for (int i = 0; i < before; ++i) iteration.run("ZBS");
        iteration.run("B");
        if (fails)
          for (const char* const parts : {"S", "ZBS", "BS", "BZ"})
            CHECK_THROWS(cuda::Graph().capture([&] {
              iteration.run(parts);
              zeros({2}, kOnGpu).to(kCPU);
            }));
        iteration.run("SZBSB");
        states[fails] = iteration.state();
      }
      CHECK(states[0] == states[1]);
    }
}

TEST_CASE("a replay that needs a state which the capture had not is refused", "[cuda]") {
  if (!cuda::is_available()) return;
  const Tensor p = ones({3}, {.device = kCUDA, .requires_grad = true});
  optim::SGD sgd({p}, {.lr = 1});
  const auto pass = [&] {
    sgd.zero_grad();
    sum(p).backward();
  };
  pass();
  sgd.step();
  cuda::Graph graph;
  graph.capture([&] { sgd.step(); });
  graph.replay();
  sgd.options().momentum = 0.5;
  CHECK_THROWS_WITH(graph.replay(), Catch::Matchers::Contains("makes the states"));
  for (int i = 0; i < 2; ++i) pass(), sgd.step();
  CHECK(p.to_vector<double>() == std::vector<double>(3, 1 - 2 - 1 - 1.5));
}

TEST_CASE("any part of an iteration may be captured", "[cuda]") {
  if (!cuda::is_available()) return;
  for (const char* const parts : {"ZBS", "zBBCS", "BSZ"})
    for (const bool looks : {false, true}) {
      const auto& [name, make] = optimizers()[3];
      check_all_parts(name, make, false, 3, parts, looks);
      check_all_parts(name, make, false, 20, parts, looks);
    }
  for (const char* const parts : {"ZBS", "zBBS"}) check_all_parts("SGD", optimizers()[0].second, true, 3, parts, false);
}

TEST_CASE("iterations with every optimizer may be captured, with gradients of two passes", "[cuda]") {
  if (!cuda::is_available()) return;
  for (const auto& [name, make] : optimizers())
    for (const char* const parts : {"ZBBS", "BzBS"}) check_all_parts(name, make, false, 3, parts, false);
}
