#include "reel/amp/autocast.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <thread>

#include "lib/ops/op_info.h"
#include "reel/nn.h"
#include "reel/optim.h"
#include "reel/reel.h"
#include "reel/testing.h"
#include "test/support/op_table.h"
#include "test/support/pch.h"

namespace reel {
namespace {

using Catch::Contains;

Tensor parameter(const Shape& shape, double scale = 1) {
  return no_grad([&] { return randn(shape) * scale; }).requires_grad_();
}

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}
int casts_behind(const Tensor& y) { return count_of(tape_to_string(y), " autocast "); }

// ---- which op, which type -------------------------------------------------------------------------------------------

// torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCUDA") of PyTorch 2.15, sorted into the lists of
// aten/src/ATen/autocast_mode.h, in reel's names; from "dot" and "binary_cross_entropy" on what PyTorch refuses, makes
// of others, or leaves to promotion.
// clang-format off
const std::set<std::string> kLow{
    "matmul", "mm", "mv", "bmm", "linear", "linear_relu", "addmm", "baddbmm", "einsum", "prelu", "conv1d", "conv2d", "conv3d",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "lstm", "gru", "rnn_tanh", "rnn_relu", "gru_cell",
    "rnn_tanh_cell", "rnn_relu_cell", "lstm_cell(whole)", "scaled_dot_product_attention",
    "dot", "bilinear", "inner", "tensordot"};
const std::set<std::string> kRaised{
    "acos", "asin", "binary_cross_entropy_with_logits", "cdist", "cosh", "cosine_embedding_loss", "cosine_similarity",
    "cumprod", "cumsum", "exp", "expm1", "group_norm", "hinge_embedding_loss", "huber_loss", "interpolate", "kl_div",
    "l1_loss", "layer_norm", "log", "log10", "log1p", "log2", "log_softmax", "logsumexp", "margin_ranking_loss",
    "matrix_norm", "mse_loss", "multi_margin_loss", "multilabel_margin_loss", "nll_loss", "norm", "pdist",
    "poisson_nll_loss", "pow", "prod", "reciprocal", "renorm", "rms_norm", "rsqrt", "sinh", "smooth_l1_loss",
    "soft_margin_loss", "softmax", "softplus", "sum", "tan", "triplet_margin_loss", "vector_norm",
    "binary_cross_entropy", "cross_entropy", "ctc_loss", "gaussian_nll_loss", "multilabel_soft_margin_loss",
    "triplet_margin_with_distance_loss", "pairwise_distance", "normalize", "softmin", "segment_softmax", "cov",
    "corrcoef", "trace", "nansum", "crf_log_likelihood", "crf_marginals", "crf_decode", "negative_sampling_loss",
    "nce_loss", "sampled_softmax_loss", "hierarchical_softmax_loss", "hierarchical_log_softmax", "matrix_power",
    "gumbel_softmax"};
// clang-format on

// Rows that give their input's type by themselves.
const std::set<std::string> kConverted{"matrix_norm(nuclear)", "matrix_norm(2)", "matrix_power(-2)"};

}  // namespace

TEST_CASE("every op runs under autocast, and gives the type that its list says", "[amp]") {
  std::set<std::string> seen;
  for (const Row& row : op_table()) {
    const std::string name = row.name, base = name.substr(0, name.find('('));
    const auto listed = [&](const std::set<std::string>& list) {
      return (list.contains(name) || list.contains(base)) && !kConverted.contains(name);
    };
    INFO(name);
    seen.insert({name, base});
    for (const DType given : {kFloat32, kBFloat16}) {
      Tensors inputs;
      for (const Input& input : row.inputs)
        inputs.push_back(make_input(input, row.reference.pointwise() ? Shape{2, 3} : input.shape, given,
                                    static_cast<int>(inputs.size())));
      manual_seed(1);
      const Tensor plain = row.call(inputs);
      DType expected = plain.dtype();
      if (is_floating_point(expected) && listed(kLow)) expected = kBFloat16;
      if (is_floating_point(expected) && listed(kRaised)) expected = kFloat32;
      manual_seed(1);
      amp::autocast([&] {
        const Tensor y = row.call(inputs);
        INFO("of " << given);
        CHECK(y.dtype() == expected);
        CHECK(y.shape() == plain.shape());
      });
      CHECK_FALSE(amp::autocast_enabled());
    }
  }
  for (const auto* list : {&kLow, &kRaised})
    for (const std::string& name : *list) {
      INFO(name);
      CHECK(seen.contains(name));
    }
}

