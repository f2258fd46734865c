#pragma once
#include <reel/reel.h>

#include <filesystem>
#include <iostream>

// The code of the guide's pages: the parts between `// [name]` and `// [/name]` are what pages show. Beside them the
// files check that what the pages say is so.
void tour();
void tensors();
void gradients();
void model();
void data_sets();
void training();
void finetune();
void onnx_files();
void trees();
void sequences();
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
