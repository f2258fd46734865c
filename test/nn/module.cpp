#include "reel/nn.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <sstream>

#include "reel/autograd.h"
#include "reel/random.h"
#include "test/support/names.h"

using namespace reel;
using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;

namespace {

struct Net : nn::Module {
  nn::Linear hidden{*this, "hidden", 4, 3};
  nn::Parameter scale{*this, "scale", ones({3})};
  nn::Buffer steps{*this, "steps", zeros({}, {.dtype = kInt64})};
  nn::Linear out{*this, "out", 3, 2, {.bias = false}};
  Tensor forward(const Tensor& x) const { return out(relu(hidden(x)) * scale); }
};

struct Block : nn::Layer<Block> {
  using Layer::Layer;
  nn::Linear inner{*this, "inner", 2, 2};
  Tensor forward(const Tensor& x) const { return x + inner(x); }
};

struct Deep : nn::Module {
  Block first{*this, "first"}, second{*this, "second"};
};

// sin(start), sin(start + 1), …: numbers without symmetry that PyTorch can be given as well.
Tensor ramp(const Shape& shape, double start) {
  std::vector<double> values(shape.numel());
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(start + static_cast<double>(i));
  return tensor(values, shape);
}

void set(Tensor parameter, const Tensor& values) {
  NoGrad guard;
  parameter.copy_(values);
}

void check_close(const Tensor& actual, const std::vector<double>& expected, double tolerance = 1e-12) {
  const auto values = actual.to_vector<double>();
  REQUIRE(values.size() == expected.size());
  for (size_t i = 0; i < values.size(); ++i) CHECK(values[i] == Approx(expected[i]).margin(tolerance));
}

}  // namespace

// ---- Module ---------------------------------------------------------------------------------------------------------

TEST_CASE("a part is replaced by another module of its type") {
  struct Net : nn::Layer<Net> {
    nn::Linear first{*this, "first", 2, 4};
    nn::Linear fc{*this, "fc", 4, 10};
    nn::Linear last{*this, "last", 3, 1};
    Tensor forward(const Tensor& x) const { return last(fc(first(x))); }
  } net;
  const Tensor old = net.fc.weight;
  CHECK_THROWS_AS(net(ones({1, 2})), Error);
  int calls = 0;
  net.fc.register_forward_pre_hook([&](nn::Module&, std::vector<Tensor>&) { ++calls; });
  nn::Linear& fc = nn::replace(net.fc, nn::Linear(4, 3, {.bias = false}));
  CHECK(&fc == &net.fc);
  CHECK(net(ones({1, 2})).shape() == Shape{1, 1});
  CHECK(calls == 0);
  CHECK(fc.in_features == 4);
  CHECK(fc.out_features == 3);
  CHECK(fc.path() == "fc");
  std::vector<std::string> names;
  for (const auto& [name, tensor] : net.named_parameters()) names.push_back(name);
  CHECK(names == std::vector<std::string>{"first.weight", "first.bias", "fc.weight", "last.weight", "last.bias"});
  CHECK(old.shape() == Shape{10, 4});
  fc.weight = ones({3, 4});
  CHECK(net.state_dict()["fc.weight"].sum().item<float>() == 12);

  nn::Linear alone(4, 3);  // without a parent
  nn::replace(alone, nn::Linear(1, 1));
  CHECK(alone.path().empty());
  CHECK_THROWS_WITH(nn::replace(net.fc, std::move(net.last)), Contains("is part of another module already"));
  CHECK_THROWS_WITH(nn::replace(alone, std::move(alone)), Contains("by itself"));
}

TEST_CASE("a module lists what is in it in the order of declaration") {
  Net net;
  CHECK(names(net.named_parameters()) == Names{"hidden.weight", "hidden.bias", "scale", "out.weight"});
  CHECK(names(net.named_buffers()) == Names{"steps"});
  CHECK(names(net.named_children()) == Names{"hidden", "out"});
  CHECK(names(net.named_modules()) == Names{"", "hidden", "out"});
  CHECK(net.parameters().size() == 4);
  CHECK(net.parameters()[2].is_same(net.scale));
  for (const Tensor& parameter : net.parameters()) CHECK(parameter.requires_grad());
  CHECK_FALSE(net.steps.requires_grad());
  CHECK(names(Deep().named_parameters()) ==
        Names{"first.inner.weight", "first.inner.bias", "second.inner.weight", "second.inner.bias"});
}

