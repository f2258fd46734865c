// Which gradients a map gives: those of single calls, and none where single calls give none.
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "reel/batching.h"
#include "reel/reel.h"
#include "test/support/pch.h"

using namespace reel;

namespace {

constexpr int64_t kWidth = 4;
constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<int> numbers(int n) {
  std::vector<int> all;
  for (int i = 0; i < n; ++i) all.push_back(i);
  return all;
}

/// f of each example, alone or in a map.
template <class F>
auto results_of(bool mapped, int n, const F& f, batching::Report* report = nullptr) {
  if (mapped) return batching::map(numbers(n), f, {.report = report});
  std::vector<decltype(f(0))> results;
  for (const int i : numbers(n)) results.push_back(f(i));
  return results;
}

/// What a backward pass has left: gradients, where there are some, and how often hooks have run.
struct Trace {
  std::map<std::string, Tensor> gradients;
  std::map<std::string, int> calls;

  void take(const nn::Module& net) {
    for (const auto& [name, p] : net.named_parameters()) {
      if (const SparseGrad* rows = p.sparse_grad())
        gradients[name + ".ids"] = rows->ids.to(kFloat64), gradients[name + ".values"] = rows->values;
      else if (p.grad().defined())
        gradients[name] = p.grad().clone();
    }
  }
  /// Counts the gradients that arrive at x.
  void watch(const std::string& name, Tensor x) {
    if (x.requires_grad()) x.register_hook([this, name](const Tensor&) { return ++calls[name], Tensor(); });
  }
};

void check_same(const Trace& expected, const Trace& got) {
  CHECK(expected.calls == got.calls);
  std::vector<std::string> names, others;
  for (const auto& [name, g] : expected.gradients) names.push_back(name);
  for (const auto& [name, g] : got.gradients) others.push_back(name);
  REQUIRE(names == others);
  for (const auto& [name, g] : expected.gradients) {
    INFO(name);
    const double tolerance = g.dtype() == kFloat64 ? 1e-10 : 1e-5;
    CHECK(allclose(got.gradients.at(name), g, tolerance, tolerance, true));
  }
}

/// A layer with two results, each of which depends on one argument only, and on weights of its own.
struct Pair : nn::Layer<Pair> {
  using Layer::Layer;
  nn::Linear first{*this, "first", kWidth, kWidth}, second{*this, "second", kWidth, kWidth};
  CellState forward(const Tensor& a, const Tensor& b) const { return joined(a, b); }
  std::function<CellState(const Tensor&, const Tensor&)> joined =
      batching::rows("pair", [this](const Tensor& a, const Tensor& b) {
        return CellState{log(exp(first(a))), tanh(second(b))};
      });
};

struct Net : nn::Module {
  std::vector<std::unique_ptr<nn::Linear>> linears;
  nn::Sequential mlp{*this, "mlp", nn::Linear(kWidth, kWidth), nn::Tanh(), nn::Linear(kWidth, kWidth)};
  nn::LSTMCell cell{*this, "cell", kWidth, kWidth};
  nn::NaryTreeLSTM tree{*this, "tree", kWidth, kWidth};
  nn::LayerNorm norm{*this, "norm", kWidth};
  nn::LSTM lstm{*this, "lstm", kWidth, kWidth};
  nn::GRU gru{*this, "gru", kWidth, kWidth, {.bidirectional = true}};
  nn::CRF crf{*this, "crf", kWidth};
  nn::Embedding words{*this, "words", 10, kWidth}, sparse{*this, "sparse", 10, kWidth, {.sparse = true}};
  Pair pair{*this, "pair"};
  nn::Parameter start{*this, "start", randn({1, kWidth})}, w{*this, "w", randn({kWidth, kWidth})};
  nn::Parameter scale{*this, "scale", randn({kWidth})};
  std::function<Tensor(const Tensor&, const Tensor&)> gate;

  Net() {
    for (int i = 0; i < 3; ++i)
      linears.push_back(std::make_unique<nn::Linear>(*this, "linear" + std::to_string(i), kWidth, kWidth));
    const auto f = batching::rows("gate", [this](const Tensor& a, const Tensor& b) { return sigmoid(a * scale) * b; });
    gate = f;
    to(kFloat64);  // small tolerances, whatever the sums
  }

