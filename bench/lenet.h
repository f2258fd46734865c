#pragma once
// What bench/nets.cpp trains alone and bench/distributed.cpp on two processes.
#include "bench/reel.h"

struct LeNet : reel::nn::Module {
  reel::nn::Conv2d conv1{*this, "conv1", 1, 6, 5, {.padding = 2}}, conv2{*this, "conv2", 6, 16, 5};
  reel::nn::Linear hidden1{*this, "hidden1", 400, 120}, hidden2{*this, "hidden2", 120, 84}, out{*this, "out", 84, 10};
  LeNet() {
    fill(conv1.weight, 2, 0.2f), fill(conv2.weight, 3, 0.1f);
    fill(hidden1.weight, 4, 0.05f), fill(hidden2.weight, 5, 0.1f), fill(out.weight, 6, 0.1f);
    zero({conv1.bias, conv2.bias, hidden1.bias, hidden2.bias, out.bias});
  }
  reel::Tensor forward(const reel::Tensor& image) const {
    reel::Tensor x = max_pool2d(relu(conv1(image)), 2);
    x = max_pool2d(relu(conv2(x)), 2);
    return out(relu(hidden2(relu(hidden1(flatten(x, 1))))));
  }
};