TEST_CASE("a module is printed as PyTorch prints it") {
  std::ostringstream out;
  out << Net();
  CHECK(out.str() ==
        "Net(\n"
        "  (hidden): Linear(in_features=4, out_features=3, bias=true)\n"
        "  (out): Linear(in_features=3, out_features=2, bias=false)\n"
        ")");
  const nn::Sequential deep{
      std::make_unique<nn::Linear>(2, 3), relu,
      std::make_unique<nn::Sequential>(std::make_unique<nn::Dropout>(.1),
                                       std::make_unique<nn::Embedding>(4, 5, nn::EmbeddingOptions{.padding_idx = 1}))};
  CHECK(deep.to_string() ==
        "Sequential(\n"
        "  (0): Linear(in_features=2, out_features=3, bias=true)\n"
        "  (2): Sequential(\n"
        "    (0): Dropout(p=0.1)\n"
        "    (1): Embedding(4, 5, padding_idx=1)\n"
        "  )\n"
        ")");
  CHECK(nn::LSTMCell(2, 3, {.bias = false}).to_string() == "LSTMCell(2, 3, bias=false)");
  CHECK(nn::NaryTreeLSTM(2, 3).to_string() == "NaryTreeLSTM(2, 3, arity=2)");
}

TEST_CASE("names that would make paths ambiguous are refused") {
  struct Plain : nn::Module {
  } module;
  const nn::Parameter a(module, "a", ones({1}));
  CHECK_THROWS_WITH(nn::Parameter(module, "a", ones({1})), Contains("'a' is used already"));
  CHECK_THROWS_WITH(nn::Buffer(module, "a", ones({1})), Contains("'a' is used already"));
  CHECK_THROWS_WITH(nn::Linear(module, "a", 1, 1), Contains("'a' is used already"));
  CHECK_THROWS_WITH(nn::Parameter(module, "a.b", ones({1})), Contains("has a dot"));
  CHECK_THROWS_WITH(nn::Buffer(module, "", ones({1})), Contains("is empty"));
  CHECK(names(module.named_parameters()) == Names{"a"});
}

TEST_CASE("a child has one parent, and leaves it when it dies") {
  struct Parent : nn::Module {
  } parent, other;
  {
    nn::Linear child(parent, "child", 2, 2);
    CHECK_THROWS_AS(other.register_module("child", child), Error);
    CHECK_THROWS_AS(parent.register_module("again", child), Error);
    CHECK_THROWS_AS(child.register_module("parent", parent), Error);
    CHECK(parent.children().size() == 1);
  }
  CHECK(parent.children().empty());
  auto orphan = std::make_unique<nn::Linear>(2, 2);
  {
    Parent short_lived;
    short_lived.register_module("orphan", *orphan);
  }
  other.register_module("orphan", *orphan);
  CHECK(names(other.named_parameters()) == Names{"orphan.weight", "orphan.bias"});
}

TEST_CASE("a shared parameter is listed once and saved under each of its paths") {
  struct Tied : nn::Module {
    nn::Embedding in{*this, "in", 5, 3};
    nn::Parameter out{*this, "out", in.weight};
  } tied;
  CHECK(tied.parameters().size() == 1);
  CHECK(names(tied.state_dict()) == Names{"in.weight", "out"});
  tied.load_state_dict(tied.state_dict());
  const Tensor before = tied.out.clone();
  tied.to(kFloat64);
  CHECK(tied.in.weight.dtype() == kFloat64);
  CHECK(tied.out.is_same(tied.in.weight));
  CHECK(equal(before.to(kFloat64), tied.out));
}

TEST_CASE("a shared parameter may be loaded from one of its paths") {
  struct Tied : nn::Module {
    nn::Embedding in{*this, "in", 5, 3};
    nn::Linear out{*this, "out", 3, 5};
    Tied() { out.weight = in.weight; }
  };
  Tied a, b;
  for (const std::string left_out : {"in.weight", "out.weight"}) {
    StateDict dict = a.state_dict();
    std::erase_if(dict, [&](const auto& entry) { return entry.first == left_out; });
    set(b.in.weight, zeros({5, 3}));
    CHECK(b.load_state_dict(dict).missing.empty());
    CHECK(equal(a.in.weight, b.out.weight));
  }
  StateDict neither = a.state_dict();
  std::erase_if(neither, [](const auto& entry) { return entry.first.ends_with("weight"); });
  CHECK_THROWS_WITH(b.load_state_dict(neither), Contains("missing: in.weight, out.weight"));
}

