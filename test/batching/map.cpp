#include "reel/batching.h"

#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/sanitizers.h"
#include "reel/reel.h"
#include "reel/testing.h"
#include "test/support/pch.h"

using namespace reel;
using Catch::Matchers::Contains;

namespace {

constexpr int64_t kWords = 12, kIn = 5, kHidden = 4;

/// A random graph: a node is a word or combines others in one of several ways.
struct Graph {
  enum Kind { kWord, kNary, kUnary, kChildSum, kLstm, kMlp, kNorm, kJoin, kOp };
  struct Node {
    Kind kind;
    int64_t word;
    std::vector<size_t> from;
  };
  std::vector<Node> nodes;

  explicit Graph(std::mt19937& random) {
    const size_t size = 1 + random() % 12;
    for (size_t i = 0; i < size; ++i) {
      Node node{i == 0 || random() % 3 == 0 ? kWord : static_cast<Kind>(std::min<size_t>(1 + random() % 12, kOp)),
                static_cast<int64_t>(random() % kWords),
                {}};
      for (size_t k = 0; k < 3 && i > 0; ++k) node.from.push_back(random() % i);
      nodes.push_back(node);
    }
  }
};

struct Model : nn::Layer<Model> {
  nn::Embedding words{*this, "words", kWords, kIn};
  nn::NaryTreeLSTM nary{*this, "nary", kIn, kHidden};
  nn::ChildSumTreeLSTM sums{*this, "sums", kIn, kHidden};
  nn::LSTMCell lstm{*this, "lstm", kHidden, kHidden};
  nn::Sequential mlp{*this, "mlp", nn::Linear(kHidden, 6), nn::Tanh(), nn::Linear(6, kHidden)};
  nn::LayerNorm norm{*this, "norm", kHidden};
  nn::Bilinear join{*this, "join", kHidden, kHidden, kHidden};
  nn::Linear out{*this, "out", kHidden, 3};
  nn::Parameter w{*this, "w", randn({kHidden, kHidden})}, bias{*this, "bias", randn({kHidden})};
  nn::Parameter w4{*this, "w4", randn({4 * kHidden, kHidden})}, bias4{*this, "bias4", randn({4 * kHidden})};
  nn::Parameter w3{*this, "w3", randn({3 * kHidden, kHidden})}, w5{*this, "w5", randn({5 * kHidden, kHidden})};

  /// An op by itself, one of those that wait.
  CellState op(int64_t which, const CellState& a, const CellState& b) const {
    switch (which % 9) {
      case 0: return {linear(a.h, w, bias), a.c};
      case 1: return {mm(a.h, w), a.c};
      case 2: return lstm_cell(a.h, b, w4, w4, bias4, bias4);
      case 3: return {gru_cell(a.h, b.h, w3, w3), a.c};
      case 4: return {linear(a.h.squeeze(0), w).unsqueeze(0), a.c};
      case 5: return lstm_cell(linear(a.h, w4), b.c);
      case 6: return tree_lstm_cell(linear(a.h, w5), {a.c, b.c});
      case 7: return {rnn_tanh_cell(a.h, b.h, w, w, bias, bias), a.c};
      default: return {linear_relu(a.h, w, bias) + rnn_relu_cell(a.h, {}, w, w), a.c};
    }
  }

