#pragma once
// What bench/nets.cpp trains step by step and bench/gpu.cpp as a graph.
#include "bench/reel.h"

struct Perceptron : reel::nn::Module {
  reel::nn::Linear hidden{*this, "hidden", 784, 256}, out{*this, "out", 256, 10};
  Perceptron() {
    fill(hidden.weight, 3, 0.05f), fill(out.weight, 4, 0.1f);
    zero({hidden.bias, out.bias});
  }
  reel::Tensor forward(const reel::Tensor& x) const { return out(relu(hidden(x))); }
};

/// 0, 1, … count - 1, 0, 1, …
inline reel::Tensor classes(int64_t n, int64_t count) { return remainder(reel::arange(n), count); }