TEST_CASE("train and eval reach every module below") {
  nn::Sequential net{std::make_unique<nn::Dropout>(0.5)};
  CHECK(net.is_training());
  net.eval();
  const Tensor x = ones({1000});
  CHECK(equal(net(x), x));
  net.train();
  const double kept = mean(net(x)).item<double>();
  CHECK(kept > 0.8);
  CHECK(kept < 1.2);
  CHECK_FALSE(equal(net(x), x));
  CHECK_THROWS_AS(nn::Dropout(1.5), Error);
}

TEST_CASE("a module changes dtype in place, with its gradients and the handles that the user holds") {
  Net net;
  const Tensor held = net.hidden.weight;
  const Tensor x = ramp({5, 4}, 0);
  sum(net.forward(x.to(kFloat32))).backward();
  const Tensor grad = held.grad().clone();
  net.to(kFloat64);
  CHECK(held.dtype() == kFloat64);
  CHECK(held.requires_grad());
  CHECK(held.grad().dtype() == kFloat64);
  CHECK(equal(held.grad(), grad.to(kFloat64)));
  CHECK(net.steps.dtype() == kInt64);
  net.zero_grad();
  CHECK_FALSE(held.grad().defined());
  sum(net.forward(x)).backward();
  CHECK(held.grad().dtype() == kFloat64);
  CHECK(amax(abs(held.grad() - grad.to(kFloat64))).item<double>() < 1e-5);
  CHECK_THROWS_AS(net.to(kInt64), Error);
}

TEST_CASE("frozen parameters get no gradient") {
  Net net;
  net.hidden.requires_grad_(false);
  sum(net.forward(ones({2, 4}))).backward();
  CHECK_FALSE(net.hidden.weight.grad().defined());
  CHECK(net.scale.grad().defined());
}

TEST_CASE("a state dict goes from one module to another") {
  manual_seed(1);
  Net a, b;
  set(a.steps, tensor({7}).reshape({}));
  CHECK_FALSE(equal(a.hidden.weight, b.hidden.weight));
  StateDict dict = a.state_dict();
  CHECK(names(dict) == Names{"hidden.weight", "hidden.bias", "scale", "steps", "out.weight"});
  CHECK_FALSE(dict[0].second.requires_grad());
  std::reverse(dict.begin(), dict.end());
  b.load_state_dict(dict);
  const Tensor x = ramp({2, 4}, 1).to(kFloat32);
  CHECK(equal(a.forward(x), b.forward(x)));
  CHECK(b.steps.item<int>() == 7);
  CHECK_FALSE(b.hidden.weight.is_same(a.hidden.weight));
}

TEST_CASE("a state dict's tensors are found, replaced and removed by name") {
  StateDict dict = {{"a", ones({2})}, {"b", zeros({3}, {.dtype = kInt64})}};
  CHECK(dict.at("b").numel() == 3);
  dict["a"] = zeros({4});
  CHECK(std::as_const(dict)["a"].numel() == 4);
  CHECK_THROWS_WITH(dict.at("c"), "StateDict: there is no 'c'");
  std::ostringstream text;
  text << dict;
  CHECK(text.str() == "a: float32 [4]\nb: int64 [3]\n");
  CHECK(dict.erase("a") == 1);
  CHECK(dict.erase("a") == 0);
  CHECK_FALSE(dict.contains("a"));
  dict.erase(dict.begin());
  CHECK(dict.empty());
}