  /// A step from x, which changes with `which`. Some of what it computes may not be used.
  Tensor step(unsigned which, const Tensor& x, const Tensor& other) const {
    switch (which % 16) {
      case 0: return mlp(x);
      case 1: return cell(x, which % 3 ? CellState{other, x} : CellState()).h;
      case 2: return cell(x, {other, x}).c;
      case 3: return tree({}, {{x, other}, {other, x}}).h;
      case 4: return norm(x);
      case 5: return lstm(cat({x, other})).output.narrow(0, 1, 1);
      case 6: return lstm(x).state.c;
      case 7: return gru(std::vector<Tensor>{x, other}).h.select(0, 1).narrow(0, 1, 1);
      case 8: return x + crf(cat({x, other}), tensor({0, 2}));
      case 9: return words(tensor({static_cast<int64_t>(which / 16 % 10)})) + x;
      case 10: return sparse(tensor({static_cast<int64_t>(which / 16 % 10)})) * x;
      case 11: return which % 3 ? pair(x, other).h : pair(other, x).c;
      case 12: return matmul(x, w) + start;
      case 13: return x + cross_entropy(cat({x, other, x}), tensor({0, -100, 3}), which / 16 % 2 ? kSum : kMean);
      case 14: return x * cross_entropy(cat({other, x}), tensor({1, 2}), kNoReduction).unsqueeze(1).narrow(0, 0, 1);
      default: return gate(other, x);
    }
  }
};

/// What is done to a value that nobody uses: nothing on a GPU, where such a value spoils the gradients of its group.
Tensor poisoned(unsigned how, const Tensor& x) {
  if (x.is_cuda()) return x;
  switch (how % 4) {
    case 0: return x;
    case 1: return x * kInf;
    case 2: return x + std::nan("");
    default: return full({1, kWidth}, -kInf, {.dtype = kFloat64});
  }
}

/// A random program of example i: a chain of steps, from which others branch off that are left out.
Tensor example(const Net& net, unsigned seed, int i, Trace& trace) {
  std::mt19937 random(seed * 1000 + static_cast<unsigned>(i));
  const auto name = [&](const char* what, unsigned k) { return what + std::to_string(i) + "." + std::to_string(k); };
  const bool left_out = random() % 3 == 0;
  Tensor x = full({1, kWidth}, 0.1 * (i + 1), {.dtype = kFloat64}), other = net.start * 0.5;
  trace.watch(name("start", 0), other);
  const unsigned steps = 1 + random() % 4;
  for (unsigned k = 0; k < steps; ++k) {
    if (random() % 2) {
      Tensor branch = poisoned(random(), (*net.linears[random() % 3])(x));
      trace.watch(name("branch", k), branch);
      for (unsigned more = random() % 3; more > 0; --more) branch = net.step(random(), branch, x);
    }
    const Tensor next = net.step(random(), x, other);
    other = x, x = next;
    trace.watch(name("step", k), x);
  }
  if (left_out) x = poisoned(random(), x);
  const Tensor y = sum(net.mlp(x));
  return left_out ? zeros({}, {.dtype = kFloat64}) : y;
}

/// Calls run(net, mapped, trace) for single calls and for a map, which are to have the same gradients and hook calls.
template <class F>
void compare(unsigned seed, const F& run) {
  manual_seed(static_cast<int>(seed));
  Net net;
  Trace traces[2];
  for (const bool mapped : {false, true}) {
    net.zero_grad();
    run(net, mapped, traces[mapped]);
    traces[mapped].take(net);
  }
  check_same(traces[0], traces[1]);
}

}  // namespace

TEST_CASE("a map gives the same gradients as single calls, none where they give none, and hooks run as often") {
  for (unsigned seed = 0; seed < 40; ++seed) {
    INFO("seed " << seed);
    compare(seed, [&](const Net& net, bool mapped, Trace& trace) {
      std::vector<int64_t> hooks;
      for (const auto& [name, p] : net.named_parameters()) {
        Tensor leaf = p;
        hooks.push_back(
            leaf.register_hook([&trace, key = name](const Tensor&) { return ++trace.calls[key], Tensor(); }));
      }
      const auto losses = results_of(mapped, 12, [&](int i) { return example(net, seed, i, trace); });
      const Tensor loss = sum(stack(losses));
      if (loss.requires_grad()) loss.backward();
      size_t k = 0;
      for (Tensor leaf : net.parameters()) leaf.remove_hook(hooks[k++]);
    });
  }
}

TEST_CASE("each example of a map may have a backward pass of its own") {
  for (const bool inside : {true, false})
    for (unsigned seed = 100; seed < 110; ++seed) {
      INFO("seed " << seed << ", inside the map " << inside);
      compare(seed, [&](const Net& net, bool mapped, Trace& trace) {
        const auto losses = results_of(mapped, 8, [&](int i) {
          const Tensor loss = example(net, seed, i, trace);
          if (inside && loss.requires_grad()) loss.backward();
          return loss;
        });
        for (const Tensor& loss : losses)
          if (!inside && loss.requires_grad()) loss.backward();
      });
    }
}

