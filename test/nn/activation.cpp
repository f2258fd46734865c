// Activations and dropouts as modules: what they are called, print and compute.
#include "reel/nn/activation.h"

#include <catch2/catch.hpp>

#include "reel/nn.h"
#include "reel/random.h"

using namespace reel;

TEST_CASE("activations print as PyTorch prints them", "[nn]") {
  const auto text = [](const nn::Module& module) { return module.to_string(); };
  CHECK(text(nn::ReLU()) == "ReLU()");
  CHECK(text(nn::ReLU6()) == "ReLU6()");
  CHECK(text(nn::SELU()) == "SELU()");
  CHECK(text(nn::SiLU()) == "SiLU()");
  CHECK(text(nn::Mish()) == "Mish()");
  CHECK(text(nn::Sigmoid()) == "Sigmoid()");
  CHECK(text(nn::LogSigmoid()) == "LogSigmoid()");
  CHECK(text(nn::Hardsigmoid()) == "Hardsigmoid()");
  CHECK(text(nn::Hardswish()) == "Hardswish()");
  CHECK(text(nn::Tanh()) == "Tanh()");
  CHECK(text(nn::Tanhshrink()) == "Tanhshrink()");
  CHECK(text(nn::Softsign()) == "Softsign()");
  CHECK(text(nn::Identity()) == "Identity()");
  CHECK(text(nn::LeakyReLU()) == "LeakyReLU(negative_slope=0.01)");
  CHECK(text(nn::ELU()) == "ELU(alpha=1.0)");
  CHECK(text(nn::CELU(2)) == "CELU(alpha=2.0)");
  CHECK(text(nn::GELU()) == "GELU(approximate='none')");
  CHECK(text(nn::GELU("tanh")) == "GELU(approximate='tanh')");
  CHECK(text(nn::Hardtanh()) == "Hardtanh(min_val=-1.0, max_val=1.0)");
  CHECK(text(nn::Hardshrink()) == "Hardshrink(0.5)");
  CHECK(text(nn::Softshrink(0.25)) == "Softshrink(0.25)");
  CHECK(text(nn::Softplus()) == "Softplus(beta=1.0, threshold=20.0)");
  CHECK(text(nn::Threshold(0.1, 20)) == "Threshold(threshold=0.1, value=20.0)");
  CHECK(text(nn::RReLU()) == "RReLU(lower=0.125, upper=0.3333333333333333)");
  CHECK(text(nn::PReLU(3)) == "PReLU(num_parameters=3)");
  CHECK(text(nn::GLU()) == "GLU(dim=-1)");
  CHECK(text(nn::Softmax(1)) == "Softmax(dim=1)");
  CHECK(text(nn::LogSoftmax(-1)) == "LogSoftmax(dim=-1)");
  CHECK(text(nn::Softmin(0)) == "Softmin(dim=0)");
  CHECK(text(nn::Softmax2d()) == "Softmax2d()");
  CHECK(text(nn::Flatten()) == "Flatten(start_dim=1, end_dim=-1)");
  CHECK(text(nn::Unflatten(1, {2, 5})) == "Unflatten(dim=1, unflattened_size=(2, 5))");
  CHECK(text(nn::Dropout()) == "Dropout(p=0.5)");
  CHECK(text(nn::Dropout2d(0.1)) == "Dropout2d(p=0.1)");
  CHECK(text(nn::FeatureAlphaDropout()) == "FeatureAlphaDropout(p=0.5)");
}

