#pragma once
#include <string>

#include "reel/io.h"

namespace reel {

/// What test/reference has under that name, where tensors are made by default.
inline StateDict load_reference(const std::string& file) {
  StateDict dict = io::load("test/reference/" + file);
  for (auto& [name, tensor] : dict) tensor = tensor.to(default_device());
  return dict;
}

}  // namespace reel