TEST_CASE("the error about a dict that does not fit says what may be the reason") {
  nn::Sequential net(nn::Linear(2, 2), nn::Linear(2, 2), nn::Linear(2, 2), nn::Linear(2, 2), nn::Linear(2, 2));
  const StateDict good = net.state_dict();
  StateDict wrapped = {{"epoch", zeros({})}}, more = good, wide = good, strange = {{"x", ones({1})}};
  for (const auto& [name, tensor] : good) wrapped.emplace_back("module." + name, tensor);
  CHECK_THROWS_WITH(net.load_state_dict(wrapped),
                    Contains("missing: 0.weight, 0.bias, 1.weight, 1.bias, 2.weight, 2.bias, 3.weight, 3.bias, … and 2 "
                             "more\n  unexpected: epoch, module.0.weight") &&
                        EndsWith("load with {.prefix = \"module.\"}"));
  StateDict deeper;
  for (const auto& [name, tensor] : wrapped) deeper.emplace_back("run." + name, tensor);
  CHECK_THROWS_WITH(net.load_state_dict(deeper, {.prefix = "run."}), EndsWith("{.prefix = \"run.module.\"}"));
  more.emplace_back("body.weight", ones({1}));
  CHECK_THROWS_WITH(net.load_state_dict(more), Contains("unexpected: body.weight\n") && Contains("without *this"));
  wide["4.weight"] = ones({3, 2});
  CHECK_THROWS_WITH(net.load_state_dict(wide), EndsWith("{.ignore_mismatched_sizes = true} leaves them as they are"));

  // Without strictness something has to fit.
  CHECK_THROWS_WITH(net.load_state_dict(strange, {.strict = false}), Contains("unexpected: x"));
  CHECK_THROWS_WITH(net.load_state_dict(wrapped, {.strict = false}), EndsWith("{.prefix = \"module.\"}"));
  CHECK_THROWS_WITH(net.load_state_dict({}, {.strict = false}), Contains("missing: 0.weight"));
  CHECK_THROWS_WITH(net.load_state_dict(good, {.strict = false, .prefix = "body."}), Contains("missing: 0.weight"));
  std::ostringstream text;
  text << net.load_state_dict(more, {.strict = false}) << " | " << net.load_state_dict(good);
  CHECK(text.str() == "unexpected: body.weight | all loaded");
}

TEST_CASE("a state dict that does not fit is refused with all of the reasons, and changes nothing") {
  manual_seed(2);
  Net net, other;
  StateDict dict = other.state_dict();
  dict.erase(dict.begin() + 4);  // out.weight
  dict.erase(dict.begin() + 1);  // hidden.bias
  dict.emplace_back("extra.one", ones({1}));
  dict.emplace_back("extra.two", ones({1}));
  dict[1].second = ones({4});  // scale
  const Tensor before = net.hidden.weight.clone();
  CHECK_THROWS_WITH(net.load_state_dict(dict), Contains("Net") && Contains("missing: hidden.bias, out.weight") &&
                                                   Contains("unexpected: extra.one, extra.two") &&
                                                   Contains("shape of scale: the module has [3], given is [4]"));
  CHECK(equal(net.hidden.weight, before));

  CHECK_THROWS_WITH(net.load_state_dict(dict, {.strict = false}), Contains("shape of scale") && !Contains("missing"));
  CHECK(equal(net.hidden.weight, before));

  dict[1].second = full({3}, 2.0);
  const nn::LoadResult result = net.load_state_dict(dict, {.strict = false});
  CHECK(result.missing == Names{"hidden.bias", "out.weight"});
  CHECK(result.unexpected == Names{"extra.one", "extra.two"});
  CHECK(equal(net.hidden.weight, other.hidden.weight));
  check_close(net.scale, {2, 2, 2});
  dict.push_back(dict[0]);
  CHECK_THROWS_WITH(net.load_state_dict(dict, {.strict = false}), Contains("'hidden.weight' is given twice"));
}

// ---- layers ---------------------------------------------------------------------------------------------------------

TEST_CASE("Linear computes x Wᵀ + b and starts within its bounds") {
  nn::Linear layer(3, 2);
  set(layer.weight, tensor({{1., 2., 3.}, {4., 5., 6.}}));
  set(layer.bias, tensor({0.5, -0.5}));
  check_close(layer(tensor({{1., 0., -1.}, {2., 1., 0.}})), {-1.5, -2.5, 4.5, 12.5});
  check_close(layer(tensor({1., 0., -1.})), {-1.5, -2.5});
  CHECK_FALSE(nn::Linear(3, 2, {.bias = false}).bias.defined());

  manual_seed(3);
  const nn::Linear wide(400, 500);
  CHECK(amax(abs(wide.weight)).item<double>() <= 0.05);
  CHECK(reel::std(wide.weight).item<double>() == Approx(0.05 / std::sqrt(3)).epsilon(0.01));
  CHECK(amax(abs(wide.bias)).item<double>() <= 0.05);
}

