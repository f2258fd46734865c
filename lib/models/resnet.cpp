#include <algorithm>
#include <optional>
#include <utility>

#include "reel/models.h"
#include "reel/nn/init.h"
#include "reel/ops.h"

namespace reel::models {
namespace {

/// The residual block of two convolutions (He et al. 2016, figure 2).
struct BasicBlock : nn::Layer<BasicBlock> {
  BasicBlock(int64_t in, int64_t out, int64_t stride_, bool projection, bool last)
      : stride(stride_),
        conv1(*this, "conv1", in, out, 3, {.stride = stride, .padding = 1, .bias = false, .channels_last = last}),
        bn1(*this, "bn1", out, {.channels_last = last}),
        conv2(*this, "conv2", out, out, 3, {.padding = 1, .bias = false, .channels_last = last}),
        bn2(*this, "bn2", out, {.channels_last = last}) {
    if (projection && (stride != 1 || in != out))
      downsample.emplace(*this, "downsample",
                         nn::Conv2d(in, out, 1, {.stride = stride, .bias = false, .channels_last = last}),
                         nn::BatchNorm2d(out, {.channels_last = last}));
  }
  Tensor forward(const Tensor& x) const {
    // Each result takes the place of the one before, whose memory the next op can use when nothing is recorded.
    Tensor y = conv1(x);
    y = bn1(y);
    y = relu(y);
    y = conv2(y);
    y = bn2(y);
    y = y + shortcut(x);
    return relu(y);
  }

  const int64_t stride;
  nn::Conv2d conv1;
  nn::BatchNorm2d bn1;
  nn::Conv2d conv2;
  nn::BatchNorm2d bn2;
  std::optional<nn::Sequential> downsample;

 private:
  Tensor shortcut(const Tensor& x) const {
    if (downsample) return (*downsample)(x);
    const int64_t more = conv1.out_channels - conv1.in_channels;
    if (stride == 1 && more == 0) return x;
    const Slice all, some({}, {}, stride);
    const int64_t before = more / 2, after = more - before;
    if (conv1.options.channels_last) return pad(stride == 1 ? x : x.index({all, some, some, all}), {before, after});
    return pad(stride == 1 ? x : x.index({all, all, some, some}), {0, 0, 0, 0, before, after});
  }
};

ResNetOptions checked(ResNetOptions o) {
  REEL_CHECK(!o.layers.empty() && o.layers.size() < 20 && *std::min_element(o.layers.begin(), o.layers.end()) > 0,
             "ResNet: every stage needs blocks, got layers ", Shape(o.layers));
  REEL_CHECK(std::min({o.num_classes, o.in_channels, o.width, o.kernel_size, o.stride}) > 0,
             "ResNet: sizes are positive, got num_classes ", o.num_classes, ", in_channels ", o.in_channels, ", width ",
             o.width, ", kernel_size ", o.kernel_size, ", stride ", o.stride);
  return o;
}

}  // namespace

ResNet::ResNet(ResNetOptions given)
    : options(checked(std::move(given))),
      conv1(options.in_channels, options.width, options.kernel_size,
            {.stride = options.stride,
             .padding = options.kernel_size / 2,
             .bias = false,
             .channels_last = options.channels_last}),
      bn1(options.width, {.channels_last = options.channels_last}),
      fc(options.width << (options.layers.size() - 1), options.num_classes) {
  register_module("conv1", conv1);
  register_module("bn1", bn1);
  layers.reserve(options.layers.size());
  int64_t in = options.width;
  for (size_t i = 0; i < options.layers.size(); ++i) {
    const int64_t out = options.width << i;
    nn::Sequential& stage = layers.emplace_back(*this, "layer" + std::to_string(i + 1));
    for (int64_t block = 0; block < options.layers[i]; ++block, in = out)
      stage.push_back(BasicBlock(in, out, i > 0 && block == 0 ? 2 : 1, options.projection, options.channels_last));
  }
  register_module("fc", fc);
  reset_parameters();
}

void ResNet::reset_parameters() {
  apply([&](nn::Module& module) {
    if (auto* const conv = dynamic_cast<nn::Conv2d*>(&module))
      nn::init::kaiming_normal_(conv->weight, {.mode = nn::init::kFanOut, .nonlinearity = nn::init::kRelu});
    else if (auto* const norm = dynamic_cast<nn::BatchNorm2d*>(&module))
      norm->reset_parameters();
    else if (auto* const block = dynamic_cast<BasicBlock*>(&module); block && options.zero_init_residual)
      nn::init::zeros_(block->bn2.weight);
  });
  fc.reset_parameters();
}

Tensor ResNet::features(const Tensor& x) const {
  Tensor y = conv1(x);
  y = bn1(y);
  y = relu(y);
  const bool last = options.channels_last;
  if (options.max_pool) y = max_pool2d(y, 3, {.stride = 2, .padding = 1, .channels_last = last});
  for (const nn::Sequential& stage : layers) y = stage(y);
  return mean(y, last ? Dims{1, 2} : Dims{2, 3});
}

Tensor ResNet::forward(const Tensor& x) const { return fc(features(x)); }

ResNet resnet18(ResNetOptions options) {
  options.layers = {2, 2, 2, 2};
  return ResNet(std::move(options));
}

ResNet resnet34(ResNetOptions options) {
  options.layers = {3, 4, 6, 3};
  return ResNet(std::move(options));
}

ResNet cifar_resnet(int64_t depth, CifarResNetOptions o) {
  REEL_CHECK(depth >= 8 && depth % 6 == 2, "cifar_resnet: depth ", depth, " is not 6 n + 2");
  const int64_t n = (depth - 2) / 6;
  return ResNet({.layers = {n, n, n},
                 .num_classes = o.num_classes,
                 .in_channels = o.in_channels,
                 .width = o.width,
                 .kernel_size = 3,
                 .stride = o.stride,
                 .max_pool = false,
                 .projection = false,
                 .channels_last = o.channels_last});
}

}  // namespace reel::models