namespace {
/// Returns the name without the form in parentheses and without its namespace.
std::string base_name(std::string name) {
  name = name.substr(0, name.find('('));
  return name.starts_with("linalg.") ? name.substr(7) : name;
}
/// Returns the sentence of the documentation about ops that autocast gives a type, which begins like that.
std::string documented(const std::string& beginning) {
  std::ifstream file("include/reel/amp/autocast.h");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const size_t from = text.find("/// - " + beginning);
  REQUIRE(from != text.npos);
  return text.substr(from, text.find("/// - ", from + 1) - from);
}
}  // namespace

TEST_CASE("the table of ops, PyTorch's lists and the documentation agree on autocast", "[amp]") {
  std::set<std::string> rows, low, raised;
  for (const Row& row : op_table()) rows.insert(base_name(row.name));
  const std::string in_half = documented("In `dtype`"), in_float32 = documented("In float32"),
                    in_widest = documented("In the widest");
  const auto names = [](const std::string& text, const std::string& op) {
    const auto part_of_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
    for (size_t at = text.find(op); at != text.npos; at = text.find(op, at + 1))
      if (!part_of_name(text[at - 1]) && !part_of_name(text[at + op.size()])) return true;
    return false;
  };
  for (const OpInfo& info : kOps) {
    const std::string op = base_name(info.name);
    INFO(info.name);
    const bool is_loss =
        op.ends_with("_loss") || op.starts_with("binary_cross_entropy") || op == "cross_entropy" || op == "kl_div";
    switch (info.autocast) {
      case CastPolicy::kHalf:
        CHECK(names(in_half, op));
        low.insert(op);
        break;
      case CastPolicy::kFloat32:
        CHECK((names(in_float32, op) || is_loss || std::string_view(info.name).starts_with("linalg.")));
        raised.insert(op);
        break;
      case CastPolicy::kWidest: CHECK(names(in_widest, op)); break;
      default: break;
    }
    // An op that has a row is in the list that was taken from PyTorch.
    const auto in_list = [&](const std::set<std::string>& list) {
      return list.contains(op) || list.contains(op + "(whole)") || !rows.contains(op);
    };
    if (info.autocast == CastPolicy::kHalf) CHECK(in_list(kLow));
    if (info.autocast == CastPolicy::kFloat32 && !std::string_view(info.name).starts_with("linalg."))
      CHECK(in_list(kRaised));
  }
  // Ops that are made of others have no line of their own.
  const std::set<std::string> composed{
      "mv", "inner", "tensordot", "softmin", "trace", "lstm_cell", "triplet_margin_with_distance_loss", "matrix_norm"};
  for (const std::string& op : kLow) CHECK((low.contains(base_name(op)) || composed.contains(base_name(op))));
  for (const std::string& op : kRaised) CHECK((raised.contains(op) || composed.contains(op)));
}

TEST_CASE("lists of autocast hold for half types, mixed arguments, and not for float64", "[amp]") {
  const Tensor a = randn({2, 2}), b = randn({2, 2});
  for (const DType half : {kBFloat16, kFloat16})
    amp::autocast(half, [&] {
      for (const auto& [x, y] :
           {std::pair(a, b), {a.to(half), b}, {a, b.to(half)}, {a.to(kFloat16), b.to(kBFloat16)}}) {
        CHECK(matmul(x, y).dtype() == half);
        CHECK(linear(x, y, randn({2})).dtype() == half);
        CHECK(dot(x[0], y[1]).dtype() == half);
        CHECK(addmm(a, x, y).dtype() == half);
        CHECK(bilinear(x, y, randn({3, 2, 2}), randn({3})).dtype() == half);
        CHECK(mse_loss(x, y).dtype() == kFloat32);
        CHECK(softmax(x, 0).dtype() == kFloat32);
        CHECK(linalg::solve(x + 9 * eye(2), y).dtype() == kFloat32);
        CHECK(linalg::svd(x).s.dtype() == kFloat32);
      }
      CHECK(matmul(a.to(kFloat64), b.to(kFloat64)).dtype() == kFloat64);
      CHECK(exp(a.to(kFloat64)).dtype() == kFloat64);
      CHECK(sum(arange(3)).dtype() == kInt64);
      CHECK(matmul(arange(3), arange(3)).dtype() == kInt64);
      // Others promote as ever.
      CHECK((a.to(half) * 2).dtype() == half);
      CHECK((a.to(half) + b).dtype() == kFloat32);
      CHECK(cat({a.to(half), b}).dtype() == kFloat32);
      CHECK(relu(a.to(half)).dtype() == half);
      CHECK(scatter_add(a, 0, zeros({2, 2}, {.dtype = kInt64}), b.to(half)).dtype() == kFloat32);
      CHECK(tree_lstm_cell(randn({1, 8}).to(half), {randn({1, 2})}).c.dtype() == kFloat32);
      CHECK(tree_lstm_cell(randn({1, 8}).to(half), {randn({1, 2}).to(half)}).c.dtype() == half);
      CHECK_THROWS_WITH(matmul(a, b.to(kFloat64)), Contains("matmul: operands of different types, " +
                                                            std::string(name_of(half)) + " and float64"));
    });
  CHECK(matmul(a, b).dtype() == kFloat32);
}

