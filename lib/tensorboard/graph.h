#pragma once
#include <functional>
#include <string>
#include <vector>

#include "reel/nn/module.h"
#include "reel/tensor.h"

namespace reel::tensorboard {

/// A GraphDef of what run(inputs) records, with the modules of `model` as scopes.
std::string graph_of(nn::Module& model, TensorList inputs,
                     const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& run);

}  // namespace reel::tensorboard
