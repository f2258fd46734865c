#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "reel/nn/conv.h"
#include "reel/nn/linear.h"
#include "reel/nn/module.h"
#include "reel/nn/norm.h"
#include "reel/nn/sequential.h"

#pragma GCC visibility push(default)
/// Whole models, with the names, shapes and initial values of torchvision.models.
///
///   models::ResNet net = models::resnet18({.num_classes = 10});
///   io::load(net, "resnet18.safetensors");  // what safetensors.torch.save_file(model.state_dict(), …) has written
namespace reel::models {

/// Of ResNet. The defaults are those of torchvision's resnet18.
struct ResNetOptions {
  std::vector<int64_t> layers = {2, 2, 2, 2};  ///< Blocks of each stage; a block is two convolutions.
  int64_t num_classes = 1000;                  ///< Outputs.
  int64_t in_channels = 3;                     ///< Of the images: 1 for grey, 3 for RGB.
  int64_t width = 64;       ///< Channels of the first stage; every further one has twice as many and half the height.
  int64_t kernel_size = 7;  ///< Of the first convolution.
  int64_t stride = 2;       ///< Of the first convolution.
  bool max_pool = true;     ///< Whether a max pooling 3 x 3 with stride 2 follows it.
  /// Where a block changes the shape, its shortcut is a 1 x 1 convolution and a norm (option B of the paper). Otherwise
  /// it has no parameters: x at every second position, with channels of zeros around x's own (option A).
  bool projection = true;
  bool zero_init_residual = false;  ///< The last norm of each block starts as 0, so that blocks start as identities.
  bool channels_last = false;       ///< Images are [n, h, w, in_channels]: see reel/ops/conv.h.
};

/// A residual net of two-convolution blocks (He et al. 2016). forward takes images [n, in_channels, h, w], or
/// [n, h, w, in_channels] with channels_last, of any size to scores [n, num_classes]. Parameters have torchvision's
/// names: "conv1.weight", "bn1.bias", "layer1.0.conv1.weight", "layer2.0.downsample.0.weight", "fc.bias". Convolutions
/// start normal with variance 2 / fan_out.
struct ResNet : nn::Layer<ResNet> {
  ///@{
  /// A net of its own, or a part of another module. Options that make no net are an Error.
  explicit ResNet(ResNetOptions options = {});
  ResNet(nn::Module& parent, std::string name, ResNetOptions options = {}) : ResNet(std::move(options)) {
    parent.register_module(std::move(name), *this);
  }
  ///@}
  Tensor forward(const Tensor& x) const;  ///< Scores, [n, num_classes].
  /// What the last layer reads: the last stage's activations, averaged over all positions, [n, num_features].
  Tensor features(const Tensor& x) const;
  int64_t num_features() const { return fc.in_features; }  ///< width · 2^(stages - 1)
  void reset_parameters();                                 ///< Sets all parameters to initial values.

  const ResNetOptions options;         ///< As it was made.
  nn::Conv2d conv1;                    ///< The first layer.
  nn::BatchNorm2d bn1;                 ///< Its norm.
  std::vector<nn::Sequential> layers;  ///< The stages, called layer1, layer2, …
  nn::Linear fc;                       ///< The last layer.
};

///@{
/// torchvision's resnet18 and resnet34; options.layers is replaced.
ResNet resnet18(ResNetOptions options = {});
ResNet resnet34(ResNetOptions options = {});
///@}

/// Of cifar_resnet.
struct CifarResNetOptions {
  int64_t num_classes = 10;    ///< Outputs.
  int64_t in_channels = 3;     ///< Of the images.
  int64_t width = 16;          ///< Channels of the first of the three stages.
  int64_t stride = 1;          ///< Of the first convolution. 2 takes a quarter of the time.
  bool channels_last = false;  ///< As of ResNetOptions.
};
/// The nets for images of about 32 x 32 of He et al. 2016, section 4.2, with `depth` = 6 n + 2 layers: 8, 20, 32, 44,
/// 56, 110; others are an Error. A first convolution of 3 x 3, three stages of n blocks, and shortcuts without
/// parameters. resnet20 has 0.27 M parameters.
ResNet cifar_resnet(int64_t depth, CifarResNetOptions options = {});
///@{
/// cifar_resnet of that depth.
inline ResNet resnet8(CifarResNetOptions options = {}) { return cifar_resnet(8, options); }
inline ResNet resnet20(CifarResNetOptions options = {}) { return cifar_resnet(20, options); }
///@}

}  // namespace reel::models
#pragma GCC visibility pop