TEST_CASE("autocast computes what casts by hand compute", "[amp]") {
  manual_seed(2);
  Tensor w = parameter({3, 4}), b = parameter({3});
  const Tensor x = randn({5, 4}), y = tensor({0, 2, 1, 1, 0});
  const auto by_hand = [&] {
    const auto low = [](const Tensor& t) { return t.to(kBFloat16); };
    const Tensor h = linear(low(x), low(w), low(b));
    return cross_entropy(relu(h).to(kFloat32), y);
  };
  const Tensor expected = by_hand();
  const auto grads = grad({expected}, {w, b});
  const Tensor loss = amp::autocast([&] { return cross_entropy(relu(linear(x, w, b)), y); });
  CHECK(equal(loss, expected));
  CHECK(loss.dtype() == kFloat32);
  loss.backward();
  CHECK(w.grad().dtype() == kFloat32);
  testing::assert_close(w.grad(), grads[0]);
  testing::assert_close(b.grad(), grads[1]);

  // Rules run in the types of the forward pass, inside the guard as outside.
  w.set_grad({}), b.set_grad({});
  amp::autocast([&] { cross_entropy(relu(linear(x, w, b)), y).backward(); });
  testing::assert_close(w.grad(), grads[0]);
  testing::assert_close(b.grad(), grads[1]);

  // Twice differentiated.
  const Tensor v = parameter({4, 2});
  const Tensor square = amp::autocast([&] { return sum(pow(matmul(x, v), 2)); });
  const Tensor g = grad({square}, {v}, {}, {.create_graph = true})[0];
  sum(g * g).backward();
  CHECK(v.grad().dtype() == kFloat32);
  const Tensor v64 = v.detach().to(kFloat64).requires_grad_(), x64 = x.to(kFloat64);
  const Tensor g64 = grad({sum(pow(matmul(x64, v64), 2))}, {v64}, {}, {.create_graph = true})[0];
  sum(g64 * g64).backward();
  testing::assert_close(v.grad(), v64.grad(), {.rtol = 0.05, .atol = 0.5, .check_dtype = false});
}

// ---- guards ---------------------------------------------------------------------------------------------------------

TEST_CASE("autocast nests, is a thread's own, and ends with its guard", "[amp]") {
  CHECK_FALSE(amp::autocast_enabled());
  CHECK(amp::autocast_dtype() == kFloat32);
  const Tensor a = randn({2, 2});
  {
    amp::Autocast outer;
    CHECK(amp::autocast_dtype() == kBFloat16);
    {
      amp::Autocast inner(kFloat16);
      CHECK(matmul(a, a).dtype() == kFloat16);
      amp::no_autocast([&] {
        CHECK_FALSE(amp::autocast_enabled());
        CHECK(matmul(a, a).dtype() == kFloat32);
        amp::Autocast again;
        CHECK(matmul(a, a).dtype() == kBFloat16);
      });
      CHECK(amp::autocast_dtype() == kFloat16);
    }
    CHECK(matmul(a, a).dtype() == kBFloat16);
    amp::Autocast off(kFloat16, false);
    CHECK(matmul(a, a).dtype() == kFloat32);
    std::thread([&] { CHECK_FALSE(amp::autocast_enabled()); }).join();
  }
  CHECK_FALSE(amp::autocast_enabled());
  // An error inside an op, or inside a guard, leaves it as it was.
  amp::autocast(kFloat16, [&] {
    CHECK_THROWS_AS(matmul(a, randn({3, 3})), Error);
    CHECK(amp::autocast_dtype() == kFloat16);
    CHECK_THROWS_AS(softmax(a, 7), Error);
    CHECK(amp::autocast_dtype() == kFloat16);
  });
  CHECK_THROWS_AS(amp::autocast([&]() -> Tensor { throw Error("x"); }), Error);
  CHECK_FALSE(amp::autocast_enabled());
  CHECK_THROWS_WITH(amp::Autocast(kFloat32), "Autocast: float32, neither bfloat16 nor float16");
  CHECK_FALSE(amp::autocast_enabled());
  CHECK(amp::autocast([] { return 7; }) == 7);
}

