#pragma once
#include <reel/reel.h>

#include <filesystem>
#include <iostream>

// Each page of the guide has a file of code, whose parts between `// [name]` and `// [/name]` are what the page shows.
// Beside them the files check that what the page says is so.
void tensors();
void model();
void data_sets();
void training();
void finetune();
void trees();
void custom_ops();
void gpu();
void many_machines();
void from_pytorch();
void deploy();

namespace guide {
/// A classifier that two pages use.
struct Net : reel::nn::Layer<Net> {
  reel::nn::Linear hidden{*this, "hidden", 4, 16};
  reel::nn::Linear out{*this, "out", 16, 3};
  reel::Tensor forward(const reel::Tensor& x) const { return out(relu(hidden(x))); }
};
}  // namespace guide
