#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reel/tensor.h"

#pragma GCC visibility push(default)
namespace reel {

/// Tensors by name, in order: what modules and optimizers save and load.
struct StateDict : std::vector<std::pair<std::string, Tensor>> {
  using vector::vector;
  using vector::operator[];
  /// The first tensor of that name; an Error if there is none.
  const Tensor& operator[](std::string_view name) const;
  bool contains(std::string_view name) const;  ///< Whether there is a tensor of that name.
};

/// The first tensor of that name, nullptr if there is none.
inline const Tensor* find(const StateDict& dict, std::string_view name) {
  for (const auto& [key, tensor] : dict)
    if (key == name) return &tensor;
  return nullptr;
}

inline bool StateDict::contains(std::string_view name) const { return find(*this, name); }
inline const Tensor& StateDict::operator[](std::string_view name) const {
  const Tensor* found = find(*this, name);
  REEL_CHECK(found, "StateDict: there is no '", name, "'");
  return *found;
}

}  // namespace reel
#pragma GCC visibility pop
