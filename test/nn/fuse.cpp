// This file tests fuse_for_inference: what is fused, what is not, and that results stay those of the model before.
#include "reel/nn/fuse.h"

#include <thread>

#include "reel/amp.h"
#include "reel/autograd.h"
#include "reel/models.h"
#include "reel/nn.h"
#include "reel/random.h"
#include "reel/threads.h"
#include "test/support/pch.h"

using namespace reel;
using Catch::Matchers::Contains;

namespace {

/// Gives all parameters and statistics values without symmetry: new norms are identities.
void randomize(nn::Module& model) {
  NoGrad guard;
  for (auto& [path, parameter] : model.named_parameters())
    if (path.find("weight") != std::string::npos && parameter.dim() == 1)
      parameter.copy_(rand(parameter.shape()) + 0.5);
  for (auto& [path, buffer] : model.named_buffers()) {
    if (path.ends_with("running_mean")) buffer.copy_(randn(buffer.shape()));
    if (path.ends_with("running_var")) buffer.copy_(rand(buffer.shape()) + 0.25);
  }
}

/// The largest difference, as a share of the largest element.
double difference(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  REQUIRE(a.dtype() == b.dtype());
  const Tensor x = a.detach().to(kFloat64), y = b.detach().to(kFloat64);
  return (x - y).abs().max().item<double>() / (1e-30 + y.abs().max().item<double>());
}

std::vector<std::string> names_of(const StateDict& dict) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : dict) names.push_back(name);
  return names;
}

struct Block : nn::Layer<Block> {
  using Layer::Layer;
  nn::Conv2d conv1{*this, "conv1", 16, 16, 3, {.padding = 1, .bias = false}};
  nn::BatchNorm2d bn1{*this, "bn1", 16};
  nn::Conv2d conv2{*this, "conv2", 16, 16, 3, {.padding = 1}};
  nn::BatchNorm2d bn2{*this, "bn2", 16};
  Tensor forward(const Tensor& x) const { return relu(bn2(conv2(relu(bn1(conv1(x))))) + x); }
};

/// A model with one pair of a convolution and a norm, which are called as `run` says.
struct Pair : nn::Layer<Pair> {
  using Run = std::function<Tensor(Pair&, const Tensor&)>;
  explicit Pair(Run f) : run(std::move(f)) { randomize(*this); }
  Tensor forward(const Tensor& x) { return run(*this, x); }
  nn::Conv2d conv{*this, "conv", 4, 4, 3, {.padding = 1}};
  nn::BatchNorm2d bn{*this, "bn", 4};
  Tensor kept;
  Run run;
};

/// Why the norm of a Pair is kept; an empty text if it is folded. Results are the same in either case.
std::string reason(const Pair::Run& run) {
  manual_seed(3);
  Pair net(run);
  net.eval();
  const Tensor x = randn({2, 4, 6, 6}), before = net(x).clone();
  const nn::FusionReport report = nn::fuse_for_inference(net, x);
  CHECK(difference(net(x), before) < 1e-5);
  return report.kept.empty() ? "" : report.kept.at(0);
}

template <class M>
void check_same(M& model, const Tensor& x, size_t folded, bool traced, double tolerance) {
  randomize(model);
  model.to(x.dtype());
  model.eval();
  NoGrad guard;
  const Tensor before = model(x).clone();
  const nn::FusionReport report = traced ? nn::fuse_for_inference(model, x) : nn::fuse_for_inference(model);
  INFO(report);
  CHECK(report.fused.size() == folded);
  CHECK(report.kept.empty());
  for (int i = 0; i < 3; ++i) CHECK(difference(model(x), before) < tolerance);
}

}  // namespace