TEST_CASE("Embedding looks up rows, and padding starts as zeros and gets no gradient", "[cpu]") {
  nn::Embedding table(4, 2, {.padding_idx = -3});
  check_close(table.weight[1], {0, 0});
  set(table.weight, tensor({{1., 2.}, {3., 4.}, {5., 6.}, {7., 8.}}));
  const Tensor y = table(tensor({{2, 1}, {0, 2}}));
  CHECK(y.shape() == Shape{2, 2, 2});
  check_close(y, {5, 6, 3, 4, 1, 2, 5, 6});
  sum(y * tensor({10., 1.})).backward();
  check_close(table.weight.grad(), {10, 1, 0, 0, 20, 2, 0, 0});
  CHECK_THROWS_AS(nn::Embedding(4, 2, {.padding_idx = 4}), Error);
  CHECK_THROWS_AS(table(tensor({4})), Error);

  nn::Embedding rows(100, 2, {.sparse = true});
  sum(rows(tensor({7, 3, 7}))).backward();
  REQUIRE(rows.weight.sparse_grad());
  check_close(rows.weight.sparse_grad()->ids, {3, 7});
  check_close(rows.weight.sparse_grad()->values, {1, 1, 2, 2});
}

TEST_CASE("Sequential applies layers and functions in order") {
  nn::Sequential net;
  net.push_back(std::make_unique<nn::Linear>(2, 3)).push_back(relu).push_back([](const Tensor& x) { return x * 2; });
  net.push_back(std::make_unique<nn::Linear>(3, 1));
  CHECK(names(net.named_parameters()) == Names{"0.weight", "0.bias", "3.weight", "3.bias"});
  for (const Tensor& parameter : net.parameters()) set(parameter, ones({1}));
  check_close(net(tensor({{1., 2.}, {-3., 1.}})), {25, 1});
}

TEST_CASE("LSTMCell gives PyTorch's numbers for PyTorch's weights") {
  nn::LSTMCell cell(2, 3);
  cell.to(kFloat64);
  set(cell.weight_ih, ramp({12, 2}, 0));
  set(cell.weight_hh, ramp({12, 3}, 100));
  set(cell.bias_ih, ramp({12}, 200));
  set(cell.bias_hh, ramp({12}, 300));
  const Tensor x = ramp({2, 2}, 400);
  CellState state = cell(x);
  check_close(state.h, {-0.05849888421335322, -0.07830008002570335, 0.40873028669261996, -0.1818012253779278,
                        -0.18471092197733235, 0.004626420712146896});
  state = cell(x, state);
  check_close(state.h, {-0.1226693378653713, -0.10252892112955667, 0.48744197854284166, -0.314786500136057,
                        -0.3600333377485694, 0.039555582274371476});
  check_close(state.c, {-0.13698053739166835, -0.21613231996160187, 1.3815717914607832, -0.385027990355423,
                        -0.42511351705317346, 0.21015351483216949});
  (sum(state.h) + sum(square(state.c))).backward();
  check_close(cell.weight_hh.grad().select(1, 1),
              {0.003024003119436071, -0.0028244025223093743, -0.016768674433159516, 0.00046502602077749556,
               -0.0005801391545595318, -0.050626394517370395, -0.00048702815058270665, 0.0025109584153606606,
               -0.07914297028627387, 0.009231015657389919, 0.01098866477461568, -0.02296794762456205});
  CHECK_THROWS_AS(cell(ramp({2, 3}, 0)), Error);
}

// ---- Tree-LSTM: against the paper's equations, a number at a time ---------------------------------------------------

namespace {

double sigma(double x) { return 1 / (1 + std::exp(-x)); }

// Rows of a small matrix as plain numbers.
using Rows = std::vector<std::vector<double>>;
Rows rows(const Tensor& t) {
  Rows result;
  for (int64_t i = 0; i < t.size(0); ++i) result.push_back(t[i].to_vector<double>());
  return result;
}
double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double total = 0;
  for (size_t i = 0; i < a.size(); ++i) total += a[i] * b[i];
  return total;
}

