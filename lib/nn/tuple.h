#pragma once
#include <string>

#include "reel/types.h"

namespace reel::nn {

/// (3, 5), as Python prints a tuple; one of one number is (3,).
template <int N>
std::string tuple(const PerDim<N>& numbers) {
  std::string text = "(" + std::to_string(numbers[0]);
  for (int i = 1; i < N; ++i) text.append(", ").append(std::to_string(numbers[i]));
  return text.append(N == 1 ? ",)" : ")");
}

}  // namespace reel::nn