TEST_CASE("a fused model computes what it did before", "[nn][fuse]") {
  const auto [dtype, tolerance] =
      GENERATE(table<DType, double>({{kFloat32, 1e-5}, {kFloat64, 1e-12}, {kBFloat16, 4e-2}, {kFloat16, 4e-3}}));
  const bool traced = GENERATE(false, true);
  CAPTURE(dtype, traced);
  manual_seed(5);
  const auto input = [dtype = dtype](const Shape& shape) { return randn(shape).to(dtype); };
  SECTION("1d, with linear layers") {
    nn::Sequential net{nn::Conv1d(6, 32, 3, {.padding = 1}),
                       nn::BatchNorm1d(32),
                       nn::ReLU(),
                       nn::ConvTranspose1d(32, 16, 4, {.stride = 2, .groups = 2}),
                       nn::BatchNorm1d(16),
                       relu};
    check_same(net, input({3, 6, 11}), 2, traced, tolerance);
  }
  SECTION("2d") {
    nn::Sequential net{nn::Conv2d(3, 32, 3, {.stride = 2, .bias = false}),
                       nn::BatchNorm2d(32),
                       relu,
                       nn::Conv2d(32, 32, 3, {.padding = kSame, .groups = 32}),
                       nn::BatchNorm2d(32, {.affine = false}),
                       nn::Conv2d(32, 64, 1),
                       nn::BatchNorm2d(64),
                       nn::ReLU(),
                       nn::Conv2d(64, 16, 3, {.padding = 1, .padding_mode = kReflect}),
                       relu};
    check_same(net, input({2, 3, 19, 17}), 4, traced, tolerance);
  }
  SECTION("2d, channels last") {
    nn::Sequential net{nn::Conv2d(3, 32, 3, {.channels_last = true}), nn::BatchNorm2d(32, {.channels_last = true}),
                       relu, nn::ConvTranspose2d(32, 16, 2, {.stride = 2, .channels_last = true}),
                       nn::BatchNorm2d(16, {.channels_last = true})};
    check_same(net, input({2, 9, 7, 3}), 2, traced, tolerance);
  }
  SECTION("3d") {
    nn::Sequential net{nn::Conv3d(4, 16, 3), nn::BatchNorm3d(16), relu};
    check_same(net, input({1, 4, 5, 6, 7}), 1, traced, tolerance);
  }
  SECTION("matrices") {
    nn::Sequential net{nn::Linear(40, 64), nn::BatchNorm1d(64), relu, nn::Linear(64, 33), relu, nn::Linear(33, 5)};
    check_same(net, input({70, 40}), 2, traced, tolerance);
  }
}

TEST_CASE("a run shows which norms follow which layers of a struct", "[nn][fuse]") {
  manual_seed(6);
  Block net;
  randomize(net);
  net.eval();
  const Tensor x = randn({2, 16, 9, 9}), before = net(x).clone();
  SECTION("with inputs") {
    const nn::FusionReport report = nn::fuse_for_inference(net, x);
    CHECK(report.fused ==
          std::vector<std::string>{"conv1 (Conv2d): bn1 (BatchNorm2d), relu", "conv2 (Conv2d): bn2 (BatchNorm2d)"});
    CHECK(report.kept.empty());
    CHECK(report.packed == std::vector<std::string>{"conv1.weight", "conv2.weight"});
    CHECK(names_of(net.state_dict()) ==
          std::vector<std::string>{"conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias"});
    CHECK_THAT(net.bn1.to_string(), Contains("folded=true"));
    CHECK(nn::fuse_for_inference(net, x).kept.empty());  // again
  }
  SECTION("without") {
    CHECK_THAT(nn::fuse_for_inference(net).to_string(),
               Contains("kept: bn1 (BatchNorm2d): it does not follow a layer in a Sequential"));
    CHECK(names_of(net.state_dict()).size() == 13);
  }
  CHECK(difference(net(x), before) < 1e-5);
}

TEST_CASE("a norm stays where folding it could change a result", "[nn][fuse]") {
  CHECK(reason([](Pair& net, const Tensor& x) { return net.bn(net.conv(x)); }).empty());
  CHECK(reason([](Pair& net, const Tensor& x) { return relu(net.bn(net.conv(x))); }).empty());
  CHECK_THAT(reason([](Pair& net, const Tensor& x) {
               const Tensor y = net.conv(x);
               return net.bn(y) + y;
             }),
             Contains("it does not follow a layer whose output is used by it alone"));
  CHECK_THAT(reason([](Pair& net, const Tensor& x) { return net.bn(net.conv(net.conv(x))); }),
             Contains("used by it alone"));
  CHECK_THAT(reason([](Pair& net, const Tensor& x) { return net.bn(net.bn(net.conv(x))); }),
             Contains("not called once"));
  CHECK_THAT(reason([](Pair& net, const Tensor& x) { return net.bn(relu(net.conv(x))); }),
             Contains("used by it alone"));
  CHECK_THAT(reason([](Pair& net, const Tensor& x) { return net.bn(net.conv.forward(x)); }),
             Contains("used by it alone"));
  CHECK_THAT(reason([](Pair& net, const Tensor& x) { return net.bn.forward(net.conv(x)); }),
             Contains("not called once"));
  CHECK_THAT(reason([](Pair& net, const Tensor& x) { return net.conv(x); }), Contains("it was not called as a layer"));
  CHECK_THAT(reason([](Pair& net, const Tensor& x) { return net.bn(conv2d(x, net.conv.weight, {}, {.padding = 1})); }),
             Contains("used by it alone"));
  CHECK_THAT(reason([](Pair& net, const Tensor& x) {
               net.kept = net.conv(x);
               return net.bn(net.kept);
             }),
             Contains("the output of conv (Conv2d) is kept beyond the call"));
  // A run that cannot be traced shows nothing.
  CHECK_THAT(reason([](Pair& net, const Tensor& x) {
               const Tensor y = net.bn(net.conv(x));
               return y.mean().item<double>() > 100 ? y + 1 : y;
             }),
             Contains("it does not follow a layer in a Sequential"));
}

