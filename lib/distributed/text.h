#pragma once
#include <sstream>
#include <string>
#include <utility>

#include "reel/error.h"

namespace reel::distributed {

/// All parts, streamed into one string.
template <class... Parts>
std::string concat(const Parts&... parts) {
  reel::detail::TextStream text;
  (text << ... << parts);
  return std::move(text).str();
}

}  // namespace reel::distributed
