// The number of kernels that an iteration launches, which determines its time for small models. Only test/simt counts
// them.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>
#include <string>

#include "reel/amp.h"
#include "reel/autograd.h"
#include "reel/batching.h"
#include "reel/cuda.h"
#include "reel/nn.h"
#include "reel/ops.h"
#include "reel/optim.h"
#include "reel/random.h"

namespace simt {
[[gnu::weak]] extern unsigned long long launches();
[[gnu::weak]] extern unsigned long long driver_calls();
}  // namespace simt

using namespace reel;

namespace {

/// The kernels that work() launches when it is called for the second time.
template <class F>
unsigned long long launched(const F& work) {
  work();
  const auto before = simt::launches();
  work();
  return simt::launches() - before;
}

/// The calls of CUDA's runtime that work() makes when it is called for the third time.
template <class F>
unsigned long long called(const F& work) {
  work(), work();
  const auto before = simt::driver_calls();
  work();
  return simt::driver_calls() - before;
}
/// Whether called() counts an op's own calls alone: an allocation makes none.
bool counts_calls() {
  const char* const cache = std::getenv("REEL_CUDA_CACHE");
  return cuda::is_available() && simt::driver_calls && !(cache && std::string(cache) == "0");
}

}  // namespace

TEST_CASE("an op calls CUDA for its kernel alone, however large its result", "[cuda]") {
  if (!counts_calls()) return;
  for (const int64_t n : {10, 1 << 18, 3 << 18, 5000000}) {
    CAPTURE(n);
    const Tensor x = ones({n}, {.device = kCUDA});
    CHECK(called([&] { x + 1; }) == 1);
    CHECK(called([&] { (x + 1) * 2; }) == 2);
    CHECK(called([&] { sum(x.narrow(0, 0, 10)); }) == 1);
  }
  const Tensor a = ones({600, 700}, {.device = kCUDA}), b = ones({700, 800}, {.device = kCUDA});
  const Tensor rows = ones({300, 3000}, {.device = kCUDA}), wide = ones({7, 9000}, {.device = kCUDA});
  CHECK(called([&] { matmul(a, b); }) == 1);
  CHECK(called([&] { softmax(rows, 1); }) == 1);
  CHECK(called([&] { softmax(wide, 1); }) == 1);
  CHECK(called([&] { sum(rows, 1); }) == 1);
}

TEST_CASE("parts are joined by one launch, and few calls of CUDA", "[cuda]") {
  if (!cuda::is_available() || !simt::launches) return;
  for (const size_t count : {2, 65, 512, 513, 3000}) {
    CAPTURE(count);
    const std::vector<Tensor> parts(count, ones({1, 300}, {.device = kCUDA}));
    CHECK(launched([&] { cat(parts); }) == 1);
    // More than an argument describes: whether its memory is in use, a copy, its event and the launch.
    if (counts_calls())
      CHECK(called([&] {
              cat(parts);
              cuda::synchronize();
            }) == (count <= 512 ? 2 : 5));
  }
}

