#pragma once
#include <string>
#include <vector>

namespace reel {

using Names = std::vector<std::string>;

/// The names, in order, of named_parameters(), named_buffers() or a state dict.
template <class Pairs>
Names names(const Pairs& pairs) {
  Names result;
  for (const auto& pair : pairs) result.push_back(pair.first);
  return result;
}

}  // namespace reel