  Tensor forward(const Graph& graph) const {
    std::vector<CellState> states;
    for (const Graph::Node& node : graph.nodes) {
      const auto at = [&](size_t k) -> const CellState& { return states[node.from[k]]; };
      const auto same = [&](const Tensor& h) { return CellState{h, at(0).c}; };
      switch (node.kind) {
        case Graph::kWord:
          states.push_back(
              nary(node.word % 2 ? words(tensor({node.word})) : embedding(words.weight, tensor({node.word}))));
          break;
        case Graph::kNary: states.push_back(nary({}, {at(0), at(1)})); break;
        case Graph::kUnary: states.push_back(nary({}, {at(1)})); break;
        case Graph::kChildSum:
          states.push_back(node.word % 2 ? sums(words(tensor({node.word})), {at(0), at(1), at(2)}) : sums({}, {at(0)}));
          break;
        case Graph::kLstm: states.push_back(lstm(at(0).h, node.word % 2 ? at(1) : CellState{})); break;
        case Graph::kMlp: states.push_back(same(mlp(at(0).h))); break;
        case Graph::kNorm: states.push_back(same(norm(at(0).h))); break;
        case Graph::kOp: states.push_back(op(node.word, at(0), at(1))); break;
        case Graph::kJoin: states.push_back(same(join(at(0).h, at(1).h))); break;
      }
    }
    std::vector<Tensor> h;
    for (const CellState& state : states) h.push_back(state.h);
    return out(cat(h));  // as many rows as there are nodes
  }
};

/// The losses of the graphs and the gradients of all parameters.
std::vector<Tensor> losses_and_gradients(Model& model, const std::vector<Graph>& graphs, bool batched,
                                         batching::Report* report = nullptr) {
  const auto one = [&](const Graph& graph) { return sum(sin(model(graph))); };
  std::vector<Tensor> result;
  if (batched)
    result = batching::map(graphs, one, {.report = report});
  else
    for (const Graph& graph : graphs) result.push_back(one(graph));
  model.zero_grad();
  sum(stack(result)).backward();
  for (Tensor& loss : result) loss = loss.detach();
  for (const Tensor& p : model.parameters()) result.push_back(p.grad().defined() ? p.grad().clone() : zeros({}));
  return result;
}

double difference(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  return max(abs(a - b)).item<double>() / std::max(1.0, max(abs(a)).item<double>());
}

/// Rows is a function of rows() that counts its calls.
struct Rows {
  std::function<Tensor(const Tensor&)> f;
  mutable int calls = 0;
  mutable int64_t max_rows = 0;
  Tensor operator()(const Tensor& x) const { return joined(x); }
  std::function<Tensor(const Tensor&)> joined = batching::rows("Rows", [this](const Tensor& x) {
    ++calls, max_rows = std::max(max_rows, x.dim() ? x.size(0) : 1);
    return f ? f(x) : x * 2;
  });
};

std::vector<int> numbers(int n) {
  std::vector<int> all;
  for (int i = 0; i < n; ++i) all.push_back(i);
  return all;
}
Tensor row(double value) { return full({1, 3}, value); }
double value(const Tensor& x) { return x.index({0, 0}).item<double>(); }

}  // namespace

TEST_CASE("batched random graphs have the values and gradients of single ones") {
  for (const DType type : {kFloat32, kFloat64}) {
    std::mt19937 random(7);
    manual_seed(5);
    Model model;
    model.to(type);
    batching::Report report;
    for (int batch = 0; batch < (type == kFloat32 ? 10 : 15); ++batch) {
      std::vector<Graph> graphs;
      for (int i = 0; i < 40; ++i) graphs.emplace_back(random);
      const auto expected = losses_and_gradients(model, graphs, false);
      const auto got = losses_and_gradients(model, graphs, true, &report);
      const auto again = losses_and_gradients(model, graphs, true);
      REQUIRE(got.size() == expected.size());
      for (size_t i = 0; i < got.size(); ++i) {
        CHECK(difference(expected[i], got[i]) < (type == kFloat32 ? 1e-5 : 1e-12));
        CHECK(equal(got[i], again[i]));
      }
    }
    int batched = 0;
    for (const batching::Report::Row& r : report.rows) {
      INFO(r.name);
      CHECK(r.groups > 0);
      CHECK(r.calls - r.alone >= 2 * r.groups);
      ++batched;
    }
    CHECK(batched >= 19);  // those of two shapes of a weight are two; activation functions are more on a GPU
    for (const batching::Report::Unbatched& other : report.unbatched) {
      INFO(other.name);
      CHECK((other.reason == "it is not batched" || other.reason == "its arguments do not allow it"));
    }
  }
}

TEST_CASE("calls with different numbers of rows become one") {
  Rows layer;
  const auto results = batching::map(numbers(5), [&](int n) {
    const Tensor x = arange(n * 3).to(kFloat32).view({n, 3});
    return std::pair(layer(x), x);
  });
  CHECK(layer.calls == 1);
  CHECK(layer.max_rows == 10);
  for (const auto& [y, x] : results) CHECK(equal(y, x * 2));
}

