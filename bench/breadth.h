// This file declares what the parts of reel's side of the breadth benchmark share: the numbers of which tensors are
// made, and the models.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "reel/reel.h"
#include "test/differential/arguments.h"

namespace bench {

using reel::Tensors;
/// A Step is what is timed. It returns what PyTorch's has to agree with.
using Step = std::function<Tensors()>;

/// Returns `count` whole numbers in [0, 2^24), the same in all libraries; `position` makes operands of a call differ.
reel::Tensor noise(int64_t count, int64_t position);
/// Returns a float32 tensor with elements from noise(), spread over [low, high).
reel::Tensor uniform(double low, double high, const reel::Shape& shape, int64_t position = 0);
/// Returns an int64 tensor with elements from noise() in [0, limit).
reel::Tensor ids(int64_t limit, const reel::Shape& shape, int64_t position = 0);

/// These are the ops that random programs do not have. bench/torch/breadth.py has them for PyTorch.
const std::vector<reel::Op>& more_ops();

/// Returns a step of the model of that name, an Error if there is none.
Step model_step(const std::string& name, const std::vector<std::string>& arguments);

}  // namespace bench