struct Gates {
  double i, o, u;
  std::vector<double> f;
};
// c and h of one unit, from its gates' pre-activations and its children's c.
std::pair<double, double> unit(const Gates& g, const std::vector<double>& child_c) {
  double c = sigma(g.i) * std::tanh(g.u);
  for (size_t k = 0; k < child_c.size(); ++k) c += sigma(g.f[k]) * child_c[k];
  return {c, sigma(g.o) * std::tanh(c)};
}

// What autograd says about d(sum)/d(parameter) against differences, at a few elements.
template <class F>
void check_gradients(nn::Module& module, const F& f) {
  module.zero_grad();
  f().backward();
  for (auto& [path, parameter] : module.named_parameters()) {
    INFO(path);
    REQUIRE(parameter.grad().defined());
    for (int64_t at = 0; at < parameter.numel(); at += std::max<int64_t>(1, parameter.numel() / 7)) {
      double& value = parameter.template data<double>()[at];
      const double original = value, step = 1e-6;
      NoGrad guard;
      value = original + step;
      const double above = f().template item<double>();
      value = original - step;
      const double below = f().template item<double>();
      value = original;
      CHECK(parameter.grad().template data<double>()[at] == Approx((above - below) / (2 * step)).margin(1e-8));
    }
  }
}

}  // namespace

TEST_CASE("the N-ary Tree-LSTM follows its equations", "[cpu]") {
  const int64_t in = 2, hidden = 3;
  const bool inner_input = GENERATE(false, true);
  manual_seed(4);
  nn::NaryTreeLSTM cell(in, hidden, {.arity = 2, .inner_input = inner_input});
  cell.to(kFloat64);
  const Tensor x1 = ramp({2, in}, 1), x2 = ramp({2, in}, 11), x3 = ramp({2, in}, 21);
  const CellState a = cell(x1), b = cell(x2);
  const Tensor inner_x = inner_input ? x3 : Tensor();
  const CellState root = cell(inner_x, {a, b});

  const Rows wx = rows(cell.weight_x), wh = rows(cell.weight_h);
  const auto bx = cell.bias_x.to_vector<double>(), bh = cell.bias_h.to_vector<double>();
  const int64_t ox = inner_input ? 2 * hidden : hidden, ux = ox + hidden;  // where o and u of the input begin
  for (int64_t n = 0; n < 2; ++n)
    for (int64_t j = 0; j < hidden; ++j) {
      const auto x = x1[n].to_vector<double>();
      const auto [leaf_c, leaf_h] =
          unit({dot(wx[j], x) + bx[j], dot(wx[ox + j], x) + bx[ox + j], dot(wx[ux + j], x) + bx[ux + j], {}}, {});
      CHECK(a.c[n][j].item<double>() == Approx(leaf_c));
      CHECK(a.h[n][j].item<double>() == Approx(leaf_h));

      const auto h = cat({a.h[n], b.h[n]}).to_vector<double>();
      const auto gate = [&](int64_t block) { return dot(wh[block * hidden + j], h) + bh[block * hidden + j]; };
      Gates gates{gate(0), gate(3), gate(4), {gate(1), gate(2)}};
      if (inner_input) {
        const auto y = x3[n].to_vector<double>();
        const auto from_x = [&](int64_t row) { return dot(wx[row + j], y) + bx[row + j]; };
        gates.i += from_x(0), gates.o += from_x(ox), gates.u += from_x(ux);
        for (double& f : gates.f) f += from_x(hidden);
      }
      const auto [c, out] = unit(gates, {a.c[n][j].item<double>(), b.c[n][j].item<double>()});
      CHECK(root.c[n][j].item<double>() == Approx(c));
      CHECK(root.h[n][j].item<double>() == Approx(out));
    }

  const CellState alone = cell({}, {a});
  const Tensor zero = zeros_like(a.h);
  CHECK(equal(alone.h, cell({}, {a, {zero, zero}}).h));

  const Tensor weights = ramp({2, hidden}, 50);
  check_gradients(cell, [&] {
    const CellState state = cell(inner_x, {cell(x1), cell({}, {cell(x2), cell(x3)})});
    return sum((state.h + state.c * 2) * weights);
  });

  CHECK_THROWS_WITH(cell({}, {}), Contains("a node without children needs an input"));
  CHECK_THROWS_AS(cell({}, {a, b, a}), Error);
  CHECK_THROWS_AS(cell({}, {a, cell(ramp({1, in}, 0))}), Error);
  CHECK_THROWS_AS(cell({}, {a, CellState{}}), Error);
  CHECK_THROWS_AS(cell(ramp({2, in + 1}, 0)), Error);
  if (!inner_input) CHECK_THROWS_WITH(cell(x3, {a, b}), Contains("inner_input"));
  CHECK_THROWS_AS(nn::NaryTreeLSTM(1, 1, {.arity = 0}), Error);
}