TEST_CASE("a norm stays where it or the layer in front is not like others", "[nn][fuse]") {
  manual_seed(7);
  const auto run = [](Pair& net, const Tensor& x) { return net.bn(net.conv(x)); };
  Pair net(run);
  Pair other(run);
  const Tensor x = randn({2, 4, 6, 6});
  std::string expected;
  SECTION("hooks of the layer") {
    net.conv.register_forward_hook([](nn::Module&, const std::vector<Tensor>&, std::vector<Tensor>&) {});
    expected = "conv (Conv2d) has hooks";
  }
  SECTION("hooks of the norm") {
    net.bn.register_forward_pre_hook([](nn::Module&, std::vector<Tensor>&) {});
    expected = "it has hooks";
  }
  SECTION("weight_norm") {
    nn::weight_norm(net.conv);
    expected = "used by it alone";  // the weight is no parameter then
  }
  SECTION("a shared bias") {
    net.conv.bias = net.bn.bias;
    expected = "shares tensors";
  }
  SECTION("statistics of the batch") {
    nn::replace(net.bn, nn::BatchNorm2d(4, {.track_running_stats = false}));
    expected = "it does not follow";
  }
  net.eval();
  const Tensor before = net(x).clone();
  const std::string report = nn::fuse_for_inference(net, x).to_string();
  CHECK_THAT(report, Contains("kept: bn (BatchNorm2d): ") && Contains(expected));
  CHECK(difference(net(x), before) < 1e-5);
}

TEST_CASE("an Error of a model that is run to fuse it is the model's", "[nn][fuse]") {
  Block net;
  CHECK_THROWS_WITH(nn::fuse_for_inference(net, randn({2, 3, 9, 9})), Contains("conv2d: x of shape"));
  CHECK(net.is_training());
  CHECK(net.bn1.running_mean.defined());
}

TEST_CASE("a fused model refuses to train and to load what it was made of", "[nn][fuse]") {
  manual_seed(8);
  Block net, unfused, again;
  randomize(net);
  const Tensor x = randn({1, 16, 5, 5});
  unfused.load_state_dict(net.state_dict());
  const StateDict original = unfused.state_dict();
  const Tensor weight = net.conv1.weight, copy = weight.clone();
  nn::fuse_for_inference(net, x);
  CHECK(equal(weight, copy));  // handles from before keep their values
  CHECK(net.is_fused());
  CHECK_FALSE(net.is_training());
  CHECK_THROWS_WITH(net.train(), Contains("was fused for inference and cannot be trained"));
  CHECK_THROWS_WITH(net.bn1.train(), Contains("was fused for inference"));
  CHECK_NOTHROW(net.eval());
  CHECK_FALSE(net.conv1.weight.requires_grad());
  for (const bool strict : {true, false})
    CHECK_THROWS_WITH(net.load_state_dict(original, {.strict = strict}), Contains("bn1 was folded"));
  CHECK_THROWS_WITH(unfused.load_state_dict(net.state_dict()), Contains("missing"));
  // What it saves loads into a model that was fused in the same way.
  nn::fuse_for_inference(again, x);
  const Tensor other = again(x).clone();
  again.load_state_dict(net.state_dict());
  CHECK(difference(again(x), other) > 1e-3);
  CHECK(difference(again(x), net(x)) == 0);
  Block moved = std::move(net);
  CHECK(moved.is_fused());
  CHECK(difference(moved(x), again(x)) == 0);
  CHECK_THROWS_WITH(moved.bn1(randn({16, 5, 5})),
                    Contains("it was folded into a layer whose results have 4 dimensions"));
}