TEST_CASE("what differs is not batched together") {
  Rows layer;
  const auto calls = [&](const std::vector<Tensor>& inputs) {
    layer.calls = 0;
    const auto results = batching::map(inputs, [&](const Tensor& x) { return layer(x); });
    for (size_t i = 0; i < inputs.size(); ++i) CHECK(equal(results[i], inputs[i] * 2));
    return layer.calls;
  };
  CHECK(calls({row(1), row(2), ones({1, 4}), ones({2, 4})}) == 2);
  CHECK(calls({row(1), row(2), row(1).to(kFloat64)}) == 2);
  CHECK(calls({row(1), row(2), ones({1, 3}, {.requires_grad = true})}) == 2);
  CHECK(calls({ones({3}), ones({3})}) == 2);  // no rows
  CHECK(calls({ones({}), ones({})}) == 2);
}

TEST_CASE("arguments of all kinds are compared") {
  int calls = 0;
  const auto f =
      batching::rows("many", [&](const std::vector<Tensor>& list, const std::optional<Tensor>& more, double factor) {
        ++calls;
        Tensor total = list[0];
        for (size_t i = 1; i < list.size(); ++i) total = total + list[i];
        return (more ? total + 100 * *more : total) * factor;
      });
  const auto results = batching::map(numbers(8), [&](int i) {
    std::vector<Tensor> list(i & 1 ? 2 : 1, row(i));
    return f(list, i & 2 ? std::optional(row(1)) : std::nullopt, i & 4 ? 2.0 : 1.0);
  });
  for (int i = 0; i < 8; ++i) CHECK(value(results[i]) == (i * (i & 1 ? 2 : 1) + (i & 2 ? 100 : 0)) * (i & 4 ? 2 : 1));
  CHECK(calls == 8);
  calls = 0;
  batching::map(numbers(8), [&](int i) { return f(std::vector{row(i)}, std::optional<Tensor>(), 1.0); });
  CHECK(calls == 1);
}

TEST_CASE("each example has its own grad mode") {
  nn::Linear linear(3, 3);
  const auto results = batching::map(numbers(8), [&](int i) {
    std::optional<NoGrad> guard;
    if (i % 4 == 1) guard.emplace();
    Tensor y = linear(row(i));
    y = linear(y);
    CHECK(grad_enabled() == (i % 4 != 1));
    return linear(y) * 2;
  });
  for (int i = 0; i < 8; ++i) CHECK(results[i].requires_grad() == (i % 4 != 1));
  CHECK(grad_enabled());
}

TEST_CASE("each example has its own autocast, default device and anomaly mode", "[cpu]") {
  nn::Linear linear(3, 3);
  const auto results = batching::map(numbers(9), [&](int i) {
    std::optional<amp::Autocast> half;
    std::optional<DetectAnomaly> anomaly;
    if (i % 3 == 1) half.emplace(kBFloat16);
    if (i % 3 == 2) anomaly.emplace();
    Tensor y = linear(row(i));
    CHECK(amp::autocast_enabled() == (i % 3 == 1));
    y = linear(y);
    CHECK(amp::autocast_enabled() == (i % 3 == 1));
    return y;
  });
  for (int i = 0; i < 9; ++i) CHECK(results[i].dtype() == (i % 3 == 1 ? kBFloat16 : kFloat32));
  CHECK_FALSE(amp::autocast_enabled());
}

TEST_CASE("one autocast around all examples casts a weight once and gives eager gradients") {
  nn::Linear linear(3, 3);
  const auto gradient = [&](bool batched) {
    linear.zero_grad();
    amp::Autocast half(kBFloat16);
    const auto one = [&](int i) { return linear(row(i)); };
    std::vector<Tensor> all;
    if (batched)
      all = batching::map(numbers(8), one);
    else
      for (int i : numbers(8)) all.push_back(one(i));
    sum(cat(all).to(kFloat32)).backward();
    return linear.weight.grad().clone();
  };
  CHECK(difference(gradient(false), gradient(true)) < 1e-2);
}

TEST_CASE("both runs two parts at the same time, in a map only") {
  Rows layer;
  std::vector<int> order;
  const auto visit = [&](int first) {
    auto [a, b] = batching::both([&] { return order.push_back(first), layer(row(first)); },
                                 [&] { return order.push_back(first + 1), layer(row(first + 1)); });
    return std::pair(value(a), value(b));
  };
  CHECK(visit(1) == std::pair(2.0, 4.0));
  CHECK(layer.calls == 2);
  layer.calls = 0;
  const auto results = batching::map(std::vector{1, 3, 5}, visit);
  CHECK(results == std::vector{std::pair(2.0, 4.0), std::pair(6.0, 8.0), std::pair(10.0, 12.0)});
  CHECK(layer.calls == 1);
  CHECK(layer.max_rows == 6);
}

