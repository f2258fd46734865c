#pragma once
#include <bit>
#include <cstdint>

#include "reel/types.h"

namespace reel {

/// What an op has to know of its thread before it begins. It fits into one word, so that ops test for all of it at
/// once.
struct OpModes {
  DType autocast = kFloat32;  ///< The half type of products; kFloat32 without autocast.
  bool meets = false;         ///< Whether calls may wait for those of other examples, in batching::map.
  bool traces = false;        ///< Whether ops are written down: see op_trace.h.
  bool unused = false;        ///< Fills the word that plain() compares.

  bool plain() const { return std::bit_cast<uint32_t>(*this) == std::bit_cast<uint32_t>(OpModes()); }
};
extern constinit thread_local OpModes op_modes;

}  // namespace reel