TEST_CASE("the child-sum Tree-LSTM follows its equations for any number of children", "[cpu]") {
  const int64_t in = 2, hidden = 3, count = GENERATE(0, 1, 2, 5);
  const bool with_x = GENERATE(true, false);
  if (count == 0 && !with_x) return;
  manual_seed(5);
  nn::ChildSumTreeLSTM cell(in, hidden);
  cell.to(kFloat64);
  std::vector<CellState> children;
  for (int64_t k = 0; k < count; ++k) children.push_back({ramp({2, hidden}, 10. * k), ramp({2, hidden}, 100. * k)});
  const Tensor x = with_x ? ramp({2, in}, 7) : Tensor();
  const CellState state = cell(x, children);

  const Rows wx = rows(cell.weight_x), wh = rows(cell.weight_h), wf = rows(cell.weight_f);
  const auto bias = cell.bias.to_vector<double>();
  for (int64_t n = 0; n < 2; ++n)
    for (int64_t j = 0; j < hidden; ++j) {
      std::vector<double> sum_h(hidden), child_c;
      const auto from_x = [&](int64_t block) {
        const int64_t row = block * hidden + j;
        return bias[row] + (with_x ? dot(wx[row], x[n].to_vector<double>()) : 0);
      };
      Gates gates{0, 0, 0, {}};
      for (const CellState& child : children) {
        const auto h = child.h[n].to_vector<double>();
        for (int64_t i = 0; i < hidden; ++i) sum_h[i] += h[i];
        gates.f.push_back(from_x(3) + dot(wf[j], h));
        child_c.push_back(child.c[n][j].item<double>());
      }
      gates.i = from_x(0) + dot(wh[j], sum_h);
      gates.o = from_x(1) + dot(wh[hidden + j], sum_h);
      gates.u = from_x(2) + dot(wh[2 * hidden + j], sum_h);
      const auto [c, h] = unit(gates, child_c);
      CHECK(state.c[n][j].item<double>() == Approx(c));
      CHECK(state.h[n][j].item<double>() == Approx(h));
    }

  const Tensor weights = ramp({2, hidden}, 50), leaf_x = ramp({2, in}, 3);
  if (count > 0)
    check_gradients(cell, [&] {
      std::vector<CellState> nodes = children;
      nodes[0] = cell(leaf_x);
      const CellState root = cell(x, nodes);
      return sum((root.h + root.c * 2) * weights);
    });
  CHECK_THROWS_AS(cell({}, {}), Error);
}

// ---- init -----------------------------------------------------------------------------------------------------------

TEST_CASE("gains are PyTorch's") {
  using namespace nn::init;
  CHECK(calculate_gain(nn::init::kLinear) == 1);
  CHECK(calculate_gain(kSigmoid) == 1);
  CHECK(calculate_gain(nn::init::kTanh) == Approx(1.6666666666666667));
  CHECK(calculate_gain(kRelu) == Approx(1.4142135623730951));
  CHECK(calculate_gain(kLeakyRelu) == Approx(1.4141428569978354));
  CHECK(calculate_gain(kLeakyRelu, 0.2) == Approx(1.3867504905630728));
  CHECK(calculate_gain(kSelu) == 0.75);
}

