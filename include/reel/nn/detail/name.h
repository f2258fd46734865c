#pragma once
#include <cstddef>

#include "reel/version.h"

#pragma GCC visibility push(default)
namespace reel::nn::internal {

/// A name as an argument of a template: using ReLU = Pointwise<"ReLU", relu>.
template <size_t n>
struct Name {
  char text[n];
  constexpr Name(const char (&name)[n]) {
    for (size_t i = 0; i < n; ++i) text[i] = name[i];
  }
};

}  // namespace reel::nn::internal
#pragma GCC visibility pop