TEST_CASE("an example that overflows and is left out leaves the gradients of the others as they are", "[cpu]") {
  manual_seed(0);
  nn::Linear layer(3, 3);
  const auto gradient = [&](bool mapped, double value) {
    const auto losses = results_of(mapped, 3, [&](int i) {
      const Tensor y = layer(full({1, 3}, i == 1 ? value : 1.0));
      return all(isfinite(y)).item<bool>() ? sum(y) : zeros({});
    });
    layer.zero_grad();
    sum(stack(losses)).backward();
    return layer.weight.grad().clone();
  };
  for (const double value : {kInf, -kInf, std::nan("")}) CHECK(equal(gradient(true, value), gradient(false, value)));
}

TEST_CASE("only the examples with infinite values are called by themselves, and the report says so", "[cpu]") {
  nn::Linear layer(3, 3);
  batching::Report report;
  results_of(
      true, 8,
      [&](int i) {
        return layer(full({1, 3}, i == 5 ? kInf : 1.0));
      },
      &report);
  REQUIRE(report.rows.size() == 1);
  CHECK(report.rows[0].groups == 1);
  CHECK(report.rows[0].rows == 7);
  CHECK(report.rows[0].alone == 1);
  REQUIRE(report.unbatched.size() >= 1);
  CHECK(report.unbatched[0].reason.find("infinite") != std::string::npos);

  batching::Report unrecorded;  // there is no gradient that they could spoil
  NoGrad guard;
  results_of(
      true, 8,
      [&](int i) {
        return layer(full({1, 3}, i == 5 ? kInf : 1.0));
      },
      &unrecorded);
  CHECK(unrecorded.rows[0].rows == 8);
}

TEST_CASE("a value that overflows inside of a batched layer only does not spoil the gradients of the others", "[cpu]") {
  manual_seed(1);
  struct Net : nn::Module {
    nn::Linear in{*this, "in", 3, 3};
  } net;
  const auto squash = batching::rows("squash", [&](const Tensor& x) { return exp(-exp(net.in(x))); });
  Trace traces[2];
  for (const bool mapped : {false, true}) {
    net.zero_grad();
    const auto losses = results_of(mapped, 4, [&](int i) {
      const Tensor y = sum(squash(full({1, 3}, i == 2 ? 1e6 : 0.1 * i)));
      return i == 2 ? zeros({}) : y;
    });
    sum(stack(losses)).backward();
    traces[mapped].take(net);
  }
  check_same(traces[0], traces[1]);
}

TEST_CASE("a sequence that overflows and is left out leaves the gradients of other sequences as they are", "[cpu]") {
  struct Net : nn::Module {
    nn::LSTM lstm{*this, "lstm", 3, 3};
    nn::GRU gru{*this, "gru", 3, 3, {.bidirectional = true}};
    nn::CRF crf{*this, "crf", 3};
  };
  for (const bool given : {false, true})
    for (const double value : {kInf, std::nan(""), 1e38}) {
      INFO("initial state " << given << ", value " << value);
      manual_seed(5);
      Net net;
      Trace traces[2];
      for (const bool mapped : {false, true}) {
        net.zero_grad();
        const auto results = results_of(mapped, 4, [&](int i) {
          const Tensor x = full({2 + i % 2, 3}, i == 1 ? value : 0.2 * i), h = full({1, 3}, 0.1 * i);
          const auto a = net.lstm(x, given ? CellState{h, h} : CellState());
          const auto b = net.gru(x, given ? cat({h, h}) : Tensor());
          return std::vector{sum(a.output), sum(square(a.state.c)), sum(b.h),
                             net.crf(x, zeros({x.size(0)}, {.dtype = kInt64}))};
        });
        Tensor loss = zeros({});
        for (const size_t i : {0, 2, 3})
          for (const Tensor& part : results[i]) loss = loss + sum(part);
        loss.backward();
        traces[mapped].take(net);
      }
      check_same(traces[0], traces[1]);
    }
}