TEST_CASE("packed weights follow all changes of the weight", "[nn][fuse]") {
  manual_seed(9);
  NoGrad guard;
  nn::Sequential net{nn::Conv2d(16, 32, 3), relu, nn::Conv2d(32, 16, 1)};
  nn::Linear linear(64, 64);
  nn::fuse_for_inference(net), nn::fuse_for_inference(linear);
  const Tensor x = randn({2, 16, 8, 8}), rows = randn({16, 64});
  auto& conv = net[0].as_ref<nn::Conv2d>();
  // The weight's clones are not packed.
  const auto check = [&](double tolerance = 1e-5) {
    const auto& last = net[2].as_ref<nn::Conv2d>();
    const DType dtype = conv.weight.dtype();
    const Tensor y = conv2d(relu(conv2d(x.to(dtype), conv.weight.clone(), conv.bias)), last.weight.clone(), last.bias);
    CHECK(difference(net(x.to(dtype)), y) < tolerance);
    CHECK(difference(linear(rows.to(linear.weight.dtype())),
                     reel::linear(rows.to(linear.weight.dtype()), linear.weight.clone(), linear.bias)) < tolerance);
  };
  check();
  conv.weight.mul_(2), linear.weight.mul_(2);
  check();
  conv.weight.select(0, 0).zero_(), linear.weight.select(0, 0).zero_();
  check();
  net.to(kBFloat16), linear.to(kBFloat16);
  check(2e-2);
  net.to(kFloat32), linear.to(kFloat32);
  check();
  net.to(kFloat64), linear.to(kFloat64);
  check();
  net.to(kFloat32), linear.to(kFloat32);
  conv.weight = randn(conv.weight.shape()), linear.weight = randn({64, 64});
  check();
  StateDict dict = net.state_dict();
  for (auto& [name, tensor] : dict) tensor = randn(tensor.shape());
  net.load_state_dict(dict);
  check();
}

TEST_CASE("a ReLU in the pass of a convolution is undone by no later change", "[nn][fuse][cpu]") {
  manual_seed(10);
  Pair net([](Pair& net, const Tensor& x) { return relu(net.bn(net.conv(x))); });
  net.eval();
  Tensor x = randn({2, 4, 6, 6});
  const Tensor before = net(x).clone();
  nn::fuse_for_inference(net, x);
  Tensor y = net.conv(x);
  CHECK(y.min().item<double>() >= 0);
  CHECK(relu(y).is_same(y));
  y.sub_(1);
  CHECK(relu(y).min().item<double>() == 0);
  // With a gradient of x the derivative is that of the ops before.
  Pair reference([](Pair& net, const Tensor& x) { return relu(net.bn(net.conv(x))); });
  reference.eval();
  x.requires_grad_();
  manual_seed(10);
  Pair same([](Pair& net, const Tensor& x) { return relu(net.bn(net.conv(x))); });
  same.eval();
  same(x).square().sum().backward();
  const Tensor expected = x.grad();
  x.set_grad({});
  CHECK(difference(net(x), before) < 1e-5);
  net(x).square().sum().backward();
  CHECK(difference(x.grad(), expected) < 1e-4);
  x.requires_grad_(false);
  // NaN and infinity pass as through relu.
  NoGrad guard;
  x.fill_(std::numeric_limits<double>::quiet_NaN());
  CHECK(isnan(net(x)).all().item<bool>());
  // Autocast runs the ops apart.
  x.copy_(randn(x.shape()));
  const Tensor plain = net(x).clone();
  const amp::Autocast autocast(kBFloat16);
  CHECK((net(x).to(kFloat32) - plain).abs().max().item<double>() < 0.1);
}

TEST_CASE("residual nets are fused whole", "[nn][fuse][models]") {
  manual_seed(11);
  const bool last = GENERATE(false, true);
  models::ResNet net({.layers = {1, 2}, .num_classes = 10, .width = 16, .channels_last = last});
  randomize(net);
  net.eval();
  NoGrad guard;
  const Tensor x = last ? randn({3, 32, 32, 3}) : randn({3, 3, 32, 32}), before = net(x).clone();
  const nn::FusionReport report = nn::fuse_for_inference(net, x);
  INFO(report);
  CHECK(report.kept.empty());
  CHECK(report.fused.size() == 8);
  CHECK(difference(net(x), before) < 1e-5);
  const Tensor more = last ? randn({1, 40, 48, 3}) : randn({1, 3, 40, 48});
  CHECK_NOTHROW(net(more));
  CHECK(difference(net(x), before) < 1e-5);
}

TEST_CASE("a fused model has the same bits in all threads", "[nn][fuse][threads]") {
  manual_seed(12);
  NoGrad guard;
  nn::Sequential net{nn::Conv2d(16, 64, 3, {.padding = 1}), nn::BatchNorm2d(64), relu,
                     nn::Conv2d(64, 64, 3, {.padding = 1}), nn::Flatten(),       nn::Linear(64 * 256, 512)};
  randomize(net);
  nn::fuse_for_inference(net);
  const Tensor x = randn({8, 16, 16, 16});
  const int threads = num_threads();
  std::vector<Tensor> results(4);
  std::vector<std::thread> workers;
  for (Tensor& result : results)
    workers.emplace_back([&] {
      NoGrad none;
      result = net(x);
    });
  for (std::thread& worker : workers) worker.join();
  for (const int count : {1, 2, 3}) {
    set_num_threads(count);
    results.push_back(net(x));
  }
  set_num_threads(threads);
  for (const Tensor& result : results) CHECK(equal(result, results[0]));
}