TEST_CASE("a map in a map joins it") {
  Rows layer;
  const auto sums = batching::map(numbers(4), [&](int n) {
    double total = 0;
    for (const Tensor& y : batching::map(numbers(n), [&](int i) { return layer(row(i)); })) total += value(y);
    return total;
  });
  CHECK(sums == std::vector<double>{0, 0, 2, 6});
  CHECK(layer.calls == 1);
}

namespace {
Tensor deep(const Rows& layer, int level, bool left) {
  if (level == 0) return layer(row(1));
  const auto leaf = [&] { return layer(row(1)); };
  const auto inner = [&] { return deep(layer, level - 1, left); };
  const auto [a, b] = left ? batching::both(inner, leaf) : batching::both(leaf, inner);
  return layer(a + b) * 0.25;
}
}  // namespace

TEST_CASE("a tree of 2,000 levels") {
  Rows layer;
  NoGrad guard;
  for (const bool left : {false, true}) {
    const auto results = batching::map(numbers(3), [&](int) { return deep(layer, 2000, left); });
    for (const Tensor& y : results) CHECK(value(y) == Approx(2));
  }
}

TEST_CASE("more parts than there can be fibers run one after the other") {
  Rows layer;
  NoGrad guard;
  const std::function<int64_t(int)> count = [&](int level) -> int64_t {
    if (level == 0) return layer(row(1)).size(0);
    const auto [a, b] = batching::both([&] { return count(level - 1); }, [&] { return count(level - 1); });
    return a + b;
  };
  batching::Report report;
  CHECK(batching::map(numbers(1), [&](int) { return count(13); }, {.report = &report})[0] == 8192);
  CHECK(report.most_fibers == (default_device() == kCPU ? 128 : 4096));
  CHECK(layer.calls < 200);
}

TEST_CASE("an example that fails ends the map and unwinds the others") {
  struct Net : nn::Layer<Net> {
    nn::Linear inner{*this, "inner", 3, 3};
    Tensor forward(const Tensor& x) const { return inner(x); }
  } net;
  int alive = 0, done = 0;
  struct Count {
    int& n;
    explicit Count(int& m) : n(m) { ++n; }
    ~Count() { --n; }
  };
  {
    testing::LeakScope leaks;
    const auto run = [&](int bad) {
      return batching::map(numbers(20), [&](int i) {
        const Count count(alive);
        Tensor x = net(row(i));
        if (i == bad) net(ones({1, 4}));
        x = net(net(x));
        ++done;
        return x;
      });
    };
    CHECK_THROWS_WITH(run(7), Contains("linear") && Contains("inner (Linear)"));
    CHECK(alive == 0);
    CHECK(done < 20);
    done = 0;
    CHECK(run(-1).size() == 20);
    CHECK(done == 20);
  }
  struct Own {
    int number;
  };
  try {
    batching::map(numbers(5), [&](int i) {
      net(row(i));
      if (i == 3) throw Own{i};
    });
    FAIL("it did not throw");
  } catch (const Own& own) {
    CHECK(own.number == 3);
  }
  CHECK_THROWS_WITH(batching::map(numbers(2), [](int) { return 1; }, {.window = 0}), Contains("window"));
}

TEST_CASE("a group that fails is called one by one") {
  Rows layer;
  layer.f = [](const Tensor& x) {
    REEL_CHECK(!any(x == 3).item<bool>(), "a three among ", x.size(0), " rows");
    return x * 2;
  };
  int failed = 0;
  const auto results = batching::map(numbers(6), [&](int i) {
    try {
      return value(layer(row(i)));
    } catch (const Error& error) {
      CHECK_THAT(error.what(), Contains("a three among 1 rows"));
      ++failed;
      return -1.0;
    }
  });
  CHECK(results == std::vector<double>{0, 2, 4, -1, 8, 10});
  CHECK(failed == 1);
  CHECK(layer.calls == 1 + 6);
}

TEST_CASE("both waits for its second part when the first fails") {
  nn::Linear linear(3, 3);
  int ended = 0;
  const auto visit = [&](int i) {
    try {
      batching::both([&]() -> int { return i % 2 ? throw std::runtime_error("odd") : 0; },
                     [&] { return linear(linear(row(i))), ++ended; });
      return 0;
    } catch (const std::runtime_error&) {
      return 1;
    }
  };
  CHECK(batching::map(numbers(4), visit) == std::vector{0, 1, 0, 1});
  CHECK(ended == 4);
}