// ---- casts of parameters --------------------------------------------------------------------------------------------

TEST_CASE("a parameter is cast once a guard, and its gradient comes back through that cast", "[amp]") {
  manual_seed(3);
  testing::LeakScope scope;
  Tensor w = parameter({4, 4}, 0.3);
  const Tensor x = randn({1, 4});
  int fired = 0;
  w.register_hook([&](const Tensor& g) {
    ++fired;
    CHECK(g.dtype() == kFloat32);
    return Tensor();
  });
  const auto chain = [&] {
    Tensor h = x;
    for (int i = 0; i < 20; ++i) h = tanh(linear(h, w));
    return sum(h);
  };
  Tensor y = amp::autocast([&] {
    amp::Autocast inner;  // the outermost counts
    Tensor y = chain();
    amp::no_autocast([] {});
    return y + chain();
  });
  CHECK(casts_behind(y) == 1);
  y.backward();
  CHECK(fired == 1);
  const Tensor low = w.detach().to(kBFloat16).requires_grad_();
  Tensor h = x.to(kBFloat16);
  for (int i = 0; i < 20; ++i) h = tanh(linear(h, low));
  (2 * sum(h.to(kFloat32))).backward();
  testing::assert_close(w.grad(), low.grad(), {.rtol = 0.05, .atol = 1e-3, .check_dtype = false});

  // A new guard, a new cast; so for one that was made without recording, which is good only for that.
  const Tensor a = amp::autocast(chain), b = amp::autocast(chain);
  CHECK(casts_behind(a + b) == 2);
  amp::autocast([&] {
    no_grad(chain);
    const Tensor c = chain();
    CHECK(c.requires_grad());
    no_grad(chain);
    CHECK(casts_behind(c + chain()) == 1);
  });
}

TEST_CASE("a parameter that was changed in place is cast anew", "[amp]") {
  const Tensor w = ones({2, 2}).requires_grad_(), x = eye(2);
  amp::autocast([&] {
    CHECK(matmul(x, w).select(0, 0)[0].item<float>() == 1);
    no_grad([&] { Tensor(w).mul_(3); });
    CHECK(matmul(x, w).select(0, 0)[0].item<float>() == 3);
    optim::SGD sgd({w}, {.lr = 1});
    for (int step = 0; step < 3; ++step) {  // whole iterations in one guard
      sgd.zero_grad();
      sum(matmul(x, w)).backward();
      sgd.step();
      CHECK(equal(w.grad(), ones({2, 2})));
      CHECK(equal(matmul(x, w).to(kFloat32), w));
    }
    no_grad([&] { w.select(0, 1).fill_(7); });  // through a view
    CHECK(matmul(x, w)[1][0].item<float>() == 7);
    {
      amp::Autocast other(kFloat16);
      CHECK(matmul(x, w).dtype() == kFloat16);
    }
    CHECK(matmul(x, w).dtype() == kBFloat16);
    // What an op gives back may be the cast itself; changing it must not change the parameter's cast.
    no_grad([&] { einsum("ij->ij", {w}).zero_(); });
    CHECK(matmul(x, w)[1][0].item<float>() == 7);
  });
  nn::Linear layer(2, 2);
  amp::autocast([&] {
    layer(x);
    layer.to(kFloat64);
    CHECK(layer(x.to(kFloat64)).dtype() == kFloat64);
    layer.to(kFloat32);
    CHECK(layer(x).dtype() == kBFloat16);
  });
}

TEST_CASE("several losses of one guard can be walked one after the other", "[amp]") {
  manual_seed(4);
  Tensor w = parameter({3, 3});
  const Tensor x = randn({2, 3}), y = randn({2, 3});
  const auto [first, second] =
      amp::autocast([&] { return std::pair(sum(matmul(x, w)), sum(square(matmul(y, w).to(kFloat32)))); });
  first.backward();
  const Tensor one = w.grad().clone();
  second.backward();
  const Tensor both = w.grad().clone();
  w.set_grad({});
  amp::autocast([&] { return sum(square(matmul(y, w).to(kFloat32))); }).backward();
  testing::assert_close(both - one, w.grad(), {.rtol = 1e-5, .atol = 1e-5});
  CHECK_THROWS_WITH(second.backward(), Contains("freed by an earlier backward"));
}