TEST_CASE("a derivative that is infinite at a finite value does not spoil the gradients of the others", "[cpu]") {
  using Op = std::function<Tensor(const Tensor&)>;
  const std::vector<std::pair<std::string, Op>> ops = {
      {"sqrt", [](const Tensor& x) { return sqrt(x); }},
      {"log", [](const Tensor& x) { return sigmoid(log(x)); }},
      {"log1p", [](const Tensor& x) { return log1p(x - 1); }},
      {"pow", [](const Tensor& x) { return pow(x, 0.3); }},
      {"div", [](const Tensor& x) { return x / sum(x, 1, true); }},
      {"inverse", [](const Tensor& x) { return tanh(1 / x); }},
      {"acos", [](const Tensor& x) { return acos(1 - x); }},
      {"atan2", [](const Tensor& x) { return atan2(x, x); }},
      {"norm", [](const Tensor& x) { return x / norm(x, 2, 1, true); }},
      {"custom op",
       [](const Tensor& x) {
         const auto rule = [x](const Tensor& g) { return std::vector{-g / square(x)}; };
         return tanh(custom_op("inverse", no_grad([&] { return 1 / x; }), {x}, rule));
       }},
  };
  for (const auto& [name, op] : ops) {
    INFO(name);
    struct Net : nn::Module {
      nn::Parameter w{*this, "w", full({3}, 0.5)};
    } net;
    const auto f = batching::rows(name, [&, op = op](const Tensor& x) { return op(x * net.w); });
    Trace traces[2];
    for (const bool mapped : {false, true}) {
      net.zero_grad();
      const auto results = results_of(mapped, 4, [&](int i) { return f(full({1, 3}, i == 1 ? 0 : 0.2 * i + 0.1)); });
      sum(stack({sum(results[0]), sum(results[2]), sum(results[3])})).backward();
      traces[mapped].take(net);
      CHECK(all(isfinite(net.w.grad())).item<bool>());
    }
    check_same(traces[0], traces[1]);
  }
}

TEST_CASE("a parameter that only unused results depend on has no gradient in a map, and optimizers leave it") {
  for (const bool mapped : {false, true}) {
    manual_seed(0);
    nn::Linear last(3, 3), unused(3, 3), used(3, 3);
    std::vector<Tensor> parameters;
    for (const nn::Linear* layer : {&last, &unused, &used})
      for (const Tensor& p : layer->parameters()) parameters.push_back(p);
    int calls = 0;
    unused.weight.register_hook([&](const Tensor&) { return ++calls, Tensor(); });
    optim::AdamW adam(parameters, {.lr = 0.1, .weight_decay = 0.1});
    const Tensor before = unused.weight.detach().clone();
    const auto losses = results_of(mapped, 2, [&](int i) {
      const Tensor y = sum(last(i ? unused(ones({1, 3})) : used(ones({1, 3}))));
      return i ? zeros({}) : y;
    });
    sum(stack(losses)).backward();
    adam.step();
    CHECK_FALSE(unused.weight.grad().defined());
    CHECK(calls == 0);
    CHECK(equal(unused.weight.detach(), before));
  }
}

TEST_CASE("grad() in a map finds no gradient where there is none") {
  nn::Linear layer(3, 3);
  std::vector<Tensor> inputs;
  for (int i = 0; i < 4; ++i) inputs.push_back(ones({1, 3}).requires_grad_());
  const auto results = results_of(true, 4, [&](int i) { return sum(layer(inputs[static_cast<size_t>(i)])); });
  const auto found = grad(std::vector{results[1]}, inputs, {}, {.retain_graph = true, .allow_unused = true});
  for (size_t i = 0; i < 4; ++i) CHECK(found[i].defined() == (i == 1));
  const auto linked = grad(std::vector{results[1]}, inputs, {}, {.create_graph = true, .allow_unused = true});
  for (size_t i = 0; i < 4; ++i) CHECK(linked[i].defined() == (i == 1));
  CHECK(equal(linked[1], found[1]));
}

TEST_CASE("grad() inside of an example is that of the example alone") {
  manual_seed(2);
  nn::Linear layer(3, 3);
  for (const bool retain : {false, true}) {
    int calls = 0;
    const auto one = [&](int i) {
      Tensor z = full({1, 3}, 0.1 * i).requires_grad_();
      z.register_hook([&](const Tensor&) { return ++calls, Tensor(); });
      return grad({sum(tanh(layer(z)))}, {z}, {}, {.retain_graph = retain})[0];
    };
    const auto expected = results_of(false, 3, one), got = results_of(true, 3, one);
    for (size_t i = 0; i < 3; ++i) CHECK(allclose(got[i], expected[i]));
    CHECK(calls == 6);
  }
}

TEST_CASE("a gradient penalty inside of an example has the gradients of single calls") {
  manual_seed(3);
  struct Net : nn::Module {
    nn::Linear in{*this, "in", 3, 3}, out{*this, "out", 3, 1};
  } net;
  Trace traces[2];
  for (const bool mapped : {false, true}) {
    net.zero_grad();
    const auto losses = results_of(mapped, 4, [&](int i) {
      const Tensor z = full({1, 3}, 0.1 * i).requires_grad_();
      const Tensor y = sum(net.out(tanh(net.in(z))));
      const Tensor slope = grad({y}, {z}, {}, {.create_graph = true})[0];
      return y + square(norm(slope) - 1);
    });
    sum(stack(losses)).backward();
    traces[mapped].take(net);
  }
  check_same(traces[0], traces[1]);
}

