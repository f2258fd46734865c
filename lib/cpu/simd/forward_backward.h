#pragma once
#include <limits>

#include "lib/cpu/simd/batch.h"

// The forward-backward algorithm in log space, as crf.cpp and ctc.cpp need it.
namespace reel::cpu::REEL_ISA {

/// log 0: a state that no path reaches.
template <class T>
constexpr T kLogZero = -std::numeric_limits<T>::infinity();

template <class T>
Batch<T> finite_or_zero(const Batch<T>& x) {
  return select(x == Batch<T>(kLogZero<T>), Batch<T>(T(0)), x);
}

/// Subtracts the largest value from all and adds it to the total, unless all are log 0. Without this a long sequence
/// would lose its digits to ever larger logarithms.
template <class T>
void normalize(T* values, int64_t n, double& total) {
  T top = kLogZero<T>;
  for (int64_t i = 0; i < n; ++i) top = values[i] > top ? values[i] : top;
  if (top == kLogZero<T>) return;
  for (int64_t i = 0; i < n; ++i) values[i] -= top;
  total += double(top);
}

}  // namespace reel::cpu::REEL_ISA
