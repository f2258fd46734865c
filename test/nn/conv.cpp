#include "reel/nn/conv.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <sstream>

#include "reel/autograd.h"
#include "reel/ops.h"
#include "reel/random.h"

using namespace reel;

namespace {

std::string printed(const nn::Module& module) { return module.to_string(); }

void check_same(const Tensor& a, const Tensor& b) {
  CHECK(a.shape() == b.shape());
  CHECK(a.to_vector<float>() == b.to_vector<float>());
}

struct Net : nn::Module {
  nn::Conv2d first{*this, "first", 2, 4, 3, {.padding = 1}};
  nn::ConvTranspose2d second{*this, "second", 4, 2, {3, 2}, {.stride = 2, .bias = false}};
  Tensor forward(const Tensor& x) const { return second(relu(first(x))); }
};

}  // namespace

TEST_CASE("convolution layers have PyTorch's parameters and print as there", "[nn][conv]") {
  const Net net;
  std::vector<std::string> names;
  for (const auto& [name, tensor] : net.state_dict()) names.push_back(name + " " + tensor.shape().to_string());
  CHECK(names == std::vector<std::string>{"first.weight [4, 2, 3, 3]", "first.bias [4]", "second.weight [4, 2, 3, 2]"});
  CHECK(printed(nn::Conv2d(1, 20, 5)) == "Conv2d(1, 20, kernel_size=(5, 5), stride=(1, 1))");
  CHECK(printed(nn::Conv1d(
            4, 20, 5,
            {.stride = 2, .padding = 1, .dilation = 2, .groups = 2, .bias = false, .padding_mode = kCircular})) ==
        "Conv1d(4, 20, kernel_size=(5,), stride=(2,), padding=(1,), dilation=(2,), groups=2, bias=false, "
        "padding_mode=circular)");
  CHECK(printed(nn::Conv3d(1, 2, {1, 2, 3}, {.padding = kSame})) ==
        "Conv3d(1, 2, kernel_size=(1, 2, 3), stride=(1, 1, 1), padding=same)");
  CHECK(printed(nn::ConvTranspose2d(2, 4, 3, {.stride = 2, .padding = 1, .output_padding = 1, .dilation = 2})) ==
        "ConvTranspose2d(2, 4, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), dilation=(2, 2), "
        "output_padding=(1, 1))");
  CHECK(printed(nn::ConvTranspose1d(2, 4, 3, {.groups = 2, .bias = false})) ==
        "ConvTranspose1d(2, 4, kernel_size=(3,), stride=(1,), groups=2, bias=false)");
  CHECK(printed(nn::Unfold(3, {.padding = {1, 2}})) == "Unfold(kernel_size=3, dilation=1, padding=(1, 2), stride=1)");
  CHECK(printed(nn::Fold({4, 5}, 2)) == "Fold(output_size=(4, 5), kernel_size=2, dilation=1, padding=0, stride=1)");
}

TEST_CASE("convolution layers start uniform in one over the root of the fan-in", "[nn][conv]") {
  manual_seed(1);
  const auto check = [](const Tensor& weight, const Tensor& bias, double fan_in) {
    const double bound = 1 / std::sqrt(fan_in);
    for (const Tensor& part : {weight, bias}) {
      CHECK(max(abs(part)).item<double>() <= bound);
      CHECK(max(abs(part)).item<double>() > 0.9 * bound);
      CHECK(reel::std(part).item<double>() == Approx(bound / std::sqrt(3)).epsilon(0.15));
    }
  };
  const nn::Conv2d conv(8, 60, {3, 2}, {.groups = 2});
  check(conv.weight, conv.bias, 4 * 6);
  const nn::ConvTranspose1d transposed(6, 90, 5, {.groups = 3});
  check(transposed.weight, transposed.bias, 30 * 5);
}