// ---- what runs later ------------------------------------------------------------------------------------------------

namespace {

struct Product : Function<Product> {
  static constexpr const char* name = "product";
  static std::vector<Tensor> forward(FunctionContext& ctx, const std::vector<Tensor>& inputs) {
    ctx.save_for_backward(inputs);
    return {matmul(inputs[0], inputs[1])};
  }
  static std::vector<Tensor> backward(FunctionContext& ctx, const std::vector<Tensor>& grads) {
    CHECK(amp::autocast_enabled());
    return {matmul(grads[0], ctx.saved()[1].t()), matmul(ctx.saved()[0].t(), grads[0])};
  }
};

}  // namespace

TEST_CASE("rules of custom ops run under the autocast of their forward pass", "[amp]") {
  manual_seed(5);
  Tensor a = parameter({2, 3}), b = parameter({3, 2});
  const Tensor y = amp::autocast([&] { return Product::apply({a, b})[0]; });
  CHECK(y.dtype() == kBFloat16);
  sum(y).backward();
  CHECK_FALSE(amp::autocast_enabled());
  const auto expected = grad({amp::autocast([&] { return sum(matmul(a, b)); })}, {a, b});
  testing::assert_close(a.grad(), expected[0]);
  testing::assert_close(b.grad(), expected[1]);

  const Tensor z = amp::autocast([&] {
    return custom_op("product", no_grad([&] { return matmul(a, b); }), {a, b}, [=](const Tensor& g) {
      return std::vector{matmul(g, b.t()), matmul(a.t(), g)};
    });
  });
  a.set_grad({}), b.set_grad({});
  sum(z).backward();
  testing::assert_close(a.grad(), expected[0]);
  testing::assert_close(b.grad(), expected[1]);
}

TEST_CASE("checkpoint's second run is under the autocast of the first", "[amp]") {
  manual_seed(6);
  testing::LeakScope scope;
  const Tensor x = parameter({3, 4}), w = parameter({4, 4}, 0.5), u = parameter({4, 4}, 0.5);
  std::vector<DType> types;
  const auto f = [&](const std::vector<Tensor>& in) {
    const Tensor h = matmul(in[0], w);
    types.push_back(h.dtype());
    return std::vector{tanh(matmul(h, u))};
  };
  const auto model = [&](bool checkpointed) {
    const Tensor before = matmul(x, w);  // w is cast before, within and behind
    const Tensor middle = checkpointed ? checkpoint(f, {before})[0] : f({before})[0];
    return mse_loss(matmul(middle, w), zeros({3, 4}));
  };
  const auto plain = grad({amp::autocast([&] { return model(false); })}, {x, w, u});
  types.clear();
  const Tensor loss = amp::autocast([&] { return model(true); });
  SECTION("walked outside the guard") { loss.backward(); }
  SECTION("walked in another guard") {
    amp::Autocast other(kFloat16);
    loss.backward();
    CHECK(amp::autocast_dtype() == kFloat16);
  }
  CHECK(types == std::vector{kBFloat16, kBFloat16});
  testing::assert_close(x.grad(), plain[0], {.rtol = 0.02, .atol = 1e-3});
  testing::assert_close(w.grad(), plain[1], {.rtol = 0.02, .atol = 1e-2});
  testing::assert_close(u.grad(), plain[2], {.rtol = 0.02, .atol = 1e-3});
}

// ---- models ---------------------------------------------------------------------------------------------------------