TEST_CASE("a function of rows() whose result has other rows is an error") {
  Rows layer;
  layer.f = [](const Tensor& x) { return sum(x, 0, true); };
  CHECK_THROWS_WITH(batching::map(numbers(3), [&](int i) { return layer(row(i)); }),
                    Contains("Rows: its result must have a row for each of 3 rows"));
}

TEST_CASE("calls do not wait inside of a backward pass, a custom op or a checkpoint") {
  Rows layer;
  const auto square = [&](const Tensor& x) { return layer(x) * x; };
  const auto results = batching::map(numbers(4), [&](int i) {
    Tensor x = row(i).requires_grad_();
    Tensor y = checkpoint([&](const std::vector<Tensor>& in) { return std::vector{square(in[0])}; }, {x})[0];
    y.register_hook([&](const Tensor& g) { return layer(g) / 2; });
    sum(y).backward();
    return value(x.grad());
  });
  CHECK(layer.max_rows == 1);
  CHECK(results == std::vector<double>{0, 4, 8, 12});
}

TEST_CASE("hooks of a layer run for each example, and its op once") {
  nn::Linear linear(3, 3);
  int before = 0;
  linear.register_forward_pre_hook([&](nn::Module&, std::vector<Tensor>& inputs) {
    ++before;
    CHECK(inputs[0].size(0) == 1);
  });
  batching::Report report;
  batching::map(numbers(5), [&](int i) { return linear(row(i)); }, {.report = &report});
  CHECK(before == 5);
  REQUIRE(report.rows.size() == 1);
  CHECK((report.rows[0].calls == 5 && report.rows[0].groups == 1));
}

TEST_CASE("the layers of parametrized modules see their own values") {
  struct Net : nn::Layer<Net> {
    nn::Parameter weight{*this, "weight", ones({3, 3})};
    nn::Linear inner{*this, "inner", 3, 3};
    Tensor forward(const Tensor& x) const { return matmul(inner(matmul(x, weight)), weight); }
  } net;
  nn::weight_norm(net, "weight");
  const auto gradients = [&](bool batched) {
    net.zero_grad();
    const auto one = [&](int i) { return sum(net(row(i))); };
    std::vector<Tensor> all;
    if (batched)
      all = batching::map(numbers(6), one);
    else
      for (int i : numbers(6)) all.push_back(one(i));
    sum(stack(all)).backward();
    std::vector<Tensor> result;
    for (const Tensor& p : net.parameters()) result.push_back(p.grad().clone());
    return result;
  };
  const auto eager = gradients(false), batched = gradients(true);
  for (size_t i = 0; i < eager.size(); ++i) CHECK(difference(eager[i], batched[i]) < 1e-5);
}

TEST_CASE("a report says what was batched and what was not") {
  struct Net : nn::Layer<Net> {
    nn::Linear fc{*this, "fc", 3, 3};
    Tensor forward(const Tensor& x) const { return exp(fc(x)); }
  } net;
  batching::Report report;
  batching::map(numbers(20), [&](int i) { return net(row(i)); }, {.window = 10, .report = &report});
  REQUIRE(report.rows.size() == 1);
  const batching::Report::Row& fc = report.rows[0];
  CHECK(fc.name == "linear [3, 3]");
  CHECK(fc.calls == 20);
  CHECK(fc.groups == 2);
  CHECK(fc.rows == 20);
  CHECK(fc.alone == 0);
  CHECK(fc.gathered == 20 * 3 * 4);
  CHECK(fc.seconds > fc.gather_seconds);
  const auto alone = std::find_if(report.unbatched.begin(), report.unbatched.end(),
                                  [](const auto& other) { return other.name == "exp"; });
  REQUIRE(alone != report.unbatched.end());
  CHECK(alone->calls == 20);
  CHECK(report.most_fibers == 10);
  CHECK(report.seconds > report.schedule_seconds);
  CHECK_THAT(report.table(), Contains("linear [3, 3]") && Contains("exp") && Contains("10.0"));
}