TEST_CASE("random initial values have the spread that their papers ask for") {
  manual_seed(6);
  const Tensor weight = empty({300, 200, 3}, {.requires_grad = true});  // fan_in 600, fan_out 900
  const auto spread = [](const Tensor& t) { return reel::std(t).item<double>(); };
  const auto largest = [](const Tensor& t) { return amax(abs(t)).item<double>(); };
  const double xavier = std::sqrt(2. / 1500), kaiming = std::sqrt(2. / 600);
  CHECK(spread(nn::init::xavier_uniform_(weight)) == Approx(xavier).epsilon(0.01));
  CHECK(largest(weight) <= std::sqrt(3) * xavier * 1.0001);
  CHECK(spread(nn::init::xavier_normal_(weight, 2)) == Approx(2 * xavier).epsilon(0.01));
  CHECK(spread(nn::init::kaiming_uniform_(weight)) == Approx(kaiming).epsilon(0.01));
  CHECK(largest(weight) <= std::sqrt(3) * kaiming * 1.0001);
  CHECK(spread(nn::init::kaiming_normal_(weight, {.mode = nn::init::kFanOut, .nonlinearity = nn::init::kTanh})) ==
        Approx(5. / 3 / std::sqrt(900)).epsilon(0.01));
  CHECK(spread(nn::init::normal_(weight, 5, 2)) == Approx(2).epsilon(0.01));
  CHECK(mean(weight).item<double>() == Approx(5).epsilon(0.01));
  CHECK(weight.requires_grad());
  CHECK(weight.is_leaf());
  CHECK_THROWS_AS(nn::init::xavier_uniform_(empty({3})), Error);
}

TEST_CASE("constant and identity initial values") {
  check_close(nn::init::constant_(empty({2}), 1.5), {1.5, 1.5});
  check_close(nn::init::eye_(empty({2, 3})), {1, 0, 0, 0, 1, 0});
  check_close(nn::init::zeros_(ones({2})), {0, 0});
  check_close(nn::init::ones_(zeros({2})), {1, 1});
  CHECK_THROWS_AS(nn::init::eye_(empty({2})), Error);
  // An identity in each of two groups: channels 0 and 1 come from 0 and 1 of their group.
  const Tensor identity = nn::init::dirac_(empty({4, 2, 3}), 2);
  CHECK(sum(identity).item<double>() == 4);
  for (const int64_t channel : {0, 1, 2, 3}) CHECK(identity[channel][channel % 2][1].item<double>() == 1);
  const Tensor sparse = nn::init::sparse_(empty({10, 3}), 0.25);
  CHECK(equal(sum(sparse == 0, 0), tensor({3, 3, 3})));
}

TEST_CASE("orthogonal matrices are orthogonal", "[cpu]") {
  manual_seed(7);
  for (const Shape& shape : {Shape{4, 4}, Shape{3, 7}, Shape{7, 3}, Shape{4, 3, 5}, Shape{1, 1}}) {
    const Tensor weight = nn::init::orthogonal_(empty(shape, {.dtype = kFloat64, .requires_grad = true}), 2).detach();
    const Tensor matrix = weight.reshape({shape[0], -1});
    const Tensor gram = shape[0] <= matrix.size(1) ? mm(matrix, matrix.t()) : mm(matrix.t(), matrix);
    CHECK(amax(abs(gram - 4 * eye(gram.size(0), {}, {.dtype = kFloat64}))).item<double>() < 1e-12);
  }
  CHECK_THROWS_AS(nn::init::orthogonal_(empty({3})), Error);
}

TEST_CASE("parameters travel through one vector") {
  const nn::Linear net(3, 2);
  const Tensor vector = nn::parameters_to_vector(net.parameters());
  CHECK(vector.shape() == Shape({8}));
  CHECK(vector.requires_grad());
  nn::vector_to_parameters(arange(8).to(kFloat32), net.parameters());
  check_close(net.weight, {0, 1, 2, 3, 4, 5});
  check_close(net.bias, {6, 7});
  CHECK_THROWS_WITH(nn::vector_to_parameters(ones({7}), net.parameters()),
                    "vector_to_parameters: a vector of shape [7] for parameters of 8 elements");
}

TEST_CASE("Bilinear is a product with a matrix for each output") {
  const nn::Bilinear layer(2, 3, 4);
  const Tensor a = randn({5, 2}), b = randn({5, 3}), y = layer(a, b);
  CHECK(y.shape() == Shape({5, 4}));
  const Tensor third = matmul(matmul(a[1], layer.weight[2]), b[1]) + layer.bias[2];
  CHECK(y[1][2].item<float>() == Approx(third.item<float>()).margin(1e-5));
  CHECK(layer.to_string() == "Bilinear(in1_features=2, in2_features=3, out_features=4, bias=true)");
}