TEST_CASE("a gradient penalty of some examples has the gradients of single calls, beside the losses of others") {
  for (unsigned penalized = 0; penalized < 8; ++penalized)
    for (const std::string kind : {"function", "cell", "checkpoint"}) {
      INFO("penalized " << penalized << ", " << kind);
      manual_seed(4);
      struct Net : nn::Module {
        nn::Linear in{*this, "in", 3, 3}, layer{*this, "layer", 3, 3};
        nn::GRUCell cell{*this, "cell", 3, 3};
      } net;
      const auto squash = batching::rows("squash", [&](const Tensor& x) { return tanh(net.layer(x)); });
      const auto again = batching::rows("again", [&](const Tensor& x) {
        return checkpoint([&](const std::vector<Tensor>& in) { return std::vector{in[0] * tanh(net.layer(in[1]))}; },
                          {x, x})[0];
      });
      Trace traces[2];
      for (const bool mapped : {false, true}) {
        net.zero_grad();
        const auto pairs = results_of(mapped, 4, [&](int i) {
          const Tensor x = net.in(full({1, 3}, 0.3 * (i + 1)));
          traces[mapped].watch("x" + std::to_string(i), x);
          const Tensor y = kind == "function" ? squash(x) : kind == "cell" ? net.cell(x, x * 0.5) : again(x);
          return std::pair(x, sum(square(y)));
        });
        std::vector<Tensor> losses;
        for (unsigned i = 0; i < 3; ++i) {  // of the last one nothing is used
          const auto& [x, y] = pairs[i];
          const bool penalty = penalized >> i & 1;
          losses.push_back(penalty ? sum(square(grad({y}, {x}, {}, {.create_graph = true})[0])) : y);
        }
        sum(stack(losses)).backward();
        traces[mapped].take(net);
      }
      check_same(traces[0], traces[1]);
    }
}

TEST_CASE("a pass through all examples of a group frees it, and a second one throws") {
  nn::Linear layer(3, 3);
  const auto results = results_of(true, 4, [&](int i) { return sum(tanh(layer(full({1, 3}, 0.1 * i)))); });
  const Tensor loss = sum(stack(results));
  loss.backward();
  CHECK_THROWS_WITH(results[0].backward(), Catch::Matchers::Contains("freed"));
}

TEST_CASE("layers with hooks inside of what is batched are called for each example", "[cpu]") {
  struct Part : nn::Layer<Part> {
    using Layer::Layer;
    nn::Linear f{*this, "f", 3, 3};
    Tensor forward(const Tensor& x) const { return tanh(f(x)); }
  };
  struct Whole : nn::Layer<Whole> {
    Part part{*this, "part"};
    Tensor forward(const Tensor& x) const { return part(x) * 2; }
  };
  manual_seed(1);
  Whole whole;
  nn::Sequential sequence(nn::Sequential(nn::Linear(3, 3), nn::Tanh()), nn::Linear(3, 3));
  nn::Linear apart(3, 3);
  const auto by_rows = batching::rows("by_rows", [&](const Tensor& x) { return relu(apart(x)); });
  int calls = 0;
  const auto divide = [&](nn::Module&, const std::vector<Tensor>&, std::vector<Tensor>& out) {
    ++calls, out[0] = out[0] / norm(out[0]);
  };
  const auto run = [&](const std::function<Tensor(const Tensor&)>& f) {
    calls = 0;
    const auto one = [&](int i) { return f(full({1, 3}, i + 1.0)); };
    const auto expected = results_of(false, 3, one);
    CHECK(calls == 3);
    const auto got = results_of(true, 3, one);
    CHECK(calls == 6);
    for (size_t i = 0; i < 3; ++i) CHECK(allclose(got[i], expected[i]));
  };
  whole.part.f.register_forward_hook(divide);
  run([&](const Tensor& x) { return whole(x); });
  const auto joined = batching::rows("whole", [&](const Tensor& x) { return whole(x); });
  run([&](const Tensor& x) { return joined(x); });
  sequence[0].as_ref<nn::Sequential>()[0].register_forward_hook(divide);
  run([&](const Tensor& x) { return sequence(x); });
  apart.register_forward_hook(divide);
  run([&](const Tensor& x) { return by_rows(x); });
}