namespace {

/// How the loss falls over 30 steps.
std::vector<double> losses_of(nn::Module& net, const std::function<Tensor()>& forward, std::optional<DType> half) {
  optim::Adam adam(net.parameters(), {.lr = 0.02});
  amp::GradScaler scaler({.growth_interval = 5, .enabled = half == kFloat16});
  std::vector<double> losses;
  for (int step = 0; step < 30; ++step) {
    const Tensor loss = half ? amp::autocast(*half, forward) : forward();
    CHECK(loss.dtype() == kFloat32);
    losses.push_back(loss.item<double>());
    adam.zero_grad();
    scaler.scale(loss).backward();
    for (const Tensor& p : net.parameters())
      if (p.grad().defined()) CHECK(p.grad().dtype() == kFloat32);
    scaler.step(adam);
    scaler.update();
  }
  return losses;
}

/// Half types must learn as float32 does.
template <class Make>
void compare_curves(const Make& make) {
  std::map<std::string, std::vector<double>> curves;
  for (const auto& [name, half] : {std::pair<const char*, std::optional<DType>>("float32", std::nullopt),
                                   {"bfloat16", kBFloat16},
                                   {"float16", kFloat16}}) {
    manual_seed(7);
    curves[name] = make(half);
  }
  const std::vector<double>& exact = curves["float32"];
  CHECK(exact.back() < 0.7 * exact.front());
  for (const char* name : {"bfloat16", "float16"}) {
    INFO(name);
    const std::vector<double>& curve = curves[name];
    CHECK(std::abs(curve.front() - exact.front()) < 0.02 * exact.front());
    CHECK(std::abs(curve.back() - exact.back()) < 0.1 * exact.front());
    CHECK(curve != exact);
  }
}

}  // namespace

TEST_CASE("nets learn under autocast as they do in float32", "[amp]") {
  SECTION("convolutions, norms and layers") {
    struct Net : nn::Module {
      nn::Conv2d conv{*this, "conv", 1, 4, 3};
      nn::BatchNorm2d norm{*this, "norm", 4};
      nn::LayerNorm layer_norm{*this, "layer_norm", Shape{64}};
      nn::Linear out{*this, "out", 64, 3};
      Tensor forward(const Tensor& x) const { return out(layer_norm(relu(norm(conv(x))).flatten(1))); }
    };
    compare_curves([](std::optional<DType> half) {
      Net net;
      const Tensor x = randn({8, 1, 6, 6}), y = randint(0, 3, {8});
      return losses_of(
          net, [&] { return cross_entropy(net.forward(x), y); }, half);
    });
  }
  SECTION("an LSTM and embeddings") {
    struct Net : nn::Module {
      nn::Embedding embed{*this, "embed", 10, 6};
      nn::LSTM lstm{*this, "lstm", 6, 8, {.num_layers = 2, .bidirectional = true}};
      nn::Linear out{*this, "out", 16, 10};
    };
    compare_curves([](std::optional<DType> half) {
      Net net;
      const Tensor x = randint(0, 10, {7, 4}), y = randint(0, 10, {28});
      return losses_of(
          net, [&] { return cross_entropy(net.out(net.lstm(net.embed(x)).output.flatten(0, 1)), y); }, half);
    });
  }
  SECTION("attention") {
    struct Net : nn::Module {
      nn::MultiheadAttention attention{*this, "attention", 8, 2, {.add_bias_kv = true}};
      nn::Linear out{*this, "out", 8, 3};
    };
    compare_curves([](std::optional<DType> half) {
      Net net;
      const Tensor x = randn({5, 4, 8}), y = randint(0, 3, {20});
      return losses_of(
          net, [&] { return cross_entropy(net.out(net.attention(x, x, x, {}).output).flatten(0, 1), y); }, half);
    });
  }
  SECTION("trees") {
    struct Net : nn::Module {
      nn::Embedding embed{*this, "embed", 10, 6};
      nn::NaryTreeLSTM binary{*this, "binary", 6, 8};
      nn::ChildSumTreeLSTM sum{*this, "sum", 6, 8};
      nn::Linear out{*this, "out", 8, 3};
      CellState node(int depth, int64_t at, bool nary) const {
        const Tensor x = embed(tensor({at % 10}));
        if (depth == 0) return nary ? binary(x, {}) : sum(x, {});
        const std::vector<CellState> children{node(depth - 1, 2 * at, nary), node(depth - 1, 2 * at + 1, nary)};
        return nary ? binary({}, children) : sum(depth == 1 ? Tensor() : x, children);
      }
    };
    compare_curves([](std::optional<DType> half) {
      Net net;
      return losses_of(
          net,
          [&] {
            std::vector<Tensor> scores;
            for (int64_t i = 0; i < 4; ++i) scores.push_back(net.out(net.node(3, i + 1, i % 2 == 0).h));
            const Tensor loss = cross_entropy(cat(scores), tensor({0, 1, 2, 0}));
            if (half) CHECK(casts_behind(loss) <= static_cast<int>(net.parameters().size()) - 1);
            return loss;
          },
          half);
    });
  }
}

}  // namespace reel