TEST_CASE("activations compute what their functions do", "[nn]") {
  manual_seed(1);
  const Tensor x = randn({2, 4, 3, 2}) * 3;
  CHECK(equal(nn::ReLU()(x), relu(x)));
  CHECK(equal(nn::Hardswish()(x), hardswish(x)));
  CHECK(equal(nn::LeakyReLU(0.2)(x), leaky_relu(x, 0.2)));
  CHECK(equal(nn::ELU(2)(x), elu(x, 2)));
  CHECK(equal(nn::CELU(2)(x), celu(x, 2)));
  CHECK(equal(nn::GELU()(x), gelu(x)));
  CHECK(equal(nn::GELU("tanh")(x), gelu_tanh(x)));
  CHECK(equal(nn::Hardtanh(-2, 1)(x), hardtanh(x, -2, 1)));
  CHECK(equal(nn::Hardshrink(1)(x), hardshrink(x, 1)));
  CHECK(equal(nn::Softshrink(1)(x), softshrink(x, 1)));
  CHECK(equal(nn::Softplus(2, 10)(x), softplus(x, 2, 10)));
  CHECK(equal(nn::Threshold(1, -7)(x), threshold(x, 1, -7)));
  CHECK(equal(nn::PReLU(4)(x), prelu(x, full({4}, 0.25))));
  CHECK(equal(nn::GLU(1)(x), glu(x, 1)));
  CHECK(equal(nn::Softmax(1)(x), softmax(x, 1)));
  CHECK(equal(nn::LogSoftmax(1)(x), log_softmax(x, 1)));
  CHECK(equal(nn::Softmin(1)(x), softmin(x, 1)));
  CHECK(equal(nn::Softmax2d()(x), softmax(x, 1)));
  CHECK(equal(nn::Softmax2d()(x[0]), softmax(x[0], 0)));
  CHECK(nn::Flatten()(x).shape() == Shape{2, 24});
  CHECK(nn::Flatten(0)(x).shape() == Shape{48});
  CHECK(equal(nn::Unflatten(1, {2, -1})(x), x.view({2, 2, 2, 3, 2})));
  CHECK(nn::Unflatten(-1, {1, 2})(x).shape() == Shape{2, 4, 3, 1, 2});
  nn::RReLU rrelu_layer;
  CHECK_FALSE(equal(rrelu_layer(x), rrelu_layer(x)));
  rrelu_layer.eval();
  CHECK(equal(rrelu_layer(x), rrelu(x)));
}

TEST_CASE("activations are parts of modules and of a Sequential", "[nn]") {
  struct Net : nn::Module {
    nn::Linear in{*this, "in", 3, 4};
    nn::PReLU act{*this, "act", 4, 0.1};
    nn::LeakyReLU leak{*this, "leak", 0.2};
    nn::ReLU clip{*this, "clip"};
    nn::Dropout1d drop{*this, "drop", 0.25};
  } net;
  CHECK(net.named_parameters().back().first == "act.weight");
  CHECK(net.to_string() ==
        "Net(\n"
        "  (in): Linear(in_features=3, out_features=4, bias=true)\n"
        "  (act): PReLU(num_parameters=4)\n"
        "  (leak): LeakyReLU(negative_slope=0.2)\n"
        "  (clip): ReLU()\n"
        "  (drop): Dropout1d(p=0.25)\n"
        ")");
  nn::Sequential stack{nn::Linear(3, 6), nn::GLU(), nn::ReLU(), nn::PReLU(3), nn::Dropout(0.5), nn::Softmax(1)};
  CHECK(stack.state_dict().back().first == "3.weight");
  CHECK(stack(ones({2, 3})).shape() == Shape{2, 3});
}

TEST_CASE("dropouts know training from evaluation", "[nn]") {
  manual_seed(2);
  const Tensor x = ones({4, 5, 6});
  nn::Dropout1d drop(0.5);
  const Tensor y = drop(x);
  CHECK(equal(amax(y, 2), amin(y, 2)));
  CHECK(any(y == 0).item<bool>());
  CHECK(any(y == 2).item<bool>());
  drop.eval();
  CHECK(drop(x).is_same(x));
  nn::AlphaDropout alpha(0.1);
  CHECK_FALSE(equal(alpha(x), x));
  alpha.eval();
  CHECK(alpha(x).is_same(x));
  CHECK_THROWS_WITH(nn::Dropout2d(2), "Dropout2d: p must be between 0 and 1, got 2");
  CHECK_THROWS_WITH(nn::GELU("erf"), "GELU: approximate must be none or tanh, got erf");
  CHECK_THROWS_WITH(nn::Unflatten(4, {1})(x), Catch::Contains("Unflatten: dim 4 is out of range for [4, 5, 6]"));
  CHECK_THROWS_WITH(nn::Softmax2d()(ones({2})),
                    Catch::Contains("Softmax2d: expected x of shape [N, C, H, W] or [C, H, W], got [2]"));
}
