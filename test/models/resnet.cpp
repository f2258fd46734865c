#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <sstream>

#include "reel/autograd.h"
#include "reel/models.h"
#include "reel/ops.h"
#include "reel/random.h"
#include "reel/testing.h"
#include "test/support/load.h"

// Against torchvision: test/reference/resnet.py is the other side.
using namespace reel;

namespace {

/// Numbers from 0 to 1, by position: the formula of resnet.py.
Tensor uniform(const Shape& shape, uint32_t number) {
  std::vector<double> values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t z = static_cast<uint32_t>(i + 1) * 0x9E3779B9 + number * 0x85EBCA6B;
    z = (z ^ z >> 16) * 0x7FEB352D;
    z = (z ^ z >> 15) * 0x846CA68B;
    values[i] = static_cast<double>(z ^ z >> 16) / 4294967296.;
  }
  return tensor(values, shape, {.dtype = kFloat64, .device = kCPU});
}

Tensor value(const std::string& name, const Shape& shape, uint32_t number) {
  if (name.ends_with("num_batches_tracked")) return zeros(shape, {.dtype = kInt64});
  const Tensor u = uniform(shape, number);
  if (shape.size() > 1)
    return ((2 * u - 1) * std::sqrt(3. / static_cast<double>(shape.numel() / shape[0]))).to(kFloat32);
  return (u + (name.ends_with("weight") || name.ends_with("var") ? 0.5 : -0.5)).to(kFloat32);
}

void fill(models::ResNet& net) {
  StateDict dict = net.state_dict();
  uint32_t number = 0;
  for (auto& [name, x] : dict) x = value(name, x.shape(), number++);
  net.load_state_dict(dict);
}

Tensor images() { return (2 * uniform({2, 3, 75, 64}, 1000) - 1).to(kFloat32).to(default_device()); }

}  // namespace

TEST_CASE("resnet18 has the names, shapes and order of torchvision's state dict", "[nn]") {
  const models::ResNet net = models::resnet18();
  std::ostringstream list;
  for (const auto& [name, x] : net.state_dict()) {
    list << name;
    for (const int64_t size : x.shape()) list << ' ' << size;
    list << '\n';
  }
  std::stringstream expected;
  expected << std::ifstream("test/reference/resnet.txt").rdbuf();
  CHECK(list.str() == expected.str());
  int64_t parameters = 0;
  for (const Tensor& x : net.parameters()) parameters += x.numel();
  CHECK(parameters == 11689512);
}

TEST_CASE("resnet18 computes what torchvision's computes from the same weights", "[nn]") {
  const StateDict figures = load_reference("resnet.safetensors");
  models::ResNet net = models::resnet18();
  fill(net);
  net.eval();
  {
    const NoGrad guard;
    testing::assert_close(net(images()), figures["eval"], {.rtol = 1e-5, .atol = 1e-5});
    CHECK(net.features(images()).shape() == Shape{2, 512});
  }
  net.train();
  const Tensor y = net(images());
  testing::assert_close(y, figures["train"], {.rtol = 1e-5, .atol = 1e-5});
  testing::assert_close(net.get_buffer("layer3.0.downsample.1.running_var"),
                        figures["layer3.0.downsample.1.running_var"], {.rtol = 1e-5, .atol = 1e-6});
  sum(y * (2 * uniform({2, 1000}, 1001) - 1).to(kFloat32).to(default_device())).backward();
  for (const char* name : {"bn1.weight", "layer2.0.downsample.1.bias", "layer4.1.bn2.weight"}) {
    INFO(name);
    testing::assert_close(net.get_parameter(name).grad(), figures["grad." + std::string(name)],
                          {.rtol = 1e-3, .atol = 1e-3});
  }
}

TEST_CASE("resnet20 is the paper's net for CIFAR", "[nn]") {
  models::ResNet net = models::resnet20();
  fill(net);
  net.eval();
  const NoGrad guard;
  testing::assert_close(net(images()), load_reference("resnet.safetensors")["resnet20"], {.rtol = 1e-5, .atol = 1e-5});
  int64_t parameters = 0;
  for (const Tensor& x : net.parameters()) parameters += x.numel();
  CHECK(parameters == 269722);  // the paper's 0.27 M: shortcuts have none
}

TEST_CASE("residual nets of other sizes, and those that do not exist", "[nn]") {
  const NoGrad guard;
  models::ResNet grey({.layers = {1, 2}, .num_classes = 3, .in_channels = 1, .width = 4, .zero_init_residual = true});
  CHECK(grey.num_features() == 8);
  CHECK(grey(randn({2, 1, 40, 32})).shape() == Shape{2, 3});
  CHECK(max(abs(grey.get_parameter("layer2.1.bn2.weight"))).item<float>() == 0);
  CHECK(models::resnet8({.num_classes = 5, .in_channels = 1}).forward(randn({1, 1, 7, 9})).shape() == Shape{1, 5});
  CHECK(models::resnet34().layers[2].size() == 6);
  models::ResNet moved(std::move(grey));
  CHECK(moved(randn({1, 1, 32, 32})).shape() == Shape{1, 3});
  using Catch::Matchers::Contains;
  CHECK_THROWS_WITH(models::cifar_resnet(18), Contains("cifar_resnet: depth 18 is not 6 n + 2"));
  CHECK_THROWS_WITH(models::ResNet({.layers = {2, 0}}), Contains("every stage needs blocks, got layers [2, 0]"));
  CHECK_THROWS_WITH(models::ResNet({.num_classes = 0}), Contains("num_classes 0"));
  CHECK_THROWS_WITH(moved(randn({1, 3, 32, 32})), Contains("conv1"));
}
