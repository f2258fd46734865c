#pragma once
#include <array>
#include <cstdint>

#include "reel/types.h"

namespace reel {
namespace functors {
inline constexpr int kMaxStates = 3;  // of an optimizer, for each of its parameters
}

/// A parameter that an optimizer steps, with everything contiguous.
struct Updated {
  DType dtype;  // of p and g
  void* p;
  const void* g;
  std::array<void*, functors::kMaxStates> states;  // nullptr where the functor has none
  int64_t numel;
};

}  // namespace reel
