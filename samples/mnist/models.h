#pragma once
#include <algorithm>
#include <memory>
#include <string>

#include "reel/reel.h"

/// Classifiers of images [n, 1, height, width] into ten classes; the numbers below are for 28 x 28.
struct Classifier : reel::nn::Layer<Classifier> {
  virtual reel::Tensor forward(const reel::Tensor& x) const = 0;
};

/// One linear layer: 7,850 parameters.
struct SoftmaxRegression : Classifier {
  reel::nn::Linear out;
  explicit SoftmaxRegression(int64_t pixels) : out(*this, "out", pixels, 10) {}
  reel::Tensor forward(const reel::Tensor& x) const override { return out(x.flatten(1)); }
};

/// Two hidden layers.
struct Mlp : Classifier {
  reel::nn::Linear hidden1;
  reel::nn::Linear hidden2{*this, "hidden2", 512, 256};
  reel::nn::Dropout dropout{*this, "dropout", 0.2};
  reel::nn::Linear out{*this, "out", 256, 10};
  explicit Mlp(int64_t pixels) : hidden1(*this, "hidden1", pixels, 512) {}
  reel::Tensor forward(const reel::Tensor& x) const override {
    return out(dropout(relu(hidden2(dropout(relu(hidden1(x.flatten(1))))))));
  }
};

/// After LeNet-5 (LeCun et al. 1998), with maxima, rectifiers and dropout: 431,080 parameters.
struct LeNet : Classifier {
  reel::nn::Conv2d conv1{*this, "conv1", 1, 20, 5};
  reel::nn::Conv2d conv2{*this, "conv2", 20, 50, 5};
  reel::nn::Linear hidden;
  reel::nn::Dropout dropout{*this, "dropout", 0.5};
  reel::nn::Linear out{*this, "out", 500, 10};
  LeNet(int64_t height, int64_t width) : hidden(*this, "hidden", 50 * left(height) * left(width), 500) {}
  /// What two convolutions and poolings leave of a side.
  static int64_t left(int64_t side) { return ((side - 4) / 2 - 4) / 2; }
  reel::Tensor forward(const reel::Tensor& x) const override {
    reel::Tensor y = reel::max_pool2d(reel::relu(conv1(x)), 2);  // [n, 20, 12, 12]
    y = max_pool2d(relu(conv2(y)), 2);                           // [n, 50, 4, 4]
    return out(dropout(relu(hidden(y.flatten(1)))));
  }
};

inline std::unique_ptr<Classifier> make_model(const std::string& name, int64_t height, int64_t width) {
  if (name == "softmax") return std::make_unique<SoftmaxRegression>(height * width);
  if (name == "mlp") return std::make_unique<Mlp>(height * width);
  REEL_CHECK(std::min(height, width) >= 16, "images of ", height, " x ", width,
             " are too small for LeNet, which takes 16 x 16 and more; use --model mlp");
  return std::make_unique<LeNet>(height, width);
}