TEST_CASE("convolution layers compute what the ops do", "[nn][conv]") {
  manual_seed(2);
  const Tensor x = randn({2, 4, 6, 7});
  const nn::Conv2d conv(4, 6, {3, 2}, {.stride = {1, 2}, .padding = {2, 1}, .dilation = {1, 2}, .groups = 2});
  check_same(conv(x),
             conv2d(x, conv.weight, conv.bias, {.stride = {1, 2}, .padding = {2, 1}, .dilation = {1, 2}, .groups = 2}));
  check_same(conv(x[0]), conv(x)[0]);
  const nn::ConvTranspose2d transposed(4, 6, 3, {.stride = 2, .padding = 1, .output_padding = 1, .groups = 2});
  check_same(transposed(x), conv_transpose2d(x, transposed.weight, transposed.bias,
                                             {.stride = 2, .padding = 1, .output_padding = 1, .groups = 2}));
  const nn::Conv1d line(6, 3, 3);
  check_same(line(x[0]), conv1d(x[0], line.weight, line.bias));
  const nn::Conv3d volume(4, 3, 2);
  const Tensor deep = x.unsqueeze(2).expand({2, 4, 3, 6, 7});
  check_same(volume(deep), conv3d(deep, volume.weight, volume.bias));
  check_same(nn::Unfold(2, {.stride = 2})(x), unfold(x, 2, {.stride = 2}));
  check_same(nn::Fold({6, 7}, 2)(unfold(x, 2)), fold(unfold(x, 2), {6, 7}, 2));
}

TEST_CASE("a convolution layer pads by what its padding mode shows", "[nn][conv]") {
  manual_seed(3);
  const Tensor x = randn({2, 2, 6, 5});
  for (const PadMode mode : {kReflect, kReplicate, kCircular}) {
    const nn::Conv2d given(2, 3, {3, 4}, {.stride = 2, .padding = {1, 2}, .padding_mode = mode});
    check_same(given(x), conv2d(pad(x, {2, 2, 1, 1}, mode), given.weight, given.bias, {.stride = 2}));
    const nn::Conv2d same(2, 3, {3, 4}, {.padding = kSame, .padding_mode = mode});
    check_same(same(x), conv2d(pad(x, {1, 2, 1, 1}, mode), same.weight, same.bias));
    CHECK(same(x[0]).shape() == Shape{3, 6, 5});
  }
}

TEST_CASE("a transposed convolution takes the size that its output is to have", "[nn][conv]") {
  const nn::Conv2d down(1, 1, 3, {.stride = 2, .padding = 1});
  const nn::ConvTranspose2d up(1, 1, 3, {.stride = 2, .padding = 1});
  for (const Shape& shape : {Shape{1, 1, 7, 8}, Shape{1, 1, 8, 9}})
    CHECK(up(down(ones(shape)), PerDim<2>{shape[2], shape[3]}).shape() == shape);
  CHECK_THROWS_WITH(up.forward(ones({1, 1, 4, 4}), PerDim<2>{9, 7}),
                    "ConvTranspose2d: output_size [9, 7] for x of shape [1, 1, 4, 4]; dimension 0 can have 7 to 8");
}

TEST_CASE("wrong convolution layers say what is wrong", "[nn][conv][errors]") {
  CHECK_THROWS_WITH(nn::Conv2d(3, 4, 3, {.groups = 2}), "Conv2d: 3 input channels do not divide into 2 groups");
  CHECK_THROWS_WITH(nn::Conv1d(4, 3, 3, {.groups = 2}), "Conv1d: 3 output channels do not divide into 2 groups");
  CHECK_THROWS_WITH(nn::Conv1d(4, 3, 3, {.groups = 0}), "Conv1d: 0 groups");
  CHECK_THROWS_WITH(nn::Conv3d(4, 3, {3, 0, 1}), "Conv3d: kernel_size [3, 0, 1]");
  CHECK_THROWS_WITH(nn::Conv2d(1, 1, 3, {.stride = 2, .padding = kSame}),
                    "Conv2d: padding kSame needs stride 1, got [2, 2]");
  CHECK_THROWS_WITH(nn::ConvTranspose2d(3, 4, 3, {.groups = 2}),
                    "ConvTranspose2d: 3 input channels do not divide into 2 groups");
}

TEST_CASE("a convolutional network learns", "[nn][conv]") {
  manual_seed(4);
  Net net;
  const Tensor x = randn({3, 2, 5, 6});
  const auto loss = [&] {
    const Tensor y = net.forward(x);
    return mean(y * y);
  };
  const double before = loss().item<double>();
  for (int step = 0; step < 20; ++step) {
    net.zero_grad();
    loss().backward();
    NoGrad guard;
    for (Tensor& p : net.parameters()) p.sub_(p.grad(), 0.5);
  }
  CHECK(loss().item<double>() < 0.5 * before);
  net.to(kBFloat16);
  CHECK(net.forward(x.to(kBFloat16)).dtype() == kBFloat16);
}
