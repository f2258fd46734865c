#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reel/tensor.h"

namespace reel {

/// Tensors by name, in order: what modules and optimizers save and load.
using StateDict = std::vector<std::pair<std::string, Tensor>>;

/// The first tensor of that name, nullptr if there is none.
inline const Tensor* find(const StateDict& dict, std::string_view name) {
  for (const auto& [key, tensor] : dict)
    if (key == name) return &tensor;
  return nullptr;
}

}  // namespace reel
