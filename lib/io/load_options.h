#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "reel/state_dict.h"

namespace reel {

/// The name under which the tensor of that name in a file is loaded, if it is.
inline std::optional<std::string> loaded_name(std::string_view name, const LoadOptions& options) {
  if (options.keep && !options.keep(name)) return {};
  if (!name.starts_with(options.prefix)) return {};
  name.remove_prefix(options.prefix.size());
  return options.rename ? options.rename(name) : std::string(name);
}

}  // namespace reel