TEST_CASE("convolutions of images of several examples become one, also of images without a batch") {
  manual_seed(4);
  nn::Sequential net{nn::Conv2d(3, 4, 3, {.stride = 2, .padding = 1}), nn::ReLU(), nn::Conv2d(4, 2, 1)};
  const std::vector<Tensor> images = {randn({1, 3, 6, 8}), randn({2, 3, 6, 8}), randn({1, 3, 6, 8}),
                                      randn({1, 3, 4, 4})};
  const auto run = [&](const std::vector<Tensor>& of, batching::Report* report) {
    const auto score = [&](const Tensor& x) { return sum(sin(net(x))); };
    std::vector<Tensor> result;
    if (report)
      result = batching::map(of, score, {.report = report});
    else
      for (const Tensor& x : of) result.push_back(score(x));
    net.zero_grad();
    sum(stack(result)).backward();
    for (const Tensor& p : net.parameters()) result.push_back(p.grad().clone());
    return result;
  };
  batching::Report report;
  const std::vector<Tensor> batched = run(images, &report), single = run(images, nullptr);
  for (size_t i = 0; i < single.size(); ++i) CHECK(difference(batched[i].detach(), single[i].detach()) < 1e-5);
  REQUIRE(report.rows.size() >= 2);  // on a GPU the activation is one, too
  CHECK(report.rows[0].name == "conv2d [4, 3, 3, 3]");
  CHECK(report.rows[0].calls == 4);
  CHECK(report.rows[0].groups == 1);  // the image of another size is called alone
  CHECK(report.rows[0].rows == 4);

  batching::Report of_single;
  const std::vector<Tensor> whole = {images[0][0], images[2][0]};
  const std::vector<Tensor> a = run(whole, &of_single), b = run(whole, nullptr);
  for (size_t i = 0; i < a.size(); ++i) CHECK(difference(a[i].detach(), b[i].detach()) < 1e-5);
  CHECK((of_single.rows[0].groups == 1 && of_single.rows[0].rows == 2));
}

TEST_CASE("functions are batched by rows()") {
  int calls = 0;
  const auto twice = batching::rows("twice", [&](const Tensor& a, const Tensor& b) {
    return ++calls, CellState{a + b, a - b};
  });
  const auto other = twice;
  const auto results = batching::map(numbers(6), [&](int i) {
    const CellState state = (i % 2 ? twice : other)(row(i), row(1));
    return std::pair(value(state.h), value(state.c));
  });
  for (int i = 0; i < 6; ++i) CHECK(results[i] == std::pair(i + 1.0, i - 1.0));
  CHECK(calls == 1);
  CHECK(value(twice(row(2), row(1)).h) == 3);
}

TEST_CASE("sequences of different lengths are read together") {
  manual_seed(3);
  for (const bool bidirectional : {false, true}) {
    nn::LSTM lstm(3, 4, {.num_layers = 2, .bidirectional = bidirectional});
    nn::GRU gru(3, 4, {.bidirectional = bidirectional});
    nn::RNN rnn(3, 4, {.bidirectional = bidirectional});
    std::vector<Tensor> inputs;
    for (int i = 0; i < 7; ++i) inputs.push_back(randn({1 + i * 5 % 7, 3}));
    const auto one = [&](const Tensor& x) {
      const auto [a, state] = lstm(x);
      const auto [b, h] = gru(x);
      const auto [c, last] = rnn(x);
      const auto [lists, ends] = lstm({x, x.narrow(0, 0, 1)});
      const std::vector<Tensor> all{a, b, c, state.h, state.c, h, last, lists[0], lists[1], ends.h, ends.c};
      Tensor total;
      for (const Tensor& t : all) total = total.defined() ? total + sum(sin(t)) : sum(sin(t));
      std::vector<Tensor> result{total};
      for (const Tensor& t : all) result.push_back(t.detach());
      return result;
    };
    const auto gradients = [&](const std::vector<std::vector<Tensor>>& results) {
      std::vector<Tensor> losses, found;
      for (const auto& result : results) losses.push_back(result[0]);
      for (nn::Module* net : std::vector<nn::Module*>{&lstm, &gru, &rnn}) net->zero_grad();
      sum(stack(losses)).backward();
      for (nn::Module* net : std::vector<nn::Module*>{&lstm, &gru, &rnn})
        for (const Tensor& p : net->parameters()) found.push_back(p.grad().clone());
      return found;
    };
    batching::Report report;
    const auto results = batching::map(inputs, one, {.report = &report});
    std::vector<std::vector<Tensor>> expected;
    for (const Tensor& x : inputs) expected.push_back(one(x));
    for (size_t i = 0; i < results.size(); ++i)
      for (size_t k = 0; k < results[i].size(); ++k) CHECK(difference(expected[i][k], results[i][k]) < 1e-5);
    const auto got = gradients(results), wanted = gradients(expected);
    for (size_t i = 0; i < got.size(); ++i) CHECK(difference(wanted[i], got[i]) < 1e-5);
    REQUIRE(report.rows.size() == 3);
    for (const auto& r : report.rows) CHECK(r.groups == (r.name == "LSTM" ? 2 : 1));
  }
}

