#pragma once
#include <memory>
#include <string>

#include "reel/reel.h"

/// Classifiers of images [n, 1, 28, 28] into ten classes.
struct Classifier : reel::nn::Layer<Classifier> {
  virtual reel::Tensor forward(const reel::Tensor& x) const = 0;
};

/// One linear layer: 7,850 parameters.
struct SoftmaxRegression : Classifier {
  reel::nn::Linear out{*this, "out", 28 * 28, 10};
  reel::Tensor forward(const reel::Tensor& x) const override { return out(x.flatten(1)); }
};

/// Two hidden layers.
struct Mlp : Classifier {
  reel::nn::Linear hidden1{*this, "hidden1", 28 * 28, 512};
  reel::nn::Linear hidden2{*this, "hidden2", 512, 256};
  reel::nn::Dropout dropout{*this, "dropout", 0.2};
  reel::nn::Linear out{*this, "out", 256, 10};
  reel::Tensor forward(const reel::Tensor& x) const override {
    return out(dropout(relu(hidden2(dropout(relu(hidden1(x.flatten(1))))))));
  }
};

/// After LeNet-5 (LeCun et al. 1998), with maxima, rectifiers and dropout: 431,080 parameters.
struct LeNet : Classifier {
  reel::nn::Conv2d conv1{*this, "conv1", 1, 20, 5};
  reel::nn::Conv2d conv2{*this, "conv2", 20, 50, 5};
  reel::nn::Linear hidden{*this, "hidden", 50 * 4 * 4, 500};
  reel::nn::Dropout dropout{*this, "dropout", 0.5};
  reel::nn::Linear out{*this, "out", 500, 10};
  reel::Tensor forward(const reel::Tensor& x) const override {
    reel::Tensor y = reel::max_pool2d(reel::relu(conv1(x)), 2);  // [n, 20, 12, 12]
    y = max_pool2d(relu(conv2(y)), 2);                           // [n, 50, 4, 4]
    return out(dropout(relu(hidden(y.flatten(1)))));
  }
};

inline std::unique_ptr<Classifier> make_model(const std::string& name) {
  if (name == "softmax") return std::make_unique<SoftmaxRegression>();
  if (name == "mlp") return std::make_unique<Mlp>();
  return std::make_unique<LeNet>();
}