TEST_CASE("few numbers go to a GPU by one launch, those of a map's examples together", "[cuda]") {
  if (!cuda::is_available() || !simt::launches) return;
  const std::vector<float> numbers{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  CHECK(launched([&] { tensor(5, {.device = kCUDA}); }) == 1);
  CHECK(launched([&] { tensor(numbers, {.device = kCUDA}); }) == 1);
  if (counts_calls()) CHECK(called([&] { tensor(numbers, {.device = kCUDA}); }) == 1);
  const auto twice = batching::rows("twice", [](const Tensor& x) { return x * 2; });
  std::vector<int64_t> examples(1000);
  std::iota(examples.begin(), examples.end(), 0);
  const auto map = [&] {
    return batching::map(examples, [&](int64_t i) { return twice(tensor({i}, {.device = kCUDA})); }, {.window = 1000});
  };
  CHECK(launched(map) == 3);  // the numbers, their rows together, twice them
  const auto results = map();
  for (const int64_t i : examples) CHECK(results[static_cast<size_t>(i)].item<int64_t>() == 2 * i);
  // A program that calls CUDA on the stream finds them there.
  const auto each = [&] { batching::map(examples, [](int64_t i) { return tensor({i}, {.device = kCUDA}); }); };
  const auto now = [&](const auto& work) {
    const auto before = simt::launches();
    work();
    return simt::launches() - before;
  };
  CHECK(now(each) == 1);
  batching::map(examples, [&](int64_t i) {
    const Tensor x = tensor({i}, {.device = kCUDA});
    if (i % 100 == 99)
      CHECK(now([&] { i % 200 == 99 ? cuda::synchronize() : cuda::Stream::current().synchronize(); }) == 1);
    return x;
  });
  cuda::Stream side;
  const cuda::StreamGuard guard(side);
  CHECK(now(each) == 1);
  side.native();
  CHECK(now(each) == 1000);
}

TEST_CASE("ids of the host's are gathered there, and go to a GPU in one copy", "[cuda]") {
  if (!cuda::is_available() || !simt::launches) return;
  const Tensor table = arange(60, {.dtype = kFloat32, .device = kCPU}).view({20, 3}).to(kCUDA);
  const auto look_up = batching::rows("look_up", [&](const Tensor& ids) { return index_select(table, 0, ids); });
  std::vector<int64_t> examples(1000);
  std::iota(examples.begin(), examples.end(), 0);
  const auto map = [&] {
    return batching::map(examples, [&](int64_t i) { return look_up(tensor({i % 20}, {.device = kCPU})); },
                         {.window = 1000});
  };
  CHECK(launched(map) == 1);
  if (counts_calls())
    CHECK(called([&] {
            map();
            cuda::synchronize();
          }) == 5);  // whether the copy's memory is in use, the copy, its event, a launch
  const auto results = map();
  for (const int64_t i : examples) CHECK(results[static_cast<size_t>(i)][0][1].item<float>() == float(i % 20 * 3 + 1));
}

TEST_CASE("a capture asks once for what a kernel needs", "[cuda]") {
  if (!cuda::is_available() || !simt::driver_calls) return;
  const Tensor x = ones({100}, {.device = kCUDA});
  const auto capture = [&](int ops) {
    return called([&] {
      cuda::Graph graph;
      graph.capture([&] {
        Tensor y = x;
        for (int i = 0; i < ops; ++i) y = y + 1;
      });
    });
  };
  const auto few = capture(10);
  CHECK(capture(20) == few + 10);
}

TEST_CASE("empty_cache gives large blocks back", "[cuda]") {
  if (!cuda::is_available()) return;
  cuda::empty_cache();
  const auto before = cuda::memory_stats();
  for (int64_t n : {3, 4, 5, 6, 7}) ones({n << 20}, {.device = kCUDA});
  cuda::synchronize();
  cuda::empty_cache();
  CHECK(cuda::memory_stats().in_use == before.in_use);
  CHECK(cuda::memory_stats().cached <= before.cached);
}

TEST_CASE("gradients of few parameters are clipped by three kernels", "[cuda]") {
  if (!cuda::is_available() || !simt::launches) return;
  std::vector<Tensor> parameters;
  for (int i = 0; i < 60; ++i) {
    parameters.push_back(zeros({i, 100}, {.device = kCUDA}).requires_grad_());
    parameters.back().set_grad(ones({i, 100}, {.device = kCUDA}));
  }
  CHECK(launched([&] { optim::clip_grad_norm(parameters, 1); }) == 3);
}

TEST_CASE("numbers of the host's go to a GPU with the kernel", "[cuda]") {
  if (!cuda::is_available() || !simt::launches) return;
  Tensor x = ones({5}, {.device = kCUDA}), ids = arange(5).to(kCUDA);
  const Tensor mask = ids > 2;
  CHECK(launched([&] { x.mul_(2).add_(1).lerp_(x + 1, 0.5); }) == 4);
  CHECK(launched([&] { ids.add_(1); }) == 1);
  CHECK(launched([&] { eq(remainder(ids * 3, 7), 2); }) == 3);
  CHECK(launched([&] { where(mask, x, 0); }) == 1);
  CHECK(x.to_vector<double>() == std::vector<double>{8.5, 8.5, 8.5, 8.5, 8.5});
  CHECK(ids.to_vector<int64_t>() == std::vector<int64_t>{2, 3, 4, 5, 6});
  CHECK((remainder(ids * 3, 7) == 2).to_vector<bool>() == std::vector<bool>{false, true, false, false, false});
  CHECK(where(ids > 3, x, 0).to_vector<double>() == std::vector<double>{0, 0, 8.5, 8.5, 8.5});
  const Tensor zero = Tensor(2.0).to(kFloat32).requires_grad_();  // one that is differentiated is not only a number
  sum(where(mask, x, zero)).backward();
  CHECK(zero.grad().item<double>() == 3);
}

TEST_CASE("a convolution adds its bias itself where cuDNN can", "[cuda]") {
  if (!counts_calls()) return;
  for (const DType dtype : {kFloat32, kBFloat16, kFloat16}) {
    const Tensor x = ones({2, 3, 8, 8}, {.dtype = dtype, .device = kCUDA});
    const Tensor w = ones({4, 3, 3, 3}, {.dtype = dtype, .device = kCUDA});
    const Tensor b = tensor({1., 2., 3., 4.}).to(dtype).to(kCUDA);
    Tensor y;
    const auto convolve = [&] { y = conv2d(x, w, b); };
    CHECK(called(convolve) == 1);
    CHECK(launched(convolve) == 0);  // of our own
    CHECK(y[1][2][3][4].to(kFloat64).item<double>() == 30);
    setenv("SIMT_DNN", "no_bias", 1);
    CHECK(called(convolve) == 2);
    CHECK(launched(convolve) == 1);
    CHECK(y[1][2][3][4].to(kFloat64).item<double>() == 30);
    unsetenv("SIMT_DNN");
  }
}

TEST_CASE("a convolution of channels that lie last turns the weight alone", "[cuda]") {
  if (!counts_calls()) return;
  const Tensor x = ones({2, 8, 8, 4}, {.dtype = kBFloat16, .device = kCUDA});
  const Tensor bias = ones({6}, {.dtype = kBFloat16, .device = kCUDA});
  const auto calls = [&](const Shape& kernel, int64_t groups) {
    const Tensor w = ones(kernel, {.dtype = kBFloat16, .device = kCUDA});
    return called([&] { conv2d(x, w, bias, {.groups = groups, .channels_last = true}); });
  };
  CHECK(calls({6, 4, 3, 3}, 1) == 2);
  CHECK(calls({6, 2, 3, 3}, 2) == 2);
  CHECK(calls({6, 4, 1, 1}, 1) == 1);  // both layouts are one
}

TEST_CASE("dropout is one kernel there and one back", "[cuda]") {
  if (!cuda::is_available() || !simt::launches) return;
  const Tensor x = ones({3, 5}, {.device = kCUDA}).requires_grad_(), g = ones({3, 5}, {.device = kCUDA});
  CHECK(launched([&] {
          Tensor(x).set_grad({});
          dropout(x, 0.5).backward(g);
        }) == 2);
}

TEST_CASE("batch_norm moves its running statistics with few kernels", "[cuda]") {
  if (!cuda::is_available() || !simt::launches) return;
  nn::BatchNorm1d layer(4);
  layer.to(kCUDA);
  const Tensor x = sin(arange(12).to(kFloat32)).view({3, 4}).to(kCUDA);
  CHECK(launched([&] { layer(x); }) == 4);  // moments, result, running ones, the count
}

TEST_CASE("the gradient of max_pool is one kernel", "[cuda]") {
  if (!cuda::is_available() || !simt::launches) return;
  const Tensor x = rand({2, 3, 9, 9}, {.device = kCUDA}).requires_grad_(), g = ones({2, 3, 4, 4}, {.device = kCUDA});
  CHECK(launched([&] {
          Tensor(x).set_grad({});
          max_pool2d(x, 3, {.stride = 2}).backward(g);
        }) == 2);
}

TEST_CASE("cross_entropy keeps two numbers of a row", "[cuda]") {
  if (!cuda::is_available()) return;
  constexpr int64_t kRows = 64, kClasses = 5000;
  const Tensor y = zeros({kRows}, {.device = kCUDA}).to(kInt64);
  for (const DType dtype : {kFloat32, kBFloat16}) {
    const Tensor x = ones({kRows, kClasses}, {.dtype = dtype, .device = kCUDA}).requires_grad_();
    const auto before = cuda::memory_stats().in_use;
    const Tensor loss = cross_entropy(x, y);
    CHECK(cuda::memory_stats().in_use - before < kRows * kClasses);  // less than a byte an element
  }
}

TEST_CASE("targets that are ignored cost cross_entropy no kernel but that which looks for them", "[cuda]") {
  if (!cuda::is_available() || !simt::launches) return;
  for (const int64_t ignored : {-100, 2})
    for (const int64_t n : {1, 8}) {
      CAPTURE(ignored, n);
      const Tensor x = ones({n, 5}, {.device = kCUDA}).requires_grad_(), y = ones({n}, {.device = kCUDA}).to(kInt64);
      const CrossEntropyLossOptions options{.ignore_index = ignored};
      const auto forward = launched([&] { cross_entropy(x, y, options); });
      CHECK(forward == (n == 1 ? 2 : 3));  // targets, losses, their sum
      CrossEntropyLossOptions of_sum = options;
      of_sum.reduction = kSum;
      const auto without_count = launched([&] { cross_entropy(x, y, of_sum); });
      CHECK(without_count == forward - (ignored < 0));  // the losses' kernel looks at the targets
      const auto whole = launched([&] {
        Tensor(x).set_grad({});
        cross_entropy(x, y, options).backward();
      });
      CHECK(whole == forward + 2);  // a gradient of 1, and that of the logits
    }
}

TEST_CASE("what looks up by ids checks them by the same kernel", "[cuda]") {
  if (!cuda::is_available()) return;
  const Tensor table = arange(12.).to(kFloat32).view({4, 3}).to(kCUDA), logits = table.t().contiguous();
  const Tensor none = zeros({4, 0}, {.device = kCUDA});
  struct Case {
    const char* op;
    std::function<Tensor(const Tensor& ids)> look_up;
  };
  const Case cases[] = {
      {"embedding", [&](const Tensor& ids) { return embedding(table, ids); }},
      {"index_select", [&](const Tensor& ids) { return index_select(table, 0, ids); }},
      {"gather", [&](const Tensor& ids) { return gather(table, 0, ids.unsqueeze(1)); }},
      {"cross_entropy",
       [&](const Tensor& ids) { return cross_entropy(logits, ids.narrow(0, 0, 3), {.reduction = kNoReduction}); }},
  };
  const Tensor good = tensor({0, 1, 3, 2}).to(kCUDA);
  for (const Case& c : cases) {
    CAPTURE(c.op);
    if (simt::launches) CHECK(launched([&] { c.look_up(good); }) == 1);
    cuda::synchronize();
    for (const int64_t bad : {int64_t{-1}, int64_t{4}, INT64_MAX, INT64_MIN}) {
      const Tensor ids = tensor({int64_t{0}, bad, int64_t{2}, int64_t{3}}).to(kCUDA);
      const Tensor y = c.look_up(ids);
      CHECK_THROWS_WITH(cuda::synchronize(), Catch::Contains(std::string(c.op) + ": index " + std::to_string(bad) +
                                                             " is out of range [0, 4)"));
      if (bad != -1) CHECK(y[1].to(kCPU).sum().item<double>() == 0);  // -1 may be read as the last one
      CHECK_FALSE(y[2].to(kCPU).sum().item<double>() == 0);
    }
  }
  embedding(none, good);
  cuda::synchronize();
  embedding(none, good + 1);
  CHECK_THROWS_WITH(cuda::synchronize(), Catch::Contains("embedding: index 4"));
  cross_entropy(table, tensor({2, -100, -100, 0}).to(kCUDA), {.reduction = kSum});
  cuda::synchronize();
  cross_entropy(table, tensor({2, -100, -7, 0}).to(kCUDA), {.reduction = kSum});
  CHECK_THROWS_WITH(cuda::synchronize(), Catch::Contains("cross_entropy: index -7"));
}

TEST_CASE("many small gradients of one tensor are added together", "[cuda]") {
  if (!cuda::is_available()) return;
  const Tensor bias = arange(6.).to(kFloat32).to(kCUDA).requires_grad_();
  const Tensor table = randn({9, 6}, {.device = kCUDA}).requires_grad_();
  std::vector<Tensor> ids;
  for (int64_t i = 0; i < 100; ++i) ids.push_back(tensor({i % 9, (i * i) % 9}).to(kCUDA));
  const auto clear = [&] { Tensor(bias).set_grad({}), Tensor(table).set_grad({}); };
  const auto loss = [&](int uses) {
    std::vector<Tensor> parts;
    for (int i = 0; i < uses; ++i)
      parts.push_back((embedding(table, ids[static_cast<size_t>(i)], EmbeddingLookup{.sparse = false}) + bias) *
                      (i + 1));
    return sum(square(stack(parts)));
  };
  const auto backward = [&](int uses) {
    const Tensor y = loss(uses);
    clear();
    const auto before = simt::launches ? simt::launches() : 0;
    y.backward();
    bias.grad(), table.grad();
    return simt::launches ? simt::launches() - before : 0;
  };
  for (const int uses : {1, 2, 3, 4, 7, 33, 34, 66, 100}) {
    CAPTURE(uses);
    backward(uses);
    const Tensor of_bias = bias.grad(), of_table = table.grad();
    Tensor exact = zeros({9, 6}, {.dtype = kFloat64, .device = kCPU});
    for (int i = 0; i < uses; ++i) {
      const Tensor at = ids[static_cast<size_t>(i)].to(kCPU);
      const Tensor rows = index_select((table.detach() + bias.detach()).to(kCPU).to(kFloat64), 0, at);
      exact = index_add(exact, 0, at, rows * 2 * (i + 1.) * (i + 1.));
    }
    CHECK((abs(of_table.to(kCPU) - exact) <= 1e-5 * (1 + abs(exact))).all().item<bool>());
    const Tensor sums = sum(exact, 0);
    CHECK((abs(of_bias.to(kCPU) - sums) <= 1e-4 * (1 + abs(sums))).all().item<bool>());
    // Those of several passes, too, and of one that a graph holds.
    const Tensor more = loss(uses), again = loss(uses);
    clear();
    more.backward(), again.backward();
    CHECK((abs(table.grad().to(kCPU) - 2 * exact) <= 1e-5 * (1 + 2 * abs(exact))).all().item<bool>());
    CHECK((abs(bias.grad().to(kCPU) - 2 * sums) <= 1e-4 * (1 + 2 * abs(sums))).all().item<bool>());
    const Tensor recorded = grad({loss(uses)}, {bias}, {}, {.create_graph = true})[0];
    CHECK((abs(recorded.detach().to(kCPU) - sums) <= 1e-4 * (1 + abs(sums))).all().item<bool>());
  }
  Tensor seed = ones({6}, {.device = kCUDA});  // is the gradient of each use
  clear();
  (bias + bias + bias + bias + bias).backward(seed);
  seed.zero_();
  CHECK((bias.grad() == 5).all().item<bool>());
  if (!simt::launches) return;
  // A use costs the gradients of mul, add, square's share and embedding; not an addition to each of the two leaves.
  backward(30);
  const auto few = backward(10);
  const auto many = backward(30);
  UNSCOPED_INFO("10 uses: " << few << ", 30 uses: " << many);
  CHECK(many - few <= 20 * 2);
}

TEST_CASE("autocast casts what an op needs by one kernel, and so the gradients of its parameters", "[cuda]") {
  if (!cuda::is_available() || !simt::launches) return;
  nn::Linear layer(16, 24);
  nn::TransformerEncoderLayer transformer(16, 2, {.dim_feedforward = 32, .dropout = 0, .batch_first = true});
  nn::LSTM lstm(16, 8, {.num_layers = 2});
  for (nn::Module* module :
       {static_cast<nn::Module*>(&layer), static_cast<nn::Module*>(&transformer), static_cast<nn::Module*>(&lstm)})
    module->to(kCUDA);
  const Tensor x = randn({3, 5, 16}, {.device = kCUDA});
  const auto forward = [&](const auto& module) {
    return launched([&] { no_grad([&] { amp::autocast([&] { module(x); }); }); });
  };
  const auto whole = [&](nn::Module& module, const auto& output) {
    return launched([&] {
      module.zero_grad();
      const Tensor y = amp::autocast(output);
      y.backward(ones_like(y));
    });
  };
  CHECK(forward(layer) == 1);
  CHECK(whole(layer, [&] { return layer(x); }) <= 5);
  CHECK(forward(transformer) <= 16);
  CHECK(whole(transformer, [&] { return transformer(x); }) <= 46);
  CHECK(whole(lstm, [&] { return lstm(x).output; }) <= 24);
}

namespace {

/// A binary Tree-LSTM with a class at its root, every node by itself.
struct TreeModel : nn::Module {
  nn::Embedding embedding{*this, "embedding", 20, 8};
  nn::NaryTreeLSTM cell{*this, "cell", 8, 12};
  nn::Linear out{*this, "out", 12, 5};

  CellState read(std::span<const Tensor> words) const {
    if (words.size() == 1) return cell(embedding(words[0]));
    const size_t half = words.size() / 2;
    return cell({}, {read(words.first(half)), read(words.subspan(half))});
  }
  Tensor loss(std::span<const Tensor> words, const Tensor& label) const {
    return cross_entropy(out(read(words).h), label, kSum);
  }
};

}  // namespace

TEST_CASE("a tree costs few kernels a node", "[cuda]") {
  if (!cuda::is_available()) return;
  TreeModel model;
  TreeModel on_cpu;
  on_cpu.to(kCPU);
  on_cpu.load_state_dict(model.state_dict());
  model.to(kCUDA);
  std::vector<Tensor> words, words_on_cpu;
  for (int64_t i = 0; i < 100; ++i) {
    words_on_cpu.push_back(tensor({i * i % 20}).to(kCPU));
    words.push_back(words_on_cpu.back().to(kCUDA));
  }
  const Tensor label = tensor({3}).to(kCPU), label_there = label.to(kCUDA);
  const auto launches_of = [&](size_t leaves) {
    const auto iteration = [&] {
      model.zero_grad();
      model.loss(std::span(words).first(leaves), label_there).backward();
    };
    if (simt::launches) return launched(iteration);
    return iteration(), 0ULL;
  };
  for (const size_t leaves : {1, 2, 4, 20, 100}) {
    CAPTURE(leaves);
    launches_of(leaves);
    on_cpu.zero_grad();
    on_cpu.loss(std::span(words_on_cpu).first(leaves), label).backward();
    const auto expected = on_cpu.parameters(), found = model.parameters();
    for (size_t i = 0; i < found.size(); ++i)
      if (expected[i].grad().defined()) CHECK(allclose(found[i].grad().to(kCPU), expected[i].grad(), 1e-4, 1e-6));
  }
  if (!simt::launches) return;
  // A leaf: its embedding and its state, and the gradient of the state. An inner node: its children's h, its state and
  // the gradients of both. No check of a word, and no copy of what the weights' gradients are products of.
  const auto few = launches_of(4), many = launches_of(20);
  UNSCOPED_INFO("4 leaves: " << few << ", 20 leaves: " << many);
  CHECK(few <= 35);
  CHECK(many - few <= 16 * 6);
}

TEST_CASE("what many examples of a map join, and their losses, cost no kernels of their own", "[cuda]") {
  if (!cuda::is_available() || !simt::launches) return;
  nn::Linear first(6, 4), second(6, 4);
  first.to(kCUDA), second.to(kCUDA);
  const Tensor x = randn({128, 6}, {.device = kCUDA}), targets = ones({256}, {.dtype = kInt64, .device = kCUDA});
  for (const Reduction reduction : {kSum, kMean, kNoReduction})
    for (const int64_t ignored : {-100, 3}) {
      CAPTURE(static_cast<int>(reduction), ignored);
      const auto launches_of = [&](int64_t examples) {
        std::vector<int64_t> all;
        for (int64_t i = 0; i < examples; ++i) all.push_back(i);
        const auto loss = [&](int64_t i) {
          const Tensor rows = x.narrow(0, 2 * i, 2), joined = cat({first(rows), second(rows)});
          return cross_entropy(joined, targets.narrow(0, 4 * i, 4), {.ignore_index = ignored, .reduction = reduction});
        };
        return launched([&] {
          first.zero_grad(), second.zero_grad();
          const std::vector<Tensor> losses = batching::map(all, loss);
          const Tensor whole = reduction == kNoReduction ? cat(losses) : stack(losses);
          sum(whole * whole).backward();
        });
      };
      const auto few = launches_of(8), many = launches_of(64);
      UNSCOPED_INFO("8 examples: " << few << ", 64 examples: " << many);
      CHECK(few <= 22);
      CHECK(many <= few + 2);  // a launch copies up to 64 parts
    }
}

TEST_CASE("gradients of weights see what was multiplied, whatever hooks change", "[cuda]") {
  if (!cuda::is_available()) return;
  const TensorOptions there{.device = kCUDA};
  const Tensor w = randn({3, 4}, there).requires_grad_();
  Tensor start = randn({2, 4}, there).requires_grad_();
  const Tensor exact = matmul(ones({3, 2}, there), start.detach()) * 2;
  start.register_post_accumulate_grad_hook([](const Tensor& p) { no_grad([&] { Tensor(p).zero_(); }); });
  sum(linear(start, w) + linear(start, w)).backward();  // w, of two uses, is done after start
  CHECK(allclose(w.grad(), exact));
  CHECK((start == 0).all().item<bool>());

  // Other tensors are not copied: a change that comes before the product is an Error.
  Tensor data = randn({2, 4}, there), scale = ones({2, 3}, there).requires_grad_();
  const Tensor first = linear(randn({2, 4}, there), w), twice = scale * 2, last = linear(data, w);
  scale.register_hook([&](const Tensor& g) {
    data.zero_();
    return g;
  });
  CHECK_THROWS_WITH(sum(first + twice + last).backward(),
                    Catch::Contains("a tensor of shape [2, 4] was changed in place before"));
}

namespace {

/// A binary tree whose leaves have words.
struct Tree {
  int64_t word = 0;
  std::vector<Tree> children;
  Tensor id;

  /// Makes a random one of so many leaves, in about as many levels as a parse has.
  static Tree make(int leaves, std::mt19937& random) {
    Tree tree;
    if (leaves == 1) {
      tree.word = random() % 50;
      tree.id = tensor({tree.word});
      return tree;
    }
    const int left = 1 + static_cast<int>(random() % static_cast<unsigned>(leaves - 1));
    tree.children.push_back(make(left, random));
    tree.children.push_back(make(leaves - left, random));
    return tree;
  }
};

/// A Tree-LSTM with a loss at each node.
struct TreeNet : nn::Layer<TreeNet> {
  nn::Embedding words{*this, "words", 50, 12, {.sparse = true}};
  nn::NaryTreeLSTM cell{*this, "cell", 12, 8};
  nn::Linear out{*this, "out", 8, 5};

  CellState visit(const Tree& tree, bool host_ids, std::vector<Tensor>& h) const {
    CellState state;
    if (tree.children.empty()) {
      state = cell(words(host_ids ? tensor({tree.word}) : tree.id));
    } else {
      const auto [left, right] = batching::both([&] { return visit(tree.children[0], host_ids, h); },
                                                [&] { return visit(tree.children[1], host_ids, h); });
      state = cell({}, {left, right});
    }
    h.push_back(state.h);
    return state;
  }
  Tensor loss(const Tree& tree, const Tensor& labels, bool host_ids) const {
    std::vector<Tensor> h;
    visit(tree, host_ids, h);
    return cross_entropy(out(cat(h)), labels, kSum);
  }
  Tensor forward(const Tree& tree) const {
    std::vector<Tensor> h;
    return out(visit(tree, false, h).h);
  }
};

}  // namespace

TEST_CASE("a map of 100 trees launches kernels for each group of calls, not for each node", "[cuda]") {
  if (!simt::launches || !cuda::is_available()) return;
  struct Restore {
    const Device before = default_device();
    ~Restore() { set_default_device(before); }
  } restore;
  set_default_device(kCUDA);
  std::mt19937 random(1);
  std::vector<Tree> trees;
  std::vector<Tensor> labels;
  for (int i = 0; i < 100; ++i) {
    const int leaves = 5 + static_cast<int>(random() % 29);
    trees.push_back(Tree::make(leaves, random));
    labels.push_back(ones({2 * leaves - 1}, {.dtype = kInt64}));
  }
  std::vector<size_t> numbers(trees.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  TreeNet net;
  optim::Adagrad adagrad(net.parameters(), {.lr = 0.05});
  const auto forward = [&](bool host_ids) {
    return sum(stack(
        batching::map(numbers, [&](size_t i) { return net.loss(trees[i], labels[i], host_ids); }, {.window = 100})));
  };
  const auto train = [&](bool host_ids) {
    return launched([&] {
      adagrad.zero_grad();
      forward(host_ids).backward();
      adagrad.step();
    });
  };
  CHECK(launched([&] { forward(false); }) <= 200);
  const auto by_gpu_ids = train(false);
  CHECK(by_gpu_ids <= 450);
  CHECK(static_cast<double>(train(true)) <= 1.1 * static_cast<double>(by_gpu_ids));
  CHECK(launched([&] {
          NoGrad guard;
          cat(batching::map(numbers, [&](size_t i) { return net(trees[i]); }, {.window = 100}));
        }) <= 120);
}