TEST_CASE("maps of several threads are independent of each other", "[threads]") {
  std::mt19937 random(3);
  std::vector<Graph> graphs;
  for (int i = 0; i < 30; ++i) graphs.emplace_back(random);
  manual_seed(2);
  Model model;
  std::vector<std::vector<double>> losses(4);
  std::vector<std::thread> threads;
  for (auto& mine : losses)
    threads.emplace_back([&] {
      for (int repeat = 0; repeat < 3; ++repeat) {
        const auto all = batching::map(graphs, [&](const Graph& graph) { return sum(sin(model(graph))); });
        sum(stack(all)).backward();
        mine.clear();
        for (const Tensor& loss : all) mine.push_back(loss.item<double>());
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& mine : losses) CHECK(mine == losses[0]);
}

TEST_CASE("the profiler attributes time to the examples' own scopes", "[cpu]") {
  nn::Linear linear(3, 3);
  profile::start();
  batching::map(numbers(4), [&](int i) {
    const profile::Scope outer("outer " + std::to_string(i % 2));
    return linear(linear(row(i)));
  });
  const profile::Report report = profile::stop();
  for (const profile::Event& event : report.events) CHECK(event.self >= 0);
  int found = 0;
  for (const profile::Row& r : report.rows()) {
    if (!r.name.starts_with("outer") && r.kind != profile::Kind::kLayer) continue;
    CHECK(r.calls == (r.name == "Linear" ? 8 : 2));  // of the layer by each example, of its op by two groups
    found += r.kind == profile::Kind::kScope;
  }
  CHECK(found == 2);
}

TEST_CASE("random numbers in a map are those of the seed") {
  nn::Linear linear(3, 3);
  nn::Dropout dropout(0.5);
  const auto draw = [&] {
    manual_seed(4);
    return batching::map(numbers(10), [&](int i) { return dropout(linear(row(i))) + rand({1, 3}); });
  };
  const auto a = draw(), b = draw();
  for (size_t i = 0; i < a.size(); ++i) CHECK(equal(a[i], b[i]));
}

TEST_CASE("a map of nothing, of one example, and one that returns nothing") {
  nn::Linear linear(3, 3);
  CHECK(batching::map(numbers(0), [&](int i) { return linear(row(i)); }).empty());
  CHECK(equal(batching::map(numbers(1), [&](int i) { return linear(row(i)); })[0], linear(row(0))));
  int total = 0;
  batching::map(numbers(10), [&](int i) { linear(row(i)), total += i; }, {.window = 1});
  CHECK(total == 45);
  CHECK(batching::map(numbers(3), [](int i) { return std::make_unique<int>(i); })[2] != nullptr);
}

namespace {
/// Recurses with frames of 1 KB, and calls the layer at the end, if any.
[[gnu::noinline]] int recurse(int kilobytes, const nn::Linear* layer) {
  volatile char frame[1000];
  frame[kilobytes % 1000] = 1;
  if (kilobytes == 0) return layer ? static_cast<int>((*layer)(row(1)).dim()) : 0;
  return recurse(kilobytes - 1, layer) + frame[kilobytes % 1000];
}
int64_t resident_megabytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t all = 0, resident = 0;
  statm >> all >> resident;
  return resident * 4096 >> 20;
}
}  // namespace

TEST_CASE("stacks that a deep recursion has touched are given back behind the map", "[cpu]") {
  if (kSanitized) return;  // which changes frames and what is resident
  nn::Linear linear(3, 3);
  NoGrad guard;
  const nn::Linear* const layers[] = {&linear, nullptr};  // examples wait deep in the stack, or do not
  for (const nn::Linear* layer : layers) {
    const int64_t before = resident_megabytes();
    batching::map(numbers(256), [&](int) { return recurse(1000, layer), linear(row(1)); }, {.window = 256});
    CHECK(resident_megabytes() - before < 120);  // of 256 MB
  }
}
